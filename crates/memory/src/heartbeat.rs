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

/// The function in every order of its beats and the drop. The checker's waits know no time, so a drop whose notification
/// gets lost is a deadlock; where time is to pass, a thread of the model says so.
#[cfg(all(test, loom))]
mod model {
    use loom::cell::UnsafeCell;

    use super::*;

    #[derive(Clone, Copy, Default)]
    struct Seen {
        beats: usize,
        dropped: bool,
    }

    #[derive(Default)]
    struct Watched(UnsafeCell<Seen>);

    // SAFETY: the checker ends the model when two threads' accesses to the cell are not ordered.
    unsafe impl Sync for Watched {}

    impl Watched {
        fn update(&self, with: impl FnOnce(&mut Seen)) {
            // SAFETY: no other access is in progress, or the checker has ended the model.
            self.0.with_mut(|seen| with(unsafe { &mut *seen }));
        }

        fn seen(&self) -> Seen {
            // SAFETY: as in `update`.
            self.0.with(|seen| unsafe { *seen })
        }
    }

    /// What the function owns: each beat writes to it, and so does its end.
    struct Beats(Arc<Watched>);

    impl Drop for Beats {
        fn drop(&mut self) {
            self.0.update(|seen| seen.dropped = true);
        }
    }

    fn heart() -> (Heartbeat, Arc<Watched>) {
        let watched = Arc::new(Watched::default());
        let beats = Beats(Arc::clone(&watched));
        let heart = Heartbeat::start(Duration::ZERO, move || beats.0.update(|seen| seen.beats += 1));
        (heart.unwrap(), watched)
    }

    #[test]
    fn m24_the_end_is_never_missed_and_comes_after_the_first_beat() {
        loom::model(|| {
            let (heart, watched) = heart();
            drop(heart);
            let seen = watched.seen();
            assert_eq!((seen.beats, seen.dropped), (1, true));
        });
    }

    #[test]
    fn m24_no_beat_is_in_progress_or_to_come_once_the_drop_returns() {
        loom::model(|| {
            let (heart, watched) = heart();
            let shared = Arc::clone(&heart.shared);
            let time = loom::thread::spawn(move || shared.changed.notify_all());
            drop(heart);
            let seen = watched.seen();
            assert!((1..=2).contains(&seen.beats), "{} beats for one period", seen.beats);
            assert!(seen.dropped);
            time.join().unwrap();
        });
    }
}
