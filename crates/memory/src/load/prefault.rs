//! Faulting in: bringing a mapping's pages into memory before the first token needs them.

use std::iter::once;

use super::crew::{Crew, PIECE_BYTES};
use crate::arena::Layout;
use crate::{GpuBytes, Result};

/// Brings the pages of all mapped windows in, in parallel. Nothing is copied: the pages are the page cache's own.
///
/// Pieces are cut at multiples of their size in the file, as two threads in one large page would make many small ones of it.
pub(super) fn windows(layout: &Layout, windows: &[GpuBytes], crew: &Crew<'_>) -> Result<()> {
    for (window, bytes) in layout.windows().iter().zip(windows) {
        let Some((mapping, range)) = bytes.mapped() else { continue };
        let first_cut = range.end.min((range.start + 1).next_multiple_of(PIECE_BYTES));
        let pieces = once(range.start..first_cut)
            .chain((first_cut..range.end).step_by(PIECE_BYTES).map(|start| start..range.end.min(start + PIECE_BYTES)));
        crew.work(pieces, |piece| {
            mapping.populate(piece.clone())?;
            crew.inspect(window, piece.start - range.start, &mapping.as_slice()[piece.clone()])?;
            Ok(piece.len())
        })?;
        crew.inspect_seams(window, &mapping.as_slice()[range.clone()], first_cut - range.start, PIECE_BYTES)?;
    }
    Ok(())
}
