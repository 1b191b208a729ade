//! Memory that is reused from call to call.

/// Makes room for `len` items. What is there stays, whatever its values: memory only ever grows.
pub(crate) fn grow<T: Clone>(items: &mut Vec<T>, len: usize, fill: T) {
    if items.len() < len {
        items.resize(len, fill);
    }
}
