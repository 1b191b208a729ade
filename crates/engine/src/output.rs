//! Files that appear when they are whole, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file to be written. It is made beside its place and renamed into it by [`finish`](Self::finish); dropped before, it
/// leaves no trace, and what was in its place stays.
///
/// A device or a pipe in that place takes what is written as it comes.
#[derive(Debug)]
pub struct OutputFile(Output);

#[derive(Debug)]
enum Output {
    Draft { draft: NamedTempFile, path: PathBuf },
    Stream(File),
}

impl OutputFile {
    /// Starts a file.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Self(Output::Stream(File::create(path)?)));
        }
        // Where a link leads is replaced, and not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self(Output::Draft { draft: draft_beside(&path)?, path }))
    }

    /// Puts the file in its place, over what is there.
    ///
    /// # Errors
    /// When it can't be renamed.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            Output::Draft { draft, path } => draft.persist(path).map(|_| ()).map_err(|error| error.error),
            Output::Stream(_) => Ok(()),
        }
    }

    fn file(&mut self) -> &mut File {
        match &mut self.0 {
            Output::Draft { draft, .. } => draft.as_file_mut(),
            Output::Stream(file) => file,
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

/// A file beside a path, which is removed unless it is renamed.
pub(crate) fn draft_beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // As any new file is made, and not for the eyes of its owner alone, as temporary ones are.
    let make = |path: &Path| File::options().write(true).create_new(true).open(path);
    Builder::new().prefix(".muser-").suffix(".part").make_in(folder, make)
}
