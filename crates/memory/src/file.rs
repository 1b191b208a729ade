//! Model files: opened once, locked against writers, remembered by identity.

use std::fmt;
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Error, FileMapping, Result};

/// A file opened for loading and mapped whole. Opening reads nothing: a page comes in when it is touched.
#[derive(Clone, Debug)]
pub struct ModelFile {
    mapping: Arc<FileMapping>,
}

impl ModelFile {
    /// Opens and maps the file at `path`, with an advisory shared lock where the system and the file system have one.
    ///
    /// # Errors
    ///
    /// When the file can't be opened or mapped, is empty or no regular file, or is locked by somebody who writes it.
    pub fn open(path: &Path) -> Result<Self> {
        let source = Arc::new(SourceFile::open(path)?);
        Ok(Self { mapping: Arc::new(FileMapping::new(source)?) })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        self.mapping.source().path()
    }

    /// Bytes of the file.
    pub fn size_bytes(&self) -> usize {
        self.mapping.size_bytes()
    }

    /// All bytes of the file, for the header's parser. What isn't looked at isn't read.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.as_slice()
    }

    /// What the file was when it was opened.
    pub fn identity(&self) -> FileIdentity {
        self.mapping.source().identity
    }

    /// The share of the file that is in the page cache, 0 to 1, from samples all over it. `None`: the system doesn't say.
    pub fn cached_share(&self) -> Option<f64> {
        self.mapping.cached_share()
    }

    /// Checks that the opened file is still what it was: nobody truncated it or wrote into it.
    ///
    /// A file that was removed, or replaced by renaming another over it, passes: the mapping keeps the old one alive.
    ///
    /// # Errors
    ///
    /// [`Error::FileChanged`] with both identities.
    pub fn check_unchanged(&self) -> Result<()> {
        self.mapping.source().check_unchanged()
    }

    /// The mapping, to be shared.
    pub fn mapping(&self) -> &Arc<FileMapping> {
        &self.mapping
    }
}

/// Asks the system to drop a file from the page cache, so that the next load finds it cold. Nothing is lost: what was
/// written goes to the disk first. Pages that somebody has mapped stay, and a system may decline; what came of it is seen by
/// [`ModelFile::cached_share`].
///
/// # Errors
///
/// When the file can't be opened or written out.
pub fn drop_from_page_cache(path: &Path) -> Result<()> {
    let failed = |source| Error::File { path: path.into(), action: "drop the file from the page cache", source };
    let file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    #[cfg(target_os = "linux")]
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(|error| failed(error.into()))?;
    Ok(())
}

/// What tells a file from another and from itself before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileIdentity {
    /// Bytes.
    pub size_bytes: u64,
    /// Last modification, seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// Device and inode.
    pub inode: (u64, u64),
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            size_bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
        }
    }
}

impl fmt::Display for FileIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size_bytes, modified: (seconds, nanoseconds), inode: (device, inode) } = self;
        write!(f, "{size_bytes} bytes modified at {seconds}.{nanoseconds:09} (inode {device}:{inode})")
    }
}

/// An open file with its name and identity.
#[derive(Debug)]
pub(crate) struct SourceFile {
    path: PathBuf,
    /// Holds the shared lock for as long as it is open.
    file: File,
    identity: FileIdentity,
    size_bytes: usize,
}

impl SourceFile {
    fn open(path: &Path) -> Result<Self> {
        let failed = |action, source| Error::File { path: path.into(), action, source };
        // Looked at before it is opened: opening a pipe would wait for a writer.
        if !path.metadata().map_err(|e| failed("open the file", e))?.is_file() {
            return Err(Error::NotAFile { path: path.into() });
        }
        let file = File::open(path).map_err(|e| failed("open the file", e))?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => return Err(Error::FileLocked { path: path.into() }),
            // Some file systems have no locks. The lock is advice to writers; the identity check is what counts.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let identity = FileIdentity::of(&file.metadata().map_err(|e| failed("examine the file", e))?);
        let size_bytes = usize::try_from(identity.size_bytes).map_err(|_| Error::TooLarge {
            what: "file mapping",
            len: identity.size_bytes,
            element_bytes: 1,
        })?;
        if size_bytes == 0 {
            return Err(Error::EmptyFile { path: path.into() });
        }
        Ok(Self { path: path.into(), file, identity, size_bytes })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// The file again, for reads that go past the page cache. `None`: the system or the file system has no such thing.
    pub(crate) fn open_direct(&self) -> Option<File> {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            use std::os::unix::fs::OpenOptionsExt;
            // By its descriptor: what lies at the path now may be another file.
            let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            File::options().read(true).custom_flags(libc::O_DIRECT).open(path).ok()
        }
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Fills `bytes` from byte `offset` of the file on.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(bytes, offset).map_err(|error| {
            // A file that became shorter is the likely reason, and the better message.
            self.check_unchanged().err().unwrap_or_else(|| self.failed("read the file", error))
        })
    }

    pub(crate) fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::File { path: self.path.clone(), action, source }
    }

    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let now = FileIdentity::of(&self.file.metadata().map_err(|e| self.failed("examine the file", e))?);
        if now == self.identity {
            return Ok(());
        }
        Err(Error::FileChanged { path: self.path.clone(), was: self.identity, now })
    }
}
