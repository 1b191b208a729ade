//! Regions are checked by name and number, and cost nothing.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::file_tests::file_of;
use crate::{
    Arena, Device, DeviceLimits, Error, LoadOptions, LoadPolicy, ModelFile, Observer, RegionSpec, Result, page_size,
};

fn region(name: &str, file_no: usize, offset: u64, size_bytes: u64) -> RegionSpec {
    RegionSpec { name: name.into(), file_no, offset, size_bytes, unit_bytes: None }
}

fn arena(paths: &[&PathBuf], regions: impl IntoIterator<Item = RegionSpec>) -> Result<Arena> {
    Arena::new(&Device::host(), paths.iter().map(|path| ModelFile::open(path).unwrap()).collect(), regions)
}

#[test]
fn m13_regions_are_found_by_name_and_viewed_by_number() {
    let (_first_folder, first) = file_of(b"headerAAAABB");
    let (_second_folder, second) = file_of(b"CCCCCCCC");
    let regions = [region("b", 0, 10, 2), region("a", 0, 6, 4), region("c", 1, 2, 6), region("empty", 0, 12, 0)];
    let arena = arena(&[&first, &second], regions).unwrap();
    let bytes_of = |name| arena.view(arena.region(name).unwrap().id()).as_slice();
    assert_eq!(
        (bytes_of("a"), bytes_of("b"), bytes_of("c"), bytes_of("empty")),
        (&b"AAAA"[..], &b"BB"[..], &b"CCCCCC"[..], &b""[..])
    );
    assert!(arena.region("d").is_none());
    let listed: Vec<_> =
        arena.regions().iter().map(|r| (r.name(), r.file_no(), r.file_offset(), r.size_bytes())).collect();
    assert_eq!(listed, [("b", 0, 10, 2), ("a", 0, 6, 4), ("c", 1, 2, 6), ("empty", 0, 12, 0)]);
    assert_eq!(arena.windows().len(), 2, "M14: one buffer a file");
}

#[test]
fn m13_a_region_past_the_end_of_its_file_is_refused_by_name_and_numbers() {
    let (_folder, path) = file_of(&[1; 100]);
    for (offset, size_bytes) in [(90, 11), (101, 0), (u64::MAX, 2), (1, u64::MAX)] {
        let refused = arena(&[&path], [region("ok", 0, 90, 10), region("blk.0.ffn_up.weight", 0, offset, size_bytes)]);
        let message = format!(
            "{}: region `blk.0.ffn_up.weight` of {size_bytes} bytes at offset {offset} passes the end of a file of 100 bytes",
            path.display()
        );
        assert_eq!(refused.unwrap_err().to_string(), message);
    }
}

#[test]
fn m13_two_regions_of_one_name_and_a_region_of_no_file_are_refused() {
    let (_folder, path) = file_of(&[1; 100]);
    let twice = arena(&[&path], [region("output.weight", 0, 0, 1), region("output.weight", 0, 1, 1)]).unwrap_err();
    assert_eq!(twice.to_string(), "region `output.weight` is listed twice");
    let nowhere = arena(&[&path], [region("output.weight", 1, 0, 1)]).unwrap_err();
    assert!(matches!(nowhere, Error::UnknownFile { file_no: 1, n_files: 1, .. }));
}

#[test]
fn m15_a_region_larger_than_the_devices_buffers_is_refused_by_name() {
    let page = page_size() as u64;
    let (_folder, path) = file_of(&vec![1; 4 * page_size()]);
    let device = Device::host_with(DeviceLimits { max_buffer_bytes: Some(2 * page), ..DeviceLimits::default() });
    let files = vec![ModelFile::open(&path).unwrap()];
    let refused =
        Arena::new(&device, files, [region("small", 0, 0, 1), region("large", 0, page, 3 * page)]).unwrap_err();
    assert!(matches!(&refused, Error::BufferTooLarge { name, .. } if name == "large"), "{refused}");
}

#[test]
fn m13_a_file_of_16_gb_is_opened_and_indexed_without_allocating_or_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    // Sparse: it takes no room on the disk.
    File::create(&path).unwrap().set_len(16_700_000_000).unwrap();
    let device = Device::host();
    let file = ModelFile::open(&path).unwrap();
    let size_bytes = 16_700_000_000 / 731;
    let regions = (0..731).map(|i| region(&format!("blk.{i}.weight"), 0, i * size_bytes, size_bytes));
    let arena = Arena::new(&device, vec![file], regions).unwrap();
    let last = arena.view(arena.region("blk.730.weight").unwrap().id()).as_slice();
    assert_eq!((last.len() as u64, last[last.len() - 1]), (size_bytes, 0));
    assert_eq!(device.allocated_bytes(), 0);
    #[cfg(target_os = "linux")]
    assert!(crate::file_tests::resident_bytes_of(&path) < 1 << 20, "only what was looked at is in memory");
}

#[test]
fn m17_an_arena_notices_that_its_file_changed() {
    let (_folder, path) = file_of(&[1; 100]);
    let arena = arena(&[&path], [region("all", 0, 0, 100)]).unwrap();
    arena.check_unchanged().unwrap();
    File::options().write(true).open(&path).unwrap().set_len(99).unwrap();
    assert!(matches!(arena.check_unchanged(), Err(Error::FileChanged { .. })));
}

#[test]
fn an_arena_that_was_read_has_no_part_in_what_becomes_of_its_file() {
    let (_folder, path) = file_of(&[1; 100]);
    let options = LoadOptions { policy: LoadPolicy::Read, n_threads: 1, resident: false, strict: false };
    let files = vec![ModelFile::open(&path).unwrap()];
    let observer = Observer::new(&|_| ControlFlow::Continue(()));
    let (arena, _) = Arena::load(&Device::host(), files, [region("all", 0, 0, 100)], &options, &observer).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(99).unwrap();
    arena.check_unchanged().unwrap();
}

#[test]
fn m16_an_arena_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let (_folder, path) = file_of(&[1; 100]);
    let arena = arena(&[&path], [region("all", 0, 0, 100)]).unwrap();
    shared(&arena);
    let id = arena.region("all").unwrap().id();
    let sums = std::thread::scope(|scope| {
        let sum = || arena.view(id).as_slice().iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let (a, b) = (scope.spawn(sum), scope.spawn(sum));
        (a.join().unwrap(), b.join().unwrap())
    });
    assert_eq!(sums, (100, 100));
}
