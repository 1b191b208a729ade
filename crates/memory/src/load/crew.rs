//! A few threads that share a list of pieces of work, and count them.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{LoadProgress, OnProgress};
use crate::{Error, Result};

/// Bytes of a piece of work: large enough that its own cost vanishes, small enough that threads end together.
pub(super) const PIECE_BYTES: usize = 8 << 20;

/// Threads to be, and the progress that they make.
pub(crate) struct Crew<'a> {
    n_threads: usize,
    done_bytes: AtomicU64,
    total_bytes: u64,
    on_progress: &'a OnProgress<'a>,
}

impl<'a> Crew<'a> {
    pub(super) fn new(n_threads: usize, total_bytes: u64, on_progress: &'a OnProgress<'a>) -> Self {
        Self { n_threads: n_threads.max(1), done_bytes: AtomicU64::new(0), total_bytes, on_progress }
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

    fn count(&self, size_bytes: usize) -> Result<()> {
        let done_bytes = self.done_bytes.fetch_add(size_bytes as u64, Ordering::Relaxed) + size_bytes as u64;
        match (self.on_progress)(LoadProgress { done_bytes, total_bytes: self.total_bytes }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Cancelled { done_bytes, total_bytes: self.total_bytes }),
        }
    }
}
