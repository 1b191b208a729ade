//! What can go wrong with a grammar.

use std::fmt::Display;

use axum::http::StatusCode;
use muser_engine::service::ConstraintError;

use super::workers::Undone;
use crate::reply::ApiError;

/// Seconds after which a client may try again where too much is being compiled.
const RETRY_AFTER: u64 = 10;

/// An error of a grammar or of an answer under it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The vocabulary has no room in the trie.
    #[error("the vocabulary is too large for grammars: {n_vocab} tokens of {size_bytes} bytes, the limit is {max}")]
    VocabularyTooLarge {
        /// Number of tokens.
        n_vocab: usize,
        /// Bytes of all that are text.
        size_bytes: usize,
        /// Limit on the bytes.
        max: usize,
    },
    /// The compiler refuses the grammar: it asks for something unknown, contradicts itself, or passes a limit.
    #[error("{0}")]
    Refused(String),
    /// It was not compiled in time.
    #[error("compiling it takes more than {limit_seconds} seconds; expected a simpler one")]
    TooSlow {
        /// The time that it had.
        limit_seconds: u64,
    },
    /// Others that take too long are still being compiled.
    #[error("no schema can be compiled now: others that take too long are at it")]
    Busy,
    /// There was no thread to compile on.
    #[error("no thread to compile a grammar on: {0}")]
    Thread(String),
    /// The grammar took too many steps for one token.
    #[error("the form takes more steps for one token than are allowed; expected simpler patterns, or shorter ones")]
    TooComplex,
    /// Nothing may follow in an answer, and it may not end.
    #[error("nothing can follow in the answer's form")]
    NothingFollows,
    /// An answer left the grammar.
    #[error("the answer's grammar failed: {0}")]
    Step(String),
}

impl GrammarError {
    /// The compiler's own words, cut to one line: what follows is its state.
    pub fn refused(error: &dyn Display) -> Self {
        Self::Refused(first_line(error))
    }

    /// What the compiler's matcher says of a token, by the words that it has for each reason.
    pub fn step(error: &dyn Display) -> Self {
        let text = first_line(error);
        if text.starts_with("lexer error") || text.starts_with("parser error") {
            Self::TooComplex
        } else if text.starts_with("NoExtensionBias") {
            Self::NothingFollows
        } else {
            Self::Step(text)
        }
    }

    /// The reply to a request whose schema at `param` was to be compiled.
    pub fn reply(&self, param: &str) -> ApiError {
        match self {
            Self::Refused(_) | Self::TooComplex | Self::NothingFollows => ApiError {
                code: "unsupported_value",
                ..ApiError::invalid(param, format!("`{param}` can't be enforced: {self}"))
            },
            Self::TooSlow { .. } => ApiError {
                code: "form_too_complex",
                ..ApiError::invalid(param, format!("`{param}` can't be enforced: {self}"))
            },
            Self::Busy => ApiError {
                param: Some(param.to_owned()),
                retry_after: Some(RETRY_AFTER),
                ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_busy", self.to_string())
            },
            error => ApiError::internal(error.to_string()),
        }
    }
}

impl From<Undone> for GrammarError {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::Late(limit) => Self::TooSlow { limit_seconds: limit.as_secs() },
            Undone::Busy => Self::Busy,
            Undone::NoThread(error) => Self::Thread(error.to_string()),
            Undone::Panicked => Self::refused(&"panic"),
        }
    }
}

impl From<GrammarError> for ConstraintError {
    fn from(error: GrammarError) -> Self {
        Self(Box::new(error))
    }
}

/// Most characters of a message that is another crate's.
const MAX_MESSAGE_CHARS: usize = 300;

/// What the compiler's messages say to who knows it, and what to who wrote a schema. Where the former is found, the latter
/// takes its place, and with an ellipsis that of all that follows, too. A star stands for any text.
const WORDS: [(&str, &str); 16] = [
    ("panic", "it can't be compiled…"),
    ("fuel", "it takes too many steps to compile…"),
    ("limits.", "it takes too many steps to compile…"),
    ("Unimplemented keys:", "keywords that are not supported:"),
    ("Unsatisfiable schema: Regex is empty", "nothing satisfies the pattern and the lengths together…"),
    ("Unsatisfiable schema: anyOf is empty", "nothing satisfies the schema: there is no alternative"),
    (
        "Unsatisfiable schema: range * does not contain a multiple of",
        "nothing satisfies the schema: no number within its minimum and maximum is a multiple of its multipleOf,",
    ),
    ("Unsatisfiable schema", "nothing satisfies the schema"),
    (
        "oneOf constraints are not supported",
        "oneOf is supported only where its alternatives exclude each other by type, by const or enum, or by such a property that \
         objects have to have…",
    ),
    ("patternProperty regexes", "patterns of patternProperties"),
    ("regex parse error", "a pattern can't be read"),
    (
        "lookarounds not supported yet; * in regex",
        "look-around, such as \\b, or ^ and $ other than at the ends, is not supported in a pattern:",
    ),
    ("Expected f64 for", "expected a number for"),
    (
        "Only absolute $ref's (#/...) are supported without 'referencing' feature; ref",
        "$ref can lead to parts of the schema (#/...) only:",
    ),
    ("Reference segment", "$ref leads nowhere:"),
    (
        "circular references with sibling keys are not supported:",
        "$ref leads back to itself, with other keywords beside it; expected it alone, or within properties or items:",
    ),
];

fn first_line(error: &dyn Display) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.next().unwrap_or("no reason given");
    // Where the text stands in the grammar around the schema is of no use to a client.
    line = line.rsplit_once("failed to compile JSON schema: ").map_or(line, |(_, reason)| reason);
    let reason = if line.ends_with(':') { lines.find_map(|line| line.strip_prefix("error: ")) } else { None };
    let whole = reason.map_or_else(|| line.to_owned(), |reason| format!("{line} {reason}"));
    in_plain_words(&whole).chars().take(MAX_MESSAGE_CHARS).collect()
}

fn in_plain_words(text: &str) -> String {
    let around = |theirs: &str| match theirs.split_once('*') {
        None => text.split_once(theirs),
        Some((first, last)) => {
            let (before, rest) = text.split_once(first)?;
            Some((before, rest.split_once(last)?.1))
        }
    };
    let found = WORDS.iter().find_map(|(theirs, ours)| around(theirs).map(|parts| (parts, *ours)));
    match found {
        None => text.to_owned(),
        Some(((before, after), ours)) => match ours.strip_suffix('…') {
            Some(ours) => ours.to_owned(),
            None => format!("{before}{ours}{after}"),
        },
    }
}
