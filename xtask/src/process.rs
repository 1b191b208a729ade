//! Other programs, run to their end with a sign of life.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Runs a command to its end and returns its output; `tick` is called about ten times a second meanwhile.
///
/// # Errors
/// The command cannot be started, or does not end with success: the last lines that it wrote to standard error are
/// in the error.
pub fn run(command: &mut Command, tick: impl FnMut()) -> Result<Output> {
    let output = output(command, tick)?;
    succeeded(command, output)
}

/// The output of a command that has to have ended with success.
///
/// # Errors
/// As [`run`].
pub fn succeeded(command: &Command, output: Output) -> Result<Output> {
    if !output.status.success() {
        let program = command.get_program().display();
        bail!("{program} failed ({}):\n{}", output.status, last_words(&String::from_utf8_lossy(&output.stderr)));
    }
    Ok(output)
}

/// As [`run`], with success or failure left to the caller.
///
/// # Errors
/// The command cannot be started.
pub fn output(command: &mut Command, tick: impl FnMut()) -> Result<Output> {
    output_of(command, Stdio::null(), tick)
}

/// As [`output`], with this as standard input.
///
/// # Errors
/// The command cannot be started.
pub fn output_of(command: &mut Command, stdin: Stdio, tick: impl FnMut()) -> Result<Output> {
    let program = command.get_program().display().to_string();
    let child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    collect(child, tick).with_context(|| format!("cannot follow {program}"))
}

/// What a program last said: its errors where it marks them as such, as pip does, else its last lines.
fn last_words(stderr: &str) -> String {
    let lines: Vec<_> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let errors: Vec<_> = lines.iter().copied().filter(|line| line.starts_with("ERROR: ")).collect();
    let said = if errors.is_empty() { &lines } else { &errors };
    said[said.len().saturating_sub(8)..].join("\n")
}

fn collect(mut child: Child, mut tick: impl FnMut()) -> io::Result<Output> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let stdout = scope.spawn(|| drain(stdout));
        let stderr = scope.spawn(|| drain(stderr));
        let mut pause = Duration::from_millis(1);
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {
                    tick();
                    thread::sleep(pause);
                    // Short commands are noticed at once, and long ones cost next to nothing.
                    pause = (pause * 2).min(Duration::from_millis(100));
                }
                Err(error) => break Err(error),
            }
        };
        let text = |joined: thread::Result<Vec<u8>>| joined.unwrap_or_default();
        Ok(Output { status: status?, stdout: text(stdout.join()), stderr: text(stderr.join()) })
    })
}

fn drain(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What was read before an error is still worth showing.
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_marks_its_errors_is_quoted_by_them_alone() {
        assert_eq!(last_words("WARNING: retrying\nERROR: no such thing\n\n"), "ERROR: no such thing");
        assert_eq!(last_words("one\ntwo\n"), "one\ntwo");
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_exit_status_and_its_last_words() {
        let error = run(Command::new("sh").args(["-c", "echo out of luck >&2; exit 3"]), || {}).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.contains("out of luck"), "{text}");
    }
}
