//! A server as a process of its own, on a port of loopback that it chose.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::compare::Peer;

/// How long a server may take to end when it is told to.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A server that runs until it is dropped.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts Muser's server.
    ///
    /// # Errors
    /// It does not start.
    pub fn muser(
        muser: &Path,
        model: &Path,
        n_slot: usize,
        n_ctx: usize,
        n_thread: Option<usize>,
        further: &[&str],
    ) -> Result<Self> {
        let mut command = Command::new(muser);
        command.arg("serve").arg(model).args(["--port", "0"]).args(further);
        command.args(["--slots", &n_slot.to_string(), "--ctx", &n_ctx.to_string()]);
        if let Some(n_thread) = n_thread {
            command.args(["--threads", &n_thread.to_string()]);
        }
        Self::start(&mut command)
    }

    /// Starts the peer's server.
    ///
    /// # Errors
    /// It does not start.
    pub fn peer(peer: &Peer, model: &Path, n_slot: usize, n_ctx: usize, n_thread: Option<usize>) -> Result<Self> {
        let n_thread = n_thread.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let mut command = peer.command();
        command.arg(model).args([n_thread, n_slot, n_ctx].map(|number| number.to_string()));
        Self::start(&mut command)
    }

    fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().display().to_string();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut server =
            Self { child: child.with_context(|| format!("cannot start {program}"))?, address: String::new() };
        let stdout = server.child.stdout.take().context("the server has no standard output")?;
        for line in BufReader::new(stdout).lines() {
            let line = line.with_context(|| format!("cannot follow {program}"))?;
            if let Some(start) = line.find("http://") {
                server.address =
                    line[start..].split_whitespace().next().unwrap_or_default().trim_end_matches('/').into();
                return Ok(server);
            }
        }
        bail!("{program} ended before it listened ({})", server.child.wait()?)
    }

    /// Where it listens, as in `http://127.0.0.1:8080`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Bytes of memory that are its own; the mapped model is not among them.
    ///
    /// # Errors
    /// The system does not say.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.with_context(|| format!("{path} does not say how much memory is resident"))? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The peer ends with its standard input, Muser by a signal; who takes too long is killed.
        drop(self.child.stdin.take());
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let told = Instant::now();
        while told.elapsed() < LAST_WORDS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
