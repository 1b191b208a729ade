//! Progress bars that appear only when something takes long enough to be worth one.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that is done sooner than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// Progress of one piece of work, on standard error where that is a terminal; the bar goes when the value does.
pub struct Progress {
    bar: ProgressBar,
    since: Instant,
}

impl Progress {
    /// Work of this many bytes.
    pub fn bytes(what: &str, total: u64) -> Self {
        Self::new(what, Some(total), "{msg} {bar:30} {bytes}/{total_bytes} {eta}")
    }

    /// Work of this many pieces.
    pub fn count(what: &str, total: u64) -> Self {
        Self::new(what, Some(total), "{msg} {bar:30} {pos}/{len} {eta}")
    }

    /// Work whose end can't be foreseen.
    pub fn spinner(what: &str) -> Self {
        Self::new(what, None, "{spinner} {msg} {elapsed}")
    }

    fn new(what: &str, total: Option<u64>, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        Self { bar, since: Instant::now() }
    }

    /// So many bytes or pieces are done; for a spinner, the work still goes on.
    pub fn at(&self, done: u64) {
        if self.bar.is_hidden() && self.since.elapsed() >= PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.bar.length().is_some() {
            self.bar.set_position(done);
        } else {
            self.bar.tick();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
