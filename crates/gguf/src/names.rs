//! Looks names up, and finds those that are there twice.

/// Positions of a list's names in the order of the names.
///
/// Sorted rather than hashed: names come from the file, and no choice of them makes this slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameIndex(Vec<u32>);

impl NameIndex {
    /// Indexes `len` names; a name that is there twice comes back as the error.
    pub(crate) fn new<'a>(len: usize, name: impl Fn(usize) -> &'a str) -> Result<Self, &'a str> {
        // Both lists that are indexed have caps far below 2^32.
        let mut order: Vec<u32> = (0..len as u32).collect();
        order.sort_unstable_by_key(|&at| name(at as usize));
        match order.windows(2).find(|pair| name(pair[0] as usize) == name(pair[1] as usize)) {
            Some(pair) => Err(name(pair[0] as usize)),
            None => Ok(Self(order)),
        }
    }

    /// Position of `wanted` in the list that was indexed, whose names `name` gives.
    pub(crate) fn find<'a>(&self, wanted: &str, name: impl Fn(usize) -> &'a str) -> Option<usize> {
        let found = self.0.binary_search_by(|&at| name(at as usize).cmp(wanted)).ok()?;
        Some(self.0[found] as usize)
    }
}
