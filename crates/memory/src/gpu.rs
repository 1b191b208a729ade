//! GPUs, through wgpu: one device interface over Vulkan and Metal, into whose hal layer this crate hands its own buffers.
//!
//! What the two do differently is in `vulkan` and `metal`, modules of the same functions. Everything that wgpu checks for
//! its own buffers and not for those handed in (sizes, alignment, limits, initialisation) is checked here.

mod bind;
#[cfg(target_vendor = "apple")]
mod metal;
mod self_test;
mod upload;
#[cfg(not(target_vendor = "apple"))]
mod vulkan;

#[cfg(test)]
mod tests;

#[cfg(target_vendor = "apple")]
use metal as native;
#[cfg(not(target_vendor = "apple"))]
use vulkan as native;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

pub use bind::Binding;
use pollster::block_on;

use crate::available::MemoryLimit;
use crate::page::page_size;
use crate::residency::Resident;
use crate::{Api, Capabilities, DeviceLimits, Error, FileMapping, LoadPath, Result};

/// Which GPU to open, and how.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// A part of its name, in any case. `None`: any name will do.
    pub name: Option<String>,
    /// Which of the GPUs of that name, in the order of [`gpus`], counted from 0.
    pub nth: usize,
    /// Limits beyond its own.
    pub limits: DeviceLimits,
    /// Takes it for a device whose weights take this path, so that what is written for one runs on another. `None`: for
    /// what it is.
    pub weights: Option<LoadPath>,
    /// Switches the validation layer of the driver's loader on, where it is installed. Its messages go to `log`.
    pub validation: bool,
}

/// A GPU that can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuInfo {
    /// Its name.
    pub name: String,
    /// How it is spoken to.
    pub api: Api,
    /// Its driver, with version.
    pub driver: String,
    /// Whether it is the CPU in disguise: a software rasteriser.
    pub is_software: bool,
}

/// All GPUs of the machine: those with memory of the CPU's first, then discrete ones, software rasterisers last.
pub fn gpus() -> Vec<GpuInfo> {
    adapters(&instance(false)).iter().map(|adapter| info(&adapter.get_info())).collect()
}

/// An open GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    adapter: wgpu::Adapter,
    info: GpuInfo,
    facts: native::Facts,
    limits: wgpu::Limits,
    /// The path that its weights are to take, whatever it is.
    weights: Option<LoadPath>,
    /// The first failure that no call returned.
    failure: Arc<Mutex<Option<String>>>,
}

impl Gpu {
    pub(crate) fn open(options: &GpuOptions) -> Result<Self> {
        let found = adapters(&instance(options.validation));
        let names: Vec<_> = found.iter().map(|adapter| adapter.get_info().name).collect();
        let wanted = options.name.as_deref().unwrap_or_default().to_lowercase();
        let mut named = found.into_iter().filter(|adapter| adapter.get_info().name.to_lowercase().contains(&wanted));
        let Some(adapter) = named.nth(options.nth) else {
            return Err(Error::NoGpu { asked: options.name.clone(), found: names });
        };
        let info = info(&adapter.get_info());
        let failed = |reason: String| Error::Gpu { device: info.name.clone(), action: "open the device", reason };
        let facts = native::Facts::of(&adapter).map_err(failed)?;
        let limits = adapter.limits();
        let (device, queue) = native::open(&adapter, &facts, &limits).map_err(failed)?;
        let failure = Arc::new(Mutex::new(None));
        // Without a handler of ours, wgpu ends the process.
        let first = Arc::clone(&failure);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.to_string());
        }));
        Ok(Self { device, queue, adapter, info, facts, limits, weights: options.weights, failure })
    }

    pub(crate) fn name(&self) -> &str {
        &self.info.name
    }

    pub(crate) fn api(&self) -> Api {
        self.info.api
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        Capabilities {
            unified: self.weights.map_or(self.facts.unified, |path| path != LoadPath::Upload),
            // What a device with memory of its own reads from the CPU's, it reads slowly, and again and again.
            imports_mappings: self.facts.imports
                && self.weights.map_or(self.facts.unified, |path| path == LoadPath::Map),
            page_size: page_size(),
            offset_alignment: self.limits.min_storage_buffer_offset_alignment as usize,
            max_buffer_bytes: Some(self.limits.max_buffer_size),
            max_binding_bytes: Some(self.limits.max_storage_buffer_binding_size),
        }
    }

    pub(crate) fn memory_limit(&self) -> Option<MemoryLimit> {
        let available_bytes = self.facts.memory_left(&self.adapter)?;
        Some(MemoryLimit { source: format!("memory of {}", self.info.name), available_bytes })
    }

    /// Allocates memory that CPU and GPU share, zeroed.
    pub(crate) fn allocate(&self, size_bytes: usize) -> Result<SharedMemory> {
        self.expect_fits("allocation", size_bytes)?;
        native::allocate(self, size_bytes).map_err(|reason| self.failed("allocate shared memory", reason))
    }

    /// Makes the pages of `window`, which begins on one, a buffer without a copy. The mapping stays for as long as the GPU
    /// may read it.
    pub(crate) fn import(&self, mapping: &Arc<FileMapping>, window: Range<usize>) -> Result<DeviceBuffer> {
        let size_bytes = mapping.window_pages(window.clone());
        self.expect_fits("window", size_bytes)?;
        let start = mapping.page_at(window.start);
        // wgpu checks neither for a buffer that it is handed, and not every driver does.
        assert!(start.addr().get().is_multiple_of(page_size()) && size_bytes.is_multiple_of(page_size()));
        // SAFETY: the range is whole pages of a mapping, which the closure keeps until it is dropped.
        let buffer = unsafe { native::import(self, start, size_bytes, Box::new(Arc::clone(mapping))) };
        buffer.map_err(|reason| self.failed("import a file mapping", reason))
    }

    /// Asks the driver to keep buffers in memory. `None`: it has no such thing, and the operating system is to be asked.
    pub(crate) fn keep_resident<'a>(
        &self,
        buffers: impl Iterator<Item = &'a DeviceBuffer>,
    ) -> Option<std::result::Result<Resident, String>> {
        native::keep_resident(self, buffers)
    }

    /// Waits until everything submitted is done.
    fn wait(&self, action: &'static str) -> Result<()> {
        let waited = self.device.poll(wgpu::PollType::wait_indefinitely());
        waited.map_err(|error| self.failed(action, error.to_string()))?;
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(()),
            Some(reason) => Err(self.failed(action, reason)),
        }
    }

    /// Runs `make`, whose failures wgpu reports aside.
    fn checked<T>(&self, action: &'static str, make: impl FnOnce() -> T) -> Result<T> {
        let scopes = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation]
            .map(|filter| self.device.push_error_scope(filter));
        let made = make();
        let errors = scopes.into_iter().rev().map(|scope| block_on(scope.pop())).collect::<Vec<_>>();
        match errors.into_iter().flatten().next() {
            None => Ok(made),
            Some(error) => Err(self.failed(action, error.to_string())),
        }
    }

    fn expect_fits(&self, what: &'static str, size_bytes: usize) -> Result<()> {
        let max_buffer_bytes = self.limits.max_buffer_size;
        if size_bytes as u64 <= max_buffer_bytes {
            return Ok(());
        }
        Err(Error::BufferTooLarge { name: what.into(), size_bytes: size_bytes as u64, max_buffer_bytes })
    }

    fn failed(&self, action: &'static str, reason: String) -> Error {
        Error::Gpu { device: self.info.name.clone(), action, reason }
    }
}

/// A buffer of a GPU. Its drop waits until the GPU has let go of the memory behind it.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    /// `None` in the drop only.
    buffer: Option<wgpu::Buffer>,
    /// The driver's own handle, where it was made by this crate.
    #[cfg_attr(not(target_vendor = "apple"), expect(dead_code, reason = "Vulkan names no buffers in residency sets"))]
    native: Option<native::Buffer>,
    device: wgpu::Device,
}

impl DeviceBuffer {
    fn new(device: &wgpu::Device, buffer: wgpu::Buffer, native: Option<native::Buffer>) -> Self {
        Self { buffer: Some(buffer), native, device: device.clone() }
    }

    pub(crate) fn raw(&self) -> &wgpu::Buffer {
        self.buffer.as_ref().expect("taken in the drop only")
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        drop(self.buffer.take());
        // wgpu frees nothing by itself. A device that is lost has let go of everything.
        let _ = self.device.poll(wgpu::PollType::wait_indefinitely());
    }
}

/// Memory of a GPU at an address of the CPU, zeroed when it was made.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    /// Readable and writable while the buffer lives; aligned to 64 bytes at least.
    start: NonNull<u8>,
    size_bytes: usize,
    buffer: DeviceBuffer,
}

// SAFETY: the memory belongs to this value alone and is bound to no thread; the buffer is `Send`.
unsafe impl Send for SharedMemory {}
// SAFETY: a shared value gives out its address only; reading and writing through it is the owner's to justify.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(crate) fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }
}

fn instance(validation: bool) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = native::BACKENDS;
    // The layer speaks only where objects carry debug information too.
    descriptor.flags = if validation {
        wgpu::InstanceFlags::VALIDATION | wgpu::InstanceFlags::DEBUG
    } else {
        wgpu::InstanceFlags::empty()
    };
    wgpu::Instance::new(descriptor)
}

fn adapters(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    let mut adapters = block_on(instance.enumerate_adapters(native::BACKENDS));
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::IntegratedGpu => 0,
        wgpu::DeviceType::DiscreteGpu => 1,
        wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 2,
        wgpu::DeviceType::Cpu => 3,
    });
    adapters
}

fn info(adapter: &wgpu::AdapterInfo) -> GpuInfo {
    GpuInfo {
        name: adapter.name.clone(),
        api: native::API,
        driver: format!("{} {}", adapter.driver, adapter.driver_info).trim().to_owned(),
        is_software: adapter.device_type == wgpu::DeviceType::Cpu,
    }
}
