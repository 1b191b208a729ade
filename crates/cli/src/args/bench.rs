//! The arguments of `muser bench`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;

use super::{Ctx, EngineArgs, parse_count, parse_ctx};

#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A GGUF file
    pub model: PathBuf,
    /// Tokens of a prompt; 0 measures none
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    pub prompt: usize,
    /// Tokens of an answer; 0 measures none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    pub tokens: usize,
    /// Tokens that the context holds before each measurement; several, with commas between, measure each
    #[arg(short = 'd', long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub depth: Vec<usize>,
    /// How often each measurement is repeated
    #[arg(short = 'r', long, value_name = "N", default_value = "3", value_parser = parse_count)]
    pub repeat: NonZero<usize>,
    /// Context in tokens, or `auto` for the largest that fits [default: what the measurements need]
    #[arg(long, value_name = "N|auto", value_parser = parse_ctx)]
    pub ctx: Option<Ctx>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}
