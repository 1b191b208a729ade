//! What Metal does its own way: buffers over the process's own pages, and residency sets.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::Duration;

use block2::RcBlock;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLCommandQueue, MTLDevice, MTLResidencySet, MTLResidencySetDescriptor,
    MTLResourceOptions,
};
use wgpu::hal::api::Metal;

use super::{DeviceBuffer, Gpu, SharedMemory};
use crate::Api;
use crate::device::{HazardTracking, Storage, StorageOptions, storage_options};
use crate::heartbeat::Heartbeat;
use crate::residency::Resident;

pub(super) const API: Api = Api::Metal;
pub(super) const BACKENDS: wgpu::Backends = wgpu::Backends::METAL;

/// Less than the second after which macOS lets go of what is idle.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// A buffer as Metal knows it, which wgpu does not give out.
#[derive(Debug)]
pub(super) struct Buffer(Retained<ProtocolObject<dyn MTLBuffer>>);

// SAFETY: Metal's buffers are safe to use from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// What wgpu doesn't say about a device.
#[derive(Debug)]
pub(super) struct Facts {
    /// CPU and GPU have one memory.
    pub unified: bool,
    /// Whether file mappings may be imported.
    pub imports: bool,
}

impl Facts {
    pub(super) fn of(adapter: &wgpu::Adapter) -> Result<Self, String> {
        // SAFETY: the handle is used for questions only.
        let hal = unsafe { adapter.as_hal::<Metal>() }.ok_or("not a Metal device")?;
        let unified = hal.raw_device().hasUnifiedMemory();
        Ok(Self { unified, imports: unified })
    }

    /// Bytes that the system recommends to use at most, less what is in use. `None`: it doesn't say.
    #[allow(clippy::unused_self, reason = "the counterpart in `vulkan` needs it")]
    pub(super) fn memory_left(&self, adapter: &wgpu::Adapter) -> Option<u64> {
        // SAFETY: the handle is used for questions only.
        let hal = unsafe { adapter.as_hal::<Metal>() }?;
        let device = hal.raw_device();
        let working_set = device.recommendedMaxWorkingSetSize();
        (working_set > 0).then(|| working_set.saturating_sub(device.currentAllocatedSize() as u64))
    }
}

pub(super) fn open(
    adapter: &wgpu::Adapter,
    _facts: &Facts,
    limits: &wgpu::Limits,
) -> Result<(wgpu::Device, wgpu::Queue), String> {
    let descriptor = wgpu::DeviceDescriptor { required_limits: limits.clone(), ..Default::default() };
    pollster::block_on(adapter.request_device(&descriptor)).map_err(|error| error.to_string())
}

/// The storage options as Metal spells them.
fn resource_options() -> MTLResourceOptions {
    let StorageOptions { storage, hazard_tracking } = storage_options();
    let storage = match storage {
        Storage::Shared => MTLResourceOptions::StorageModeShared,
    };
    let hazard_tracking = match hazard_tracking {
        HazardTracking::Tracked => MTLResourceOptions::HazardTrackingModeTracked,
    };
    storage | hazard_tracking
}

/// Makes a buffer of the `size_bytes` at `start`, and drops `keep` when the device has let go of it.
///
/// # Safety
///
/// - The range is whole pages, mapped readable for as long as `keep` lives.
pub(super) unsafe fn import(
    gpu: &Gpu,
    start: NonNull<u8>,
    size_bytes: usize,
    keep: Box<dyn Send + Sync>,
) -> Result<DeviceBuffer, String> {
    // SAFETY: the handle is used to make a buffer.
    let hal = unsafe { gpu.device.as_hal::<Metal>() }.ok_or("not a Metal device")?;
    // Metal calls the block once, from any thread, when it has let go of the memory.
    let keep = Mutex::new(Some(keep));
    let release = RcBlock::new(move |_: NonNull<c_void>, _: usize| drop(keep.lock().map(|mut keep| keep.take())));
    // SAFETY: whole pages, mapped until the block drops what keeps them (`# Safety`); the block may be called from any
    // thread, as what it holds is `Send`.
    let buffer = unsafe {
        hal.raw_device().newBufferWithBytesNoCopy_length_options_deallocator(
            start.cast(),
            size_bytes,
            resource_options(),
            Some(&release),
        )
    };
    let buffer = buffer.ok_or("the driver gave no reason")?;
    Ok(into_buffer(gpu, buffer, size_bytes, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC))
}

/// Allocates memory that CPU and GPU share. Metal documents that it zeroes a new buffer.
pub(super) fn allocate(gpu: &Gpu, size_bytes: usize) -> Result<SharedMemory, String> {
    // SAFETY: the handle is used to make a buffer.
    let hal = unsafe { gpu.device.as_hal::<Metal>() }.ok_or("not a Metal device")?;
    let buffer = hal.raw_device().newBufferWithLength_options(size_bytes, resource_options());
    let buffer = buffer.ok_or("out of memory")?;
    let start = buffer.contents().cast();
    let usages = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    Ok(SharedMemory { start, size_bytes, buffer: into_buffer(gpu, buffer, size_bytes, usages) })
}

/// Allocates memory of the device's own.
pub(super) fn allocate_local(gpu: &Gpu, size_bytes: usize) -> Result<DeviceBuffer, String> {
    let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: size_bytes as u64, usage, mapped_at_creation: false };
    let buffer = gpu.checked("allocate device memory", || gpu.device.create_buffer(&descriptor));
    buffer.map(|buffer| DeviceBuffer::new(&gpu.device, buffer, None)).map_err(|error| error.to_string())
}

fn into_buffer(
    gpu: &Gpu,
    buffer: Retained<ProtocolObject<dyn MTLBuffer>>,
    size_bytes: usize,
    usage: wgpu::BufferUsages,
) -> DeviceBuffer {
    // SAFETY: a buffer of this device with so many bytes.
    let hal = unsafe { wgpu::hal::metal::Device::buffer_from_raw(buffer.clone(), size_bytes as u64) };
    let descriptor = wgpu::BufferDescriptor { label: None, size: size_bytes as u64, usage, mapped_at_creation: false };
    // SAFETY: made on this device with the size described; Metal has no usages; its memory is initialised: file pages, or
    // zeroed.
    let wrapped = unsafe { gpu.device.create_buffer_from_hal::<Metal>(hal, &descriptor) };
    DeviceBuffer::new(&gpu.device, wrapped, Some(Buffer(buffer)))
}

/// Keeps buffers in memory by a residency set, attached to the queue and asked for again and again.
pub(super) fn keep_resident<'a>(
    gpu: &Gpu,
    buffers: impl Iterator<Item = &'a DeviceBuffer>,
) -> Option<Result<Resident, String>> {
    if !objc2::available!(macos = 15.0, ios = 18.0, ..) {
        return None;
    }
    Some(ResidencySet::new(gpu, buffers).and_then(|set| {
        let heartbeat = Heartbeat::start(HEARTBEAT, move || set.request());
        heartbeat.map(|heartbeat| Resident { heartbeat }).map_err(|error| error.to_string())
    }))
}

/// A residency set of a queue. It ends with its drop.
struct ResidencySet {
    set: Retained<ProtocolObject<dyn MTLResidencySet>>,
    queue: wgpu::Queue,
}

// SAFETY: Metal's residency sets may be used from any thread, by one at a time; this value is the only one that uses its set.
unsafe impl Send for ResidencySet {}

impl ResidencySet {
    fn new<'a>(gpu: &Gpu, buffers: impl Iterator<Item = &'a DeviceBuffer>) -> Result<Self, String> {
        // SAFETY: the handle is used to make a set.
        let hal = unsafe { gpu.device.as_hal::<Metal>() }.ok_or("not a Metal device")?;
        let descriptor = MTLResidencySetDescriptor::new();
        descriptor.setLabel(Some(&NSString::from_str("weights")));
        let set =
            hal.raw_device().newResidencySetWithDescriptor_error(&descriptor).map_err(|error| error.to_string())?;
        for Buffer(buffer) in buffers.filter_map(|buffer| buffer.native.as_ref()) {
            let allocation: &ProtocolObject<dyn MTLAllocation> = ProtocolObject::from_ref(&**buffer);
            set.addAllocation(allocation);
        }
        set.commit();
        set.requestResidency();
        let ours = Self { set, queue: gpu.queue.clone() };
        ours.with_queue(|queue| queue.addResidencySet(&ours.set));
        Ok(ours)
    }

    fn request(&self) {
        self.set.requestResidency();
    }

    fn with_queue(&self, act: impl FnOnce(&ProtocolObject<dyn MTLCommandQueue>)) {
        // SAFETY: the handle is used to attach and detach a set.
        if let Some(queue) = unsafe { self.queue.as_hal::<Metal>() } {
            act(queue.as_raw());
        }
    }
}

impl Drop for ResidencySet {
    fn drop(&mut self) {
        self.with_queue(|queue| queue.removeResidencySet(&self.set));
        self.set.endResidency();
    }
}
