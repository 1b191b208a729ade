//! Cuts a model into the shards of a set.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    num::NonZero,
};

use crate::{
    caps,
    error::{Error, Result, shown},
    layout,
    outline::Outline,
    set::GgufSet,
    shard::{self, COUNT, NO, TENSORS_COUNT},
    tensor::TensorInfo,
};

/// How large a shard may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardLimit {
    /// Bytes of a file: header, metadata, tensors and padding.
    SizeBytes(u64),
    /// Tensors in a file.
    Tensors(NonZero<u64>),
}

/// Outlines the shards that a model is cut into, in order: as few as keep to the limit with the tensors in their order.
///
/// The first has all metadata, and no tensor if they leave no room for one. The others have the keys of the set, and the
/// alignment if the model states one. What the model says of a set that it is stored as is left out.
///
/// # Errors
/// The metadata or a tensor alone pass the limit, the model needs more than [`caps::N_SHARDS`] shards, or its stated
/// alignment is none.
pub fn split<'a>(set: &GgufSet<'a>, limit: ShardLimit) -> Result<Vec<Outline<'a>>> {
    let alignment = layout::alignment(set.metadata().value(layout::ALIGNMENT_KEY))?;
    let mut first = Outline::new();
    for (key, value) in set.metadata().iter().filter(|(key, _)| !shard::KEYS.contains(key) && *key != shard::SET) {
        first.metadata(key, value.clone());
    }
    let mut later = Outline::new();
    let identity = identity(set);
    first.metadata(shard::SET, identity);
    later.metadata(shard::SET, identity);
    if let Some(value) = set.metadata().value(layout::ALIGNMENT_KEY) {
        later.metadata(layout::ALIGNMENT_KEY, value.clone());
    }

    let mut shards = Vec::new();
    let mut last = Shard::new(first, alignment, "all metadata".to_owned(), limit)?;
    for (_, tensor) in set.tensors() {
        if last.takes(tensor, limit) {
            last.push(tensor.clone());
            continue;
        }
        let what = format!("tensor {:?}", shown(tensor.name()));
        let mut shard = Shard::new(later.clone(), alignment, what.clone(), limit)?;
        shard.push(tensor.clone());
        shard.check(what, limit)?;
        shards.push(mem::replace(&mut last, shard));
    }
    shards.push(last);
    let (count, n_tensors) = (numbered(shards.len())?, set.tensors().count() as i32);
    let number = |(index, shard): (u16, Shard<'a>)| {
        let mut outline = shard.outline;
        // The types are those of other writers of sets, which some readers ask for.
        outline.metadata(NO, index).metadata(COUNT, count).metadata(TENSORS_COUNT, n_tensors);
        outline
    };
    Ok((0..count).zip(shards).map(number).collect())
}

/// A number made of what the model's files say before the weights.
fn identity(set: &GgufSet<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, value) in set.metadata().iter().filter(|(key, _)| !key.starts_with("split.")) {
        (key, value.described()).hash(&mut hasher);
    }
    for (_, tensor) in set.tensors() {
        (tensor.name(), tensor.dims(), tensor.tensor_type().id()).hash(&mut hasher);
    }
    hasher.finish()
}

/// The number of shards, if files can state it.
fn numbered(n_shards: usize) -> Result<u16> {
    u16::try_from(n_shards).map_err(|_| Error::OverCap {
        what: "shards of the set".to_owned(),
        found: n_shards as u64,
        cap: caps::N_SHARDS,
    })
}

/// A shard in the making, and its size with the keys of the set, which are not in its outline yet.
struct Shard<'a> {
    outline: Outline<'a>,
    alignment: u32,
    /// Everything before the data, not padded.
    head_bytes: u64,
    /// Padded.
    data_bytes: u64,
}

impl<'a> Shard<'a> {
    /// A shard without tensors; `what` is to blame if it passes the limit.
    fn new(outline: Outline<'a>, alignment: u32, what: String, limit: ShardLimit) -> Result<Self> {
        let mut keys = outline.clone();
        keys.metadata(NO, 0_u16).metadata(COUNT, 0_u16).metadata(TENSORS_COUNT, 0_i32);
        let shard = Self { outline, alignment, head_bytes: keys.metadata_bytes(), data_bytes: 0 };
        shard.check(what, limit)?;
        Ok(shard)
    }

    fn push(&mut self, tensor: TensorInfo<'a>) {
        (self.head_bytes, self.data_bytes) = self.with(&tensor);
        self.outline.push(tensor);
    }

    /// Whether there is room for one more tensor.
    fn takes(&self, tensor: &TensorInfo<'_>, limit: ShardLimit) -> bool {
        match limit {
            ShardLimit::Tensors(most) => (self.outline.tensors().len() as u64) < most.get(),
            ShardLimit::SizeBytes(most) => self.size_bytes(self.with(tensor)) <= most,
        }
    }

    fn check(&self, what: String, limit: ShardLimit) -> Result<()> {
        let needed_bytes = self.size_bytes((self.head_bytes, self.data_bytes));
        match limit {
            ShardLimit::SizeBytes(max_bytes) if needed_bytes > max_bytes => {
                Err(Error::ShardTooLarge { what, needed_bytes, max_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Bytes of head and data with one more tensor. All of them lie in files already, so that sums fit.
    fn with(&self, tensor: &TensorInfo<'_>) -> (u64, u64) {
        let data_bytes = layout::aligned(tensor.size_bytes(), self.alignment);
        (self.head_bytes + tensor.entry_bytes(), self.data_bytes + data_bytes)
    }

    /// Bytes of the file.
    fn size_bytes(&self, (head_bytes, data_bytes): (u64, u64)) -> u64 {
        layout::aligned(head_bytes, self.alignment) + data_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_is_what_the_keys_can_count() {
        assert_eq!(numbered(65_535).unwrap(), u16::MAX);
        assert_eq!(u64::from(u16::MAX), caps::N_SHARDS);
        let refusal = numbered(65_536).unwrap_err();
        assert_eq!(refusal.to_string(), "shards of the set: 65536, expected at most 65535");
    }
}
