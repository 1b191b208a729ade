//! Reading: parallel positioned reads straight into the allocation that kernels read.

use std::sync::Arc;

use super::crew::{Crew, PIECE_BYTES};
use crate::arena::{Layout, Window};
use crate::file::SourceFile;
use crate::{Device, GpuBytes, Result};

/// Reads every window of the layout into an allocation of its own. There is no other copy, not even a staging buffer.
pub(super) fn windows(
    device: &Device,
    layout: &Layout,
    sources: &[Arc<SourceFile>],
    crew: &Crew<'_>,
) -> Result<Vec<GpuBytes>> {
    layout.windows().iter().map(|window| read(device, &sources[window.file_no], window, crew)).collect()
}

fn read(device: &Device, source: &SourceFile, window: &Window, crew: &Crew<'_>) -> Result<GpuBytes> {
    GpuBytes::filled(device, window.bytes.len(), |bytes| {
        crew.work(bytes.chunks_mut(PIECE_BYTES).enumerate(), |(i, piece)| {
            let offset = window.bytes.start + i * PIECE_BYTES;
            source.read_exact_at(piece, offset as u64)?;
            Ok(piece.len())
        })
    })
}
