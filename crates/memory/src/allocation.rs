//! Allocations: a device's memory, seen as elements.

use std::io;

use crate::device::Charge;
use crate::mapping::Pages;
use crate::page::round_up_to_page;
use crate::{Device, Error, Result};

/// Zeroed memory of a device: `size_bytes` logical bytes in whole pages of their own.
#[derive(Debug)]
pub(crate) struct Allocation {
    pages: Pages,
    size_bytes: usize,
    /// Dropped after the pages: bytes leave the account when they are free.
    _charge: Charge,
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
// SAFETY: any four bytes are an `f32` (NaNs included); no padding; alignment 4.
unsafe impl Element for f32 {}

impl Allocation {
    /// Maps memory for `size_bytes` under `charge`, which has room for them in whole pages.
    pub(crate) fn new(charge: Charge, size_bytes: usize) -> Result<Self> {
        let page_bytes = round_up_to_page(size_bytes).expect("the charge was made for this sum");
        let pages =
            Pages::anonymous(page_bytes).map_err(|source| Error::OutOfMemory { size_bytes: page_bytes, source })?;
        Ok(Self { pages, size_bytes, _charge: charge })
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
        self.pages.size_bytes()
    }

    /// Asks the operating system to keep the memory where it is.
    pub(crate) fn lock_resident(&self) -> io::Result<()> {
        self.pages.lock(0..self.pages.size_bytes())
    }

    pub(crate) fn as_slice<T: Element>(&self) -> &[T] {
        let start = self.pages.start().as_ptr().cast::<T>();
        // SAFETY: the pages are mapped readable while `self` lives and hold at least `size_bytes` bytes, initialised to
        // zero by the kernel. Any bits are a valid `T`, and a page boundary is aligned for it (`Element`). The borrow of
        // `self` keeps writers out, as they need `&mut self`.
        unsafe { std::slice::from_raw_parts(start, self.size_bytes / size_of::<T>()) }
    }

    pub(crate) fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        let start = self.pages.start().as_ptr().cast::<T>();
        // SAFETY: as in `as_slice`, and the pages are mapped writable; `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(start, self.size_bytes / size_of::<T>()) }
    }
}
