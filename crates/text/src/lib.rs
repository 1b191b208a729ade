//! Tokenisers, streaming detokeniser and chat templates.
//!
//! A [`Tokenizer`] is made from a [`VocabSpec`] that the caller fills from a model file. It is one of two kinds:
//!
//! - `gpt2`: byte-level BPE. A pre-tokeniser splits text into words, and inside a word neighbouring tokens are merged in
//!   the order of the vocabulary's rules.
//! - `llama`: SentencePiece-style BPE. Neighbours are merged in the order of the scores of what they make, with bytes
//!   for what has no token.
//!
//! Text gives the same ids as in llama.cpp, with these exceptions, all on purpose:
//!
//! - plain text never becomes a control token, whatever its type in the file says about how it ends generation, and
//!   whatever merges would make of it (see [`Special`]);
//! - where special tokens overlap in text, the leftmost wins, then the longest;
//! - the beginning of text is added once, not twice, to a text that has it (see [`Affixes`]);
//! - a vocabulary without a known pre-tokeniser is refused, not guessed at;
//! - characters have the classes of the Unicode version in use here.
//!
//! Decoding never cleans up spaces: tokens give the text they stand for.
#![forbid(unsafe_code)]

mod alphabet;
mod bpe;
mod decode;
mod error;
mod footprint;
mod merge;
mod pieces;
mod pretok;
mod spec;
mod special;
mod spm;
mod stop;
pub mod template;
mod tokenizer;
mod unicode;
mod vocab;

pub use decode::{DecodeOptions, Detokenizer};
pub use error::TextError;
pub use pretok::pre_tokenizer_names;
pub use spec::{TokenType, VocabSpec};
pub use tokenizer::{Affixes, Special, Tokenizer};
