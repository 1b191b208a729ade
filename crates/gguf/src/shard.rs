//! Sets of files that hold one model.
//!
//! Shard `i` of `n` (both in the keys `split.no`, from 0, and `split.count`) lies in a file named
//! `STEM-0000{i+1}-of-0000{n}.gguf`, counted from 1. The first shard has the model's metadata, and may have no tensor;
//! every shard has `split.tensors.count`, the number of tensors in the whole set.

use crate::{
    error::{Error, Result, shown},
    file::Gguf,
    metadata::Metadata,
    names::NameIndex,
    tensor::TensorInfo,
};

const NO: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS_COUNT: &str = "split.tensors.count";

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
        if metadata.opt_u64(COUNT)? == Some(0) || [NO, COUNT, TENSORS_COUNT].iter().all(|key| !metadata.contains(key)) {
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
        format!("{}-{:05}-of-{:05}.gguf", self.stem, index + 1, self.count)
    }
}

fn padded_number(digits: &str) -> Option<u64> {
    let is_padded = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_padded.then(|| digits.parse().ok()).flatten()
}

/// Checks that `shards` are one whole set, in order: none missing, none of another set, no tensor twice.
///
/// # Errors
/// What is wrong with the first shard that doesn't fit, or with the tensors of all together.
pub fn check_set(shards: &[Gguf<'_>]) -> Result<()> {
    let mut n_tensors = None;
    for (index, gguf) in shards.iter().enumerate() {
        let shard = gguf.shard()?.ok_or(Error::NotAShard { index })?;
        let disagree = |key, found, expected| Err(Error::ShardsDisagree { index, key, found, expected });
        if shard.count != shards.len() as u64 {
            return disagree(COUNT, shard.count, shards.len() as u64);
        }
        if shard.index != index as u64 {
            return Err(Error::ShardOutOfPlace { index, found: shard.index });
        }
        let expected = *n_tensors.get_or_insert(shard.n_tensors);
        if shard.n_tensors != expected {
            return disagree(TENSORS_COUNT, shard.n_tensors, expected);
        }
    }

    let names: Vec<&str> = shards.iter().flat_map(Gguf::tensors).map(TensorInfo::name).collect();
    NameIndex::new(names.len(), |at| names[at]).map_err(|name| Error::DuplicateTensor { tensor: shown(name) })?;
    match n_tensors {
        Some(expected) if expected != names.len() as u64 => {
            Err(Error::WrongTensorTotal { found: names.len() as u64, expected })
        }
        _ => Ok(()),
    }
}
