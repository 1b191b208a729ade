//! Models: architectures as data, weights bound by name, and the one decoder that runs them all.
//!
//! - [`ModelSpec`]: what a file's metadata says, one [`LayerSpec`] for each layer.
//! - [`Model`]: a spec with its weights, views into an arena.
//! - [`KvCache`]: one sequence's keys and values.
//! - [`Decoder`]: runs batches of tokens, of one or several sequences, over a [`Backend`](muser_ops::Backend).
//! - [`Tap`], [`TapSink`]: places of a forward pass whose values can be recorded.
#![forbid(unsafe_code)]

mod arch;
mod cache;
mod config;
mod decoder;
mod error;
mod model;
mod rope;
pub mod spec;
mod taps;
mod weights;

pub use arch::architectures;
pub use cache::KvCache;
pub use decoder::{Decoder, DecoderMemory, LogitRows, Span};
pub use error::Error;
pub use model::Model;
pub use spec::{LayerSpec, ModelSpec};
pub use taps::{Tap, TapPoint, TapSink};
pub use weights::regions;
