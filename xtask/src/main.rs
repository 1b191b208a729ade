//! Developer commands: `cargo xtask models`, `demo`, `golden`, `inspect`, `clients`, `test`, `compare` and `counts`.
#![forbid(unsafe_code)]

mod build;
mod cache;
mod catalog;
mod clients;
mod compare;
mod counts;
mod fetch;
mod golden;
mod hash;
mod inspect;
mod process;
mod progress;
mod python;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::cache::Cache;
use crate::compare::PeerName;

/// Developer commands of the Muser workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch the models that demo and tests use into the cache folder, and print their paths
    Models {
        /// Which models: smollm2, gemma3, muse-F32, muse-Q8_0, muse-Q4_K, muse-Q6_K [default: all]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Fetch a small model, build in release mode, and stream an answer
    Demo {
        /// The question
        #[arg(default_value = "Explain in two sentences why the sky is blue.")]
        prompt: String,
    },
    /// Compare the release binary with the golden data: log-probabilities, tokens, perplexity
    Golden {
        /// Which models [default: all]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Measure the release binary and another engine on the same files in turn, and print how they compare
    Compare {
        /// Which models [default: smollm2 and gemma3]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// A binary of Muser [default: the release binary, built first]
        #[arg(long, value_name = "PATH")]
        muser: Option<PathBuf>,
        /// The other engine
        #[arg(long, value_enum, default_value_t = PeerName::LlamaCpp)]
        peer: PeerName,
        /// Runs of each engine [default: 3, or 1 with --quick]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        pairs: Option<u16>,
        /// Threads of each engine [default: what Muser takes by itself]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
        threads: Option<u16>,
        /// One pair, short answers, and no depth of 4,096
        #[arg(long)]
        quick: bool,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Count the instructions of a decode step and of a prefill, and hold them against what was recorded
    Counts {
        /// Record what is counted
        #[arg(long)]
        record: bool,
        /// A binary of Muser [default: the release binary, built first]
        #[arg(long, value_name = "PATH")]
        muser: Option<PathBuf>,
    },
    /// Compare what the release binary says of files with what the format's own Python package reads
    Inspect {
        /// Which models [default: all]
        #[arg(value_name = "NAME")]
        names: Vec<String>,
    },
    /// Drive the release binary's server with clients that others wrote, such as openai, langchain-openai and curl
    Clients,
    /// Fetch what the tests need, run all of them, then the comparisons and the clients
    Test {
        /// Further arguments of `cargo test`
        #[arg(last = true)]
        extra: Vec<OsString>,
    },
}

/// Most tokens of the demo's answer: enough for its question, and soon over when the model rambles.
const DEMO_LEN: &str = "200";

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Not left to `main`'s own report, which would add a backtrace where RUST_BACKTRACE is set.
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  {}", cause.to_string().replace('\n', "\n    "));
            }
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let cache = Cache::from_env()?;
    match command {
        Command::Models { names } => {
            for path in fetch::models(&cache, &catalog::select(&names)?)? {
                println!("{}", path.display());
            }
            Ok(())
        }
        Command::Demo { prompt } => demo(&cache, &prompt),
        Command::Golden { names } => golden::check(&cache, &catalog::select(&names)?),
        Command::Inspect { names } => inspect::check(&cache, &catalog::select(&names)?),
        Command::Clients => clients::check(&cache),
        Command::Compare { names, muser, peer, pairs, threads, quick, json } => {
            let (n_pair, n_thread) = (pairs.map(usize::from), threads.map(usize::from));
            compare::compare(&cache, &compare::Options { muser, peer, models: names, n_pair, n_thread, quick, json })
        }
        Command::Counts { record: true, muser } => counts::record(&cache, muser),
        Command::Counts { record: false, muser } => counts::check(&cache, muser),
        Command::Test { extra } => {
            let models = catalog::select(&[])?;
            fetch::models(&cache, &models)?;
            build::test(&cache, &extra)?;
            inspect::check(&cache, &models)?;
            golden::check(&cache, &models)?;
            clients::check(&cache)
        }
    }
}

/// Streams an answer of the smallest model. The binary takes this process's place, so that its exit code and what it
/// does on Ctrl-C are its own.
fn demo(cache: &Cache, prompt: &str) -> Result<()> {
    let models = fetch::models(cache, &catalog::select(&["smollm2".to_owned()])?)?;
    let muser = build::release_binary()?;
    let error = std::process::Command::new(&muser).arg("run").args(models).arg(prompt).args(["-n", DEMO_LEN]).exec();
    Err(error).with_context(|| format!("cannot start {}", muser.display()))
}

/// The root of the workspace: the folder above this package.
fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
