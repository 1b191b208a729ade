//! Binding: a view of weights as a device is told of it.

use crate::{Capabilities, Error, GpuByteView, Result};

/// A range of one buffer, as a kernel binds it, that holds whole rows of a weight.
///
/// Devices bind at multiples of an alignment and in words, so the range may begin before the rows and end after them: they
/// begin at [`skip_bytes`](Self::skip_bytes).
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The buffer.
    pub buffer: &'a wgpu::Buffer,
    /// Where the range begins in it: a multiple of the device's offset alignment.
    pub offset: u64,
    /// Bytes of the range: a multiple of 4.
    pub size_bytes: u64,
    /// Bytes of the range before the first row.
    pub skip_bytes: u32,
    /// Number of the first row, counted from the view's first.
    pub first_row: usize,
    /// Rows.
    pub n_rows: usize,
}

impl<'a> Binding<'a> {
    /// As an entry of a bind group.
    pub fn as_entry(&self, binding: u32) -> wgpu::BindGroupEntry<'a> {
        wgpu::BindGroupEntry {
            binding,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: self.buffer,
                offset: self.offset,
                size: std::num::NonZero::new(self.size_bytes),
            }),
        }
    }
}

impl<'a> GpuByteView<'a> {
    /// The view as a device binds it: whole rows of `row_bytes`, in as few ranges as the device's limit takes, one after
    /// the other. Almost always that is one.
    ///
    /// # Errors
    ///
    /// [`Error::NotOnDevice`] when the view's owner is memory that no GPU sees, and [`Error::RowTooLarge`] when a single
    /// row passes the limit.
    ///
    /// # Panics
    ///
    /// When the view is not whole rows.
    pub fn bindings(self, row_bytes: usize) -> Result<Vec<Binding<'a>>> {
        assert!(row_bytes > 0 && self.len().is_multiple_of(row_bytes), "{} bytes in rows of {row_bytes}", self.len());
        let buffer = self.buffer().device_buffer().ok_or(Error::NotOnDevice)?;
        let Capabilities { offset_alignment, max_binding_bytes, .. } = self.buffer().device().capabilities();
        let max_binding_bytes = max_binding_bytes.unwrap_or(u64::MAX);
        // Ranges are whole words.
        let max_bytes = usize::try_from(max_binding_bytes).unwrap_or(usize::MAX) / 4 * 4;
        let mut bindings = Vec::new();
        let (mut first_row, n_rows) = (0, self.len() / row_bytes);
        while first_row < n_rows {
            let start = self.offset() + first_row * row_bytes;
            let skip = start % offset_alignment;
            let taken = ((max_bytes - skip.min(max_bytes)) / row_bytes).min(n_rows - first_row);
            if taken == 0 {
                return Err(Error::RowTooLarge { row_bytes, max_binding_bytes });
            }
            // Buffers are whole pages, so rounding up stays inside.
            let size_bytes = (skip + taken * row_bytes).next_multiple_of(4) as u64;
            bindings.push(Binding {
                buffer: buffer.raw(),
                offset: (start - skip) as u64,
                size_bytes,
                skip_bytes: skip as u32,
                first_row,
                n_rows: taken,
            });
            first_row += taken;
        }
        Ok(bindings)
    }
}
