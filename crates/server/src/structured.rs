//! Answers that follow a grammar: JSON, a JSON schema, or the form of a tool's call.
//!
//! A [`Grammar`] is compiled by [`Grammars`] into a [`GrammarConstraint`], which says before each token what may come next.
//! The token is then sampled from what is left, so that every answer that ends by itself is one that the grammar describes.
//! An answer that a token limit cuts off is a beginning of one.

mod constraint;
mod cost;
mod endless;
mod error;
mod grammar;
mod grammars;
mod numbers;
mod response_format;
mod rewrite;
mod schema;
#[cfg(test)]
mod tests;
mod workers;

pub use constraint::GrammarConstraint;
pub use error::GrammarError;
pub use grammar::{Grammar, escape, literal, regex, token};
pub use grammars::{GRAMMAR_BYTES_PER_TOKEN, Grammars};
pub use response_format::{ResponseFormat, SCHEMA_PARAM};
pub use schema::JsonSchema;
