//! A few threads that share a list of pieces of work, and count them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::inspect::Inspection;
use super::{Inspected, LoadProgress, Observer};
use crate::arena::{Layout, Window};
use crate::{Error, Result};

/// Bytes of a piece of work: large enough that its own cost vanishes, small enough that threads end together.
pub(super) const PIECE_BYTES: usize = 8 << 20;

/// Threads to be, and the progress that they make.
pub(crate) struct Crew<'a> {
    n_threads: usize,
    done_bytes: AtomicU64,
    total_bytes: u64,
    observer: Observer<'a>,
    inspection: Option<Inspection<'a>>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(n_threads: usize, layout: &'a Layout, observer: &Observer<'a>) -> Self {
        Self {
            n_threads: n_threads.max(1),
            done_bytes: AtomicU64::new(0),
            total_bytes: layout.size_bytes(),
            observer: *observer,
            inspection: observer.on_bytes.map(|on_bytes| Inspection::new(layout.regions(), on_bytes)),
        }
    }

    /// Does `job` for every piece, in any order, and counts the bytes that it returns. Stops at the first error, which is
    /// returned, or when told to.
    pub(crate) fn work<T: Send>(
        &self,
        pieces: impl Iterator<Item = T> + Send,
        job: impl Fn(T) -> Result<usize> + Sync,
    ) -> Result<()> {
        let pieces = Mutex::new(pieces);
        let stop = AtomicBool::new(false);
        let worker = || {
            while !stop.load(Ordering::Relaxed) {
                let Some(piece) = pieces.lock().unwrap_or_else(PoisonError::into_inner).next() else { break };
                if let Err(error) = job(piece).and_then(|size_bytes| self.count(size_bytes)) {
                    stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            // Where the system gives no more threads, those that there are do the work.
            let spawn = |_| thread::Builder::new().spawn_scoped(scope, worker).ok();
            let others: Vec<_> = (1..self.n_threads).map_while(spawn).collect();
            let mut result = worker();
            for other in others {
                result = result.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            result
        })
    }

    /// Shows the whole units of a piece, the bytes of `window` from `offset` on, to the observer if it wants to see them.
    pub(crate) fn inspect(&self, window: &Window, offset: usize, piece: &[u8]) -> Result<()> {
        let inspected = self.inspection.as_ref().map(|inspection| inspection.piece(window, offset, piece));
        self.go_on(inspected.unwrap_or(ControlFlow::Continue(())))
    }

    /// Shows what was torn by cuts at `first_cut` and each `piece_bytes` from there on, once all `bytes` of the
    /// window are there.
    pub(crate) fn inspect_seams(
        &self,
        window: &Window,
        bytes: &[u8],
        first_cut: usize,
        piece_bytes: usize,
    ) -> Result<()> {
        let seams = |inspection: &Inspection<'_>| inspection.seams(window, bytes, first_cut, piece_bytes);
        let inspected = self.inspection.as_ref().map(seams);
        self.go_on(inspected.unwrap_or(ControlFlow::Continue(())))
    }

    /// What looking at the bytes took so far.
    pub(super) fn inspected(&self) -> Option<Inspected> {
        self.inspection.as_ref().map(Inspection::so_far)
    }

    fn count(&self, size_bytes: usize) -> Result<()> {
        let done_bytes = self.done_bytes.fetch_add(size_bytes as u64, Ordering::Relaxed) + size_bytes as u64;
        self.go_on((self.observer.on_progress)(LoadProgress { done_bytes, total_bytes: self.total_bytes }))
    }

    fn go_on(&self, answer: ControlFlow<()>) -> Result<()> {
        match answer {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => {
                let done_bytes = self.done_bytes.load(Ordering::Relaxed);
                Err(Error::Cancelled { done_bytes, total_bytes: self.total_bytes })
            }
        }
    }
}
