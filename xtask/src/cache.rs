//! The cache folder: where it is, who may write to it, and which of its files can be trusted.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf, absolute};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};

use crate::catalog::Model;
use crate::hash::{self, Digest};

/// The folder that fetched models lie in.
///
/// ```text
/// models/FILE       a model, complete and verified
/// models/FILE.ok    the stamp: its SHA-256, length and time of change when it was last hashed
/// python/TAG/       packages that make the synthetic models, per Python version; others in folders beside it
/// staging/          work in progress; emptied by whoever holds the lock
/// lock              held exclusively while something is fetched
/// ```
#[derive(Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// The cache folder that the environment names: `MUSER_CACHE`, else `muser` in `XDG_CACHE_HOME`, else
    /// `.cache/muser` in the home folder. It need not exist.
    ///
    /// # Errors
    /// None of the variables is set, or the current folder is gone and the path is relative.
    pub fn from_env() -> Result<Self> {
        let root = locate(|name| env::var_os(name))?;
        Ok(Self { root: absolute(&root).with_context(|| format!("the cache folder {}", root.display()))? })
    }

    /// A cache in this folder.
    #[cfg(test)]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where this model lies, or will.
    pub fn path(&self, model: &Model) -> PathBuf {
        self.root.join("models").join(model.file)
    }

    /// Whether the model's file is there with the right content.
    ///
    /// A file that is unchanged since it was last hashed, by length and time of change, is trusted; any other is
    /// hashed, and stamped if it is right.
    ///
    /// # Errors
    /// The file is there and cannot be read, or the stamp cannot be written.
    pub fn holds(&self, model: &Model) -> Result<bool> {
        let path = self.path(model);
        let stamp = match Stamp::of(&path, model.sha256) {
            Ok(stamp) => stamp,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        if stamp.size_bytes != model.size_bytes {
            return Ok(false);
        }
        if fs::read_to_string(stamp_path(&path)).is_ok_and(|text| text == stamp.to_text()) {
            return Ok(true);
        }
        let found = hash::file(&path, model.file)?;
        if found.sha256 != model.sha256 {
            return Ok(false);
        }
        write_stamp(&path, &stamp)?;
        Ok(true)
    }

    /// The right to write to the cache, held until the value is dropped; waits for whoever has it. What an
    /// interrupted run left in the staging folder is removed.
    ///
    /// # Errors
    /// The folder cannot be made, written to or locked.
    pub fn lock(&self) -> Result<CacheLock<'_>> {
        let explain = || {
            format!(
                "cannot write to the cache folder {}; set MUSER_CACHE to a folder that can be written to",
                self.root.display()
            )
        };
        fs::create_dir_all(&self.root).with_context(explain)?;
        let path = self.root.join("lock");
        let file = File::options().create(true).truncate(false).write(true).open(&path).with_context(explain)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                eprintln!("waiting for another run that is fetching into {}", self.root.display());
                file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let staging = self.root.join("staging");
        remove_dir(&staging)?;
        fs::create_dir(&staging).with_context(explain)?;
        fs::create_dir_all(self.root.join("models")).with_context(explain)?;
        Ok(CacheLock { cache: self, staging, _file: file })
    }
}

/// The right to write to the cache.
#[derive(Debug)]
pub struct CacheLock<'a> {
    cache: &'a Cache,
    staging: PathBuf,
    // Closing the file releases the lock.
    _file: File,
}

impl CacheLock<'_> {
    /// An empty folder on the cache's file system, gone when the lock is.
    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// Removes what is in the staging folder.
    ///
    /// # Errors
    /// Something there cannot be removed.
    pub fn clear_staging(&self) -> Result<()> {
        remove_dir(&self.staging)?;
        fs::create_dir(&self.staging).with_context(|| format!("cannot create {}", self.staging.display()))
    }

    /// Where the Python packages of this name lie.
    pub fn python_packages(&self, name: &str) -> PathBuf {
        self.cache.root.join("python").join(name)
    }

    /// Moves a complete file from the staging folder to the model's place, if `found` is what it must be.
    ///
    /// # Errors
    /// The content is another, or the file cannot be moved.
    pub fn install(&self, model: &Model, staged: &Path, found: &Digest) -> Result<PathBuf> {
        if found.size_bytes != model.size_bytes || found.sha256 != model.sha256 {
            bail!(
                "{}: wrong content: {} bytes with SHA-256 {}, expected {} bytes with SHA-256 {}; nothing was kept",
                model.file,
                found.size_bytes,
                found.sha256,
                model.size_bytes,
                model.sha256
            );
        }
        let path = self.cache.path(model);
        let context = || format!("cannot move {} to {}", staged.display(), path.display());
        File::open(staged).and_then(|file| file.sync_all()).with_context(context)?;
        fs::rename(staged, &path).with_context(context)?;
        let stamp = Stamp::of(&path, model.sha256).with_context(|| format!("cannot read {}", path.display()))?;
        write_stamp(&path, &stamp)?;
        Ok(path)
    }
}

impl Drop for CacheLock<'_> {
    fn drop(&mut self) {
        // Best effort: the next holder of the lock removes what is left.
        let _ = fs::remove_dir_all(&self.staging);
    }
}

/// What a file looked like when its content was last hashed.
struct Stamp<'a> {
    sha256: &'a str,
    size_bytes: u64,
    changed_ns: u128,
}

impl<'a> Stamp<'a> {
    fn of(path: &Path, sha256: &'a str) -> std::io::Result<Self> {
        let meta = fs::metadata(path)?;
        let changed_ns = meta.modified()?.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_nanos());
        Ok(Self { sha256, size_bytes: meta.len(), changed_ns })
    }

    fn to_text(&self) -> String {
        format!("{} {} {}\n", self.sha256, self.size_bytes, self.changed_ns)
    }
}

fn stamp_path(model_path: &Path) -> PathBuf {
    let mut path = model_path.as_os_str().to_owned();
    path.push(".ok");
    path.into()
}

fn write_stamp(model_path: &Path, stamp: &Stamp<'_>) -> Result<()> {
    let path = stamp_path(model_path);
    fs::write(&path, stamp.to_text()).with_context(|| format!("cannot write {}", path.display()))
}

fn remove_dir(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn locate(var: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(root) = set("MUSER_CACHE") {
        return Ok(root);
    }
    if let Some(caches) = set("XDG_CACHE_HOME") {
        return Ok(caches.join("muser"));
    }
    match set("HOME") {
        Some(home) => Ok(home.join(".cache").join("muser")),
        None => bail!("no place for the cache folder: set MUSER_CACHE, XDG_CACHE_HOME or HOME"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Source;

    const HELLO: Model = Model {
        name: "hello",
        file: "hello.gguf",
        size_bytes: 5,
        sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        source: Source::Synthetic { quant: "F32" },
    };

    fn stage(lock: &CacheLock<'_>, content: &str) -> PathBuf {
        let path = lock.staging().join("piece");
        fs::write(&path, content).unwrap();
        path
    }

    fn located(vars: &[(&str, &str)]) -> Result<PathBuf> {
        locate(|name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_projects_own_variable_wins_over_the_users_cache_folder_and_that_over_home() {
        let all = [("MUSER_CACHE", "/m"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(located(&all).unwrap(), Path::new("/m"));
        assert_eq!(located(&all[1..]).unwrap(), Path::new("/x/muser"));
        assert_eq!(located(&all[2..]).unwrap(), Path::new("/h/.cache/muser"));
    }

    #[test]
    fn an_empty_variable_counts_as_unset() {
        assert_eq!(located(&[("MUSER_CACHE", ""), ("HOME", "/h")]).unwrap(), Path::new("/h/.cache/muser"));
        assert!(located(&[("HOME", "")]).unwrap_err().to_string().contains("MUSER_CACHE"));
    }

    #[test]
    fn a_file_of_the_right_content_is_installed_and_held() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        assert!(!cache.holds(&HELLO).unwrap());
        let lock = cache.lock().unwrap();
        let staged = stage(&lock, "hello");
        lock.install(&HELLO, &staged, &hash::file(&staged, "hello").unwrap()).unwrap();
        assert!(cache.holds(&HELLO).unwrap());
        assert!(!staged.exists());
    }

    #[test]
    fn a_file_of_another_content_is_refused_with_both_checksums_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let lock = cache.lock().unwrap();
        let staged = stage(&lock, "hallo");
        let found = hash::file(&staged, "hallo").unwrap();
        let error = lock.install(&HELLO, &staged, &found).unwrap_err().to_string();
        assert!(error.contains(&found.sha256) && error.contains(HELLO.sha256), "{error}");
        drop(lock);
        assert!(!cache.holds(&HELLO).unwrap());
        assert_eq!(fs::read_dir(dir.path().join("models")).unwrap().count(), 0);
        assert!(!dir.path().join("staging").exists());
    }

    #[test]
    fn a_file_changed_after_it_was_stamped_is_hashed_again_and_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        let lock = cache.lock().unwrap();
        let staged = stage(&lock, "hello");
        let path = lock.install(&HELLO, &staged, &hash::file(&staged, "hello").unwrap()).unwrap();
        fs::write(&path, "hallo").unwrap();
        let later = fs::metadata(&path).unwrap().modified().unwrap() + std::time::Duration::from_secs(5);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(!cache.holds(&HELLO).unwrap());
    }

    #[test]
    fn a_right_file_without_a_stamp_is_hashed_and_stamped() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        fs::create_dir(dir.path().join("models")).unwrap();
        fs::write(cache.path(&HELLO), "hello").unwrap();
        assert!(cache.holds(&HELLO).unwrap());
        assert!(stamp_path(&cache.path(&HELLO)).exists());
    }

    #[test]
    fn the_lock_has_one_holder_and_what_an_interrupted_run_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path());
        fs::create_dir(dir.path().join("staging")).unwrap();
        fs::write(dir.path().join("staging").join("half"), "he").unwrap();
        let lock = cache.lock().unwrap();
        assert_eq!(fs::read_dir(lock.staging()).unwrap().count(), 0);
        let other = File::options().write(true).open(dir.path().join("lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(lock);
        other.try_lock().unwrap();
    }
}
