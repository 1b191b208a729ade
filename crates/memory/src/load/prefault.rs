//! Faulting in: bringing a mapping's pages into memory before the first token needs them.

use super::crew::{Crew, PIECE_BYTES};
use crate::arena::Layout;
use crate::{GpuBytes, Result};

/// Brings the pages of all mapped windows in, in parallel. Nothing is copied: the pages are the page cache's own.
pub(super) fn windows(layout: &Layout, windows: &[GpuBytes], crew: &Crew<'_>) -> Result<()> {
    for (window, bytes) in layout.windows().iter().zip(windows) {
        let Some((mapping, range)) = bytes.mapped() else { continue };
        crew.work(range.clone().step_by(PIECE_BYTES), |start| {
            let piece = start..range.end.min(start + PIECE_BYTES);
            mapping.populate(piece.clone())?;
            crew.inspect(window, start - range.start, &mapping.as_slice()[piece.clone()])?;
            Ok(piece.len())
        })?;
        crew.inspect_seams(window, &mapping.as_slice()[range.clone()], PIECE_BYTES)?;
    }
    Ok(())
}
