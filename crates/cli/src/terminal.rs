//! What a person sees and presses: progress, plain numbers, Ctrl-C.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How long something may take before a bar appears.
const PATIENCE: Duration = Duration::from_millis(500);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Exit code of a command that Ctrl-C ended.
pub const INTERRUPTED_CODE: u8 = 130;

/// Makes Ctrl-C (and a request to terminate) set a flag that loops look at; a second one ends the process at once.
///
/// # Errors
/// When the handler can't be installed.
pub fn catch_interrupts() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED_CODE));
        }
    })
}

/// Break after Ctrl-C.
pub fn interrupted() -> ControlFlow<()> {
    if INTERRUPTED.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Forgets a Ctrl-C that has been dealt with.
pub fn clear_interrupt() {
    INTERRUPTED.store(false, Ordering::Relaxed);
}

/// A bar on standard error, for work that turns out to take long. Nothing is drawn where there is no terminal.
pub struct Progress {
    what: &'static str,
    unit: &'static str,
    total: u64,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Work of `total` steps.
    pub fn new(what: &'static str, unit: &'static str, total: u64) -> Self {
        Self { what, unit, total, started: Instant::now(), bar: None }
    }

    /// Shows that `done` steps are done, with a note.
    pub fn at(&mut self, done: u64, note: &str) {
        if self.bar.is_none() && self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let template = format!("{} {{bar:30}} {{pos}}/{{len}} {} {{msg}} ({{eta}} left)", self.what, self.unit);
            let style = ProgressStyle::with_template(&template).expect("the template is well-formed");
            ProgressBar::new(self.total).with_style(style)
        });
        bar.set_position(done);
        bar.set_message(note.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes to standard output; true when the reader has gone away, which ends a command quietly.
///
/// # Errors
/// Any other failure.
pub fn print(text: &str) -> io::Result<ControlFlow<()>> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(error),
    }
}

/// Whether a person types.
pub fn stdin_is_terminal() -> bool {
    io::stdin().is_terminal()
}

/// Bytes as a person reads them, in powers of ten.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1000.0;
    let mut unit = 0;
    // What would be rounded up to 1000 belongs to the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.*} {}", usize::from(value < 99.5), UNITS[unit])
}

/// A whole number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Things per second; `None` when no time passed.
pub fn rate(things: usize, elapsed: Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (seconds > 0.0).then(|| things as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_two_or_three_digits() {
        let cases = [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (98_362_432, "98.4 MB"), (999_600, "1.0 MB")];
        for (count, expected) in cases.into_iter().chain([(253_113_024, "253 MB"), (16_700_000_000, "16.7 GB")]) {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        for (number, expected) in [(7, "7"), (1000, "1,000"), (262_144, "262,144"), (1_826_619_392, "1,826,619,392")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
