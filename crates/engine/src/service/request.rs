//! What is asked of a service.

use std::error::Error as StdError;
use std::fmt;

use crate::sampler::{SamplerError, SamplerSpec};

/// Names a request for as long as its service lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tokens, and what is wanted of them.
pub struct Request {
    /// The tokens, at least one.
    pub prompt: Vec<u32>,
    /// What is wanted.
    pub work: Work,
}

/// What is wanted of a prompt.
pub enum Work {
    /// An answer.
    Generate(GenerateOptions),
    /// One vector for the whole prompt.
    Embed(Pooling),
}

/// How the final hidden states of a prompt's tokens, normed as the output matrix sees them, become one vector. It is not
/// brought to any length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean: added up from the first token to the last in f32, then divided by their number.
    Mean,
    /// The last token's.
    Last,
}

/// How an answer is made.
pub struct GenerateOptions {
    /// Most tokens; `None`: as many as the context has room for. 0 processes the prompt and ends.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampler: SamplerSpec,
    /// Added to the logits of these tokens before anything else, -100 to 100. -100 excludes a token. If any token has 100,
    /// all that have not are excluded.
    pub logit_bias: Vec<(u32, f32)>,
    /// `None`: no log-probabilities. `Some(k)`: those of the chosen token and of the `k` likeliest, as natural logarithms
    /// over the full vocabulary, of the model's own distribution: before bias, constraint, penalties and temperature.
    pub top_logprobs: Option<usize>,
    /// Texts that end the answer, none empty. They are looked for in the text, wherever tokens begin and end, and are never
    /// part of it.
    pub stop: Vec<String>,
    /// Whether tokens that end an answer can't be chosen.
    pub ignore_eos: bool,
    /// What may come next.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Whether the names of control tokens are part of the text.
    pub special: bool,
}

impl Default for GenerateOptions {
    /// The likeliest tokens, until the model ends the answer or the context is full.
    fn default() -> Self {
        Self {
            max_tokens: None,
            sampler: SamplerSpec::default(),
            logit_bias: Vec::new(),
            top_logprobs: None,
            stop: Vec::new(),
            ignore_eos: false,
            constraint: None,
            special: false,
        }
    }
}

/// What may come next in an answer.
pub trait Constraint: Send {
    /// Sets what is not allowed to minus infinity. Called before each token is chosen, with logits `(n_vocab)`.
    ///
    /// # Errors
    /// When it can't go on; the request fails then.
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError>;

    /// Tells of the chosen token, unless it is one that ends the answer.
    ///
    /// # Errors
    /// As [`mask`](Self::mask).
    fn accept(&mut self, id: u32) -> Result<(), ConstraintError>;

    /// Whether nothing but the end may follow. Asked after each token; the answer then ends.
    fn is_finished(&self) -> bool;
}

/// Why a constraint could not go on.
#[derive(Debug, thiserror::Error)]
#[error("the constraint on the answer failed: {0}")]
pub struct ConstraintError(#[source] pub Box<dyn StdError + Send + Sync>);

/// Why a request was not queued.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A prompt without tokens.
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    /// The prompt, or the prompt and one token of an answer, do not fit into the context.
    #[error("the prompt has {tokens} tokens, expected at most {most}: the context holds {n_ctx}")]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// The most that it may have.
        most: usize,
        /// Tokens of the context.
        n_ctx: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error("token {id} is not in the vocabulary of {n_vocab} tokens")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// A sampler setting out of its range.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// A bias out of its range.
    #[error("logit_bias of token {id} is {value}; it must be from -100 to 100")]
    LogitBias {
        /// The token.
        id: u32,
        /// Its bias.
        value: f32,
    },
    /// A stop text without a character.
    #[error("stop text {index} is empty")]
    EmptyStop {
        /// Its place, from 0.
        index: usize,
    },
    /// All slots work, and as many requests wait as may.
    #[error("{}", full(*n_waiting))]
    QueueFull {
        /// How many wait.
        n_waiting: usize,
    },
    /// The service is shutting down.
    #[error("the service is shutting down")]
    ShuttingDown,
    /// The engine thread has ended, by a shutdown or by a panic.
    #[error("the service has ended")]
    Ended,
}

fn full(n_waiting: usize) -> String {
    match n_waiting {
        0 => "every slot is at work, and no request may wait for one".to_owned(),
        1 => "every slot is at work, and 1 request waits, which is the most that may".to_owned(),
        n => format!("every slot is at work, and {n} requests wait, which is the most that may"),
    }
}

impl Refusal {
    /// Every [`name`](Self::name).
    pub const NAMES: [&'static str; 7] =
        ["empty_prompt", "prompt_too_long", "unknown_token", "setting", "queue_full", "shutting_down", "ended"];

    /// The reason in a word or two, as metrics spell it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::EmptyPrompt => Self::NAMES[0],
            Self::PromptTooLong { .. } => Self::NAMES[1],
            Self::UnknownToken { .. } => Self::NAMES[2],
            Self::Sampler(_) | Self::LogitBias { .. } | Self::EmptyStop { .. } => Self::NAMES[3],
            Self::QueueFull { .. } => Self::NAMES[4],
            Self::ShuttingDown => Self::NAMES[5],
            Self::Ended => Self::NAMES[6],
        }
    }
}

/// What requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub n_ctx: usize,
    pub n_vocab: usize,
}

impl Request {
    /// Checks everything that can be wrong with a request.
    pub(super) fn check(&self, limits: Limits) -> Result<(), Refusal> {
        let Limits { n_ctx, n_vocab } = limits;
        let known = |id: u32| if (id as usize) < n_vocab { Ok(()) } else { Err(Refusal::UnknownToken { id, n_vocab }) };
        let tokens = self.prompt.len();
        let most = match self.work {
            // Where a prompt fills the context, no token of an answer has a place.
            Work::Generate(_) => n_ctx - 1,
            Work::Embed(_) => n_ctx,
        };
        if tokens == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if tokens > most {
            return Err(Refusal::PromptTooLong { tokens, most, n_ctx });
        }
        self.prompt.iter().try_for_each(|&id| known(id))?;
        let Work::Generate(options) = &self.work else { return Ok(()) };
        options.sampler.check()?;
        for &(id, value) in &options.logit_bias {
            known(id)?;
            if !(-100.0..=100.0).contains(&value) {
                return Err(Refusal::LogitBias { id, value });
            }
        }
        match options.stop.iter().position(String::is_empty) {
            Some(index) => Err(Refusal::EmptyStop { index }),
            None => Ok(()),
        }
    }
}
