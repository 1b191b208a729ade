//! Looking at weights while they are fresh in the cache, in units that are never torn.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Inspected, OnBytes};
use crate::Region;
use crate::arena::{Span, Window};

/// Shows regions to who wants to see them, and counts what that takes.
pub(super) struct Inspection<'a> {
    regions: &'a [Region],
    on_bytes: &'a OnBytes<'a>,
    nanoseconds: AtomicU64,
    size_bytes: AtomicU64,
}

impl<'a> Inspection<'a> {
    pub(super) fn new(regions: &'a [Region], on_bytes: &'a OnBytes<'a>) -> Self {
        Self { regions, on_bytes, nanoseconds: AtomicU64::new(0), size_bytes: AtomicU64::new(0) }
    }

    /// Shows all units that lie wholly in a piece: the bytes of `window` from `offset` on.
    pub(super) fn piece(&self, window: &Window, offset: usize, bytes: &[u8]) -> ControlFlow<()> {
        let piece = offset..offset + bytes.len();
        self.timed(|| {
            window.spans_in(piece.clone()).try_for_each(|span| {
                let Some(unit_bytes) = self.unit_bytes(span) else { return ControlFlow::Continue(()) };
                let units = whole_units(&span.bytes, unit_bytes, &piece);
                if units.is_empty() {
                    return ControlFlow::Continue(());
                }
                self.show(span, &units, &bytes[units.start - offset..units.end - offset])
            })
        })
    }

    /// Shows the units that are in no piece whole, where pieces end at `first_cut` and each `piece_bytes` from there on.
    pub(super) fn seams(&self, window: &Window, bytes: &[u8], first_cut: usize, piece_bytes: usize) -> ControlFlow<()> {
        let mut cuts = (first_cut..bytes.len()).step_by(piece_bytes);
        self.timed(|| {
            cuts.try_for_each(|cut| {
                window.spans_in(cut - 1..cut + 1).try_for_each(|span| {
                    let unit_bytes =
                        self.unit_bytes(span).filter(|_| (span.bytes.start..span.bytes.end).contains(&cut));
                    let Some(unit_bytes) = unit_bytes else { return ControlFlow::Continue(()) };
                    let start = cut - (cut - span.bytes.start) % unit_bytes;
                    // One that an earlier cut tore too has been shown.
                    if start == cut || (cut > first_cut && start < cut - piece_bytes) {
                        return ControlFlow::Continue(());
                    }
                    let unit = start..span.bytes.end.min(start + unit_bytes);
                    self.show(span, &unit, &bytes[unit.clone()])
                })
            })
        })
    }

    pub(super) fn so_far(&self) -> Inspected {
        Inspected {
            thread_time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
            size_bytes: self.size_bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes of a unit, at most the region's: of a larger one there is one, and of none there are none.
    fn unit_bytes(&self, span: &Span) -> Option<usize> {
        let unit_bytes = self.regions[span.index].unit_bytes()?.get();
        Some(unit_bytes.min(span.bytes.len())).filter(|&unit_bytes| unit_bytes > 0)
    }

    fn show(&self, span: &Span, units: &Range<usize>, bytes: &[u8]) -> ControlFlow<()> {
        self.size_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        (self.on_bytes)(&self.regions[span.index], units.start - span.bytes.start, bytes)
    }

    fn timed(&self, look: impl FnOnce() -> ControlFlow<()>) -> ControlFlow<()> {
        let started = Instant::now();
        let answer = look();
        self.nanoseconds.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        answer
    }
}

/// The part of `region` that is whole units and lies in `piece`, which has some of its bytes. The last unit may be short.
fn whole_units(region: &Range<usize>, unit_bytes: usize, piece: &Range<usize>) -> Range<usize> {
    let start = region.start + piece.start.saturating_sub(region.start).next_multiple_of(unit_bytes);
    let end = if piece.end < region.end { piece.end - (piece.end - region.start) % unit_bytes } else { region.end };
    start..end
}
