use super::*;

fn pool(threads: usize) -> Pool {
    Pool::new(NonZero::new(threads).unwrap()).unwrap()
}

#[test]
fn every_task_runs_exactly_once_whatever_the_thread_count() {
    for threads in 1..=5 {
        let mut pool = pool(threads);
        for n_task in [0, 1, 2, 3, 7, 64, 1000] {
            let counts: Vec<AtomicUsize> = (0..n_task).map(|_| AtomicUsize::new(0)).collect();
            pool.run(n_task, |index, worker| {
                assert!(worker < threads);
                counts[index].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads} threads, {n_task} tasks");
        }
    }
}

#[test]
fn jobs_in_quick_succession_do_not_mix() {
    let mut pool = pool(3);
    let mut values = vec![0usize; 17];
    for round in 0..20_000 {
        pool.run_chunks(&mut values, 2, |index, chunk| chunk.iter_mut().for_each(|value| *value += index + round));
    }
    let rounds: usize = (0..20_000).sum();
    for (index, &value) in values.iter().enumerate() {
        assert_eq!(value, index / 2 * 20_000 + rounds);
    }
}

#[test]
fn a_pool_that_has_gone_to_sleep_wakes_up() {
    let mut pool = pool(2);
    for _ in 0..50 {
        // Longer than a worker spins, and both threads are needed before either task can end.
        while !pool.shared.asleep[0].0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        let barrier = std::sync::Barrier::new(2);
        pool.run(2, |_, _| {
            barrier.wait();
        });
    }
}

#[test]
fn each_worker_has_its_scratch_to_itself() {
    let mut pool = pool(4);
    let mut scratch = vec![(0usize, Vec::new()); 4];
    pool.run_with(&mut scratch, 500, |index, (count, seen)| {
        *count += 1;
        seen.push(index);
        assert_eq!(*count, seen.len());
    });
    let mut all: Vec<usize> = scratch.into_iter().flat_map(|(_, seen)| seen).collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..500));
}

#[test]
fn a_panic_in_a_task_reaches_the_caller_and_the_pool_survives() {
    for threads in [1, 3] {
        let mut pool = pool(threads);
        for bad in [0, 5, 9] {
            let panic = catch_unwind(AssertUnwindSafe(|| pool.run(10, |index, _| assert!(index != bad, "task {bad}"))));
            let payload = panic.expect_err("the task panicked");
            assert_eq!(payload.downcast_ref::<String>().unwrap(), &format!("task {bad}"));
            let sum = AtomicUsize::new(0);
            pool.run(10, |index, _| {
                sum.fetch_add(index, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
        }
    }
}

#[test]
fn dropping_a_pool_ends_its_threads() {
    let pool = pool(3);
    let shared = Arc::downgrade(&pool.shared);
    drop(pool);
    assert!(shared.upgrade().is_none());
}
