//! A model's files, and the set that a model is split into.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use muser_engine::{BadModel, Error, ModelFiles, Part, SplitProgress, split};
use muser_gguf::ShardLimit;
use muser_memory::{Arena, Device};
use muser_model::regions;
use muser_tests::model::MUSE;
use muser_tests::model_path;
use tempfile::TempDir;

const LIMIT: ShardLimit = ShardLimit::SizeBytes(2_000_000);

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Splits a model of random weights into several files.
fn parts(folder: &Path) -> Vec<Part> {
    let go_on = &mut |_: SplitProgress| ControlFlow::Continue(());
    split(&model_path(MUSE[1]), &folder.join("muse"), LIMIT, go_on).expect("a good model")
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    names
}

#[test]
fn a_set_is_one_arena_over_several_mappings() {
    let (folder, whole) = (folder(), ModelFiles::open(&model_path(MUSE[1])).expect("it is there"));
    let parts = parts(folder.path());
    assert!(parts.len() >= 3);
    for part in &parts {
        let files = ModelFiles::open(&part.path).expect("a whole set");
        let paths: Vec<_> = files.files().iter().map(|file| file.path().to_owned()).collect();
        assert_eq!(paths, parts.iter().map(|part| part.path.clone()).collect::<Vec<_>>());
        assert_eq!(files.path(), part.path);
        let (set, one) = (files.parse().expect("a whole set"), whole.parse().expect("a whole file"));
        let arena = |files: &ModelFiles, set| Arena::new(&Device::host(), files.files().to_vec(), regions(set));
        let (arena, expected) = (arena(&files, &set).expect("an index"), arena(&whole, &one).expect("an index"));
        assert_eq!(arena.windows().len(), parts.iter().filter(|part| part.n_tensors > 0).count());
        assert_eq!(arena.regions().len(), expected.regions().len());
        for region in expected.regions() {
            let found = arena.region(region.name()).expect("the set has every tensor");
            assert!(arena.view(found.id()).as_slice() == expected.view(region.id()).as_slice(), "{}", region.name());
        }
    }
}

#[test]
fn a_missing_file_is_known_by_its_place() {
    let folder = folder();
    let parts = parts(folder.path());
    fs::remove_file(&parts[1].path).expect("it is there");
    let Err(Error::BadModel { path, source }) = ModelFiles::open(&parts[0].path) else { panic!("it was opened") };
    assert_eq!(path, parts[0].path);
    let BadModel::MissingShard { index, count, expected } = *source else { panic!("{source}") };
    assert_eq!((index, count, expected), (1, parts.len() as u64, parts[1].path.clone()));
}

#[test]
fn progress_ends_with_all_bytes() {
    let folder = folder();
    let mut seen = Vec::new();
    let on_progress = &mut |at: SplitProgress| {
        seen.push(at);
        ControlFlow::Continue(())
    };
    split(&model_path(MUSE[1]), &folder.path().join("muse"), LIMIT, on_progress).expect("a good model");
    assert!(seen.is_sorted_by_key(|at| at.done_bytes));
    assert!(seen.last().is_some_and(|at| at.done_bytes == at.total_bytes));
}

#[test]
fn a_split_that_is_stopped_leaves_nothing_behind() {
    let folder = folder();
    for stop_at in [1, 5, 40] {
        let mut calls = 0;
        let on_progress = &mut |_: SplitProgress| {
            calls += 1;
            if calls == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = split(&model_path(MUSE[1]), &folder.path().join("muse"), LIMIT, on_progress);
        assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
        assert_eq!(names(folder.path()), [] as [PathBuf; 0]);
    }
}

#[test]
fn a_file_that_comes_in_the_way_meanwhile_stays_and_is_all_that_does() {
    let (other, folder) = (folder(), folder());
    let last = parts(other.path()).pop().expect("it has files").path;
    let taken = folder.path().join(last.file_name().expect("it is a file"));
    let on_progress = &mut |_: SplitProgress| {
        fs::write(&taken, "another's").expect("it can be written");
        ControlFlow::Continue(())
    };
    let failed = split(&model_path(MUSE[1]), &folder.path().join("muse"), LIMIT, on_progress);
    let Err(Error::File { path, action: "write", .. }) = failed else { panic!("{failed:?}") };
    assert_eq!(path, taken);
    assert_eq!(names(folder.path()), std::slice::from_ref(&taken));
    assert_eq!(fs::read(&taken).expect("it is there"), b"another's");
}

#[test]
fn a_model_that_changes_meanwhile_is_not_split() {
    let (other, folder) = (folder(), folder());
    let model = other.path().join("model.gguf");
    fs::copy(model_path(MUSE[1]), &model).expect("room for it");
    let on_progress = &mut |_: SplitProgress| {
        let file = fs::File::options().append(true).open(&model).expect("it is ours");
        file.set_len(fs::metadata(&model).expect("it is there").len() + 1).expect("it grows");
        ControlFlow::Continue(())
    };
    let changed = split(&model, &folder.path().join("muse"), LIMIT, on_progress);
    assert!(matches!(changed, Err(Error::Memory(muser_memory::Error::FileChanged { .. }))), "{changed:?}");
    assert_eq!(names(folder.path()), [] as [PathBuf; 0]);
}
