//! The command line, defined once: parser, help and usage errors follow from it.

mod bench;
mod doctor;
mod serve;
mod split;

use std::num::NonZero;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use muser_cpu::caps::Tier;
use muser_memory::LoadPolicy;

pub use bench::BenchArgs;
pub use doctor::DoctorArgs;
pub use serve::{HttpArgs, LogFormat, ServeArgs};
pub use split::SplitArgs;

/// Runs language models from GGUF files, mapped once and computed on in place.
///
/// Results go to standard output, everything else to standard error.
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by the memory plan, 4 bad model file,
/// 130 interrupted, 129 and 143 ended by SIGHUP and SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "muser", version, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Reads the process's arguments. Prints what is wrong with them, or what they ask to know of them, and ends the process.
    pub fn from_command_line() -> Self {
        let matches = taking_negative_numbers(Self::command()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// Has every option take a negative number for its value, so that it says itself what it expects.
fn taking_negative_numbers(command: clap::Command) -> clap::Command {
    let option = |arg: Arg| {
        let takes_number = arg.get_action().takes_values() && !arg.is_positional();
        if takes_number { arg.allow_negative_numbers(true) } else { arg }
    };
    command.mut_args(option).mut_subcommands(taking_negative_numbers)
}

const SCORE_ABOUT: &str = "Score given continuations: JSON lines in, JSON lines out\n\n\
Reads lines from standard input and answers each with one:\n\n  \
{\"ids\":[…],\"next\":[…]}\n  \
{\"steps\":[{\"id\":i,\"logprob\":x,\"top\":[[id,x],…]},…]}\n\n\
A step has the natural logarithm of the probability of a token of \"next\", given \"ids\" and what of \"next\" stands \
before it, over the full vocabulary.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stream an answer to a prompt, or chat interactively without one
    Run(RunArgs),
    /// Answer requests over HTTP
    ///
    /// Clients of openai's interface can use it; docs/server.md describes it. When the model is loaded, one line on
    /// standard output says where the server listens. Everything else goes to standard error. With --strict, requests with
    /// unknown fields are refused too. Requests that don't say how tokens are chosen get the interface's defaults, which are
    /// others than those of `run`: temperature 1, and every token may be chosen.
    Serve(ServeArgs),
    /// Show what a model file says
    Inspect(InspectArgs),
    /// Show what memory a model takes, before anything is loaded
    ///
    /// Ends with exit code 3 where it does not fit, and says what would.
    Plan(PlanArgs),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Score given continuations: JSON lines in, JSON lines out
    #[command(long_about = SCORE_ABOUT)]
    Score(ScoreArgs),
    /// Measure the perplexity of a text file
    Perplexity(PerplexityArgs),
    /// Measure prefill and decode, load, memory and the memory roof
    ///
    /// Input is a fixed sequence of token ids, and an answer takes the likeliest token each time. At a depth, the tokens
    /// before are really processed. GB/s are the bytes of weights, keys and values that a decoded token needs once, and
    /// the roof is this machine's measured read bandwidth, measured last.
    Bench(BenchArgs),
    /// Show what this machine offers, and what Muser uses of it
    ///
    /// Processor, kernels, memory and its measured read bandwidth, and devices with their limits. With a model, its
    /// weights are loaded by every path that each device offers, and GPUs prove that they read the host's bytes. What the
    /// weights are is not looked at; `run` refuses those that are not finite. Lines about `XDG_RUNTIME_DIR` come from a
    /// layer of Mesa's Vulkan drivers that looks for a display; with `NODEVICE_SELECT=1` in the environment it is left out.
    Doctor(DoctorArgs),
    /// Write a model as a set of smaller files, of which any opens the whole
    ///
    /// The first has all metadata; tensors keep their order and their bytes. All files appear, or none, and nothing is
    /// overwritten.
    Split(SplitArgs),
    /// Work with files of taps that `score --taps` wrote
    Taps(TapsArgs),
}

/// How a model is opened and computed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Computing")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct EngineArgs {
    /// Threads that compute [default: the physical cores available]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<NonZero<usize>>,
    /// Compute with f32 activations on the slow reference backend
    #[arg(long)]
    pub reference: bool,
    /// SIMD tier of the kernels; the answer does not depend on it [default: the fastest of this machine]
    #[arg(long, value_name = "NAME", conflicts_with = "reference", value_parser = tiers())]
    pub tier: Option<Tier>,
    /// Tokens processed at once; the answer does not depend on it
    #[arg(long, value_name = "N", default_value_t = muser_engine::DEFAULT_BATCH, value_parser = parse_count)]
    pub batch: NonZero<usize>,
    /// How weights come into memory
    #[arg(long, value_name = "PATH", value_enum, default_value_t = Load::Auto)]
    pub load: Load,
    /// Ask the system to keep the weights in memory
    #[arg(long)]
    pub resident: bool,
    /// Fail (exit code 3) rather than do otherwise than asked, where that would be said and done
    #[arg(long)]
    pub strict: bool,
    /// Load weights without a search for values that are not finite
    #[arg(long)]
    pub no_scan: bool,
    /// Split text as this pre-tokeniser does, whatever the file says
    #[arg(long, value_name = "NAME")]
    pub force_pre: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// What to say to the model; without it, an interactive chat, or all of standard input if that is no terminal
    pub prompt: Option<String>,
    /// Most tokens of an answer; 0 processes the prompt and answers nothing [default: until the model ends it or the context
    /// is full]
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_number)]
    pub max_tokens: Option<usize>,
    /// Context in tokens, or `auto` for the largest that fits, up to what the model was trained for
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = parse_ctx)]
    pub ctx: Ctx,
    /// Continue the prompt as it is, without the chat template
    #[arg(long)]
    pub raw: bool,
    /// System message
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// Print one JSON document at the end instead of streaming
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// How tokens are chosen. The defaults are a chat's for people; requests to `serve` have those of its interface.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    pub temp: f32,
    /// Keep the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value = "40", value_parser = parse_number)]
    pub top_k: usize,
    /// Keep the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub top_p: f32,
    /// Keep tokens at least this likely, relative to the likeliest
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub min_p: f32,
    /// Divide (or, if negative, multiply) the logits of recent tokens by this
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub repetition_penalty: f32,
    /// Lower the logits of recent tokens by this
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    pub presence_penalty: f32,
    /// Lower the logits of recent tokens by this for each time they occurred
    #[arg(long, value_name = "X", default_value_t = 0.0)]
    pub frequency_penalty: f32,
    /// How many recent tokens the penalties look at
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_number)]
    pub penalty_last_n: usize,
    /// The same seed gives the same text [default: a fresh one, shown at the end]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// List every tensor
    #[arg(long)]
    pub tensors: bool,
    /// Print one JSON document: all metadata in full, and all tensors
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// Context of each slot in tokens, or `auto` for the largest that fits, up to what the model was trained for
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = parse_ctx)]
    pub ctx: Ctx,
    /// Conversations held at once
    #[arg(long, value_name = "N", default_value_t = NonZero::<usize>::MIN, value_parser = parse_count)]
    pub slots: NonZero<usize>,
    /// Tokens processed at once
    #[arg(long, value_name = "N", default_value_t = muser_engine::DEFAULT_BATCH, value_parser = parse_count)]
    pub batch: NonZero<usize>,
    /// How weights come into memory
    #[arg(long, value_name = "PATH", value_enum, default_value_t = Load::Auto)]
    pub load: Load,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct TokenizeArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// The text; without it, standard input
    #[arg(allow_hyphen_values = true)]
    pub text: Option<String>,
    /// Recognise control tokens in the text, which otherwise stay text
    #[arg(long)]
    pub special: bool,
    /// Add the tokens that the vocabulary puts around a text
    #[arg(long)]
    pub bos: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Split text as this pre-tokeniser does, whatever the file says
    #[arg(long, value_name = "NAME")]
    pub force_pre: Option<String>,
}

#[derive(Debug, Args)]
pub struct ScoreArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// How many of the likeliest tokens to list at each step
    #[arg(long, value_name = "K", default_value = "10", value_parser = parse_number)]
    pub top: usize,
    /// Context in tokens, or `auto` for the largest that fits [default: what the requests need]
    #[arg(long, value_name = "N|auto", value_parser = parse_ctx)]
    pub ctx: Option<Ctx>,
    /// Save a hash of every named tap, for each layer and token
    #[arg(long, value_name = "FILE")]
    pub taps: Option<PathBuf>,
    /// Save the taps' values beside their hashes
    #[arg(long, requires = "taps")]
    pub taps_values: bool,
    /// The output is JSON lines in any case
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
pub struct PerplexityArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// A text file
    pub file: PathBuf,
    /// Tokens in a chunk, of which the second half is scored
    #[arg(long, value_name = "N", default_value = "512")]
    pub ctx: NonZero<usize>,
    /// Most chunks [default: all whole ones]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub chunks: Option<NonZero<usize>>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
pub struct TapsArgs {
    #[command(subcommand)]
    pub command: TapsCommand,
}

#[derive(Debug, Subcommand)]
pub enum TapsCommand {
    /// Name the first tap, layer and token in which two runs differ
    ///
    /// Exit codes: 0 equal, 1 different, 4 when a file can't be read or is no whole file of taps.
    Diff(TapsDiffArgs),
}

#[derive(Debug, Args)]
pub struct TapsDiffArgs {
    /// A file of taps
    pub first: PathBuf,
    /// Another
    pub second: PathBuf,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How weights come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// The file is mapped; nothing is copied
    Map,
    /// The file is read into an allocation
    Read,
    /// Whichever the machine's state speaks for
    Auto,
}

impl From<Load> for LoadPolicy {
    fn from(load: Load) -> Self {
        match load {
            Load::Map => Self::Map,
            Load::Read => Self::Read,
            Load::Auto => Self::Auto,
        }
    }
}

/// A context in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ctx {
    Auto,
    Tokens(NonZero<usize>),
}

/// More threads than this compute nothing faster on any machine, and a system may not survive being asked for them.
const MAX_THREADS: usize = 512;

/// The names of the kernels that this machine can run, slowest first.
fn tiers() -> impl TypedValueParser<Value = Tier> {
    let names = Tier::available().into_iter().map(Tier::name);
    PossibleValuesParser::new(names).try_map(|name| Tier::named(&name).ok_or("expected a tier of this machine"))
}

fn parse_threads(text: &str) -> Result<NonZero<usize>, String> {
    let threads = text.parse().ok().filter(|threads: &NonZero<usize>| threads.get() <= MAX_THREADS);
    threads.ok_or_else(|| format!("expected a number from 1 to {MAX_THREADS}"))
}

fn parse_count(text: &str) -> Result<NonZero<usize>, String> {
    text.parse().map_err(|_| "expected a number above 0".to_owned())
}

fn parse_number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "expected a whole number from 0 up".to_owned())
}

fn parse_ctx(text: &str) -> Result<Ctx, String> {
    if text == "auto" {
        return Ok(Ctx::Auto);
    }
    text.parse().map(Ctx::Tokens).map_err(|_| "expected a number of tokens above 0, or `auto`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        taking_negative_numbers(Cli::command()).debug_assert();
    }

    #[test]
    fn a_negative_number_is_an_options_value_which_says_what_it_expects() {
        for args in [
            ["serve", "--slots"],
            ["serve", "--max-queue"],
            ["serve", "--read-timeout"],
            ["run", "-n"],
            ["plan", "--ctx"],
        ] {
            let args = ["muser", args[0], "model", args[1], "-1"];
            let error = taking_negative_numbers(Cli::command()).try_get_matches_from(args).expect_err("it is negative");
            let message = error.to_string();
            assert!(message.contains("'-1'") && message.contains("expected"), "{args:?}: {message}");
        }
    }

    #[test]
    fn threads_have_an_upper_bound() {
        assert_eq!(parse_threads("512"), Ok(NonZero::new(512).expect("not zero")));
        for wrong in ["0", "513", "18446744073709551615", "99999999999999999999", "two"] {
            assert!(parse_threads(wrong).is_err(), "{wrong:?} was taken for a number of threads");
        }
    }

    #[test]
    fn a_context_is_a_positive_number_or_auto() {
        assert_eq!(parse_ctx("auto"), Ok(Ctx::Auto));
        assert_eq!(parse_ctx("4096"), Ok(Ctx::Tokens(NonZero::new(4096).expect("not zero"))));
        for wrong in ["0", "-1", "4k", ""] {
            assert!(parse_ctx(wrong).is_err(), "{wrong:?} was taken for a context");
        }
    }
}
