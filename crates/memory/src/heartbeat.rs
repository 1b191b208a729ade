//! A heartbeat: something done again and again until its owner goes.

use std::io;
use std::time::Duration;

use crate::sync::{Arc, Condvar, JoinHandle, Mutex, spawn};

/// Calls a function at once and then in every period, on a thread of its own, until it is dropped. The drop waits for a
/// beat in progress and returns when the thread has ended and the function is dropped, so it leaves nothing behind on any
/// way out, a panic included.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    shared: Arc<Shared>,
    /// `None` in the drop only.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Heartbeat {
    /// # Errors
    ///
    /// When the system gives no thread.
    pub(crate) fn start(period: Duration, mut beat: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let ours = Arc::clone(&shared);
        let thread = spawn("residency", move || {
            loop {
                beat();
                let mut stopped = ours.stopped.lock().expect("nothing panics under the lock");
                if !*stopped {
                    stopped = ours.changed.wait_timeout(stopped, period).expect("nothing panics under the lock").0;
                }
                if *stopped {
                    return;
                }
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        *self.shared.stopped.lock().expect("nothing panics under the lock") = true;
        self.shared.changed.notify_all();
        // A beat that panicked has said so; a drop is no place to say it again.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn m24_it_beats_again_and_again_and_is_over_with_its_owner() {
        let (send, beats) = mpsc::channel();
        let heart = Heartbeat::start(Duration::from_millis(1), move || send.send(()).unwrap()).unwrap();
        for _ in 0..3 {
            beats.recv().expect("it beats on");
        }
        drop(heart);
        // The function is gone when the drop returns: what it sent is all there is, and the channel is closed.
        while beats.try_recv() == Ok(()) {}
        assert_eq!(beats.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }

    #[test]
    fn m24_a_long_period_does_not_delay_the_end() {
        let (send, beats) = mpsc::channel();
        let heart = Heartbeat::start(Duration::from_hours(1), move || send.send(()).unwrap()).unwrap();
        beats.recv().expect("the first beat is at once");
        drop(heart);
        assert!(beats.recv().is_err());
    }

    #[test]
    fn m24_a_panic_of_the_owner_ends_it_too() {
        let (send, beats) = mpsc::channel();
        let panicked = std::thread::spawn(move || {
            let _heart =
                Heartbeat::start(Duration::from_millis(1), move || send.send(()).expect("somebody listens")).unwrap();
            panic!("on purpose");
        })
        .join();
        assert!(panicked.is_err());
        assert!(beats.iter().count() >= 1, "the channel closes, so the function is gone");
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn m24_no_beat_is_in_progress_or_to_come_once_the_drop_returns() {
        loom::model(|| {
            let beats = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&beats);
            let heart = Heartbeat::start(Duration::ZERO, move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
            drop(heart.unwrap());
            let at_the_end = beats.load(Ordering::Relaxed);
            assert!(at_the_end >= 1, "the first beat is not lost");
            loom::thread::yield_now();
            assert_eq!(beats.load(Ordering::Relaxed), at_the_end);
        });
    }
}
