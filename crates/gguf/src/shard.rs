//! Sets of files that hold one model.
//!
//! Shard `i` of `n` (both in the keys `split.no`, from 0, and `split.count`) lies in a file named
//! `STEM-0000{i+1}-of-0000{n}.gguf`, counted from 1. The first shard has the model's metadata, and may have no tensor;
//! every shard has `split.tensors.count`, the number of tensors in the whole set. Sets that this crate writes also have
//! `split.set`, which tells them from others.

use crate::{
    error::{Error, Result},
    metadata::Metadata,
};

pub(crate) const NO: &str = "split.no";
pub(crate) const COUNT: &str = "split.count";
pub(crate) const TENSORS_COUNT: &str = "split.tensors.count";

/// A number made of the whole model's header. Shards of other models are found by it, where counts and names are the same.
pub(crate) const SET: &str = "split.set";

/// The keys of a file's place in a set.
pub(crate) const KEYS: [&str; 3] = [NO, COUNT, TENSORS_COUNT];

/// A file's place in a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Its place, from 0.
    pub index: u64,
    /// Shards of the set, at least 1.
    pub count: u64,
    /// Tensors of the whole set.
    pub n_tensors: u64,
}

/// The parts of a shard's file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardName<'a> {
    /// What comes before the numbers, the same for the whole set.
    pub stem: &'a str,
    /// The shard's place, from 0 (the name itself counts from 1).
    pub index: u64,
    /// Shards of the set.
    pub count: u64,
}

impl Shard {
    /// Reads the keys of a file with `n_tensors` tensors of its own.
    pub(crate) fn read(metadata: &Metadata<'_>, n_tensors: u64) -> Result<Option<Self>> {
        // Merging a set leaves a count of 0 behind in the one file that it makes.
        if metadata.opt_u64(COUNT)? == Some(0) || KEYS.iter().all(|key| !metadata.contains(key)) {
            return Ok(None);
        }
        let shard =
            Self { index: metadata.u64(NO)?, count: metadata.u64(COUNT)?, n_tensors: metadata.u64(TENSORS_COUNT)? };
        if shard.index >= shard.count {
            return Err(Error::ShardOutOfRange { index: shard.index, count: shard.count });
        }
        if n_tensors > shard.n_tensors {
            return Err(Error::WrongTensorTotal { found: n_tensors, expected: shard.n_tensors });
        }
        Ok(Some(shard))
    }
}

impl<'a> ShardName<'a> {
    /// Takes a file name apart; `None` if it isn't a shard's. Directories stay in the stem.
    pub fn parse(file_name: &'a str) -> Option<Self> {
        let (rest, count) = file_name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let (number, count) = (padded_number(number)?, padded_number(count)?);
        (number <= count).then_some(Self { stem, index: number.checked_sub(1)?, count })
    }

    /// The name of the set's file at `index`, from 0.
    pub fn sibling(&self, index: u64) -> String {
        format!("{}{}", self.stem, suffix(index, self.count))
    }
}

/// What the name of a set's file at `index`, from 0, ends in, for example `-00001-of-00003.gguf`.
pub fn suffix(index: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", u128::from(index) + 1)
}

fn padded_number(digits: &str) -> Option<u64> {
    let is_padded = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_padded.then(|| digits.parse().ok()).flatten()
}
