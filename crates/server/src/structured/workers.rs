//! Work that may never end, on threads of its own.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Does one work at a time, each within a limit. What passes it goes on by itself, for nothing ends a thread from outside; so
/// there is a limit on how much may.
pub struct Workers {
    limit: Duration,
    max_late: usize,
    stack_bytes: usize,
    jobs: Arc<Jobs>,
}

#[derive(Default)]
struct Jobs {
    running: Mutex<Vec<Job>>,
    /// Told when one ends, or is given up.
    changed: Condvar,
}

/// Work that has a thread.
struct Job {
    key: Arc<str>,
    /// Nobody waits for it any more.
    is_late: bool,
}

/// Why work was not done.
#[derive(Debug, thiserror::Error)]
pub enum Undone {
    /// It took longer than it may, now or before.
    #[error("it took longer than {} seconds", .0.as_secs_f64())]
    Late(Duration),
    /// Others are being done.
    #[error("too many others are being done")]
    Busy,
    /// There is no thread for it.
    #[error("there was no thread for it: {0}")]
    NoThread(io::Error),
    /// It panicked.
    #[error("it panicked")]
    Panicked,
}

impl Workers {
    /// For works that take `limit` at most. Up to `max_late` of those that take longer may go on.
    pub fn new(limit: Duration, max_late: usize, stack_bytes: usize) -> Self {
        Self { limit, max_late, stack_bytes, jobs: Arc::default() }
    }

    /// Does some work, and waits for it. Works with the same key are the same: one that is late still is not begun again.
    ///
    /// # Errors
    ///
    /// It is not done in time, or can't be begun in as long.
    pub fn run<T: Send + 'static>(&self, key: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Undone> {
        let key: Arc<str> = key.into();
        self.enter(&key)?;
        let leave = Leave { jobs: Arc::clone(&self.jobs), key: Arc::clone(&key) };
        let (done, result) = channel();
        let thread = thread::Builder::new().name("grammar".to_owned()).stack_size(self.stack_bytes);
        let thread = thread.spawn(move || {
            let leave = leave;
            let result = work();
            drop(leave);
            // Who waited may be gone.
            let _ = done.send(result);
        });
        thread.map_err(Undone::NoThread)?;
        match result.recv_timeout(self.limit) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Disconnected) => Err(Undone::Panicked),
            Err(RecvTimeoutError::Timeout) => {
                self.jobs.lock().iter_mut().filter(|job| job.key == key).for_each(|job| job.is_late = true);
                self.jobs.changed.notify_all();
                Err(Undone::Late(self.limit))
            }
        }
    }

    /// Waits until nothing else is being done that is not late, and takes the place.
    fn enter(&self, key: &Arc<str>) -> Result<(), Undone> {
        let until = Instant::now() + self.limit;
        let mut running = self.jobs.lock();
        loop {
            if running.iter().any(|job| job.is_late && job.key == *key) {
                return Err(Undone::Late(self.limit));
            }
            if running.len() >= self.max_late && running.iter().all(|job| job.is_late) {
                return Err(Undone::Busy);
            }
            if running.iter().all(|job| job.is_late) {
                running.push(Job { key: Arc::clone(key), is_late: false });
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Undone::Busy);
            }
            running = self.jobs.changed.wait_timeout(running, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Vec<Job>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the place back, however the work ends.
struct Leave {
    jobs: Arc<Jobs>,
    key: Arc<str>,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut running = self.jobs.lock();
        if let Some(at) = running.iter().position(|job| Arc::ptr_eq(&job.key, &self.key)) {
            running.swap_remove(at);
        }
        self.jobs.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Sender;

    use super::*;

    const STACK_BYTES: usize = 1 << 20;

    /// Work that goes on until the sender is dropped.
    fn stuck() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (end, wait) = channel::<()>();
        (end, move || assert!(wait.recv().is_err(), "nothing is sent"))
    }

    #[test]
    fn work_that_does_not_end_keeps_nobody_from_theirs_until_there_is_too_much_of_it() {
        let workers = Workers::new(Duration::from_millis(50), 2, STACK_BYTES);
        let patient = |work: &dyn Fn() -> Result<i32, Undone>| loop {
            // On a busy machine even this may be late; under another key it is new work.
            match work() {
                Err(Undone::Late(_)) => {}
                result => return result,
            }
        };
        let (end_first, first) = stuck();
        assert!(matches!(workers.run("first", first), Err(Undone::Late(_))));
        assert_eq!(patient(&|| workers.run("other", || 7)).unwrap(), 7);
        // It is not tried again while it lasts.
        assert!(matches!(workers.run("first", || ()), Err(Undone::Late(_))));
        let (end_second, second) = stuck();
        assert!(matches!(workers.run("second", second), Err(Undone::Late(_))));
        assert!(matches!(workers.run("other", || 7), Err(Undone::Busy)));
        drop((end_first, end_second));
        let freed = workers.jobs.changed.wait_while(workers.jobs.lock(), |running| !running.is_empty());
        drop(freed.unwrap());
        assert_eq!(patient(&|| workers.run("first", || 8)).unwrap(), 8);
    }

    #[test]
    fn a_panic_is_an_error_and_gives_its_place_back() {
        let workers = Workers::new(Duration::from_mins(5), 1, STACK_BYTES);
        assert!(matches!(workers.run("a", || panic!("on purpose")), Err::<(), _>(Undone::Panicked)));
        assert_eq!(workers.run("a", || 7).unwrap(), 7);
    }
}
