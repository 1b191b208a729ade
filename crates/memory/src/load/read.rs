//! Reading: parallel positioned reads straight into the memory that kernels read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::crew::{Crew, PIECE_BYTES};
use crate::arena::{Layout, Window};
use crate::file::SourceFile;
use crate::{Device, GpuBytes, Result};

/// Bytes that are read, and then looked at while the cache nearest to the core still has them. Pieces are whole parts.
const PART_BYTES: usize = 256 << 10;

/// What direct reads want their place in the file, in memory, and their length to be a multiple of: the largest that disks
/// in use ask for.
const DIRECT_ALIGNMENT: usize = 4096;

/// Reads every window of the layout into an allocation of its own. There is no other copy, not even a staging buffer; with
/// `direct`, not even in the page cache.
pub(super) fn windows(
    device: &Device,
    layout: &Layout,
    sources: &[Arc<SourceFile>],
    direct: bool,
    crew: &Crew<'_>,
) -> Result<Vec<GpuBytes>> {
    let read = |window: &Window| {
        let source = &sources[window.file_no];
        let direct = if direct { source.open_direct() } else { None };
        GpuBytes::filled(device, window.bytes.len(), |bytes| {
            crew.work(bytes.chunks_mut(PIECE_BYTES).enumerate(), |(i, piece)| {
                let piece_bytes = piece.len();
                let at = |offset: usize| (window.bytes.start + offset) as u64;
                let mut done = direct.as_ref().map_or(0, |direct| read_direct(direct, piece, at(i * PIECE_BYTES)));
                for (k, part) in piece.chunks_mut(PART_BYTES).enumerate() {
                    let offset = i * PIECE_BYTES + k * PART_BYTES;
                    let there = done.min(part.len());
                    done -= there;
                    source.read_exact_at(&mut part[there..], at(offset + there))?;
                    crew.inspect(window, offset, part)?;
                }
                Ok(piece_bytes)
            })?;
            crew.inspect_seams(window, bytes, PART_BYTES, PART_BYTES)
        })
    };
    layout.windows().iter().map(read).collect()
}

/// Fills as much of `piece` as can be read past the page cache, from its start, and returns how much that is: nothing where
/// the file system or the memory does not go along. What is missing is left to an ordinary read, which has the errors.
fn read_direct(file: &File, piece: &mut [u8], offset: u64) -> usize {
    let is_aligned =
        offset.is_multiple_of(DIRECT_ALIGNMENT as u64) && piece.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT);
    let whole = if is_aligned { piece.len() / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT } else { 0 };
    let mut done = 0;
    while done < whole {
        match file.read_at(&mut piece[done..whole], offset + done as u64) {
            // After a short read the next would begin off the alignment.
            Ok(len) if len > 0 && len.is_multiple_of(DIRECT_ALIGNMENT) => done += len,
            Ok(len) => return done + len,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return done,
        }
    }
    done
}
