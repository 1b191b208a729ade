//! Threads and what orders them: the standard library's, or under `--cfg loom` those of the model checker.

#[cfg(loom)]
pub(super) use loom::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
#[cfg(loom)]
pub(super) use model::{JoinHandle, Thread, UnsafeCell, current, park, spawn};
#[cfg(not(loom))]
pub(super) use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
pub(super) use system::{JoinHandle, Thread, UnsafeCell, current, park, spawn};

#[cfg(not(loom))]
mod system {
    pub(in super::super) use std::thread::{JoinHandle, Thread, current, park};

    /// Starts a thread that has a name for debuggers.
    pub(in super::super) fn spawn(
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new().name(name).spawn(run)
    }

    /// A cell whose accesses have a beginning and an end, which is what the model checker watches.
    pub(in super::super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in super::super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(in super::super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub(in super::super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// The model checker's own `unpark` also wakes a thread that waits for a lock or for another thread's end, which then
/// goes wrong. Here it is called for parked threads only.
#[cfg(loom)]
mod model {
    use std::cell::OnceCell;
    use std::sync::{Arc, Mutex};

    use loom::sync::atomic::{AtomicBool, Ordering};

    pub(in super::super) use loom::cell::UnsafeCell;

    loom::thread_local! {
        static CURRENT: OnceCell<Thread> = OnceCell::new();
    }

    /// A handle to a thread.
    #[derive(Clone, Default)]
    pub(in super::super) struct Thread(Arc<Parking>);

    #[derive(Default)]
    struct Parking {
        token: AtomicBool,
        /// The thread while it is parked. Not a part of the model, which switches threads only where its own types are
        /// used: so looking at the token and parking are one step, and so are leaving it and waking.
        parked: Mutex<Option<loom::thread::Thread>>,
    }

    impl Thread {
        pub(in super::super) fn unpark(&self) {
            // A swap, since the checker lets a store come before the last swap.
            self.0.token.swap(true, Ordering::Release);
            if let Some(thread) = self.0.parked.lock().expect("nothing panics under the lock").take() {
                thread.unpark();
            }
        }
    }

    pub(in super::super) fn current() -> Thread {
        CURRENT.with(|current| current.get_or_init(Thread::default).clone())
    }

    pub(in super::super) fn park() {
        let Thread(parking) = current();
        while !parking.token.swap(false, Ordering::Acquire) {
            *parking.parked.lock().expect("nothing panics under the lock") = Some(loom::thread::current());
            loom::thread::park();
        }
    }

    pub(in super::super) struct JoinHandle<T> {
        thread: Thread,
        handle: loom::thread::JoinHandle<T>,
    }

    impl<T> JoinHandle<T> {
        pub(in super::super) fn thread(&self) -> &Thread {
            &self.thread
        }

        pub(in super::super) fn join(self) -> std::thread::Result<T> {
            self.handle.join()
        }
    }

    pub(in super::super) fn spawn(
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let thread = Thread::default();
        let ours = thread.clone();
        let handle = loom::thread::Builder::new().name(name).spawn(move || {
            CURRENT.with(|current| current.set(ours).ok().expect("set once"));
            run();
        })?;
        Ok(JoinHandle { thread, handle })
    }
}
