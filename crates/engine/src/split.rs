//! Cuts a model into a set of files.

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use muser_gguf::{GgufSet, Outline, ShardLimit, TensorInfo, shard};
use muser_memory::ModelFile;
use tempfile::TempPath;

use crate::output::draft_beside;
use crate::{Error, ModelFiles};

/// Bytes copied at once: large enough that calls cost nothing, small enough for progress to be seen.
const PIECE_BYTES: usize = 4 << 20;

/// One file of a set that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub size_bytes: u64,
    /// Its tensors.
    pub n_tensors: usize,
}

/// How far a split has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitProgress {
    /// Bytes of tensors that are written.
    pub done_bytes: u64,
    /// Bytes of all tensors.
    pub total_bytes: u64,
}

/// Writes the model at `path` as a set of files, `PREFIX-00001-of-0000N.gguf` and so on: all of them, or none.
///
/// The tensors keep their order and their bytes. They are copied in pieces, so that memory does not depend on their size.
///
/// # Errors
/// When the model can't be opened, or is no whole one; when no cut keeps to `limit` ([`Error::Unsplittable`]), a file is in
/// the way ([`Error::Exists`]), or reading or writing fails; when `on_progress` breaks ([`Error::Interrupted`]).
pub fn split(
    path: &Path,
    prefix: &Path,
    limit: ShardLimit,
    on_progress: &mut dyn FnMut(SplitProgress) -> ControlFlow<()>,
) -> Result<Vec<Part>, Error> {
    let files = ModelFiles::open(path)?;
    let set = files.parse()?;
    let outlines = muser_gguf::split(&set, limit).map_err(Error::Unsplittable)?;
    let name = |index| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(shard::suffix(index, outlines.len() as u64));
        PathBuf::from(name)
    };
    let paths: Vec<PathBuf> = (0..outlines.len() as u64).map(name).collect();
    if let Some(taken) = paths.iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Error::Exists { path: taken.clone() });
    }

    let check_unchanged = || files.files().iter().try_for_each(ModelFile::check_unchanged);
    let mut copy = Copy::new(&files, &set, on_progress)?;
    let mut drafts = Vec::new();
    let mut parts = Vec::new();
    for (path, outline) in paths.into_iter().zip(&outlines) {
        let written = write_draft(&path, outline, &mut copy);
        if written.is_err() {
            // Of a file that was cut meanwhile, reading fails too.
            check_unchanged()?;
        }
        let (draft, size_bytes) = written?;
        drafts.push(draft);
        parts.push(Part { path, size_bytes, n_tensors: outline.tensors().len() });
    }
    check_unchanged()?;
    put_in_place(drafts, &parts)?;
    Ok(parts)
}

fn write_draft(path: &Path, outline: &Outline<'_>, copy: &mut Copy<'_>) -> Result<(TempPath, u64), Error> {
    let failed = |source| Error::File { path: path.to_owned(), action: "write", source };
    let mut draft = draft_beside(path).map_err(failed)?;
    let written = outline.write_to(draft.as_file_mut(), |tensor, out| copy.tensor(tensor, out));
    let size_bytes = written.map_err(|stop| match stop {
        Stop::Writing(muser_gguf::Error::Io(source)) => failed(source),
        Stop::Writing(error) => Error::Unsplittable(error),
        Stop::Copying(error) => error,
    })?;
    // What is renamed into place is whole even if the machine stops.
    draft.as_file().sync_all().map_err(failed)?;
    Ok((draft.into_temp_path(), size_bytes))
}

/// Renames all drafts. When one can't be, those that were are removed again.
fn put_in_place(drafts: Vec<TempPath>, parts: &[Part]) -> Result<(), Error> {
    for (at, (draft, Part { path, .. })) in drafts.into_iter().zip(parts).enumerate() {
        let Err(error) = draft.persist_noclobber(path) else { continue };
        for Part { path, .. } in &parts[..at] {
            // There is a failure to report already, and that one is the reason.
            let _ = fs::remove_file(path);
        }
        return Err(Error::File { path: path.clone(), action: "write", source: error.error });
    }
    Ok(())
}

/// Copies tensors from a model's files.
struct Copy<'a> {
    set: &'a GgufSet<'a>,
    /// As many as the set has.
    sources: Vec<Source<'a>>,
    piece: Vec<u8>,
    progress: SplitProgress,
    on_progress: &'a mut dyn FnMut(SplitProgress) -> ControlFlow<()>,
}

/// A file of the model, opened to be read: what is read is not kept in memory, as a mapping's pages would be.
struct Source<'a> {
    path: &'a Path,
    file: File,
}

/// Why a file was not written to its end.
enum Stop {
    Writing(muser_gguf::Error),
    Copying(Error),
}

impl From<muser_gguf::Error> for Stop {
    fn from(error: muser_gguf::Error) -> Self {
        Self::Writing(error)
    }
}

impl<'a> Copy<'a> {
    fn new(
        files: &'a ModelFiles,
        set: &'a GgufSet<'a>,
        on_progress: &'a mut dyn FnMut(SplitProgress) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        let sources = files.files().iter().map(Source::open).collect::<Result<_, _>>()?;
        let progress = SplitProgress { done_bytes: 0, total_bytes: crate::weight_bytes(set) };
        Ok(Self { set, sources, piece: vec![0; PIECE_BYTES], progress, on_progress })
    }

    /// Writes the bytes of the tensor of that name, and returns how many.
    fn tensor(&mut self, tensor: &TensorInfo<'_>, out: &mut File) -> Result<u64, Stop> {
        let (file_no, tensor) = self.set.find(tensor.name()).expect("the outline is this set's");
        let (source, range) = (&self.sources[file_no], tensor.byte_range());
        for start in range.clone().step_by(PIECE_BYTES) {
            let piece = &mut self.piece[..(range.end - start).min(PIECE_BYTES as u64) as usize];
            source.read(piece, start).map_err(Stop::Copying)?;
            out.write_all(piece).map_err(muser_gguf::Error::Io)?;
            self.progress.done_bytes += piece.len() as u64;
            if (self.on_progress)(self.progress).is_break() {
                return Err(Stop::Copying(Error::Interrupted));
            }
        }
        Ok(tensor.size_bytes())
    }
}

impl<'a> Source<'a> {
    /// Opens the file again, and finds it to be the one that was mapped.
    fn open(mapped: &'a ModelFile) -> Result<Self, Error> {
        let path = mapped.path();
        let failed = |source| Error::File { path: path.to_owned(), action: "read", source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if (metadata.dev(), metadata.ino()) == mapped.identity().inode {
            Ok(Self { path, file })
        } else {
            Err(Error::Replaced { path: path.to_owned() })
        }
    }

    fn read(&self, piece: &mut [u8], at: u64) -> Result<(), Error> {
        let failed = |source| Error::File { path: self.path.to_owned(), action: "read", source };
        self.file.read_exact_at(piece, at).map_err(failed)
    }
}
