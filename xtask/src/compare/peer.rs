//! The engines under comparison, each run as a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::build;
use crate::cache::Cache;
use crate::fetch;
use crate::process;
use crate::progress::Progress;
use crate::python::Python;
use crate::workspace_root;

/// An engine that Muser is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    /// llama.cpp, from the Python package xllamacpp
    #[value(name = "llama.cpp")]
    LlamaCpp,
    /// candle, built from its crates for this machine's processor
    Candle,
}

/// What one run of an engine measured: a prompt of some tokens, and an answer after it.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Tokens of the prompt a second; `None` for a prompt too short to say.
    pub prefill: Option<f64>,
    /// Tokens of the answer a second.
    pub decode: f64,
    /// From the engine's start to the first token of a short prompt.
    pub first_token_seconds: f64,
    /// The most memory it had.
    pub peak_bytes: f64,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The model file.
    pub model: &'a Path,
    /// Threads that compute.
    pub n_thread: usize,
    /// Tokens of the prompt, and so the depth of the answer; 0 stands for an answer from the start.
    pub depth: usize,
    /// Tokens of the answer.
    pub n_answer: usize,
    /// The context that the engine is to hold ready.
    pub context: ContextLen,
}

/// A context that an engine holds ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextLen {
    /// As long as prompt and answer.
    Needed,
    /// As long as the model was trained for, which is what an engine takes that is not told otherwise.
    Trained,
}

/// Muser's release binary.
pub struct Muser(pub PathBuf);

impl Muser {
    /// The threads that Muser takes where it is left to choose.
    ///
    /// # Errors
    /// The binary does not run.
    pub fn default_threads(&self, model: &Path) -> Result<usize> {
        let document = self.bench(model, &["-p", "1", "-n", "0", "-r", "1"], &|| {})?;
        let n_thread = document["n_thread"].as_u64().context("`muser bench` does not say how many threads it has")?;
        Ok(n_thread as usize)
    }

    /// Leaves a model file in the page cache in one state for every run, in large pages where the system has them, as after
    /// the first load of a day.
    ///
    /// # Errors
    /// The binary does not run.
    pub fn settle(&self, model: &Path) -> Result<()> {
        let progress = Progress::spinner(&format!("{}, into the page cache", model.display()));
        let mut command = Command::new(&self.0);
        command.arg("doctor").arg(model);
        process::run(&mut command, &|| progress.at(0))?;
        Ok(())
    }

    /// Runs prompt, answer and start one after the other.
    ///
    /// # Errors
    /// The binary does not run.
    pub fn run(&self, load: &Load<'_>, tick: &dyn Fn()) -> Result<Run> {
        let [n_thread, depth, n_answer] = [load.n_thread, load.depth, load.n_answer].map(|number| number.to_string());
        let first_token_seconds = self.first_token(load.model, &n_thread, tick)?;
        let speed = |document: &Value| number(&document["measurements"][0]["tokens_per_second"]["median"]);
        let mut prefill = None;
        if load.depth > 0 {
            let args = ["-p", &depth, "-n", "0", "-r", "1", "--threads", &n_thread];
            prefill = Some(speed(&self.bench(load.model, &args, tick)?)?);
        }
        let args = ["-p", "0", "-n", &n_answer, "-d", &depth, "-r", "1", "--threads", &n_thread];
        let context: &[&str] = match load.context {
            ContextLen::Needed => &[],
            ContextLen::Trained => &["--ctx", "auto"],
        };
        let document = self.bench(load.model, &[&args[..], context].concat(), tick)?;
        let peak_bytes = number(&document["peak_resident_bytes"])?;
        Ok(Run { prefill, decode: speed(&document)?, first_token_seconds, peak_bytes })
    }

    fn bench(&self, model: &Path, args: &[&str], tick: &dyn Fn()) -> Result<Value> {
        let mut command = Command::new(&self.0);
        command.arg("bench").arg(model).arg("--json").args(args);
        json(&mut command, tick)
    }

    /// The whole process: from its start to its end after one token.
    fn first_token(&self, model: &Path, n_thread: &str, tick: &dyn Fn()) -> Result<f64> {
        let mut command = Command::new(&self.0);
        command.arg("run").arg(model).args(["Hi", "--raw", "--temp", "0", "-n", "1", "--threads", n_thread]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        tick();
        let started = Instant::now();
        let status = command.status().with_context(|| format!("cannot start {}", self.0.display()))?;
        let elapsed = started.elapsed().as_secs_f64();
        if !status.success() {
            bail!("{} run {} failed ({status})", self.0.display(), model.display());
        }
        Ok(elapsed)
    }
}

/// An engine that Muser is compared with, ready to run.
///
/// To be timed, it is a program that takes a model, and the numbers of threads, of tokens of the prompt, of tokens of the
/// answer and of tokens of the context, 0 for as many as the model was trained for, and prints a document with the fields of
/// [`Run`].
pub struct Peer {
    program: PathBuf,
    args: Vec<PathBuf>,
    python_path: Option<PathBuf>,
}

impl Peer {
    /// Installs or builds it in the cache, where it is not there.
    ///
    /// # Errors
    /// That fails.
    pub fn prepare(name: PeerName, cache: &Cache) -> Result<Self> {
        match name {
            PeerName::LlamaCpp => Self::llama_cpp(cache, "llama_cpp.py"),
            PeerName::Candle => {
                let target = cache.root().join("peers").join("candle");
                let program =
                    build::foreign_binary(&workspace_root().join("xtask/peers/candle"), &target, "peer-candle")?;
                Ok(Self { program, args: Vec::new(), python_path: None })
            }
        }
    }

    /// llama.cpp as a server: a program that takes a model, and the numbers of threads, of slots and of tokens of each
    /// slot's context, prints the address that it listens on, and ends with its standard input.
    ///
    /// # Errors
    /// It can't be installed.
    pub fn server(cache: &Cache) -> Result<Self> {
        Self::llama_cpp(cache, "llama_server.py")
    }

    /// A script for llama.cpp's Python package.
    fn llama_cpp(cache: &Cache, script: &str) -> Result<Self> {
        let sources = workspace_root().join("xtask/peers");
        let python = Python::find()?;
        let folder = format!("{}-llama.cpp", python.tag());
        let packages = fetch::python_packages(cache, &python, &sources.join("requirements.txt"), &folder)?;
        let program = python.interpreter().get_program().into();
        Ok(Self { program, args: vec![sources.join(script)], python_path: Some(packages) })
    }

    /// The program, to be given its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(self.python_path.iter().map(|path| ("PYTHONPATH", path)));
        command
    }

    /// Runs prompt and answer in a new process.
    ///
    /// # Errors
    /// The engine does not run, or says something else than what is asked for.
    pub fn run(&self, load: &Load<'_>, tick: &dyn Fn()) -> Result<Run> {
        let n_prompt = load.depth.max(1);
        let n_ctx = match load.context {
            ContextLen::Needed => n_prompt + load.n_answer,
            ContextLen::Trained => 0,
        };
        let mut command = self.command();
        command.arg(load.model).args([load.n_thread, n_prompt, load.n_answer, n_ctx].map(|number| number.to_string()));
        command.env("RAYON_NUM_THREADS", load.n_thread.to_string());
        let document = json(&mut command, tick)?;
        Ok(Run {
            prefill: (load.depth > 0).then(|| number(&document["prefill"])).transpose()?,
            decode: number(&document["decode"])?,
            first_token_seconds: number(&document["first_token_seconds"])?,
            peak_bytes: number(&document["peak_bytes"])?,
        })
    }
}

fn json(command: &mut Command, tick: &dyn Fn()) -> Result<Value> {
    let output = process::run(command, tick)?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} did not print one JSON document", command.get_program().display()))
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("not a number: {value}"))
}
