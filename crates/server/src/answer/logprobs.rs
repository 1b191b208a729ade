//! Log-probabilities of an answer's tokens, shown when the text of a token is.

use std::collections::VecDeque;
use std::sync::Arc;

use muser_engine::service::TokenLogprobs;
use muser_text::{DecodeOptions, Detokenizer, Tokenizer};
use serde_json::{Value, json};

/// A token of an answer, with its log-probability and those of the likeliest in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// The token.
    pub token: TokenText,
    /// Natural logarithm of its probability.
    pub logprob: f64,
    /// The likeliest tokens and theirs.
    pub top: Vec<(TokenText, f64)>,
    /// Where its text begins in the answer, in characters.
    pub offset: usize,
}

/// What a token stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenText(Vec<u8>);

impl TokenText {
    fn of(tokenizer: &Tokenizer, id: u32) -> Self {
        Self(tokenizer.token_bytes(id).unwrap_or_default().to_vec())
    }

    /// As text, with U+FFFD for what is not.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Scored {
    /// As the chat interface shows it.
    pub fn chat_json(&self) -> Value {
        let entry =
            |token: &TokenText, logprob: f64| json!({"token": token.text(), "logprob": logprob, "bytes": token.0});
        let mut document = entry(&self.token, self.logprob);
        document["top_logprobs"] = self.top.iter().map(|(token, logprob)| entry(token, *logprob)).collect();
        document
    }
}

/// Scored tokens of one answer, held back until their text is out: what a stop text ends must not be seen here either.
pub struct ScoredTokens {
    tokenizer: Arc<Tokenizer>,
    text: Detokenizer<Arc<Tokenizer>>,
    held: VecDeque<(Scored, usize)>,
    /// Bytes and characters of the tokens so far.
    n_byte: usize,
    n_char: usize,
    /// Bytes of text that are out.
    n_shown: usize,
}

impl ScoredTokens {
    /// For an answer without tokens; `special` is whether its text has the names of control tokens.
    pub fn new(tokenizer: &Arc<Tokenizer>, special: bool) -> Self {
        let options = DecodeOptions { continues: true, special };
        Self {
            tokenizer: Arc::clone(tokenizer),
            text: Detokenizer::new(Arc::clone(tokenizer), options),
            held: VecDeque::new(),
            n_byte: 0,
            n_char: 0,
            n_shown: 0,
        }
    }

    /// Takes the next token.
    pub fn push(&mut self, id: u32, logprobs: Option<TokenLogprobs>) {
        let offset = self.n_char;
        // The engine has made text of the token before.
        let text = self.text.push(id).unwrap_or_default();
        self.n_byte += text.len();
        self.n_char += text.chars().count();
        let Some(TokenLogprobs { logprob, top }) = logprobs else { return };
        let named = |id| TokenText::of(&self.tokenizer, id);
        let top = top.into_iter().map(|(id, logprob)| (named(id), logprob)).collect();
        self.held.push_back((Scored { token: named(id), logprob, top, offset }, self.n_byte));
    }

    /// So many more bytes of text are out: returns the tokens that lie in them.
    pub fn shown(&mut self, len: usize) -> Vec<Scored> {
        self.n_shown += len;
        let n = self.held.iter().take_while(|(_, end)| *end <= self.n_shown).count();
        self.held.drain(..n).map(|(scored, _)| scored).collect()
    }

    /// The answer is over and nothing was cut off: returns what is left.
    pub fn rest(&mut self) -> Vec<Scored> {
        self.held.drain(..).map(|(scored, _)| scored).collect()
    }
}
