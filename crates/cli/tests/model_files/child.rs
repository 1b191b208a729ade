//! Runs the binary on a file and looks at how it ended and what memory it took.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{fs, thread};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::raw::Raw;

/// What any call here may take beyond its file: the binary itself, its threads, and tables of what the file says.
const MEMORY_BYTES: u64 = 64 << 20;

/// Longer than anything takes here, however busy the machine is: what is still running then hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// A file on disk.
pub struct OnDisk {
    folder: TempDir,
    size_bytes: u64,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Done {
    code: i32,
    stdout: String,
    stderr: String,
}

impl OnDisk {
    pub fn new(bytes: &[u8]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Self { folder, size_bytes: bytes.len() as u64 };
        fs::write(file.path(), bytes).expect("room for it");
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }

    /// Calls `muser` with these arguments, of which `FILE` is this file, and holds it to its bounds.
    pub fn muser(&self, args: &[&str]) -> Done {
        let path = self.path();
        let mut command = Command::new(env!("CARGO_BIN_EXE_muser"));
        command.args(args.iter().map(|arg| if *arg == "FILE" { path.as_os_str() } else { arg.as_ref() }));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let pid = Pid::from_child(&child);
        let (mut out, mut err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
        let (ended, has_ended) = mpsc::channel::<()>();
        let read = |from: &mut dyn Read| {
            let mut text = String::new();
            from.read_to_string(&mut text).expect("the output is UTF-8");
            text
        };
        let (stdout, stderr) = thread::scope(|scope| {
            scope.spawn(move || {
                if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            });
            let stderr = scope.spawn(|| read(&mut err));
            let stdout = read(&mut out);
            let stderr = stderr.join().expect("reading does not panic");
            drop(ended);
            (stdout, stderr)
        });
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), None, "{args:?} ended by a signal; it said: {stderr}");
        assert!(!stderr.contains("panicked"), "{args:?} panicked: {stderr}");
        // Of all calls so far, so that none goes unmeasured; the files here are all about as small.
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the system counts");
        let peak_bytes = usage.max_rss() as u64 * 1024;
        let bound = MEMORY_BYTES + self.size_bytes;
        assert!(peak_bytes <= bound, "{args:?} or a call before it took {peak_bytes} bytes, expected at most {bound}");
        Done { code: status.code().expect("it was no signal"), stdout, stderr }
    }
}

impl Done {
    /// What it printed; it has to have been a success.
    pub fn printed(self) -> String {
        assert_eq!(self.code, 0, "it said: {}", self.stderr);
        self.stdout
    }

    /// What it printed, as JSON.
    pub fn json(self) -> Value {
        serde_json::from_str(&self.printed()).expect("the output is JSON")
    }

    /// Its one line of refusal, which says all of `parts`.
    #[track_caller]
    pub fn refused(self, code: i32, parts: &[&str]) -> String {
        let Self { code: found, stdout, stderr } = self;
        assert_eq!((found, &*stdout), (code, ""), "it said: {stderr}");
        assert!(stderr.starts_with("muser: ") && stderr.lines().count() == 1 && stderr.len() < 2000, "{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{stderr:?} doesn't say {part:?}");
        }
        stderr
    }
}

/// Asserts that whatever reads the file refuses it, and says all of `parts`.
#[track_caller]
pub fn unreadable(bytes: &[u8], parts: &[&str]) {
    let file = OnDisk::new(bytes);
    for args in [&["inspect", "FILE"][..], &["plan", "FILE"], &["tokenize", "FILE", "a"], &RUN] {
        file.muser(args).refused(4, parts);
    }
}

/// Asserts that the file can't be run, and that what reads the header alone says why.
#[track_caller]
pub fn unusable(raw: &Raw, parts: &[&str]) {
    let file = OnDisk::new(&raw.file());
    file.muser(&RUN).refused(4, parts);
    let document = file.muser(&["inspect", "--json", "FILE"]).json();
    assert_eq!(document["runs"], false);
    let why = document["why_not"].as_str().expect("a reason");
    for part in parts {
        assert!(why.contains(part), "{why:?} doesn't say {part:?}");
    }
}

/// Asserts that the file is run.
#[track_caller]
pub fn usable(raw: &Raw) {
    let document = OnDisk::new(&raw.file()).muser(&RUN).json();
    assert!(document["prompt_tokens"].as_u64() > Some(0), "{document}");
}

/// Continues a text by one token.
pub const RUN: [&str; 9] = ["run", "--raw", "--ctx", "16", "-n", "1", "--json", "FILE", "a"];
