//! Faulting in: bringing a mapping's pages into memory before the first token needs them.

use super::crew::{Crew, PIECE_BYTES};
use crate::{GpuBytes, Result};

/// Brings the pages of all mapped windows in, in parallel. Nothing is copied: the pages are the page cache's own.
pub(super) fn windows(windows: &[GpuBytes], crew: &Crew<'_>) -> Result<()> {
    for (mapping, window) in windows.iter().filter_map(GpuBytes::mapped) {
        let pieces = window.clone().step_by(PIECE_BYTES);
        crew.work(pieces, |start| {
            let piece = start..window.end.min(start + PIECE_BYTES);
            mapping.populate(piece.clone())?;
            Ok(piece.len())
        })?;
    }
    Ok(())
}
