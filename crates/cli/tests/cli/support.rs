//! Runs the binary and looks at what it did.

mod pty;
mod tiny;

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub use pty::Terminal;
pub use tiny::{Place, Tiny};

/// A call of the binary.
pub struct Muser {
    command: Command,
    stdin: Vec<u8>,
}

/// A call with these arguments.
pub fn muser<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Muser {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muser"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Muser { command, stdin: Vec::new() }
}

/// As [`muser`], in a shell that has set a limit, such as `ulimit -v 400000`. A limit on locked memory holds for everybody:
/// root gives up the right to pass it.
pub fn muser_within<A: AsRef<OsStr>>(limit: &str, args: impl IntoIterator<Item = A>) -> Muser {
    let script = format!("{limit} && exec \"$0\" \"$@\"");
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    command.args(["-c", &script, env!("CARGO_BIN_EXE_muser")]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Muser { command, stdin: Vec::new() }
}

impl Muser {
    /// Appends arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// What comes in on standard input; without this, nothing does.
    pub fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.stdin = bytes.as_ref().to_vec();
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Where its standard output goes; without this, it is collected.
    pub fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    /// Where its standard error goes; without this, it is collected.
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stderr(to);
        self
    }

    /// Waits for its end.
    pub fn run(mut self) -> Done {
        let mut child = self.command.spawn().expect("the binary starts");
        let mut stdin = child.stdin.take().expect("it is a pipe");
        let writer = thread::spawn(move || {
            // A command that refuses its arguments ends without reading.
            let _ = stdin.write_all(&self.stdin);
        });
        let output = child.wait_with_output().expect("it ends");
        writer.join().expect("writing does not panic");
        Done::new(output)
    }

    /// Waits for its end, which has to be a success, and returns what it printed.
    pub fn prints(self) -> String {
        let done = self.run();
        done.expect_code(0);
        done.stdout
    }

    /// As [`prints`](Self::prints), for one JSON document.
    pub fn prints_json(self) -> Value {
        let text = self.prints();
        assert!(text.ends_with('\n') && text.lines().count() == 1, "one line, and its end: {text:?}");
        serde_json::from_str(&text).expect("the output is JSON")
    }

    /// Waits for its end, which has to be a failure with this exit code, one line on standard error, and nothing on
    /// standard output. Returns that line.
    pub fn fails(self, code: i32) -> String {
        let done = self.run();
        done.expect_code(code);
        assert_eq!(done.stdout, "", "a failure printed something; it said: {}", done.stderr);
        assert_eq!(done.stderr.trim_end().lines().count(), 1, "more or less than one line: {}", done.stderr);
        let line = done.stderr.trim_end().strip_prefix("muser: ").expect("it says who speaks").to_owned();
        assert!(!line.contains('\u{1b}'), "the message drives the terminal: {line:?}");
        line
    }

    /// As [`fails`](Self::fails) for flags that the parser of the command line refuses, which adds how to call it.
    pub fn refuses(self) -> String {
        let done = self.run();
        done.expect_code(2);
        assert_eq!(done.stdout, "");
        done.stderr
    }

    /// Starts it, with its output to be read.
    pub fn start(mut self) -> Running {
        Running(self.command.spawn().expect("the binary starts"))
    }

    /// Starts it with a terminal for its standard error, and with `stdio` for the other two as well.
    pub fn start_in_terminal(mut self, stdio: bool) -> (Running, Terminal) {
        let (terminal, side) = Terminal::open();
        let file = || side.try_clone().expect("a descriptor can be had");
        self.command.env("TERM", "xterm").stderr(file());
        if stdio {
            self.command.stdin(file()).stdout(file());
        } else {
            self.command.stdin(Stdio::null());
        }
        let child = self.command.spawn().expect("the binary starts");
        (Running(child), terminal)
    }
}

/// A call that has ended.
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(!stderr.contains("panicked"), "it panicked: {stderr}");
        Self { status: output.status, stdout, stderr }
    }

    pub fn expect_code(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{}; it said: {}", self.status, self.stderr);
    }
}

/// A call of `run` on an [endless](Tiny::endless) model.
pub fn endless(place: &Place) -> Muser {
    muser(["run", "--raw", "--temp", "0", "--ctx", "100000"]).args([place.path()]).args(["hi"])
}

/// A call that has not ended. Its process ends with the test.
pub struct Running(Child);

impl Running {
    /// Waits for some output, and returns it.
    pub fn some_output(&mut self) -> Vec<u8> {
        let mut piece = vec![0; 64];
        let len = self.0.stdout.as_mut().expect("it is a pipe").read(&mut piece).expect("it can be read");
        assert_ne!(len, 0, "it ended without output");
        piece.truncate(len);
        piece
    }

    /// Closes the end of the pipe that its standard output goes to.
    pub fn close_stdout(&mut self) {
        drop(self.0.stdout.take());
    }

    /// Waits until it has taken all that its standard input holds, and so waits for more.
    pub fn wait_until_it_reads(&mut self) {
        let stdin = self.0.stdin.as_mut().expect("it is a pipe");
        stdin.write_all(b"\n").expect("it takes input");
        while rustix::io::ioctl_fionread(&*stdin).expect("it is a pipe") > 0 {
            thread::yield_now();
        }
    }

    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the process is there");
    }

    /// Waits for its end. Its output from here on is collected.
    pub fn end(mut self) -> Done {
        let pid = Pid::from_child(&self.0);
        let (ended, has_ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            // It would go on for ever; then the test fails, by the exit status.
            if has_ended.recv_timeout(pty::PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let read = |from: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                from.read_to_end(&mut bytes).expect("it can be read");
            }
            bytes
        };
        let (mut out, mut err) = (self.0.stdout.take(), self.0.stderr.take());
        let (stdout, stderr) = thread::scope(|scope| {
            let stderr = scope.spawn(|| read(err.as_mut().map(|err| err as &mut dyn Read)));
            (read(out.as_mut().map(|out| out as &mut dyn Read)), stderr.join().expect("reading does not panic"))
        });
        drop(ended);
        let status = self.0.wait().expect("it ends");
        Done::new(Output { status, stdout, stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file of golden data.
pub fn golden(file: &str) -> Value {
    let path = golden_path(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("golden data is JSON")
}

pub fn golden_path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/golden").join(file)
}

/// The ids of an array.
pub fn ids(value: &Value) -> Vec<u64> {
    value.as_array().expect("an array").iter().map(|id| id.as_u64().expect("an id")).collect()
}
