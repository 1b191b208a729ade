//! Bars for work that takes long.

use std::fmt::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// How long something may take before a bar appears.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often it moves, whether or not there is progress.
const TICK: Duration = Duration::from_millis(100);

/// A bar on standard error, for work that turns out to take long. Nothing is drawn where that is no terminal.
pub struct Progress {
    bar: ProgressBar,
    /// Ends the wait for the bar's time to appear.
    over: Option<Sender<()>>,
    wait: Option<JoinHandle<()>>,
}

impl Progress {
    /// Work of `total` steps, counted in `unit`s.
    pub fn new(what: &str, unit: &str, total: usize) -> Self {
        let template = format!("{{spinner}} {what} {{bar:30}} {{human_pos}}/{{human_len}} {unit} {{msg}}{{left}}");
        let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
        let style = style.with_key("left", |state: &ProgressState, out: &mut dyn Write| {
            // There is no telling before the first step is done.
            if state.pos() > 0 {
                let _ = write!(out, "({:#} left)", HumanDuration(state.eta()));
            }
        });
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden()).with_style(style);
        let (over, is_over) = mpsc::channel();
        let late = bar.clone();
        let wait = thread::Builder::new().spawn(move || {
            if is_over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                late.set_draw_target(ProgressDrawTarget::stderr());
                late.enable_steady_tick(TICK);
            }
        });
        // Work goes on without a bar when there is no thread for it.
        Self { bar, over: Some(over), wait: wait.ok() }
    }

    /// `done` steps are done.
    pub fn at(&self, done: usize) {
        self.bar.set_position(done as u64);
    }

    /// Shows a note beside the bar.
    pub fn note(&self, note: &str) {
        self.bar.set_message(format!("{note} "));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.over.take());
        // It panics in no case, and the bar can't appear any more once it is over.
        let _ = self.wait.take().map(JoinHandle::join);
        self.bar.finish_and_clear();
    }
}
