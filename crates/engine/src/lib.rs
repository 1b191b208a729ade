//! Sessions, sampling and generation: from a model file to streamed text.
//!
//! - [`load`]: opens a file or a set of them; its header refuses what can't be run before a weight is touched.
//! - [`Engine`]: a backend and a decoder. [`Session`]: one conversation's tokens, keys and values.
//! - [`Engine::generate`]: answers a prompt, reusing what the session holds. [`Engine::score`], [`perplexity`], [`bench()`]: measure.
//! - [`service`]: many requests at once, on a thread of its own.
//! - [`sampler`]: from logits to a token.
//! - [`split`]: writes a model as a set of files.
//! - [`TapWriter`], [`TapFile`]: fingerprints of a run, and their comparison.
#![forbid(unsafe_code)]

mod bench;
mod chat;
mod engine;
mod error;
mod files;
mod fingerprint;
mod generate;
mod loader;
mod logits;
mod output;
mod perplexity;
mod plan;
pub mod sampler;
mod scan;
mod score;
pub mod service;
mod session;
mod split;
mod step;

pub use bench::{BenchOptions, BenchProgress, Measurement, Phase, Spread, bench};
pub use chat::chat_prompt;
pub use engine::{DEFAULT_BATCH, Engine};
pub use error::{BadModel, Error};
pub use files::ModelFiles;
pub use fingerprint::{Difference, DifferenceKind, Distance, TapFile, TapFileError, TapKey, TapRecord, TapWriter};
pub use generate::{Event, Finish, Generation};
pub use loader::{
    LoadOptions, LoadReport, Loaded, check, index_weights, load, load_weights, read_template, read_tokenizer,
    weight_bytes, with_header,
};
pub use output::OutputFile;
pub use perplexity::{PerplexityOptions, PerplexityProgress, perplexity};
pub use plan::{Footprint, PlanOptions, plan};
pub use score::Step;
pub use session::Session;
pub use split::{Part, SplitProgress, split};
