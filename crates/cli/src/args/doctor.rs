//! The arguments of `muser doctor`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

use super::parse_threads;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// A GGUF file, or any file of a set: loaded by every path that each device offers, and read back by each GPU
    pub model: Option<PathBuf>,
    /// Threads that load and that read memory [default: the physical cores available]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<NonZero<usize>>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}
