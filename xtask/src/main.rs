//! Developer commands: `cargo xtask models`, `demo`, `golden` and `test`.
#![forbid(unsafe_code)]

mod cache;
mod catalog;
mod fetch;
mod hash;
mod progress;
mod python;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::cache::Cache;

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
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Models { names } => {
            let cache = Cache::from_env()?;
            for path in fetch::models(&cache, &catalog::select(&names)?)? {
                println!("{}", path.display());
            }
            Ok(())
        }
    }
}

/// The root of the workspace: the folder above this package.
fn workspace_root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}
