//! Buffers that are written: f32 activations and 16-bit planes.

use half::f16;
use half::slice::HalfBitsSliceExt;

use crate::allocation::Allocation;
use crate::{Device, Result};

/// The bits that [`GpuHalfBuffer::uninitialized`] leaves in debug and test builds: a NaN, so that any arithmetic on
/// them is NaN too. (The usual 0xDEAD is no poison for halves: it is the finite −427.25.)
pub const POISON_BITS: u16 = 0xFEAD;

/// An owned buffer of f32: residual stream, activations, logits.
#[derive(Debug)]
pub struct GpuBuffer {
    allocation: Allocation,
}

impl GpuBuffer {
    /// Allocates `len` zeros. Pages come from the kernel, zeroed by contract, and cost nothing until touched.
    ///
    /// # Errors
    ///
    /// When the size has no representation, passes the device's limits, or the system has no memory.
    pub fn zeros(device: &Device, len: usize) -> Result<Self> {
        Ok(Self { allocation: Allocation::of::<f32>(device, "f32 buffer", len)? })
    }

    /// Asks for large pages, where the system has them. For buffers that are filled: a large page that is touched is there as
    /// a whole.
    pub fn prefer_large_pages(&self) {
        self.allocation.prefer_large_pages();
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logical bytes.
    pub fn size_bytes(&self) -> usize {
        self.allocation.size_bytes()
    }

    /// Bytes as a device sees them: whole pages.
    pub fn device_size_bytes(&self) -> usize {
        self.allocation.device_size_bytes()
    }

    /// The elements.
    pub fn as_slice(&self) -> &[f32] {
        self.allocation.as_slice()
    }

    /// The elements, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        self.allocation.as_mut_slice()
    }
}

/// An owned buffer of 16-bit elements: KV planes.
#[derive(Debug)]
pub struct GpuHalfBuffer {
    allocation: Allocation,
}

impl GpuHalfBuffer {
    /// Allocates `len` zeros. Pages come from the kernel, zeroed by contract, and cost nothing until touched.
    ///
    /// # Errors
    ///
    /// When the size has no representation, passes the device's limits, or the system has no memory.
    pub fn zeros(device: &Device, len: usize) -> Result<Self> {
        Ok(Self { allocation: Allocation::of::<u16>(device, "16-bit buffer", len)? })
    }

    /// Allocates `len` elements of no particular value, to be written before they are read. Debug and test builds fill
    /// them with [`POISON_BITS`].
    ///
    /// # Errors
    ///
    /// As [`zeros`](Self::zeros).
    pub fn uninitialized(device: &Device, len: usize) -> Result<Self> {
        let mut buffer = Self::zeros(device, len)?;
        if cfg!(any(test, debug_assertions)) {
            buffer.as_bits_mut().fill(POISON_BITS);
        }
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.as_bits().len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Logical bytes.
    pub fn size_bytes(&self) -> usize {
        self.allocation.size_bytes()
    }

    /// Bytes as a device sees them: whole pages.
    pub fn device_size_bytes(&self) -> usize {
        self.allocation.device_size_bytes()
    }

    /// The elements as raw bits.
    pub fn as_bits(&self) -> &[u16] {
        self.allocation.as_slice()
    }

    /// The elements as raw bits, to be written.
    pub fn as_bits_mut(&mut self) -> &mut [u16] {
        self.allocation.as_mut_slice()
    }

    /// The elements as halves.
    pub fn as_f16(&self) -> &[f16] {
        self.as_bits().reinterpret_cast()
    }
}
