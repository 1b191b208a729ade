//! The files of one model, as one.

use crate::{
    caps,
    error::{Error, Result, shown},
    file::Gguf,
    layout,
    metadata::Metadata,
    names::NameIndex,
    shard::{self, Shard},
    tensor::TensorInfo,
    value::Value,
};

/// All files that hold one model: a file of its own, or every shard of a set in order.
///
/// Its metadata are the first file's, its tensors those of all. Checked: no shard is missing or another set's, and no
/// tensor is there twice.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufSet<'a> {
    /// At least one.
    files: Vec<Gguf<'a>>,
}

impl<'a> GgufSet<'a> {
    /// Joins a model's files, in the order of a set's shards.
    ///
    /// # Errors
    /// What is wrong with the first shard that doesn't fit ([`Error::shard`] says which), or with the tensors of all
    /// together.
    ///
    /// # Panics
    /// When there is no file.
    pub fn new(files: Vec<Gguf<'a>>) -> Result<Self> {
        assert!(!files.is_empty(), "a model has at least one file");
        match files[0].shard()? {
            None if files.len() == 1 => {}
            None => return Err(Error::NotAShard { index: 0 }),
            Some(first) => check(&files, first)?,
        }
        Ok(Self { files })
    }

    /// The files, of which there is at least one.
    pub fn files(&self) -> &[Gguf<'a>] {
        &self.files
    }

    /// The metadata: the first file's.
    pub fn metadata(&self) -> &Metadata<'a> {
        self.files[0].metadata()
    }

    /// `general.architecture`: which kind of model this is.
    ///
    /// # Errors
    /// The key is missing or no string.
    pub fn architecture(&self) -> Result<&'a str> {
        self.files[0].architecture()
    }

    /// The tensors of all files in order, each with the index of its file.
    pub fn tensors(&self) -> impl Iterator<Item = (usize, &TensorInfo<'a>)> {
        self.files.iter().enumerate().flat_map(|(file_no, file)| file.tensors().iter().map(move |it| (file_no, it)))
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo<'a>> {
        self.find(name).map(|(_, tensor)| tensor)
    }

    /// The tensor of that name, and the index of its file.
    pub fn find(&self, name: &str) -> Option<(usize, &TensorInfo<'a>)> {
        self.files.iter().enumerate().find_map(|(file_no, file)| Some((file_no, file.tensor(name)?)))
    }
}

/// Checks that `files` are one whole set, in order; `first` is the first one's place.
fn check(files: &[Gguf<'_>], first: Shard) -> Result<()> {
    let n_files = files.len() as u64;
    for (index, file) in files.iter().enumerate() {
        let shard = file.shard()?.ok_or(Error::NotAShard { index })?;
        let disagree = |key, found, expected| Err(Error::ShardsDisagree { index, key, found, expected });
        if shard.count != n_files {
            return disagree(shard::COUNT, shard.count, n_files);
        }
        if shard.index != index as u64 {
            return Err(Error::ShardOutOfPlace { index, found: shard.index });
        }
        if shard.n_tensors != first.n_tensors {
            return disagree(shard::TENSORS_COUNT, shard.n_tensors, first.n_tensors);
        }
        check_metadata(index, file.metadata(), files[0].metadata())?;
    }

    let found = files.iter().map(|file| file.tensors().len() as u64).sum();
    if found != first.n_tensors {
        return Err(Error::WrongTensorTotal { found, expected: first.n_tensors });
    }
    if found > caps::N_TENSORS {
        return Err(Error::OverCap { what: "tensors of the set".to_owned(), found, cap: caps::N_TENSORS });
    }
    let tensors: Vec<(usize, &str)> = files
        .iter()
        .enumerate()
        .flat_map(|(index, file)| file.tensors().iter().map(move |tensor| (index, tensor.name())))
        .collect();
    NameIndex::new(tensors.len(), |at| tensors[at].1).map_err(|name| {
        // In one file it is there once.
        let mut holders = tensors.iter().filter(|(_, other)| *other == name).map(|(index, _)| *index);
        let mut next = || holders.next().unwrap_or_default();
        Error::TensorInTwoShards { tensor: shown(name), first: next(), second: next() }
    })?;
    Ok(())
}

/// Checks that a shard says nothing that the first one doesn't: only the first one's metadata count.
fn check_metadata(index: usize, metadata: &Metadata<'_>, first: &Metadata<'_>) -> Result<()> {
    let is_its_own = |key| shard::KEYS.contains(&key) || key == layout::ALIGNMENT_KEY;
    for (key, found) in metadata.iter().filter(|(key, _)| !is_its_own(*key)) {
        let expected = first.value(key);
        if expected != Some(found) {
            let expected = expected.map_or("nothing".to_owned(), Value::described);
            return Err(Error::ShardMetadata { index, key: shown(key), found: found.described(), expected });
        }
    }
    Ok(())
}
