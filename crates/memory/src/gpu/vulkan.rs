//! What Vulkan does its own way: imports through `VK_EXT_external_memory_host`, and shared memory that is host-visible.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ash::vk::{self, MemoryPropertyFlags};
use wgpu::hal::api::Vulkan;

use super::{DeviceBuffer, Gpu, SharedMemory};
use crate::Api;
use crate::page::page_size;
use crate::residency::Resident;

pub(super) const API: Api = Api::Vulkan;
pub(super) const BACKENDS: wgpu::Backends = wgpu::Backends::VULKAN;

/// Nothing: a buffer's handle is of no use beyond wgpu.
#[derive(Debug)]
pub(super) enum Buffer {}

/// What wgpu doesn't say about a device.
#[derive(Debug)]
pub(super) struct Facts {
    /// CPU and GPU have one memory.
    pub unified: bool,
    /// Whether file mappings may be imported.
    pub imports: bool,
    /// Whether the driver says what its memory leaves.
    has_budget: bool,
    memory: vk::PhysicalDeviceMemoryProperties,
}

impl Facts {
    pub(super) fn of(adapter: &wgpu::Adapter) -> Result<Self, String> {
        // SAFETY: the handle is used for questions only.
        let hal = unsafe { adapter.as_hal::<Vulkan>() }.ok_or("not a Vulkan device")?;
        let (instance, physical) = (hal.shared_instance().raw_instance(), hal.raw_physical_device());
        // SAFETY: the adapter keeps instance and physical device alive.
        let extensions = unsafe { instance.enumerate_device_extension_properties(physical) }.map_err(text)?;
        let has = |name| extensions.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name));
        let has_import = has(ash::ext::external_memory_host::NAME);
        let mut host = vk::PhysicalDeviceExternalMemoryHostPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut host);
        // SAFETY: as above; the chained structure is for an extension that need not be there, and then stays as it is.
        unsafe { instance.get_physical_device_properties2(physical, &mut properties) };
        let device_type = properties.properties.device_type;
        // SAFETY: as above.
        let memory = unsafe { instance.get_physical_device_memory_properties(physical) };
        let all_local = memory.memory_heaps_as_slice().iter().all(is_local);
        let shares = [vk::PhysicalDeviceType::INTEGRATED_GPU, vk::PhysicalDeviceType::CPU].contains(&device_type);
        // Windows begin and end on pages of the operating system.
        let alignment = host.min_imported_host_pointer_alignment;
        let page_size = page_size() as u64;
        Ok(Self {
            unified: shares || all_local,
            imports: has_import && alignment > 0 && page_size.is_multiple_of(alignment),
            has_budget: has(ash::ext::memory_budget::NAME),
            memory,
        })
    }

    /// Bytes that the device's own memory leaves. `None`: it has none of its own, or doesn't say.
    pub(super) fn memory_left(&self, adapter: &wgpu::Adapter) -> Option<u64> {
        if self.unified || !self.has_budget {
            return None;
        }
        // SAFETY: the handle is used for a question only.
        let hal = unsafe { adapter.as_hal::<Vulkan>() }?;
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        let instance = hal.shared_instance().raw_instance();
        // SAFETY: the adapter keeps instance and physical device alive; the device has the extension.
        unsafe { instance.get_physical_device_memory_properties2(hal.raw_physical_device(), &mut properties) };
        let heaps = self.memory.memory_heaps_as_slice().iter().enumerate().filter(|(_, heap)| is_local(heap));
        let left = heaps.map(|(i, _)| budget.heap_budget[i].saturating_sub(budget.heap_usage[i])).max()?;
        // Drivers that don't know answer 0.
        (left > 0).then_some(left)
    }

    /// The first of the memory types in `allowed` that is the device's own: drivers list the faster ones first.
    fn local_type(&self, allowed: u32) -> Option<u32> {
        let is_local = |ty: &vk::MemoryType| ty.property_flags.contains(MemoryPropertyFlags::DEVICE_LOCAL);
        let mut types = self.memory.memory_types_as_slice().iter().enumerate();
        types.find(|(i, ty)| allowed >> i & 1 == 1 && is_local(ty)).map(|(i, _)| i as u32)
    }

    /// The best of the memory types in `allowed` that the CPU can map and needs not flush: cached, and on unified memory
    /// the device's own.
    fn shared_type(&self, allowed: u32) -> Option<u32> {
        let needed = MemoryPropertyFlags::HOST_VISIBLE | MemoryPropertyFlags::HOST_COHERENT;
        let types = self.memory.memory_types_as_slice().iter().enumerate();
        let usable = types.filter(|(i, ty)| allowed >> i & 1 == 1 && ty.property_flags.contains(needed));
        // The first of the best: drivers list the faster ones first.
        let worth = |flags: MemoryPropertyFlags| {
            let local = flags.contains(MemoryPropertyFlags::DEVICE_LOCAL);
            (flags.contains(MemoryPropertyFlags::HOST_CACHED), local == self.unified)
        };
        usable.rev().max_by_key(|(_, ty)| worth(ty.property_flags)).map(|(i, _)| i as u32)
    }
}

pub(super) fn open(
    adapter: &wgpu::Adapter,
    facts: &Facts,
    limits: &wgpu::Limits,
) -> Result<(wgpu::Device, wgpu::Queue), String> {
    let (features, hints) = (wgpu::Features::empty(), wgpu::MemoryHints::default());
    // SAFETY: the handle is used to open a device, which keeps what it needs.
    let hal = unsafe { adapter.as_hal::<Vulkan>() }.ok_or("not a Vulkan device")?;
    // What wgpu would do by itself can't ask for the extension.
    let add_import = |args: wgpu::hal::vulkan::CreateDeviceCallbackArgs<'_, '_, '_>| {
        if facts.imports {
            args.extensions.push(ash::ext::external_memory_host::NAME);
        }
    };
    // SAFETY: features and limits are the adapter's; the callback adds an extension that the device has.
    let opened = unsafe { hal.open_with_callback(features, limits, &hints, Some(Box::new(add_import))) };
    let opened = opened.map_err(|error| error.to_string())?;
    let descriptor = wgpu::DeviceDescriptor { required_limits: limits.clone(), ..Default::default() };
    // SAFETY: opened from this adapter, with the features and limits that the descriptor names.
    unsafe { adapter.create_device_from_hal(opened, &descriptor) }.map_err(|error| error.to_string())
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
    if !gpu.facts.imports {
        return Err("the driver imports no memory of the host".into());
    }
    let raw = Raw::of(gpu)?;
    let loader = ash::ext::external_memory_host::Device::new(&raw.instance, &raw.device);
    let kind = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
    let host_pointer = start.as_ptr().cast::<c_void>();
    let mut pointer = vk::MemoryHostPointerPropertiesEXT::default();
    let ask = loader.fp().get_memory_host_pointer_properties_ext;
    // SAFETY: the device was opened with the extension, and the pointer is that of whole pages.
    unsafe { ask(raw.device.handle(), kind, host_pointer, &raw mut pointer) }.result().map_err(text)?;
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(kind);
    let made = raw.buffer(size_bytes, vk::BufferUsageFlags::TRANSFER_SRC, Some(&mut external))?;
    let allowed = made.requirements.memory_type_bits & pointer.memory_type_bits;
    if made.requirements.size > size_bytes as u64 || allowed == 0 {
        return Err(format!("a buffer wants {} bytes of memory types {allowed:#b}", made.requirements.size));
    }
    let mut source = vk::ImportMemoryHostPointerInfoEXT::default().handle_type(kind).host_pointer(host_pointer);
    let allocate = vk::MemoryAllocateInfo::default()
        .allocation_size(size_bytes as u64)
        .memory_type_index(allowed.trailing_zeros())
        .push_next(&mut source);
    // SAFETY: the range is whole pages that stay mapped (`# Safety`), of a memory type that both the pointer and the buffer
    // allow.
    let made = unsafe { made.bind(&allocate) }?;
    Ok(made.into_buffer(gpu, size_bytes, wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC, keep))
}

/// Allocates memory that stays mapped for the CPU, zeroed.
pub(super) fn allocate(gpu: &Gpu, size_bytes: usize) -> Result<SharedMemory, String> {
    let raw = Raw::of(gpu)?;
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let made = raw.buffer(size_bytes, usage, None)?;
    let allowed = made.requirements.memory_type_bits;
    let memory_type = gpu.facts.shared_type(allowed).ok_or("no memory that the CPU can map")?;
    let allocate =
        vk::MemoryAllocateInfo::default().allocation_size(made.requirements.size).memory_type_index(memory_type);
    // SAFETY: a plain allocation of a type that the buffer allows.
    let made = unsafe { made.bind(&allocate) }?;
    // SAFETY: the memory is host-visible, and nobody else has mapped it. Freeing it unmaps it.
    let start = unsafe { raw.device.map_memory(made.memory, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty()) };
    let start = start.map_err(text)?.cast::<u8>();
    let start = NonNull::new(start).ok_or("the driver mapped memory at address 0")?;
    // What a driver hands out is not zeroed by any contract.
    // SAFETY: mapped writable, at least so long, and not used by anyone yet.
    unsafe { ptr::write_bytes(start.as_ptr(), 0, size_bytes) };
    let usages = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let buffer = made.into_buffer(gpu, size_bytes, usages, Box::new(()));
    Ok(SharedMemory { start, size_bytes, buffer })
}

/// Allocates memory of the device's own. (wgpu's allocator does not reach the largest size that drivers give at once.)
pub(super) fn allocate_local(gpu: &Gpu, size_bytes: usize) -> Result<DeviceBuffer, String> {
    let raw = Raw::of(gpu)?;
    let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
    let made = raw.buffer(size_bytes, usage, None)?;
    let memory_type = gpu.facts.local_type(made.requirements.memory_type_bits).ok_or("no memory of its own")?;
    let allocate =
        vk::MemoryAllocateInfo::default().allocation_size(made.requirements.size).memory_type_index(memory_type);
    // SAFETY: a plain allocation of a type that the buffer allows.
    let made = unsafe { made.bind(&allocate) }?;
    let usages = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    Ok(made.into_buffer(gpu, size_bytes, usages, Box::new(())))
}

pub(super) fn keep_resident<'a>(
    _gpu: &Gpu,
    _buffers: impl Iterator<Item = &'a DeviceBuffer>,
) -> Option<Result<Resident, String>> {
    // Drivers for Linux evict nothing that the kernel has not, and locked pages are the kernel's to keep.
    None
}

/// Handles for direct calls.
struct Raw {
    instance: ash::Instance,
    device: ash::Device,
}

impl Raw {
    fn of(gpu: &Gpu) -> Result<Self, String> {
        // SAFETY: the handles are used for calls that wgpu makes too, while `gpu` keeps the device.
        let hal = unsafe { gpu.device.as_hal::<Vulkan>() }.ok_or("not a Vulkan device")?;
        Ok(Self { instance: hal.shared_instance().raw_instance().clone(), device: hal.raw_device().clone() })
    }

    /// A storage buffer without memory.
    fn buffer(
        &self,
        size_bytes: usize,
        usage: vk::BufferUsageFlags,
        external: Option<&mut vk::ExternalMemoryBufferCreateInfo<'_>>,
    ) -> Result<Unbound<'_>, String> {
        let mut create = vk::BufferCreateInfo::default()
            .size(size_bytes as u64)
            .usage(vk::BufferUsageFlags::STORAGE_BUFFER | usage)
            .sharing_mode(vk::SharingMode::EXCLUSIVE);
        if let Some(external) = external {
            create = create.push_next(external);
        }
        // SAFETY: a well-formed description within the device's limits, which the caller checked.
        let buffer = unsafe { self.device.create_buffer(&create, None) }.map_err(text)?;
        // SAFETY: just made.
        let requirements = unsafe { self.device.get_buffer_memory_requirements(buffer) };
        Ok(Unbound { device: &self.device, buffer, requirements })
    }
}

/// A buffer without memory, destroyed on drop.
struct Unbound<'a> {
    device: &'a ash::Device,
    buffer: vk::Buffer,
    requirements: vk::MemoryRequirements,
}

impl Unbound<'_> {
    /// Allocates and binds the buffer's memory.
    ///
    /// # Safety
    ///
    /// - `allocate` describes memory of a type that the buffer allows, at least as large as it requires; what it imports
    ///   stays valid while the memory lives.
    unsafe fn bind(self, allocate: &vk::MemoryAllocateInfo<'_>) -> Result<Bound, String> {
        // SAFETY: promised by the caller.
        let memory = unsafe { self.device.allocate_memory(allocate, None) }.map_err(text)?;
        let bound = Bound { device: self.device.clone(), buffer: self.buffer, memory };
        // `bound` destroys the buffer from here on.
        std::mem::forget(self);
        // SAFETY: a fresh buffer and memory that is large enough and of an allowed type.
        unsafe { bound.device.bind_buffer_memory(bound.buffer, bound.memory, 0) }.map_err(text)?;
        Ok(bound)
    }
}

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        // SAFETY: made by this device, and no command has seen it.
        unsafe { self.device.destroy_buffer(self.buffer, None) };
    }
}

/// A buffer with memory of its own, both freed on drop: before anything was submitted, or by wgpu after the last use.
struct Bound {
    device: ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
}

impl Bound {
    /// Hands the buffer to wgpu, which drops it, and then `keep`, once the device has let go of it.
    fn into_buffer(
        self,
        gpu: &Gpu,
        size_bytes: usize,
        usage: wgpu::BufferUsages,
        keep: Box<dyn Send + Sync>,
    ) -> DeviceBuffer {
        let handle = self.buffer;
        let release = move || {
            drop(self);
            drop(keep);
        };
        // SAFETY: the handle lives until the callback, which is the only one to destroy it.
        let buffer = unsafe { wgpu::hal::vulkan::Buffer::from_raw_externally_owned(handle, Box::new(release)) };
        let descriptor =
            wgpu::BufferDescriptor { label: None, size: size_bytes as u64, usage, mapped_at_creation: false };
        // SAFETY: made on this device with the size and the usages described; its memory is initialised (file pages, or
        // zeroed) or, in an upload, written before anything reads it.
        let buffer = unsafe { gpu.device.create_buffer_from_hal::<Vulkan>(buffer, &descriptor) };
        DeviceBuffer::new(&gpu.device, buffer, None)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: made by this device, which outlives its buffers; nothing uses them any more (`Bound`). Freeing memory
        // unmaps it.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

fn is_local(heap: &vk::MemoryHeap) -> bool {
    heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL)
}

fn text(error: vk::Result) -> String {
    error.to_string()
}
