//! Files that are odd, locked, changed or gone.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{Error, ModelFile, page_size};

/// A folder with one file of `bytes`.
pub(crate) fn file_of(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.bin");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

/// The lines of this process's memory map that are about `path`.
#[cfg(target_os = "linux")]
pub(crate) fn mappings_of(path: &Path) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(path.to_str().unwrap())).map(String::from).collect()
}

/// Bytes of this process's mappings of `path` that are in memory.
#[cfg(target_os = "linux")]
pub(crate) fn resident_bytes_of(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.contains(path.to_str().unwrap()));
    let resident = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    resident.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn m12_a_file_of_ten_bytes_has_ten_bytes_and_one_page_for_a_device() {
    let (_folder, path) = file_of(b"0123456789");
    let file = ModelFile::open(&path).unwrap();
    assert_eq!((file.size_bytes(), file.bytes()), (10, &b"0123456789"[..]));
    assert_eq!(file.mapping().device_size_bytes(), page_size());
}

#[test]
fn m12_an_empty_file_is_refused_by_name() {
    let (_folder, path) = file_of(b"");
    let refused = ModelFile::open(&path).unwrap_err();
    assert!(matches!(&refused, Error::EmptyFile { path: found } if *found == path), "{refused}");
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(ModelFile::open(folder.path()), Err(Error::NotAFile { .. })));
    let missing = ModelFile::open(&folder.path().join("missing")).unwrap_err();
    assert!(missing.to_string().contains("missing: could not open the file"), "{missing}");
}

#[test]
#[cfg(target_os = "linux")]
fn m4_the_mapping_goes_with_its_last_owner() {
    let (_folder, path) = file_of(&[1; 100]);
    let file = ModelFile::open(&path).unwrap();
    let share = file.mapping().clone();
    assert_eq!(mappings_of(&path).len(), 1);
    drop(file);
    assert_eq!(mappings_of(&path).len(), 1, "one owner is left");
    drop(share);
    assert_eq!(mappings_of(&path), Vec::<String>::new());
}

#[test]
#[cfg(target_os = "linux")]
fn m5_a_mapped_file_can_only_be_read() {
    let (_folder, path) = file_of(&[1; 100]);
    let _file = ModelFile::open(&path).unwrap();
    let mappings = mappings_of(&path);
    assert!(mappings[0].contains(" r--s "), "{mappings:?}");
}

#[test]
fn m17_a_file_that_is_locked_by_its_writer_is_refused() {
    let (_folder, path) = file_of(b"half written");
    let writer = File::open(&path).unwrap();
    writer.lock().unwrap();
    assert!(matches!(ModelFile::open(&path), Err(Error::FileLocked { .. })));
    writer.unlock().unwrap();
    let _file = ModelFile::open(&path).unwrap();
    assert!(writer.try_lock().is_err(), "an open model holds off writers that ask");
    ModelFile::open(&path).expect("readers share");
}

#[test]
fn m17_a_truncated_or_extended_file_no_longer_passes_for_the_one_that_was_opened() {
    for change in [|file: &File| file.set_len(5).unwrap(), |mut file: &File| file.write_all(b"more").unwrap()] {
        let (_folder, path) = file_of(&[7; 100]);
        let file = ModelFile::open(&path).unwrap();
        file.check_unchanged().unwrap();
        change(&OpenOptions::new().append(true).open(&path).unwrap());
        let refused = file.check_unchanged().unwrap_err();
        assert!(refused.to_string().contains("it was 100 bytes"), "{refused}");
        assert!(matches!(refused, Error::FileChanged { was, .. } if was == file.identity()));
    }
}

#[test]
fn m17_a_file_that_was_written_in_place_no_longer_passes_for_the_one_that_was_opened() {
    let (_folder, path) = file_of(&[7; 100]);
    let before = File::options().write(true).open(&path).unwrap();
    before.set_modified(std::time::UNIX_EPOCH).unwrap();
    let file = ModelFile::open(&path).unwrap();
    before.write_at(b"x", 50).unwrap();
    let refused = file.check_unchanged().unwrap_err();
    assert!(matches!(refused, Error::FileChanged { was, now, .. } if was.size_bytes == now.size_bytes));
}

#[test]
fn m17_a_removed_or_replaced_file_goes_on_as_it_was() {
    let (folder, path) = file_of(b"old weights");
    let file = ModelFile::open(&path).unwrap();
    let new = folder.path().join("new");
    fs::write(&new, b"new").unwrap();
    fs::rename(&new, &path).unwrap();
    file.check_unchanged().unwrap();
    fs::remove_file(&path).unwrap();
    file.check_unchanged().unwrap();
    assert_eq!(file.bytes(), b"old weights");
}
