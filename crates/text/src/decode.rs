//! Tokens to text, all at once or as they come.

use crate::{TextError, Tokenizer};
use std::ops::Deref;

/// How tokens become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeOptions {
    /// Show the names of special tokens that are otherwise hidden.
    pub special: bool,
    /// The tokens continue a text, as an answer does its prompt. Where they begin one, a space that encoding put
    /// before it is taken off again.
    pub continues: bool,
}

impl Tokenizer {
    /// The bytes that tokens stand for. Bytes of one character may be spread over tokens, and any sequence of tokens
    /// is possible, so they need not be UTF-8.
    ///
    /// # Errors
    ///
    /// [`TextError::TokenOutOfRange`] for the first id past the vocabulary.
    pub fn decode_bytes(&self, ids: &[u32], options: DecodeOptions) -> Result<Vec<u8>, TextError> {
        let mut out = Vec::with_capacity(ids.len() * 4);
        let mut strip_space = self.strips_space() && !options.continues;
        for &id in ids {
            out.extend_from_slice(self.visible_bytes(id, options.special, &mut strip_space)?);
        }
        Ok(out)
    }

    /// The text that tokens stand for, with U+FFFD for what is not UTF-8.
    ///
    /// # Errors
    ///
    /// [`TextError::TokenOutOfRange`] for the first id past the vocabulary.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> Result<String, TextError> {
        let bytes = self.decode_bytes(ids, options)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// What `id` adds to the output; takes one space off the first bytes shown if `strip_space`.
    fn visible_bytes(&self, id: u32, special: bool, strip_space: &mut bool) -> Result<&[u8], TextError> {
        let n_vocab = self.n_vocab();
        let error = TextError::TokenOutOfRange { id, n_vocab };
        let (bytes, ty) = self.token_bytes(id).zip(self.token_type(id)).ok_or(error)?;
        if ty.is_hidden() {
            return Ok(if special { bytes } else { &[] });
        }
        let strip = std::mem::take(strip_space);
        Ok(bytes.strip_prefix(b" ").filter(|_| strip).unwrap_or(bytes))
    }
}

/// Turns tokens into text one by one, for streaming.
///
/// Holds back the bytes of a character until it is complete, so that the parts, joined, are what
/// [`Tokenizer::decode`] makes of all tokens at once, wherever they are cut.
#[derive(Debug, Clone)]
pub struct Detokenizer<T> {
    tokenizer: T,
    special: bool,
    strip_space: bool,
    /// The start of a character; at most three bytes between calls.
    pending: Vec<u8>,
    text: String,
}

impl<T: Deref<Target = Tokenizer>> Detokenizer<T> {
    /// A detokeniser over a borrowed or shared tokeniser.
    pub fn new(tokenizer: T, options: DecodeOptions) -> Self {
        let strip_space = tokenizer.strips_space() && !options.continues;
        Self { tokenizer, special: options.special, strip_space, pending: Vec::new(), text: String::new() }
    }

    /// Takes a token and returns the text that is complete with it, often none.
    ///
    /// # Errors
    ///
    /// [`TextError::TokenOutOfRange`] if `id` is past the vocabulary; nothing has changed then.
    pub fn push(&mut self, id: u32) -> Result<&str, TextError> {
        let bytes = self.tokenizer.visible_bytes(id, self.special, &mut self.strip_space)?;
        self.pending.extend_from_slice(bytes);
        self.text.clear();
        let mut rest = &self.pending[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.text.push_str(text);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    self.text.push_str(std::str::from_utf8(valid).unwrap_or_default());
                    rest = after;
                    let Some(len) = error.error_len() else { break };
                    self.text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[len..];
                }
            }
        }
        let complete = self.pending.len() - rest.len();
        self.pending.drain(..complete);
        Ok(&self.text)
    }

    /// Ends the text: U+FFFD if a character is incomplete, else nothing.
    pub fn flush(&mut self) -> &'static str {
        let incomplete = !self.pending.is_empty();
        self.pending.clear();
        if incomplete { "\u{FFFD}" } else { "" }
    }
}
