//! Allocations: a device's memory, seen as elements.

use std::io;
use std::ptr::NonNull;

use crate::device::Charge;
use crate::gpu::{DeviceBuffer, SharedMemory};
use crate::mapping::Pages;
use crate::{Device, Error, Result};

/// Zeroed memory of a device: `size_bytes` logical bytes in whole pages of their own.
#[derive(Debug)]
pub(crate) struct Allocation {
    memory: Memory,
    /// At most the memory's bytes.
    size_bytes: usize,
    /// Dropped after the memory: bytes leave the account when they are free.
    _charge: Charge,
}

/// Where an allocation's bytes are. Either way they are zeroed, aligned for every [`Element`], and readable and writable
/// by the CPU while the value lives.
#[derive(Debug)]
pub(crate) enum Memory {
    /// The process's own.
    Pages(Pages),
    /// A GPU's, at an address of the CPU.
    Gpu(SharedMemory),
}

impl Memory {
    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Pages(pages) => pages.start(),
            Self::Gpu(memory) => memory.start(),
        }
    }

    fn size_bytes(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.size_bytes(),
            Self::Gpu(memory) => memory.size_bytes(),
        }
    }
}

/// What an allocation may be read as.
///
/// # Safety
///
/// Every bit pattern, zero included, is a valid value; the type has no padding; its alignment divides 4096.
pub(crate) unsafe trait Element: Copy {}

// SAFETY: any byte is a `u8`; no padding; alignment 1.
unsafe impl Element for u8 {}
// SAFETY: any two bytes are a `u16`; no padding; alignment 2.
unsafe impl Element for u16 {}
// SAFETY: any four bytes are a `u32`; no padding; alignment 4.
unsafe impl Element for u32 {}
// SAFETY: any four bytes are an `f32` (NaNs included); no padding; alignment 4.
unsafe impl Element for f32 {}

impl Allocation {
    /// The first `size_bytes` of `memory`, which is on the account by `charge`.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub(crate) fn new(memory: Memory, size_bytes: usize, charge: Charge) -> Self {
        assert!(size_bytes <= memory.size_bytes(), "{size_bytes} of {} bytes", memory.size_bytes());
        Self { memory, size_bytes, _charge: charge }
    }

    /// Allocates `len` zeroed elements for `what`.
    pub(crate) fn of<T: Element>(device: &Device, what: &'static str, len: usize) -> Result<Self> {
        let size_bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&size_bytes| isize::try_from(size_bytes).is_ok())
            .ok_or(Error::TooLarge { what, len: len as u64, element_bytes: size_of::<T>() })?;
        device.allocate(what, size_bytes)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(crate) fn device_size_bytes(&self) -> usize {
        self.memory.size_bytes()
    }

    /// The buffer by which a GPU sees the memory, if it is a GPU's.
    pub(crate) fn device_buffer(&self) -> Option<&DeviceBuffer> {
        match &self.memory {
            Memory::Pages(_) => None,
            Memory::Gpu(memory) => Some(memory.buffer()),
        }
    }

    /// Asks the operating system to keep the memory where it is.
    pub(crate) fn lock_resident(&self) -> io::Result<()> {
        match &self.memory {
            Memory::Pages(pages) => pages.lock(0..pages.size_bytes()),
            Memory::Gpu(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "the memory is the driver's, which decides where it is"))
            }
        }
    }

    /// Asks for large pages. It is to be filled.
    pub(crate) fn prefer_large_pages(&self) {
        match &self.memory {
            Memory::Pages(pages) => pages.prefer_large(),
            // The driver maps it as it likes.
            Memory::Gpu(_) => {}
        }
    }

    pub(crate) fn as_slice<T: Element>(&self) -> &[T] {
        let start = self.memory.start().as_ptr().cast::<T>();
        // SAFETY: the memory is readable while `self` lives, holds at least `size_bytes` bytes (`new`), initialised to
        // zero, and is aligned for `T` (`Memory`). Any bits are a valid `T` (`Element`). The borrow of `self` keeps the
        // CPU's writers out, as they need `&mut self`; who has a GPU write waits for it before it lets the CPU look.
        unsafe { std::slice::from_raw_parts(start, self.size_bytes / size_of::<T>()) }
    }

    pub(crate) fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        let start = self.memory.start().as_ptr().cast::<T>();
        // SAFETY: as in `as_slice`, and the memory is writable; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(start, self.size_bytes / size_of::<T>()) }
    }
}
