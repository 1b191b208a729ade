//! Both paths bring the same bytes, say what they did, and leave nothing half-made.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use super::{LoadOptions, LoadPath, LoadPolicy, LoadProgress};
use crate::file_tests::file_of;
use crate::{Arena, Device, DeviceLimits, Error, LoadReport, ModelFile, RegionSpec, Residency, Result, page_size};

/// More than two pieces of work, and no whole number of pages.
const FILE_BYTES: usize = (17 << 20) + 123;

fn bytes() -> Vec<u8> {
    (0..FILE_BYTES).map(|i| (i * i / 251) as u8).collect()
}

fn regions() -> [RegionSpec; 2] {
    let region = |name: &str, offset, size_bytes| RegionSpec { name: name.into(), file_no: 0, offset, size_bytes };
    [region("tail", 10_000, FILE_BYTES as u64 - 10_000), region("head", 5_000, 5_000)]
}

fn load(device: &Device, path: &Path, policy: LoadPolicy) -> Result<(Arena, LoadReport)> {
    let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
    Arena::load(device, vec![ModelFile::open(path)?], regions(), &options, &|_| ControlFlow::Continue(()))
}

#[test]
fn m18_both_paths_bring_the_same_bytes() {
    let bytes = bytes();
    let (_folder, path) = file_of(&bytes);
    for policy in [LoadPolicy::Map, LoadPolicy::Read, LoadPolicy::Auto] {
        let (arena, _) = load(&Device::host(), &path, policy).unwrap();
        for region in arena.regions() {
            let start = region.file_offset() as usize;
            let expected = &bytes[start..start + region.size_bytes()];
            assert!(arena.view(region.id()).as_slice() == expected, "{policy}: {}", region.name());
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn m18_a_file_that_is_not_in_the_page_cache_is_read_past_it() {
    let bytes = bytes();
    let (_folder, path) = file_of(&bytes);
    crate::drop_from_page_cache(&path).unwrap();
    let (arena, report) = load(&Device::host(), &path, LoadPolicy::Read).unwrap();
    // Some file systems drop nothing when advised to, and on those the file is as cached as before.
    let now_cached = ModelFile::open(&path).unwrap().cached_share().unwrap();
    assert_eq!(report.direct, now_cached < 0.5, "{now_cached}");
    for region in arena.regions() {
        let start = region.file_offset() as usize;
        assert!(arena.view(region.id()).as_slice() == &bytes[start..start + region.size_bytes()], "{}", region.name());
    }
}

#[test]
fn m19_a_mapped_load_copies_no_byte_and_allocates_none() {
    let (_folder, path) = file_of(&bytes());
    let device = Device::host();
    let (arena, report) = load(&device, &path, LoadPolicy::Map).unwrap();
    assert_eq!((report.asked, report.engaged), (LoadPolicy::Map, LoadPath::Map));
    assert_eq!(report.bytes_copied, 0);
    assert_eq!(report.bytes_mapped as usize, arena.windows()[0].len());
    assert_eq!(device.allocated_bytes(), 0);
    assert!(report.bytes_per_second() > 0.0);
    assert_eq!(report.residency, Residency::NotAsked);
}

#[test]
#[cfg(target_os = "linux")]
fn m18_a_mapped_load_brings_every_page_in() {
    let (_folder, path) = file_of(&bytes());
    let (arena, _) = load(&Device::host(), &path, LoadPolicy::Map).unwrap();
    let resident_bytes = crate::file_tests::resident_bytes_of(&path);
    assert!(resident_bytes >= arena.windows()[0].device_size_bytes() as u64, "{resident_bytes}");
}

#[test]
#[cfg(target_os = "linux")]
fn m18_a_read_load_maps_nothing_besides() {
    let (_folder, path) = file_of(&bytes());
    let device = Device::host();
    let (arena, report) = load(&device, &path, LoadPolicy::Read).unwrap();
    assert_eq!((report.engaged, report.bytes_mapped), (LoadPath::Read, 0));
    assert_eq!(report.bytes_copied as usize, arena.windows()[0].len());
    assert_eq!(device.allocated_bytes() as usize, arena.windows()[0].device_size_bytes());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(path.to_str().unwrap()));
}

#[test]
fn m35_auto_says_what_it_chose_and_why() {
    let (_folder, path) = file_of(&bytes());
    let (_, report) = load(&Device::host(), &path, LoadPolicy::Auto).unwrap();
    assert_eq!(report.asked, LoadPolicy::Auto);
    assert!(report.reason.contains("page cache") || report.reason.contains("mapping"), "{}", report.reason);
}

#[test]
fn m22_a_resident_load_reports_its_lock() {
    let (_folder, path) = file_of(&[1; 100]);
    let region = RegionSpec { name: "all".into(), file_no: 0, offset: 0, size_bytes: 100 };
    let options = LoadOptions { policy: LoadPolicy::Map, n_threads: 1, resident: true, strict: false };
    let files = vec![ModelFile::open(&path).unwrap()];
    let (_, report) = Arena::load(&Device::host(), files, [region], &options, &|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.residency, Residency::Locked { size_bytes: page_size() as u64 });
}

#[test]
fn progress_reaches_the_total_by_either_path() {
    let (_folder, path) = file_of(&bytes());
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let seen = Mutex::new(Vec::new());
        let options = LoadOptions { policy, n_threads: 3, resident: false, strict: false };
        let files = vec![ModelFile::open(&path).unwrap()];
        let (_, report) = Arena::load(&Device::host(), files, regions(), &options, &|progress| {
            seen.lock().unwrap().push(progress);
            ControlFlow::Continue(())
        })
        .unwrap();
        let total_bytes = report.bytes_mapped + report.bytes_copied;
        let seen = seen.into_inner().unwrap();
        assert!(seen.contains(&LoadProgress { done_bytes: total_bytes, total_bytes }), "{policy}: {seen:?}");
    }
}

#[test]
fn a_load_that_is_told_to_stop_stops_and_leaves_nothing_behind() {
    let (_folder, path) = file_of(&bytes());
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let device = Device::host();
        let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
        let files = vec![ModelFile::open(&path).unwrap()];
        let stopped = Arena::load(&device, files, regions(), &options, &|_| ControlFlow::Break(())).unwrap_err();
        assert!(matches!(stopped, Error::Cancelled { done_bytes, .. } if done_bytes < FILE_BYTES as u64), "{stopped}");
        assert_eq!(device.allocated_bytes(), 0);
    }
}

#[test]
fn m17_a_file_that_shrank_before_the_load_is_refused_by_either_path() {
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let (_folder, path) = file_of(&bytes());
        let files = vec![ModelFile::open(&path).unwrap()];
        File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let device = Device::host();
        let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
        let refused = Arena::load(&device, files, regions(), &options, &|_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(refused, Error::FileChanged { .. }), "{policy}: {refused}");
        assert_eq!(device.allocated_bytes(), 0);
    }
}

#[test]
fn m17_a_file_that_is_written_while_it_loads_is_refused_by_either_path() {
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let (_folder, path) = file_of(&bytes());
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_modified(std::time::UNIX_EPOCH).unwrap();
        let files = vec![ModelFile::open(&path).unwrap()];
        let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
        let refused = Arena::load(&Device::host(), files, regions(), &options, &|_| {
            writer.write_at(b"x", 12_345).unwrap();
            ControlFlow::Continue(())
        })
        .unwrap_err();
        assert!(matches!(refused, Error::FileChanged { .. }), "{policy}: {refused}");
    }
}

#[test]
fn an_allocation_that_fails_fails_the_read_and_leaves_nothing_behind() {
    let (_folder, path) = file_of(&bytes());
    let device = Device::host_with(DeviceLimits { budget_bytes: Some(1 << 20), ..DeviceLimits::default() });
    assert!(matches!(load(&device, &path, LoadPolicy::Read), Err(Error::OverBudget { .. })));
    assert_eq!(device.allocated_bytes(), 0);
    load(&device, &path, LoadPolicy::Map).expect("a mapping takes nothing from the budget");
}

#[test]
fn m15_a_device_with_small_buffers_gets_windows_by_either_path() {
    let bytes = bytes();
    let (_folder, path) = file_of(&bytes);
    let page = page_size() as u64;
    let limits = DeviceLimits { max_buffer_bytes: Some(8 * page), ..DeviceLimits::default() };
    let regions = (0..40).map(|i| RegionSpec {
        name: format!("blk.{i}.attn_q.weight"),
        file_no: 0,
        offset: 100 + i * 3 * page,
        size_bytes: 3 * page,
    });
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
        let files = vec![ModelFile::open(&path).unwrap()];
        let (arena, _) =
            Arena::load(&Device::host_with(limits), files, regions.clone(), &options, &|_| ControlFlow::Continue(()))
                .unwrap();
        assert_eq!(arena.windows().len(), 20);
        assert!(arena.windows().iter().all(|window| window.device_size_bytes() as u64 <= 8 * page));
        for region in arena.regions() {
            let start = region.file_offset() as usize;
            assert!(arena.view(region.id()).as_slice() == &bytes[start..start + region.size_bytes()], "{policy}");
        }
    }
}
