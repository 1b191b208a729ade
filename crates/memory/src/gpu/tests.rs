//! Every backing on a real driver: the machine's first GPU, in CI a software rasteriser, with the validation layer on.
//!
//! Each test ends with [`Validated::expect_silence`]. Without a GPU they fail: install a driver, such as Mesa's.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::file_tests::file_of;
#[cfg(target_os = "linux")]
use crate::file_tests::mappings_of;
use crate::gpu::upload::STAGING_BYTES;
use crate::load::tests::expect_every_byte_is_shown_once;
use crate::{
    Arena, Device, DeviceLimits, Error, GpuBuffer, GpuBytes, GpuHalfBuffer, GpuOptions, LoadOptions, LoadPath,
    LoadPolicy, LoadReport, ModelFile, Observer, POISON_BITS, RegionSpec, Residency, Result, gpus, page_size,
};

/// The first GPU, watched by the validation layer.
struct Validated {
    device: Device,
    /// Messages can't be told apart by device, so one test at a time uses one.
    _turn: MutexGuard<'static, ()>,
}

impl Validated {
    fn open(options: &GpuOptions) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Messages::watch().clear();
        let device = Device::gpu(&GpuOptions { validation: true, ..options.clone() });
        Self { device: device.expect("these tests need a Vulkan or Metal driver"), _turn: turn }
    }

    fn any() -> Self {
        Self::open(&GpuOptions::default())
    }

    /// As a device that can do no better than `weights`.
    fn at_best(weights: LoadPath) -> Self {
        Self::open(&GpuOptions { weights: Some(weights), ..GpuOptions::default() })
    }

    /// Ends the device, and demands that the validation layer had nothing to say.
    fn expect_silence(self) {
        let Self { device, _turn } = self;
        drop(device);
        let messages = Messages::watch();
        assert!(messages.is_empty(), "{}", messages.join("\n"));
    }
}

/// Keeps what wgpu and the validation layer log as warnings and errors.
struct Messages(Mutex<Vec<String>>);

impl Messages {
    fn watch() -> MutexGuard<'static, Vec<String>> {
        static MESSAGES: Messages = Messages(Mutex::new(Vec::new()));
        // A second call finds it set.
        let _ = log::set_logger(&MESSAGES);
        log::set_max_level(log::LevelFilter::Warn);
        MESSAGES.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl log::Log for Messages {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        thread_local! {
            static FOLLOWS_KNOWN: Cell<bool> = const { Cell::new(false) };
        }
        // Known: layers of before 2024 don't know number 10, WGSL, as the language that debug information may name for a
        // shader's source. The objects that a message is about follow it as another.
        let message = record.args().to_string();
        let is_known = message.contains("Invalid source language operand: 10");
        let belongs_to_known = FOLLOWS_KNOWN.replace(is_known) && message.starts_with("\tobjects:");
        if !is_known && !belongs_to_known {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{}: {message}", record.target()));
        }
    }

    fn flush(&self) {}
}

/// More than one upload's staging buffers, and no whole number of pages or words.
const FILE_BYTES: usize = 2 * STAGING_BYTES + (5 << 20) + 123;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * i / 251 + i / 65_536) as u8).collect()
}

fn region(name: &str, offset: usize, size_bytes: usize) -> RegionSpec {
    RegionSpec { name: name.into(), file_no: 0, offset: offset as u64, size_bytes: size_bytes as u64, unit_bytes: None }
}

fn load_as(
    device: &Device,
    path: &Path,
    regions: impl IntoIterator<Item = RegionSpec>,
    options: &LoadOptions,
) -> Result<(Arena, LoadReport)> {
    Arena::load(device, vec![ModelFile::open(path)?], regions, options, &Observer::new(&|_| ControlFlow::Continue(())))
}

fn load(device: &Device, path: &Path, regions: impl IntoIterator<Item = RegionSpec>) -> Result<(Arena, LoadReport)> {
    load_as(device, path, regions, &options(LoadPolicy::Auto))
}

/// Whether the mapping became a buffer. Drivers of real GPUs may refuse one, and then that is said; the software rasteriser
/// takes any.
fn is_mapped(report: &LoadReport) -> bool {
    if report.engaged == LoadPath::Map {
        return true;
    }
    assert!(report.reason.contains("the driver refused the mapping"), "{}", report.reason);
    assert!(!gpus()[0].is_software, "{}", report.reason);
    false
}

fn options(policy: LoadPolicy) -> LoadOptions {
    LoadOptions { policy, n_threads: 2, resident: false, strict: false }
}

#[test]
fn m33_a_gpu_says_what_it_can_do() {
    let listed = gpus();
    let gpu = Validated::any();
    let capabilities = gpu.device.capabilities();
    assert_eq!((gpu.device.name(), gpu.device.api()), (&*listed[0].name, listed[0].api));
    assert_eq!(capabilities.page_size, page_size());
    assert!(capabilities.offset_alignment.is_power_of_two());
    // The least that Vulkan demands of any device.
    assert!(capabilities.max_binding_bytes.unwrap() >= 1 << 27);
    assert!(capabilities.max_buffer_bytes.unwrap() >= capabilities.max_binding_bytes.unwrap());
    gpu.expect_silence();
}

#[test]
fn a_gpu_that_is_not_there_is_refused_with_those_that_are() {
    let refused = Device::gpu(&GpuOptions { name: Some("Voodoo 2".into()), ..GpuOptions::default() }).unwrap_err();
    assert!(refused.to_string().starts_with(r#"no GPU with "Voodoo 2" in its name; found: "#), "{refused}");
    assert!(refused.to_string().contains(&gpus()[0].name), "{refused}");
}

#[test]
fn m14_m19_a_unified_gpu_reads_the_mapping_itself() {
    let bytes = bytes(FILE_BYTES);
    let (_folder, path) = file_of(&bytes);
    let gpu = Validated::at_best(LoadPath::Map);
    let regions = [region("head", 64, 1000), region("tail", 10_000, FILE_BYTES - 10_000)];
    let (arena, report) = load(&gpu.device, &path, regions).unwrap();
    if is_mapped(&report) {
        assert_eq!((report.bytes_copied, report.bytes_mapped as usize), (0, arena.windows()[0].len()));
        assert_eq!(gpu.device.allocated_bytes(), 0, "what the self-test took is given back");
    }
    assert_eq!(arena.windows().len(), 1, "M14: one buffer");
    // M34: it proved so, by checksums over both views.
    let self_test = report.self_test.expect("every GPU is tested");
    assert_eq!(self_test.n_views, 2);
    assert!(self_test.size_bytes > 2 << 20);
    drop(arena);
    gpu.expect_silence();
}

#[test]
#[cfg(target_os = "linux")]
fn m4_the_mapping_goes_when_the_gpu_has_let_go_of_it() {
    let (_folder, path) = file_of(&bytes(100_000));
    let gpu = Validated::at_best(LoadPath::Map);
    let (arena, report) = load(&gpu.device, &path, [region("all", 0, 100_000)]).unwrap();
    assert!(!is_mapped(&report) || !mappings_of(&path).is_empty());
    drop(arena);
    assert_eq!(mappings_of(&path), Vec::<String>::new());
    gpu.expect_silence();
}

#[test]
fn m14_a_unified_gpu_that_takes_no_mapping_gets_one_shared_allocation() {
    let bytes = bytes(FILE_BYTES);
    let (_folder, path) = file_of(&bytes);
    let gpu = Validated::at_best(LoadPath::Read);
    let (arena, report) = load(&gpu.device, &path, [region("all", 0, FILE_BYTES)]).unwrap();
    assert_eq!((report.engaged, report.bytes_mapped), (LoadPath::Read, 0));
    assert_eq!(report.bytes_copied as usize, FILE_BYTES);
    #[cfg(target_os = "linux")]
    assert_eq!(mappings_of(&path), Vec::<String>::new(), "M18: never mapped and copied");
    assert_eq!(gpu.device.allocated_bytes() as usize, arena.windows()[0].device_size_bytes());
    assert!(arena.view(arena.regions()[0].id()).as_slice() == bytes);
    assert!(report.self_test.unwrap().size_bytes > 0);
    drop(arena);
    assert_eq!(gpu.device.allocated_bytes(), 0);
    gpu.expect_silence();
}

#[test]
fn weights_are_shown_on_every_path_to_a_gpu() {
    for path in [LoadPath::Map, LoadPath::Read, LoadPath::Upload] {
        let gpu = Validated::at_best(path);
        expect_every_byte_is_shown_once(&gpu.device, LoadPolicy::Auto);
        gpu.expect_silence();
    }
}

#[test]
fn m21_a_gpu_with_memory_of_its_own_gets_an_announced_copy() {
    let bytes = bytes(FILE_BYTES);
    let (_folder, path) = file_of(&bytes);
    let gpu = Validated::at_best(LoadPath::Upload);
    assert!(!gpu.device.capabilities().unified);
    let seen = Mutex::new(Vec::new());
    let files = vec![ModelFile::open(&path).unwrap()];
    let on_progress = |progress| {
        seen.lock().unwrap().push(progress);
        ControlFlow::Continue(())
    };
    let (regions, options) = ([region("all", 0, FILE_BYTES)], options(LoadPolicy::Auto));
    let (arena, report) = Arena::load(&gpu.device, files, regions, &options, &Observer::new(&on_progress)).unwrap();
    assert_eq!((report.engaged, report.bytes_mapped), (LoadPath::Upload, 0));
    assert_eq!(report.bytes_copied as usize, FILE_BYTES);
    assert!(report.reason.contains("copied to its own"), "{}", report.reason);
    assert!(
        seen.into_inner().unwrap().iter().any(|at| at.done_bytes == at.total_bytes),
        "a progress bar reaches its end"
    );
    // M20: the staging buffers are gone, and the copy is on the account.
    assert_eq!(gpu.device.allocated_bytes() as usize, arena.windows()[0].device_size_bytes());
    // The CPU goes on reading the file's pages, and the device's copy has the same bytes to its very end.
    assert!(arena.view(arena.regions()[0].id()).as_slice() == bytes);
    assert!(report.self_test.unwrap().size_bytes > 0);
    drop(arena);
    assert_eq!(gpu.device.allocated_bytes(), 0);
    gpu.expect_silence();
}

#[test]
fn m15_small_buffers_and_small_bindings_change_nothing_for_callers() {
    let page = page_size();
    let bytes = bytes(200 * page);
    let (_folder, path) = file_of(&bytes);
    // Odd offsets and sizes: views begin between words.
    let regions: Vec<_> =
        (0..10).map(|i| region(&format!("blk.{i}"), 101 + i * (19 * page + 7), 19 * page + 7)).collect();
    let limits = DeviceLimits {
        max_buffer_bytes: Some(50 * page as u64),
        max_binding_bytes: Some(4 * page as u64 + 2),
        ..DeviceLimits::default()
    };
    for best in [LoadPath::Map, LoadPath::Read, LoadPath::Upload] {
        let gpu = Validated::open(&GpuOptions { limits, weights: Some(best), ..GpuOptions::default() });
        let (arena, report) = load(&gpu.device, &path, regions.clone()).unwrap();
        assert!(report.engaged == best || !is_mapped(&report));
        assert!(arena.windows().len() >= 4, "{}", arena.windows().len());
        let row_bytes = 501;
        for region in arena.regions().iter().filter(|region| region.size_bytes() % row_bytes == 0) {
            let bindings = arena.view(region.id()).bindings(row_bytes).unwrap();
            assert_eq!(bindings.iter().map(|binding| binding.n_rows).sum::<usize>(), region.size_bytes() / row_bytes);
        }
        // The self-test read both ends of every range of every region that begins or ends a window.
        let tested = report.self_test.unwrap();
        assert!(tested.n_views >= 2 * arena.windows().len() - 1, "{tested:?}");
        drop(arena);
        gpu.expect_silence();
    }
}

#[test]
fn m15_bindings_hold_whole_rows_at_aligned_offsets_within_the_limit() {
    let (row_bytes, n_rows) = (1002, 100);
    let (_folder, path) = file_of(&bytes(1 << 20));
    let limits = DeviceLimits { max_binding_bytes: Some(10_000), ..DeviceLimits::default() };
    let gpu = Validated::open(&GpuOptions { limits, ..GpuOptions::default() });
    let (arena, _) = load(&gpu.device, &path, [region("w", 12_346, row_bytes * n_rows)]).unwrap();
    let view = arena.view(arena.regions()[0].id());
    let bindings = view.bindings(row_bytes).unwrap();
    let alignment = gpu.device.capabilities().offset_alignment as u64;
    let mut next_row = 0;
    for binding in &bindings {
        assert_eq!(binding.first_row, next_row);
        next_row += binding.n_rows;
        assert!(binding.offset.is_multiple_of(alignment) && binding.size_bytes.is_multiple_of(4), "{binding:?}");
        assert!(binding.size_bytes <= 10_000, "{binding:?}");
        let first_byte = binding.offset as usize + binding.skip_bytes as usize;
        assert_eq!(first_byte, view.offset() + binding.first_row * row_bytes);
        assert!(binding.skip_bytes as usize + binding.n_rows * row_bytes <= binding.size_bytes as usize, "{binding:?}");
    }
    assert_eq!((next_row, bindings.len()), (n_rows, 12));
    let refused = view.bindings(row_bytes * n_rows).unwrap_err();
    assert_eq!(refused.to_string(), "a row of 100200 bytes is more than the 10000 that the device binds at once");
    drop(arena);
    gpu.expect_silence();
}

#[test]
fn m15_host_memory_is_not_bound_to_a_gpu() {
    let bytes = GpuBytes::from_slice(&Device::host(), &[1; 100]).unwrap();
    assert!(matches!(bytes.view(0, 100).unwrap().bindings(10), Err(Error::NotOnDevice)));
}

#[test]
fn m34_a_device_that_reads_other_bytes_is_refused() {
    let (_folder, path) = file_of(&bytes(100_000));
    let gpu = Validated::at_best(LoadPath::Upload);
    let (arena, _) = load(&gpu.device, &path, [region("output.weight", 0, 100_000)]).unwrap();
    // The copy on the device is now one byte off what the CPU reads.
    let inner = gpu.device.as_gpu().unwrap();
    inner.queue.write_buffer(arena.windows()[0].device_buffer().unwrap().raw(), 50_000, &[0xAB, 0xCD, 0xEF, 0x01]);
    let refused = inner.self_test(&gpu.device, &arena).unwrap_err();
    assert!(matches!(&refused, Error::SelfTest { region, .. } if region == "output.weight"), "{refused}");
    assert!(refused.to_string().ends_with("the device can't be used"), "{refused}");
    drop(arena);
    gpu.expect_silence();
}

#[test]
fn m35_what_was_asked_for_and_what_engaged_are_both_said_and_strictness_refuses_the_difference() {
    let (_folder, path) = file_of(&bytes(100_000));
    for (best, asked, engaged) in [
        (LoadPath::Read, LoadPolicy::Map, LoadPath::Read),
        (LoadPath::Upload, LoadPolicy::Map, LoadPath::Upload),
        (LoadPath::Upload, LoadPolicy::Read, LoadPath::Upload),
    ] {
        let gpu = Validated::at_best(best);
        let all = || [region("all", 0, 100_000)];
        let (arena, report) = load_as(&gpu.device, &path, all(), &options(asked)).unwrap();
        assert_eq!((report.asked, report.engaged), (asked, engaged));
        drop(arena);
        let strict = LoadOptions { strict: true, ..options(asked) };
        let refused = load_as(&gpu.device, &path, all(), &strict).unwrap_err();
        let said = format!("asked for the load path `{asked}`, but `{engaged}` engaged: the device ");
        assert!(refused.to_string().starts_with(&said), "{refused}");
        assert_eq!(gpu.device.allocated_bytes(), 0, "nothing half-made stays");
        gpu.expect_silence();
    }
}

#[test]
fn m7_shared_memory_is_zeroed_and_m9_m10_hold_on_a_gpu() {
    let gpu = Validated::any();
    for round in 0..3 {
        // Written in each round, so that a later one would get dirty memory back.
        let mut activations = GpuBuffer::zeros(&gpu.device, 100_000).unwrap();
        assert!(activations.as_slice().iter().all(|&value| value == 0.0), "round {round}");
        activations.as_mut_slice().fill(f32::NAN);
        let mut plane = GpuHalfBuffer::uninitialized(&gpu.device, 1000).unwrap();
        assert!(plane.as_bits().iter().all(|&bits| bits == POISON_BITS), "read early, it shows poison");
        plane.as_bits_mut().fill(0x3C00);
        assert!(plane.as_bits().iter().all(|&bits| bits == 0x3C00), "written, it round-trips");
    }
    assert_eq!(gpu.device.allocated_bytes(), 0);
    gpu.expect_silence();
}

#[test]
fn an_allocation_past_a_gpus_limits_is_refused_by_name_and_numbers() {
    let gpu = Validated::open(&GpuOptions {
        limits: DeviceLimits { budget_bytes: Some(1 << 20), ..DeviceLimits::default() },
        ..GpuOptions::default()
    });
    let over = gpu.device.capabilities().max_buffer_bytes.unwrap() as usize / 4 + 1;
    assert!(matches!(GpuBuffer::zeros(&gpu.device, over), Err(Error::BufferTooLarge { .. })));
    assert!(matches!(GpuBuffer::zeros(&gpu.device, 1 << 20), Err(Error::OverBudget { .. })));
    let (_folder, path) = file_of(&bytes(3 << 20));
    for best in [LoadPath::Read, LoadPath::Upload] {
        let limits = DeviceLimits { budget_bytes: Some(1 << 20), ..DeviceLimits::default() };
        let device = Device::gpu(&GpuOptions { limits, weights: Some(best), ..GpuOptions::default() }).unwrap();
        let refused = load(&device, &path, [region("all", 0, 3 << 20)]).unwrap_err();
        assert!(matches!(refused, Error::OverBudget { .. }), "{best}: {refused}");
        assert_eq!(device.allocated_bytes(), 0);
    }
    gpu.expect_silence();
}

#[test]
fn m23_a_lock_that_a_gpus_memory_can_not_have_is_reported() {
    let (_folder, path) = file_of(&bytes(100_000));
    let gpu = Validated::at_best(LoadPath::Read);
    let resident = LoadOptions { resident: true, ..options(LoadPolicy::Auto) };
    let (arena, report) = load_as(&gpu.device, &path, [region("all", 0, 100_000)], &resident).unwrap();
    // A driver that keeps memory itself says so; others leave it to the system, which can't lock what is the driver's.
    assert!(matches!(report.residency, Residency::Refused { .. } | Residency::Kept { .. }), "{:?}", report.residency);
    drop(arena);
    gpu.expect_silence();
}
