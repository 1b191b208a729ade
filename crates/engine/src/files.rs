//! The files of a model: one, or a set of shards of which any leads to the others.

use std::path::{Path, PathBuf};

use muser_gguf::shard::{self, ShardName};
use muser_gguf::{Gguf, GgufSet, Shard};
use muser_memory::ModelFile;

use crate::Error;
use crate::error::BadModel;

/// All files of a model, opened and mapped: a whole one, or every shard of a set in order.
#[derive(Clone, Debug)]
pub struct ModelFiles {
    /// The path as it was given.
    path: PathBuf,
    /// At least one.
    files: Vec<ModelFile>,
}

impl ModelFiles {
    /// Opens a model by its file, or by any shard of its set: the others lie beside it and have names that differ in the
    /// shard's number only.
    ///
    /// # Errors
    /// When a file can't be opened ([`Error::Memory`]); when the given one is damaged, a shard is missing, or the given
    /// one's name contradicts what it says of itself ([`Error::BadModel`]).
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = open(path)?;
        let one = |file| Self { path: path.to_owned(), files: vec![file] };
        // A whole file may have the name of a shard, and then its name means nothing.
        let Some(name) = shard_name(path) else { return Ok(one(file)) };
        let Some(shard) = parse(&file)?.shard().map_err(|source| bad(path, source.into()))? else {
            return Ok(one(file));
        };
        if (shard.index, shard.count) != (name.index, name.count) {
            return Err(bad(path, misnamed(shard)));
        }
        let mut given = Some(file);
        let mut files = Vec::new();
        for index in 0..name.count {
            let file = if index == name.index { given.take() } else { None };
            files.push(file.map_or_else(|| open_sibling(path, name, index), Ok)?);
        }
        Ok(Self { path: path.to_owned(), files })
    }

    /// Reads what all files say before their weights, and finds it to be one whole model.
    ///
    /// # Errors
    /// [`Error::BadModel`] with the path of the first file that is damaged, or does not fit the others.
    pub fn parse(&self) -> Result<GgufSet<'_>, Error> {
        let parsed = self.files.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if let [gguf] = &parsed[..]
            && let Some(shard @ Shard { count: 2.., .. }) = gguf.shard().map_err(|source| self.bad(source.into()))?
        {
            return Err(self.bad(misnamed(shard)));
        }
        GgufSet::new(parsed).map_err(|source| {
            let path = source.shard().map_or(self.path(), |index| self.files[index].path());
            bad(path, source.into())
        })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files in order, of which there is at least one.
    pub fn files(&self) -> &[ModelFile] {
        &self.files
    }

    /// An error of the model as a whole.
    pub(crate) fn bad(&self, source: BadModel) -> Error {
        bad(&self.path, source)
    }
}

fn open(path: &Path) -> Result<ModelFile, Error> {
    ModelFile::open(path).map_err(|error| match error {
        // Nothing of an empty file is mapped; what is wrong with it is what the parser says of any that is too short.
        muser_memory::Error::EmptyFile { .. } => {
            Gguf::parse(&[], 0).map_or_else(|refused| bad(path, refused.into()), |_| error.into())
        }
        error => error.into(),
    })
}

fn open_sibling(given: &Path, name: ShardName<'_>, index: u64) -> Result<ModelFile, Error> {
    let path = given.with_file_name(name.sibling(index));
    // A link to nothing is missing as well.
    if !path.try_exists().unwrap_or(true) {
        return Err(bad(given, BadModel::MissingShard { index, count: name.count, expected: path }));
    }
    open(&path)
}

fn parse(file: &ModelFile) -> Result<Gguf<'_>, Error> {
    Gguf::parse(file.bytes(), file.size_bytes() as u64).map_err(|source| bad(file.path(), source.into()))
}

fn shard_name(path: &Path) -> Option<ShardName<'_>> {
    ShardName::parse(path.file_name()?.to_str()?)
}

fn misnamed(Shard { index, count, .. }: Shard) -> BadModel {
    BadModel::MisnamedShard { index, count, expected: shard::suffix(index, count) }
}

fn bad(path: &Path, source: BadModel) -> Error {
    Error::BadModel { path: path.to_owned(), source: Box::new(source) }
}
