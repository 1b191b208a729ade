//! Devices: where memory comes from and what it can be used for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::allocation::{Allocation, Memory};
use crate::available::MemoryLimit;
use crate::gpu::Gpu;
use crate::mapping::Pages;
use crate::page::{page_size, round_up_to_page};
use crate::{Error, Result};

/// A device that memory is allocated on. A clone is another handle on the same device and shares its account.
///
/// [`Device::host`] is there everywhere: anonymous and file mappings, read by CPU kernels. With the feature `gpu`,
/// `Device::gpu` opens a device of Vulkan or Metal.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    kind: Kind,
    limits: DeviceLimits,
    /// Device bytes of the live allocations.
    allocated_bytes: AtomicU64,
}

#[derive(Debug)]
enum Kind {
    Host,
    Gpu(Box<Gpu>),
}

/// Limits that a device is held to beyond its own. With them a device stands in for one that has less, so that budgets and
/// windows are tested without it, and they hold a process to its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Bytes that all allocations together may have. `None`: as much as the system gives.
    pub budget_bytes: Option<u64>,
    /// Bytes that one buffer may have. `None`: as many as the device takes.
    pub max_buffer_bytes: Option<u64>,
    /// Bytes that may be bound at once. `None`: as many as the device takes.
    pub max_binding_bytes: Option<u64>,
}

/// How a device is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Api {
    /// Not at all: the CPU's own memory.
    Host,
    /// Vulkan.
    Vulkan,
    /// Metal.
    Metal,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "host",
            Self::Vulkan => "Vulkan",
            Self::Metal => "Metal",
        })
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The CPU and the device read the same physical bytes.
    pub unified: bool,
    /// A file mapping can become a buffer of the device without a copy. A driver may refuse a mapping all the same, so a
    /// load tries it.
    pub imports_mappings: bool,
    /// Bytes: pointers and lengths of wrapped memory are multiples of it.
    pub page_size: usize,
    /// Bytes: offsets of bound views are multiples of it.
    pub offset_alignment: usize,
    /// Bytes of the largest buffer. `None`: no limit.
    pub max_buffer_bytes: Option<u64>,
    /// Bytes of the largest range bound at once. `None`: no limit.
    pub max_binding_bytes: Option<u64>,
}

/// Where an allocation lives and who sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorageOptions {
    /// Which processors see the bytes.
    pub storage: Storage,
    /// Who orders dependent accesses.
    pub hazard_tracking: HazardTracking,
}

/// Which processors see the bytes of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// CPU and device, at one address and without a copy.
    Shared,
}

/// Who orders accesses that depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HazardTracking {
    /// The driver.
    Tracked,
}

/// The storage options of every allocation on every device; nothing else decides them.
///
/// Memory is shared, because the CPU reads and writes whatever the device does. Hazard tracking is on: without it,
/// something else would have to order provably every read after the write that it depends on, and nothing does, so there is
/// no untracked mode to ask for.
pub(crate) const fn storage_options() -> StorageOptions {
    StorageOptions { storage: Storage::Shared, hazard_tracking: HazardTracking::Tracked }
}

impl Device {
    /// The host, without limits and with an account of its own.
    pub fn host() -> Self {
        Self::host_with(DeviceLimits::default())
    }

    /// The host, held to `limits`.
    pub fn host_with(limits: DeviceLimits) -> Self {
        Self::new(Kind::Host, limits)
    }

    /// Opens a GPU, held to the limits of `options`.
    ///
    /// # Errors
    ///
    /// When there is none, or none as asked for; when the driver refuses.
    #[cfg(feature = "gpu")]
    pub fn gpu(options: &crate::GpuOptions) -> Result<Self> {
        Ok(Self::new(Kind::Gpu(Box::new(Gpu::open(options)?)), options.limits))
    }

    fn new(kind: Kind, limits: DeviceLimits) -> Self {
        Self { shared: Arc::new(Shared { kind, limits, allocated_bytes: AtomicU64::new(0) }) }
    }

    /// Its name, as its driver gives it.
    pub fn name(&self) -> &str {
        match &self.shared.kind {
            Kind::Host => "host",
            Kind::Gpu(gpu) => gpu.name(),
        }
    }

    /// How it is spoken to.
    pub fn api(&self) -> Api {
        match &self.shared.kind {
            Kind::Host => Api::Host,
            Kind::Gpu(gpu) => gpu.api(),
        }
    }

    /// What the device can do, and what its limits leave of that.
    pub fn capabilities(&self) -> Capabilities {
        let own = match &self.shared.kind {
            Kind::Host => Capabilities {
                unified: true,
                imports_mappings: true,
                page_size: page_size(),
                offset_alignment: 1,
                max_buffer_bytes: None,
                max_binding_bytes: None,
            },
            Kind::Gpu(gpu) => gpu.capabilities(),
        };
        let DeviceLimits { max_buffer_bytes, max_binding_bytes, .. } = self.shared.limits;
        Capabilities {
            max_buffer_bytes: least(own.max_buffer_bytes, max_buffer_bytes),
            max_binding_bytes: least(own.max_binding_bytes, max_binding_bytes),
            ..own
        }
    }

    /// The storage options of every allocation of this device.
    pub fn storage_options(&self) -> StorageOptions {
        storage_options()
    }

    /// Bytes of the live allocations, in whole pages. Mappings of files do not count: their pages belong to the file.
    pub fn allocated_bytes(&self) -> u64 {
        self.shared.allocated_bytes.load(Ordering::Relaxed)
    }

    /// What the device's own memory leaves, if it has any and its driver says so.
    pub fn memory_limit(&self) -> Option<MemoryLimit> {
        self.as_gpu()?.memory_limit()
    }

    /// The GPU behind it, if it is one.
    pub(crate) fn as_gpu(&self) -> Option<&Gpu> {
        match &self.shared.kind {
            Kind::Host => None,
            Kind::Gpu(gpu) => Some(gpu),
        }
    }

    /// Allocates `size_bytes` zeroed bytes for `what`.
    pub(crate) fn allocate(&self, what: &'static str, size_bytes: usize) -> Result<Allocation> {
        let too_large = Error::TooLarge { what, len: size_bytes as u64, element_bytes: 1 };
        let device_bytes = round_up_to_page(size_bytes).ok_or(too_large)?;
        if let Some(max_buffer_bytes) = self.capabilities().max_buffer_bytes
            && device_bytes as u64 > max_buffer_bytes
        {
            return Err(Error::BufferTooLarge { name: what.into(), size_bytes: device_bytes as u64, max_buffer_bytes });
        }
        let charge = self.charge(device_bytes as u64)?;
        let memory = match &self.shared.kind {
            Kind::Host => Memory::Pages(
                Pages::anonymous(device_bytes)
                    .map_err(|source| Error::OutOfMemory { size_bytes: device_bytes, source })?,
            ),
            Kind::Gpu(gpu) => Memory::Gpu(gpu.allocate(device_bytes)?),
        };
        Ok(Allocation::new(memory, size_bytes, charge))
    }

    /// Takes `size_bytes` from the budget until the charge is dropped.
    pub(crate) fn charge(&self, size_bytes: u64) -> Result<Charge> {
        let budget_bytes = self.shared.limits.budget_bytes.unwrap_or(u64::MAX);
        self.shared
            .allocated_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |allocated_bytes| {
                allocated_bytes.checked_add(size_bytes).filter(|&sum| sum <= budget_bytes)
            })
            .map_err(|allocated_bytes| Error::OverBudget { size_bytes, allocated_bytes, budget_bytes })?;
        Ok(Charge { device: self.clone(), size_bytes })
    }
}

fn least(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// Bytes on a device's account.
#[derive(Debug)]
pub(crate) struct Charge {
    device: Device,
    size_bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.device.shared.allocated_bytes.fetch_sub(self.size_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GpuBuffer;

    #[test]
    fn m6_every_allocation_is_shared_and_tracked() {
        let options = Device::host().storage_options();
        assert_eq!(options.storage, Storage::Shared);
        assert_eq!(options.hazard_tracking, HazardTracking::Tracked);
    }

    #[test]
    fn m33_the_host_says_what_it_can_do() {
        let host = Device::host().capabilities();
        assert!(host.unified && host.imports_mappings);
        assert_eq!((host.page_size, host.max_buffer_bytes), (page_size(), None));
        let limited = Device::host_with(DeviceLimits { max_buffer_bytes: Some(1 << 20), ..DeviceLimits::default() });
        assert_eq!(limited.capabilities().max_buffer_bytes, Some(1 << 20));
    }

    #[test]
    fn a_device_counts_what_is_allocated_and_what_is_freed() {
        let device = Device::host();
        let first = GpuBuffer::zeros(&device, 1).unwrap();
        let second = GpuBuffer::zeros(&device.clone(), 2 * page_size()).unwrap();
        assert_eq!(device.allocated_bytes(), 9 * page_size() as u64);
        drop(first);
        assert_eq!(device.allocated_bytes(), 8 * page_size() as u64);
        drop(second);
        assert_eq!(device.allocated_bytes(), 0);
    }

    #[test]
    fn an_allocation_past_the_budget_is_refused_and_leaves_nothing_behind() {
        let budget_bytes = 3 * page_size() as u64;
        let device = Device::host_with(DeviceLimits { budget_bytes: Some(budget_bytes), ..DeviceLimits::default() });
        let held = GpuBuffer::zeros(&device, page_size() / 2).unwrap();
        let refused = GpuBuffer::zeros(&device, page_size() / 2).unwrap_err();
        assert!(matches!(refused, Error::OverBudget { allocated_bytes, .. } if allocated_bytes == held_bytes(&held)));
        assert_eq!(device.allocated_bytes(), held_bytes(&held));
        drop(held);
        GpuBuffer::zeros(&device, page_size() / 2).unwrap();
    }

    #[test]
    fn a_buffer_over_the_devices_limit_is_refused() {
        let limit = page_size() as u64;
        let device = Device::host_with(DeviceLimits { max_buffer_bytes: Some(limit), ..DeviceLimits::default() });
        GpuBuffer::zeros(&device, page_size() / 4).unwrap();
        let refused = GpuBuffer::zeros(&device, page_size() / 4 + 1).unwrap_err();
        assert!(matches!(refused, Error::BufferTooLarge { max_buffer_bytes, .. } if max_buffer_bytes == limit));
    }

    fn held_bytes(buffer: &GpuBuffer) -> u64 {
        buffer.device_size_bytes() as u64
    }
}
