//! Weights: immutable bytes, mapped or owned, and the views into them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::allocation::Allocation;
use crate::page::{page_size, round_up_to_page};
use crate::{Device, Error, FileMapping, Result};

/// Owned, immutable bytes: an allocation, or a window of a file mapping that it keeps alive.
///
/// The one door to the bytes is [`view`](Self::view):
///
/// ```
/// # use muser_memory::{Device, GpuBytes};
/// let bytes = GpuBytes::from_slice(&Device::host(), b"weights")?;
/// assert_eq!(bytes.view(1, 3)?.as_slice(), b"eig");
/// assert!(bytes.view(1, 7).is_err());
/// # Ok::<(), muser_memory::Error>(())
/// ```
///
/// A view can't outlive its owner:
///
/// ```compile_fail,E0505
/// # use muser_memory::{Device, GpuBytes};
/// # let bytes = GpuBytes::from_slice(&Device::host(), b"weights")?;
/// let view = bytes.view(0, 7)?;
/// drop(bytes); // M4: cannot move out of `bytes` because it is borrowed
/// view.as_slice();
/// # Ok::<(), muser_memory::Error>(())
/// ```
#[derive(Debug)]
pub struct GpuBytes {
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Allocated(Allocation),
    /// `window` lies inside the file and begins on a page.
    Mapped {
        mapping: Arc<FileMapping>,
        window: Range<usize>,
        device_size_bytes: usize,
    },
}

impl GpuBytes {
    /// Shares the bytes `window` of a mapping, without a copy. `window.start` is a multiple of the page size, since
    /// devices wrap whole pages.
    ///
    /// # Errors
    ///
    /// When the window passes the end of the file, does not begin on a page, or is larger than a buffer of the device.
    pub fn map(device: &Device, mapping: &Arc<FileMapping>, window: Range<usize>) -> Result<Self> {
        let (start, end) = (window.start, window.end);
        if mapping.as_slice().get(start..end).is_none() {
            let (offset, len) = (start as u64, end.saturating_sub(start) as u64);
            return Err(Error::ViewOutOfBounds { offset, len, size_bytes: mapping.size_bytes() });
        }
        if !start.is_multiple_of(page_size()) {
            return Err(Error::WindowNotPageAligned { offset: start as u64, page_size: page_size() });
        }
        if let Some(max_buffer_bytes) = device.capabilities().max_buffer_bytes
            && (end - start) as u64 > max_buffer_bytes
        {
            let name = format!("{}: bytes {start}..{end}", mapping.source().path().display());
            return Err(Error::BufferTooLarge { name, size_bytes: (end - start) as u64, max_buffer_bytes });
        }
        let too_large = Error::TooLarge { what: "window", len: (end - start) as u64, element_bytes: 1 };
        let device_size_bytes = round_up_to_page(end - start).ok_or(too_large)?;
        Ok(Self { backing: Backing::Mapped { mapping: Arc::clone(mapping), window, device_size_bytes } })
    }

    /// Copies `bytes` into an allocation of their own.
    ///
    /// # Errors
    ///
    /// When the size passes the device's limits, or the system has no memory.
    pub fn from_slice(device: &Device, bytes: &[u8]) -> Result<Self> {
        Self::filled(device, bytes.len(), |room| {
            room.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Allocates `len` bytes and lets `fill` write them, the last one to do so.
    pub(crate) fn filled(device: &Device, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<Self> {
        let mut allocation = Allocation::of::<u8>(device, "weights", len)?;
        fill(allocation.as_mut_slice())?;
        Ok(Self { backing: Backing::Allocated(allocation) })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match &self.backing {
            Backing::Allocated(allocation) => allocation.size_bytes(),
            Backing::Mapped { window, .. } => window.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes as a device sees them: whole pages.
    pub fn device_size_bytes(&self) -> usize {
        match &self.backing {
            Backing::Allocated(allocation) => allocation.device_size_bytes(),
            Backing::Mapped { device_size_bytes, .. } => *device_size_bytes,
        }
    }

    /// Whether the bytes are a file's own pages rather than a copy.
    pub fn is_mapped(&self) -> bool {
        matches!(self.backing, Backing::Mapped { .. })
    }

    /// The mapping and the part of it that this is, if it is one.
    pub(crate) fn mapped(&self) -> Option<(&FileMapping, &Range<usize>)> {
        match &self.backing {
            Backing::Allocated(_) => None,
            Backing::Mapped { mapping, window, .. } => Some((mapping, window)),
        }
    }

    /// Asks the operating system to keep the bytes in memory for as long as they are mapped.
    pub(crate) fn lock_resident(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Allocated(allocation) => allocation.lock_resident(),
            Backing::Mapped { mapping, window, .. } => mapping.lock_resident(window.clone()),
        }
    }

    /// The `len` bytes from `offset` on. A view of no bytes at the very end is allowed.
    ///
    /// # Errors
    ///
    /// [`Error::ViewOutOfBounds`] with the numbers, when the view would pass the logical end.
    pub fn view(&self, offset: usize, len: usize) -> Result<GpuByteView<'_>> {
        let size_bytes = self.len();
        match offset.checked_add(len) {
            Some(end) if end <= size_bytes => Ok(GpuByteView { bytes: self, offset, len }),
            _ => Err(Error::ViewOutOfBounds { offset: offset as u64, len: len as u64, size_bytes }),
        }
    }

    fn as_slice(&self) -> &[u8] {
        match &self.backing {
            Backing::Allocated(allocation) => allocation.as_slice(),
            Backing::Mapped { mapping, window, .. } => &mapping.as_slice()[window.clone()],
        }
    }
}

/// A view into [`GpuBytes`]: which buffer, where in it, how long. Copied freely; read-only.
#[derive(Clone, Copy, Debug)]
pub struct GpuByteView<'a> {
    bytes: &'a GpuBytes,
    /// `offset + len` is at most `bytes.len()`.
    offset: usize,
    len: usize,
}

const _: () = assert!(size_of::<GpuByteView<'_>>() == 3 * size_of::<usize>(), "24 bytes on 64-bit");

impl<'a> GpuByteView<'a> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes, borrowed from the owner rather than from this view.
    pub fn as_slice(&self) -> &'a [u8] {
        &self.bytes.as_slice()[self.offset..self.offset + self.len]
    }

    /// The owner, for a device that binds it.
    pub fn buffer(&self) -> &'a GpuBytes {
        self.bytes
    }

    /// Where in the owner the view begins.
    pub fn offset(&self) -> usize {
        self.offset
    }
}
