//! The worker pool: a fixed number of threads that share the tasks of one operation at a time.
//!
//! A decode step hands over hundreds of operations of some ten microseconds each, so the hand-over is a store that
//! waiting workers see while they spin, and spinning is bounded: a worker that finds nothing for some microseconds
//! parks, and an idle pool costs nothing. The calling thread takes part; a pool of one thread is a loop.
//!
//! Which worker runs which task is left to chance. Callers must not let a result depend on it, nor on the number of
//! workers: tasks write to places of their own, and every reduction has an order that the task index alone decides.

mod cores;
mod disjoint;
mod sync;

use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError};

use crate::Error;

use sync::{AtomicBool, AtomicUsize, JoinHandle, Mutex, Ordering, Thread, UnsafeCell, fence};

pub use cores::physical_cores;
pub use disjoint::Disjoint;

/// A pool of worker threads. Dropping it joins them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, one of which is the one that calls [`run`](Self::run).
    ///
    /// # Errors
    /// [`Error::Spawn`] when the system refuses to start a thread; those that were started end.
    pub fn new(threads: NonZero<usize>) -> Result<Self, Error> {
        let n_worker = threads.get() - 1;
        let shared = Arc::new(Shared::new(n_worker));
        let mut pool = Self { shared, workers: Vec::with_capacity(n_worker) };
        for index in 0..n_worker {
            let shared = Arc::clone(&pool.shared);
            let name = format!("muser-cpu-{}", index + 1);
            let worker = sync::spawn(name, move || shared.work(index)).map_err(|source| {
                let (index, threads) = (index + 1, threads.get());
                Error::Spawn { index, threads, source }
            })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// Number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(index, worker)` for each `index` below `n_task`, and returns when all calls have returned. Tasks start
    /// in the order of their indices; `worker` is below [`threads`](Self::threads), and no two calls with the same
    /// `worker` overlap.
    ///
    /// # Panics
    /// With the first panic of a task, when no task is running any more. The pool can be used again.
    pub fn run(&mut self, n_task: usize, task: impl Fn(usize, usize) + Sync) {
        if self.workers.is_empty() || n_task < 2 {
            for index in 0..n_task {
                task(index, 0);
            }
            return;
        }
        // SAFETY: `task` outlives the job, because `finish` returns only when no task is pending; `&mut self` keeps
        // other jobs away until then.
        unsafe { self.shared.publish(Job::new(&task, n_task)) };
        let others = self.workers.iter().zip(&self.shared.asleep).take(n_task - 1);
        for (worker, asleep) in others {
            if was_asleep(&asleep.0) {
                worker.thread().unpark();
            }
        }
        self.shared.run_tasks(0);
        self.shared.finish();
    }

    /// As [`run`](Self::run), with the scratch of the worker that runs the task.
    ///
    /// # Panics
    /// As [`run`](Self::run), and when there are fewer scratches than threads.
    pub fn run_with<S: Send>(&mut self, scratch: &mut [S], n_task: usize, task: impl Fn(usize, &mut S) + Sync) {
        assert!(scratch.len() >= self.threads(), "{} scratches for {} threads", scratch.len(), self.threads());
        let scratch = Disjoint::new(scratch);
        self.run(n_task, |index, worker| {
            // SAFETY: calls with the same `worker` do not overlap, so this element has one borrower at a time.
            let scratch = unsafe { scratch.slice(worker..worker + 1) };
            task(index, &mut scratch[0]);
        });
    }

    /// Cuts `items` into chunks of `chunk_len`, the last one shorter, and calls `task(index, chunk)` for each.
    ///
    /// # Panics
    /// As [`run`](Self::run), and when `chunk_len` is zero.
    pub fn run_chunks<T: Send>(&mut self, items: &mut [T], chunk_len: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let len = items.len();
        let items = Disjoint::new(items);
        self.run(len.div_ceil(chunk_len), |index, _| {
            let start = index * chunk_len;
            // SAFETY: each index runs once, and the ranges of different indices do not meet.
            task(index, unsafe { items.slice(start..len.min(start + chunk_len)) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed); // Unparking orders it.
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches its tasks' panics, so there is no result to look at.
            let _ = worker.join();
        }
    }
}

/// A value on cache lines of its own. 128 bytes, since some cores fetch lines in pairs.
#[repr(align(128))]
struct Padded<T>(T);

/// A closure and how often to call it.
#[derive(Clone, Copy)]
struct Job {
    task: *const (),
    call: unsafe fn(*const (), usize, usize),
    n_task: usize,
}

impl Job {
    fn new<F: Fn(usize, usize) + Sync>(task: &F, n_task: usize) -> Self {
        /// # Safety
        /// - `task` points to an `F` that is alive.
        unsafe fn call<F: Fn(usize, usize)>(task: *const (), index: usize, worker: usize) {
            // SAFETY: the caller's promise.
            let task = unsafe { &*task.cast::<F>() };
            task(index, worker);
        }
        Self { task: std::ptr::from_ref(task).cast(), call: call::<F>, n_task }
    }
}

/// What the threads share.
///
/// `unclaimed` counts the tasks that nobody has begun, and `pending` those whose thread has not yet said that they have
/// ended. Whoever lowers `unclaimed` owns a task, and as long as it is pending the job stays in its cell: so a worker that
/// comes late, even one job too late, either claims a task of the job that is there or finds nothing.
struct Shared {
    job: UnsafeCell<Option<Job>>,
    unclaimed: Padded<AtomicUsize>,
    pending: Padded<AtomicUsize>,
    asleep: Box<[Padded<AtomicBool>]>, // (n_worker)
    caller: Mutex<Option<Thread>>,
    caller_asleep: AtomicBool,
    closed: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: the job's closure is `Sync` and outlives the job; its cell is written only while no task is pending, and read
// only by threads that own a pending task, with `unclaimed` ordering the two.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in the cell is not tied to a thread.
unsafe impl Send for Shared {}

impl Shared {
    fn new(n_worker: usize) -> Self {
        Self {
            job: UnsafeCell::new(None),
            unclaimed: Padded(AtomicUsize::new(0)),
            pending: Padded(AtomicUsize::new(0)),
            asleep: (0..n_worker).map(|_| Padded(AtomicBool::new(false))).collect(),
            caller: Mutex::new(None),
            caller_asleep: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            panic: Mutex::new(None),
        }
    }

    /// Offers the tasks of `job`.
    ///
    /// # Safety
    /// - No task is pending, and no other thread publishes.
    /// - The job's closure lives until [`finish`](Self::finish) has returned.
    unsafe fn publish(&self, job: Job) {
        // SAFETY: nothing is pending, so no thread reads the cell, and the caller is its only writer.
        self.job.with_mut(|cell| unsafe { *cell = Some(job) });
        self.pending.0.store(job.n_task, Ordering::Relaxed);
        // With the claim's Acquire: who claims a task sees its job.
        self.unclaimed.0.store(job.n_task, Ordering::Release);
        // With the fence of `sleep`: a worker either sees these tasks before it parks or is seen parking.
        fence(Ordering::SeqCst);
    }

    /// Claims and runs tasks until nobody has one left to begin.
    ///
    /// They stop being pending together, at the end: one write to the counter that all threads look at, instead of one for
    /// each task.
    fn run_tasks(&self, worker: usize) {
        let mut n_run = 0;
        while self.run_one(worker) {
            n_run += 1;
        }
        // With the Acquire of `finish`: the caller sees what the tasks did, and this thread no longer sees the job.
        if n_run > 0 && self.pending.0.fetch_sub(n_run, Ordering::Release) == n_run {
            // With the fence of `sleep`: the caller either sees the end before it parks or is seen parking.
            fence(Ordering::SeqCst);
            if was_asleep(&self.caller_asleep)
                && let Some(caller) = &*self.caller.lock().unwrap_or_else(PoisonError::into_inner)
            {
                caller.unpark();
            }
        }
    }

    /// Claims and runs a task, and leaves it pending; false when there is none.
    fn run_one(&self, worker: usize) -> bool {
        let claim = |unclaimed: usize| unclaimed.checked_sub(1);
        let Ok(unclaimed) = self.unclaimed.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, claim) else {
            return false;
        };
        // SAFETY: this thread owns a pending task, so the cell holds its job and nobody writes to it.
        let job = self.job.with(|cell| unsafe { *cell }).expect("a claimed task has a job");
        let index = job.n_task - unclaimed;
        // SAFETY: the closure lives until no task is pending, and this one is.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (job.call)(job.task, index, worker) }));
        if let Err(payload) = outcome {
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
        true
    }

    /// The caller's end of a job: waits until no task is pending, and passes a task's panic on.
    fn finish(&self) {
        let done = || self.pending.0.load(Ordering::Acquire) == 0;
        if !spin(done) {
            *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = Some(sync::current());
            sleep(&self.caller_asleep, done);
        }
        // A statement of its own, so that the lock is free when the panic goes on.
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// The life of the worker with this index among the workers.
    fn work(&self, index: usize) {
        let awaited = || self.unclaimed.0.load(Ordering::Relaxed) > 0 || self.closed.load(Ordering::Relaxed);
        while !self.closed.load(Ordering::Relaxed) {
            self.run_tasks(index + 1);
            if !spin(awaited) {
                sleep(&self.asleep[index].0, awaited);
            }
        }
    }
}

/// Looks at `ready` for a while; whether it came true.
#[cfg(not(loom))]
fn spin(ready: impl Fn() -> bool) -> bool {
    use std::time::{Duration, Instant};

    /// Longer than the serial work between two operations of a decode step, and between two steps of a small vocabulary;
    /// shorter than anyone would notice as load.
    const SPIN: Duration = Duration::from_micros(100);
    const LOOKS: usize = 8;
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            return false;
        }
    }
}

/// One look is enough for the model checker, which tries every moment for it.
#[cfg(loom)]
fn spin(ready: impl Fn() -> bool) -> bool {
    ready()
}

/// Parks until `ready`. Whoever makes it true must then pass a full fence, and unpark this thread if it
/// [`was_asleep`].
fn sleep(asleep: &AtomicBool, ready: impl Fn() -> bool) {
    loop {
        asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if ready() {
            asleep.store(false, Ordering::Relaxed);
            return;
        }
        sync::park();
    }
}

/// Whether the thread of this flag may be parked and nobody else is about to unpark it.
fn was_asleep(asleep: &AtomicBool) -> bool {
    // The load keeps the common case, a thread that still spins, free of writes to its cache line.
    asleep.load(Ordering::Relaxed) && asleep.swap(false, Ordering::Relaxed)
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
