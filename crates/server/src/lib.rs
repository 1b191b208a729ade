//! An HTTP server over a running engine: `OpenAI`'s interface, and what it takes to look after it.
//!
//! - [`Server::bind`] checks what was asked and takes the address; [`Server::run`] serves until a [`Stop`] says otherwise.
//! - [`Served`] is what is served: a [`Service`](muser_engine::service::Service) with its vocabulary and template.
//!
//! ```text
//! connection ──► trace ──► guard ──► handler: body ──► fields ──► prompts, settings
//!  (limits)      (id,      (Host,                                       │
//!                 log)     Origin, key)                               Jobs ──► engine
//!                                                                       │
//!                                       reply, or event stream ◄──── Answers
//! ```
//!
//! A request is read field by field: what is out of range or not supported is refused by name, and what nobody asked for is
//! unknown. Whole and streamed replies are made of the same pieces, so that they say the same.
#![forbid(unsafe_code)]

mod answer;
mod app;
mod body;
mod chat;
mod completions;
mod connection;
mod embeddings;
mod error;
mod exchange;
mod fields;
mod foreign;
mod framing;
mod guard;
mod info;
mod jobs;
mod json;
mod keys;
mod messages;
mod metrics;
mod prepared;
mod reply;
mod router;
mod server;
mod settings;
mod stream;
mod structured;
#[cfg(test)]
mod testing;
mod timed;
mod tokens;
mod tools;
mod trace;
mod wire;

pub use app::{Options, Served};
pub use error::Error;
pub use keys::Keys;
pub use server::{Server, Stop};
pub use structured::GRAMMAR_BYTES_PER_TOKEN;
