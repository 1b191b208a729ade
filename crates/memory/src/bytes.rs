//! Weights: immutable bytes, mapped or owned, and the views into them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::allocation::Allocation;
use crate::device::Charge;
use crate::gpu::DeviceBuffer;
use crate::page::page_size;
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
    device: Device,
}

#[derive(Debug)]
enum Backing {
    /// Memory of the device, which the CPU shares.
    Allocated(Allocation),
    /// `window` lies inside the file and begins on a page.
    Mapped {
        /// How a GPU sees the bytes; dropped before the mapping.
        on_device: Option<OnDevice>,
        mapping: Arc<FileMapping>,
        window: Range<usize>,
    },
}

/// A GPU's side of a mapped window.
#[derive(Debug)]
enum OnDevice {
    /// The same pages.
    Imported(DeviceBuffer),
    /// A copy in the device's own memory, on its account.
    Uploaded(DeviceBuffer, #[expect(dead_code, reason = "held for its drop")] Charge),
}

impl GpuBytes {
    /// Shares the bytes `window` of a mapping, without a copy. `window.start` is a multiple of the page size, since
    /// devices wrap whole pages.
    ///
    /// # Errors
    ///
    /// When the window passes the end of the file, does not begin on a page, or is larger than a buffer of the device; when
    /// the device's driver refuses to import it.
    pub fn map(device: &Device, mapping: &Arc<FileMapping>, window: Range<usize>) -> Result<Self> {
        check_window(device, mapping, &window)?;
        let import = |gpu: &crate::gpu::Gpu| gpu.import(mapping, window.clone()).map(OnDevice::Imported);
        let on_device = device.as_gpu().map(import).transpose()?;
        Ok(Self::mapped_as(device, mapping, window, on_device))
    }

    /// As [`map`](Self::map) for the CPU, with a copy in the device's own memory that `upload` makes.
    pub(crate) fn uploaded(
        device: &Device,
        mapping: &Arc<FileMapping>,
        window: Range<usize>,
        upload: impl FnOnce() -> Result<DeviceBuffer>,
    ) -> Result<Self> {
        check_window(device, mapping, &window)?;
        let charge = device.charge(mapping.window_pages(window.clone()) as u64)?;
        Ok(Self::mapped_as(device, mapping, window, Some(OnDevice::Uploaded(upload()?, charge))))
    }

    fn mapped_as(
        device: &Device,
        mapping: &Arc<FileMapping>,
        window: Range<usize>,
        on_device: Option<OnDevice>,
    ) -> Self {
        let backing = Backing::Mapped { on_device, mapping: Arc::clone(mapping), window };
        Self { backing, device: device.clone() }
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
        allocation.prefer_large_pages();
        fill(allocation.as_mut_slice())?;
        Ok(Self { backing: Backing::Allocated(allocation), device: device.clone() })
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
            Backing::Mapped { mapping, window, .. } => mapping.window_pages(window.clone()),
        }
    }

    /// Whether device and CPU read a file's own pages rather than a copy.
    pub fn is_mapped(&self) -> bool {
        match &self.backing {
            Backing::Allocated(_) => false,
            Backing::Mapped { on_device, .. } => !matches!(on_device, Some(OnDevice::Uploaded(..))),
        }
    }

    /// The device that the bytes are for.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The buffer by which a GPU sees the bytes, if the device is one.
    pub(crate) fn device_buffer(&self) -> Option<&DeviceBuffer> {
        match &self.backing {
            Backing::Allocated(allocation) => allocation.device_buffer(),
            Backing::Mapped { on_device, .. } => match on_device.as_ref()? {
                OnDevice::Imported(buffer) | OnDevice::Uploaded(buffer, _) => Some(buffer),
            },
        }
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

fn check_window(device: &Device, mapping: &FileMapping, window: &Range<usize>) -> Result<()> {
    let (start, end) = (window.start, window.end);
    if mapping.as_slice().get(start..end).is_none() {
        let (offset, len) = (start as u64, end.saturating_sub(start) as u64);
        return Err(Error::ViewOutOfBounds { offset, len, size_bytes: mapping.size_bytes() });
    }
    if !start.is_multiple_of(page_size()) {
        return Err(Error::WindowNotPageAligned { offset: start as u64, page_size: page_size() });
    }
    let size_bytes = mapping.window_pages(window.clone()) as u64;
    match device.capabilities().max_buffer_bytes {
        Some(max_buffer_bytes) if size_bytes > max_buffer_bytes => {
            let name = format!("{}: bytes {start}..{end}", mapping.source().path().display());
            Err(Error::BufferTooLarge { name, size_bytes, max_buffer_bytes })
        }
        _ => Ok(()),
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
