//! Python and pip as they are found on the machine.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The oldest Python that the pinned packages run on.
const OLDEST: (u32, u32) = (3, 10);

/// A Python interpreter and a pip.
#[derive(Debug)]
pub struct Python {
    program: String,
    pip: Vec<String>,
    tag: String,
}

impl Python {
    /// Looks for an interpreter and a pip on the path.
    ///
    /// # Errors
    /// One of them is not there, or Python is too old.
    pub fn find() -> Result<Self> {
        let (program, tag) = find_interpreter(&["python3", "python"])?;
        let pips: [&[&str]; 3] = [&[program, "-m", "pip"], &["pip3"], &["pip"]];
        let runs = |pip: &&[&str]| answer(pip[0], &[&pip[1..], &["--version"]].concat()).is_some();
        let Some(pip) = pips.into_iter().find(runs) else {
            bail!(
                "pip was not found ({program} -m pip, pip3 and pip do not run): install it, for example with \
                 `apt-get install python3-pip` or `{program} -m ensurepip`"
            );
        };
        Ok(Self { program: program.to_owned(), pip: pip.iter().map(|&word| word.to_owned()).collect(), tag })
    }

    /// The machine's Python, with another program in pip's place.
    #[cfg(test)]
    pub fn with_pip(pip: &Path) -> Self {
        let (program, tag) = find_interpreter(&["python3", "python"]).unwrap();
        Self { program: program.to_owned(), pip: vec![pip.to_str().unwrap().to_owned()], tag }
    }

    /// Names the kind of interpreter that compiled packages fit, as in `cpython-311-x86_64-linux-gnu`.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// An interpreter to be run.
    pub fn interpreter(&self) -> Command {
        Command::new(&self.program)
    }

    /// pip to be run with this subcommand, quietly, asking nothing, with its temporary files in `scratch`.
    pub fn pip(&self, subcommand: &str, scratch: &Path) -> Command {
        let mut command = Command::new(&self.pip[0]);
        command.args(&self.pip[1..]).arg(subcommand).args(["--quiet", "--no-input", "--no-cache-dir"]);
        command.args(["--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
        command.env("TMPDIR", scratch);
        command
    }
}

/// Runs a command to its end and returns its output; `tick` is called about ten times a second meanwhile.
///
/// # Errors
/// The command cannot be started, or does not end with success: the last lines that it wrote to standard error are
/// in the error.
pub fn run(command: &mut Command, tick: impl FnMut()) -> Result<Output> {
    let output = output(command, tick)?;
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
    let program = command.get_program().display().to_string();
    let child = command
        .stdin(Stdio::null())
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

fn find_interpreter(programs: &[&'static str]) -> Result<(&'static str, String)> {
    const ASK: &str = "import sys, sysconfig; v = sys.version_info; \
                       print(v[0], v[1], sysconfig.get_config_var('SOABI') or sysconfig.get_platform())";
    for &program in programs {
        let Some(text) = answer(program, &["-c", ASK]) else { continue };
        let mut words = text.split_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
        let (Some(major), Some(minor), Some(tag)) = (number(), number(), words.next()) else { continue };
        if (major, minor) < OLDEST {
            bail!("{program} is Python {major}.{minor}; Python {}.{} or newer is needed", OLDEST.0, OLDEST.1);
        }
        return Ok((program, format!("{major}.{minor}-{tag}")));
    }
    bail!(
        "Python was not found ({} do not run): install Python {}.{} or newer with pip, for example with \
         `apt-get install python3-pip`",
        programs.join(" and "),
        OLDEST.0,
        OLDEST.1
    )
}

/// What a program prints, or nothing where it does not run.
fn answer(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
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
    fn a_missing_interpreter_is_an_error_that_names_what_to_install() {
        let error = find_interpreter(&["no-such-python"]).unwrap_err().to_string();
        assert!(error.contains("no-such-python") && error.contains("3.10"), "{error}");
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_exit_status_and_its_last_words() {
        let error = run(Command::new("sh").args(["-c", "echo out of luck >&2; exit 3"]), || {}).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("exit status: 3") && text.contains("out of luck"), "{text}");
    }
}
