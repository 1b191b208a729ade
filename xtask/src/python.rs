//! Python and pip as they are found on the machine.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// The oldest Python that the pinned packages run on.
const OLDEST: (u32, u32) = (3, 11);

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
    fn a_missing_interpreter_is_an_error_that_names_what_to_install() {
        let error = find_interpreter(&["no-such-python"]).unwrap_err().to_string();
        assert!(error.contains("no-such-python") && error.contains("3.11"), "{error}");
    }
}
