//! The pool in the orders that its threads can take. Cells fail a model when two threads meet in them unordered, and a
//! wake-up that gets lost is a deadlock, which fails it too.

use super::*;

fn pool(threads: usize) -> Pool {
    Pool::new(NonZero::new(threads).unwrap()).unwrap()
}

/// Checks the orders in which threads are interrupted at most `preemptions` times where they could go on. All orders
/// would take hours, and mistakes in waiting and waking show in few interruptions.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn cells(len: usize) -> Vec<UnsafeCell<usize>> {
    (0..len).map(|_| UnsafeCell::new(0)).collect()
}

fn update(cell: &UnsafeCell<usize>, with: impl FnOnce(usize) -> usize) {
    // SAFETY: the checker ends the model when an access of another thread is not ordered with this one.
    cell.with_mut(|value| unsafe { *value = with(*value) });
}

fn value(cell: &UnsafeCell<usize>) -> usize {
    // SAFETY: as in `update`.
    cell.with(|value| unsafe { *value })
}

/// A run in which each task adds to the cell of its own.
fn run_once(threads: usize, n_task: usize) {
    let mut pool = pool(threads);
    let mut sums = cells(n_task);
    pool.run_chunks(&mut sums, 1, |index, cell| update(&cell[0], |sum| sum + index + 1));
    for (index, sum) in sums.iter().enumerate() {
        assert_eq!(value(sum), index + 1);
    }
}

#[test]
fn each_task_runs_once_and_its_writes_are_seen_when_run_returns() {
    check(3, || run_once(2, 2));
    check(3, || run_once(2, 3));
}

#[test]
fn each_task_runs_once_with_three_threads() {
    check(1, || run_once(3, 3));
}

/// What a closure owns: tasks read it, and its end is a write.
struct Owned(UnsafeCell<usize>);

// SAFETY: tasks only read the cell, and the checker watches whether the drop waits for them.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        update(&self.0, |_| usize::MAX);
    }
}

#[test]
fn no_thread_is_in_the_closure_when_run_returns() {
    check(3, || {
        let mut pool = pool(2);
        let inside = AtomicUsize::new(0);
        let owned = Owned(UnsafeCell::new(7));
        let inside_too = &inside;
        // The closure moves into `run`, which drops it, and with it what it owns.
        pool.run(2, move |_, _| {
            let owned = &owned;
            inside_too.fetch_add(1, Ordering::Relaxed);
            assert_eq!(value(&owned.0), 7);
            inside_too.fetch_sub(1, Ordering::Relaxed);
        });
        assert_eq!(inside.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_worker_has_its_scratch_to_itself() {
    check(3, || {
        let mut pool = pool(2);
        let mut counts = cells(2);
        pool.run_with(&mut counts, 3, |_, count| update(count, |count| count + 1));
        assert_eq!(counts.iter().map(value).sum::<usize>(), 3);
    });
}

#[test]
fn a_second_run_begins_when_the_first_has_ended() {
    check(3, || {
        let mut pool = pool(2);
        let mut values = cells(2);
        pool.run_chunks(&mut values, 1, |index, cell| update(&cell[0], |value| value + index + 1));
        // Of another type, and each task goes on with what another task of the first run left.
        let parts = Disjoint::new(&mut values);
        pool.run(2, move |index, _| {
            // SAFETY: each index runs once and takes a part of its own.
            let cell = unsafe { parts.slice(1 - index..2 - index) };
            update(&cell[0], |value| value * 10);
        });
        assert_eq!(values.iter().map(value).collect::<Vec<_>>(), [10, 20]);
    });
}

#[test]
fn a_worker_that_goes_to_sleep_sees_the_tasks_or_is_woken() {
    check(3, || {
        let mut pool = pool(2);
        let (begun, changed) = (Mutex::new(0), loom::sync::Condvar::new());
        // Neither task ends before both have begun, so the caller can't do without the worker.
        pool.run(2, |_, _| {
            let mut begun = begun.lock().unwrap();
            *begun += 1;
            changed.notify_all();
            while *begun < 2 {
                begun = changed.wait(begun).unwrap();
            }
        });
    });
}

#[test]
fn a_pool_may_be_called_by_one_thread_after_another() {
    check(2, || {
        let mut pool = pool(2);
        let sum = AtomicUsize::new(0);
        pool.run(2, |index, _| _ = sum.fetch_add(index + 1, Ordering::Relaxed));
        let other = loom::thread::spawn(move || {
            pool.run(2, |index, _| _ = sum.fetch_add(index + 1, Ordering::Relaxed));
            sum.load(Ordering::Relaxed)
        });
        assert_eq!(other.join().unwrap(), 6);
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    check(3, || {
        let mut pool = pool(2);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            // Unlike `panic!`, this prints nothing in the thousands of orders.
            pool.run(2, |index, _| {
                if index == 1 {
                    resume_unwind(Box::new("on purpose"))
                }
            });
        }));
        assert_eq!(panic.expect_err("a task panicked").downcast_ref(), Some(&"on purpose"));
        let mut sums = cells(2);
        pool.run_chunks(&mut sums, 1, |index, cell| update(&cell[0], |sum| sum + index + 1));
        assert_eq!(sums.iter().map(value).sum::<usize>(), 3);
    });
}

#[test]
fn of_two_panics_one_reaches_the_caller() {
    check(3, || {
        let mut pool = pool(2);
        let panic = catch_unwind(AssertUnwindSafe(|| pool.run(2, |index, _| resume_unwind(Box::new(index)))));
        let payload = panic.expect_err("two tasks panicked");
        assert!(*payload.downcast::<usize>().unwrap() < 2);
    });
}

#[test]
fn dropping_a_pool_ends_its_threads_whatever_they_do() {
    for n_task in [0, 2] {
        check(1, move || {
            let mut pool = pool(3);
            pool.run(n_task, |_, _| ());
            let shared = Arc::clone(&pool.shared);
            drop(pool);
            assert_eq!(Arc::strong_count(&shared), 1, "a thread that has ended shares nothing");
        });
    }
}
