//! Both paths bring the same bytes, say what they did, and leave nothing half-made.

use std::fs::File;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use super::{LoadOptions, LoadPath, LoadPolicy, LoadProgress};
use crate::file_tests::file_of;
use crate::{
    Arena, Device, DeviceLimits, Error, LoadReport, ModelFile, Observer, Region, RegionSpec, Residency, Result,
    page_size,
};

/// More than two pieces of work, and no whole number of pages.
const FILE_BYTES: usize = (17 << 20) + 123;

fn bytes() -> Vec<u8> {
    (0..FILE_BYTES).map(|i| (i * i / 251) as u8).collect()
}

fn regions() -> [RegionSpec; 2] {
    let region = |name: &str, offset, size_bytes| RegionSpec {
        name: name.into(),
        file_no: 0,
        offset,
        size_bytes,
        unit_bytes: None,
    };
    [region("tail", 10_000, FILE_BYTES as u64 - 10_000), region("head", 5_000, 5_000)]
}

fn load(device: &Device, path: &Path, policy: LoadPolicy) -> Result<(Arena, LoadReport)> {
    let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
    Arena::load(
        device,
        vec![ModelFile::open(path)?],
        regions(),
        &options,
        &Observer::new(&|_| ControlFlow::Continue(())),
    )
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
    let region = RegionSpec { name: "all".into(), file_no: 0, offset: 0, size_bytes: 100, unit_bytes: None };
    let options = LoadOptions { policy: LoadPolicy::Map, n_threads: 1, resident: true, strict: false };
    let files = vec![ModelFile::open(&path).unwrap()];
    let (_, report) =
        Arena::load(&Device::host(), files, [region], &options, &Observer::new(&|_| ControlFlow::Continue(())))
            .unwrap();
    assert_eq!(report.residency, Residency::Locked { size_bytes: page_size() as u64 });
}

#[test]
fn progress_reaches_the_total_by_either_path() {
    let (_folder, path) = file_of(&bytes());
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let seen = Mutex::new(Vec::new());
        let options = LoadOptions { policy, n_threads: 3, resident: false, strict: false };
        let files = vec![ModelFile::open(&path).unwrap()];
        let on_progress = |progress| {
            seen.lock().unwrap().push(progress);
            ControlFlow::Continue(())
        };
        let observer = Observer::new(&on_progress);
        let (_, report) = Arena::load(&Device::host(), files, regions(), &options, &observer).unwrap();
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
        let stopped =
            Arena::load(&device, files, regions(), &options, &Observer::new(&|_| ControlFlow::Break(()))).unwrap_err();
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
        let refused = Arena::load(&device, files, regions(), &options, &Observer::new(&|_| ControlFlow::Continue(())))
            .unwrap_err();
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
        let on_progress = |_| {
            writer.write_at(b"x", 12_345).unwrap();
            ControlFlow::Continue(())
        };
        let observer = Observer::new(&on_progress);
        let refused = Arena::load(&Device::host(), files, regions(), &options, &observer).unwrap_err();
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
        unit_bytes: None,
    });
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
        let files = vec![ModelFile::open(&path).unwrap()];
        let (arena, _) = Arena::load(
            &Device::host_with(limits),
            files,
            regions.clone(),
            &options,
            &Observer::new(&|_| ControlFlow::Continue(())),
        )
        .unwrap();
        assert_eq!(arena.windows().len(), 20);
        assert!(arena.windows().iter().all(|window| window.device_size_bytes() as u64 <= 8 * page));
        for region in arena.regions() {
            let start = region.file_offset() as usize;
            assert!(arena.view(region.id()).as_slice() == &bytes[start..start + region.size_bytes()], "{policy}");
        }
    }
}

/// Regions that overlap, have units of all sizes, larger than a piece of work too, and a short last one.
fn regions_in_units() -> Vec<RegionSpec> {
    let unit = |name: &str, offset: usize, size_bytes: usize, unit_bytes| RegionSpec {
        name: name.into(),
        file_no: 0,
        offset: offset as u64,
        size_bytes: size_bytes as u64,
        unit_bytes: NonZero::new(unit_bytes),
    };
    vec![
        unit("over all", 0, FILE_BYTES, 34),
        unit("larger than a piece", 5_000, FILE_BYTES - 5_000, (9 << 20) + 1),
        unit("larger than itself", 1, FILE_BYTES - 1, usize::MAX),
        unit("begins on a seam", 8 << 20, 1 << 20, 4),
        unit("ends on a seam", (8 << 20) - 100, 100, 8),
        unit("over a seam", (16 << 20) - 5, 10, 3),
        unit("at the end", FILE_BYTES - 7, 7, 1),
        unit("empty", 10_000, 0, 18),
        unit("not looked at", 0, 1 << 20, 0),
    ]
}

/// Loads regions in units, once from the file's start and once from a later page on, and checks what of them was shown.
pub(crate) fn expect_every_byte_is_shown_once(device: &Device, policy: LoadPolicy) {
    expect_every_byte_of(regions_in_units(), device, policy);
    let later = regions_in_units().into_iter().filter(|spec| spec.offset >= 5_000);
    expect_every_byte_of(later.collect(), device, policy);
}

fn expect_every_byte_of(regions: Vec<RegionSpec>, device: &Device, policy: LoadPolicy) {
    let bytes = bytes();
    let (_folder, path) = file_of(&bytes);
    let seen = Mutex::new(Vec::new());
    let on_bytes = |region: &Region, offset: usize, shown: &[u8]| {
        let start = region.file_offset() as usize + offset;
        assert!(shown == &bytes[start..start + shown.len()], "{} at {offset}", region.name());
        seen.lock().unwrap().push((region.id().index(), offset..offset + shown.len()));
        ControlFlow::Continue(())
    };
    let options = LoadOptions { policy, n_threads: 3, resident: false, strict: false };
    let observer = Observer::new(&|_| ControlFlow::Continue(())).with_bytes(&on_bytes);
    let files = vec![ModelFile::open(&path).unwrap()];
    let (_, report) = Arena::load(device, files, regions.clone(), &options, &observer).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_by_key(|(index, part)| (*index, part.start));
    let mut size_bytes = 0;
    for (index, spec) in regions.into_iter().enumerate() {
        let mut end = 0;
        for (_, part) in seen.iter().filter(|(of, _)| *of == index) {
            let unit_bytes = spec.unit_bytes.expect("it is not looked at").get();
            let follows = part.start == end && part.start.is_multiple_of(unit_bytes);
            assert!(follows, "{policy}: {spec:?}: {part:?} after {end}");
            end = part.end;
        }
        let expected = if spec.unit_bytes.is_some() { spec.size_bytes } else { 0 };
        assert_eq!(end as u64, expected, "{policy}: {spec:?}");
        size_bytes += expected;
    }
    let inspected = report.inspected.unwrap();
    assert_eq!(inspected.size_bytes, size_bytes);
    assert!(inspected.thread_time > Duration::ZERO);
}

#[test]
fn every_byte_is_shown_once_and_no_unit_is_torn() {
    for policy in [LoadPolicy::Map, LoadPolicy::Read] {
        expect_every_byte_is_shown_once(&Device::host(), policy);
    }
}

#[test]
fn nobody_is_shown_anything_who_does_not_ask() {
    let (_folder, path) = file_of(&bytes());
    assert_eq!(load(&Device::host(), &path, LoadPolicy::Map).unwrap().1.inspected, None);
}

#[test]
fn a_load_that_sees_what_it_does_not_like_stops_and_leaves_nothing_behind() {
    let (_folder, path) = file_of(&bytes());
    // In a piece, and on the seam of two.
    for unliked in [12_345, 8 << 20] {
        for policy in [LoadPolicy::Map, LoadPolicy::Read] {
            let on_bytes = |_: &Region, offset: usize, shown: &[u8]| {
                let is_there = (offset..offset + shown.len()).contains(&unliked);
                if is_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let device = Device::host();
            let options = LoadOptions { policy, n_threads: 2, resident: false, strict: false };
            let observer = Observer::new(&|_| ControlFlow::Continue(())).with_bytes(&on_bytes);
            let files = vec![ModelFile::open(&path).unwrap()];
            let regions = regions_in_units().into_iter().take(1);
            let stopped = Arena::load(&device, files, regions, &options, &observer).unwrap_err();
            assert!(matches!(stopped, Error::Cancelled { .. }), "{policy}: {stopped}");
            assert_eq!(device.allocated_bytes(), 0);
        }
    }
}
