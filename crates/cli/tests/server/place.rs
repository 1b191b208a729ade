//! Starts servers, and ends them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Conversation, Reply};
use crate::tiny::{Place, Tiny};

/// Longer than anything takes here, however busy the machine is: what is still running then hangs.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// A server, which ends with its test.
pub struct Server {
    child: Child,
    address: String,
    stderr: Option<JoinHandle<String>>,
    /// Keeps the model that was made for this server.
    place: Option<Place>,
}

/// How a server has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

/// A small model with random weights, a window of 32 tokens and a context of 4,096. It ends no answer where it is asked
/// not to.
pub fn muse(args: &[&str]) -> Server {
    Server::start(&model_path(MUSE[1]), args)
}

/// A model that answers, with a chat template.
pub fn smollm2(args: &[&str]) -> Server {
    Server::start(&model_path(SMOLLM2), args)
}

/// A model whose answers at temperature 0 have no end and are the letter `a`, with a chat template.
pub fn endless(args: &[&str]) -> Server {
    let template = "{% for message in messages %}{{ message.content }}\n{% endfor %}";
    let place = Tiny::endless().with("tokenizer.chat_template", template).place();
    let mut server = Server::start(&place.path(), args);
    server.place = Some(place);
    server
}

/// A call of `muser serve`.
pub fn serve(model: &Path, args: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muser"));
    command.arg("serve").arg(model).args(["--port", "0", "--threads", "1"]).args(args);
    if !args.iter().any(|arg| arg.as_ref() == "--prefix-cache") {
        command.args(["--prefix-cache", "64MiB"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Server {
    /// Starts a server and waits until it says where it listens.
    pub fn start(model: &Path, args: &[&str]) -> Self {
        let mut child = serve(model, args).spawn().expect("the binary starts");
        let mut err = child.stderr.take().expect("a pipe");
        let stderr = thread::spawn(move || {
            let mut text = String::new();
            err.read_to_string(&mut text).expect("it can be read");
            text
        });
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut line).expect("it can be read");
        let Some(address) = line.trim_end().strip_prefix("http://") else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("it printed {line:?} and said: {}", stderr.join().unwrap_or_default());
        };
        Self { address: address.to_owned(), child, stderr: Some(stderr), place: None }
    }

    /// Where it listens, as in `127.0.0.1:8080`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn get(&self, path: &str) -> Reply {
        Conversation::open(self).get(path)
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        Conversation::open(self).post(path, body)
    }

    /// As [`post`](Self::post), for a request that has to succeed.
    pub fn ask(&self, path: &str, body: &Value) -> Value {
        self.post(path, body).expect(200)
    }

    /// Continues a text at temperature 0, and returns the first choice.
    pub fn complete(&self, mut body: Value) -> Value {
        let fields = body.as_object_mut().expect("an object");
        fields.entry("temperature").or_insert(json!(0));
        self.ask("/v1/completions", &body)["choices"][0].take()
    }

    /// The tokens of a text.
    pub fn tokens(&self, text: &str) -> Vec<Value> {
        let reply = self.ask("/tokenize", &json!({"content": text}));
        reply["tokens"].as_array().expect("an array").clone()
    }

    /// A count of the metrics, by its name and labels.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics").text();
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().expect("a whole number")
    }

    /// Waits until the condition holds, and fails if it does not come to.
    pub fn wait_until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let (over, is_over) = mpsc::channel::<()>();
        let timer = thread::spawn(move || {
            thread::park_timeout(PATIENCE);
            drop(over);
        });
        while !holds(self) {
            let waited = is_over.recv_timeout(Duration::from_millis(5));
            assert_ne!(waited, Err(RecvTimeoutError::Disconnected), "it never came to that {what}");
        }
        timer.thread().unpark();
    }

    /// How many slots work.
    pub fn n_busy(&self) -> usize {
        let slots = self.get("/slots").json();
        slots.as_array().expect("an array").iter().filter(|slot| slot["state"] != "idle").count()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let pid = Pid::from_child(&self.child);
        let (ended, has_ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            // It would go on for ever; then the test fails, by the exit status.
            if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        let status = self.child.wait().expect("it ends");
        drop(ended);
        let stderr = self.stderr.take().and_then(|reader| reader.join().ok()).expect("its standard error ends with it");
        assert!(!stderr.contains("panicked"), "it panicked: {stderr}");
        Ended { status, stderr }
    }

    /// Ends it as its users do, and returns what it said.
    pub fn stop(self) -> String {
        self.signal(Signal::TERM);
        let ended = self.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        ended.stderr
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, unless the test is over before it was asked to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of keys, with this mode.
pub fn key_file(folder: &TempDir, keys: &str, mode: u32) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.path().join("keys");
    std::fs::write(&path, keys).expect("it can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    path
}
