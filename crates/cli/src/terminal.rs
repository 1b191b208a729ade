//! Standard input and output, and numbers as a person reads them.

use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::exit::Usage;

/// Writes to standard output. Breaks when the reader has gone away, which ends a command quietly.
///
/// # Errors
/// Any other failure.
pub fn print(text: &str) -> Result<ControlFlow<()>> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(error).context("writing to standard output"),
    }
}

/// Writes a line to standard error. That nobody can read it is no reason to fail.
pub fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Says something that a person should know, and who says it.
pub fn warn(line: fmt::Arguments<'_>) {
    say(format_args!("muser: {line}"));
}

/// All of standard input, which has to be text.
///
/// # Errors
/// When it can't be read, or is no text.
pub fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).context("reading standard input")?;
    text("standard input", bytes)
}

/// Bytes as the text that they have to be; `from` is where they come from.
///
/// # Errors
/// When they are not UTF-8; says where.
pub fn text(from: &str, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Usage(format!("{from} is not UTF-8 text: byte {at} is 0x{:02x}", error.as_bytes()[at])).into()
    })
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

/// A number of things, in words.
pub fn counted(number: usize, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number as u64), if number == 1 { "" } else { "s" })
}

/// Things per second; `None` when there were none, or no time passed.
pub fn rate(things: usize, elapsed: Duration) -> Option<f64> {
    let seconds = elapsed.as_secs_f64();
    (things > 0 && seconds > 0.0).then(|| things as f64 / seconds)
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

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_place() {
        assert_eq!(text("a file", b"caf\xc3\xa9".to_vec()).expect("it is UTF-8"), "café");
        let error = text("a file", b"caf\xe9".to_vec()).expect_err("it is Latin-1");
        assert_eq!(error.to_string(), "a file is not UTF-8 text: byte 3 is 0xe9");
    }

    #[test]
    fn nothing_and_no_time_have_no_rate() {
        assert_eq!(rate(10, Duration::from_secs(2)), Some(5.0));
        assert_eq!((rate(0, Duration::from_secs(2)), rate(10, Duration::ZERO)), (None, None));
    }
}
