//! What a service tells of a request.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::{Error, Finish};

/// Where a request's events go. Called on the engine thread; it must not block. A break cancels the request: its slot is
/// free at the end of the step, and nothing more is told.
pub type EventSink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// What happens to a request. The last event is [`Done`](Self::Done) or [`Failed`](Self::Failed), unless the sink broke.
#[derive(Debug)]
pub enum Event {
    /// It left the queue.
    Started {
        /// The slot that works on it.
        slot: usize,
        /// Tokens of the prompt that need not be processed again. More may be found while others are processed, as
        /// [`Summary::n_reused`] says in the end.
        n_reused: usize,
        /// How long it waited.
        queued: Duration,
    },
    /// Tokens of the prompt were processed.
    Prefill {
        /// How many are done, those reused among them.
        done: usize,
        /// How many there are.
        total: usize,
    },
    /// A token of the answer.
    Token {
        /// Its id.
        id: u32,
        /// Text that became certain with it. May be empty: inside a character, or where a stop text may have begun.
        text: String,
        /// If they were asked for.
        logprob: Option<TokenLogprobs>,
    },
    /// The prompt as one vector, `(n_embd)`. [`Done`](Self::Done) follows.
    Embedding(Vec<f32>),
    /// It is answered.
    Done {
        /// Text that was held back to the end.
        text: String,
        /// How the answer came about.
        summary: Summary,
    },
    /// It failed; other requests go on.
    Failed(Error),
}

/// Log-probabilities at one place of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprobs {
    /// Natural logarithm of the chosen token's probability.
    pub logprob: f64,
    /// The likeliest tokens and theirs, likeliest first; the chosen one need not be among them.
    pub top: Vec<(u32, f64)>,
}

/// How an answer came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Why it ended. An embedding ends with [`Finish::Stop`].
    pub finish: Finish,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// How many of them were not processed again.
    pub n_reused: usize,
    /// Tokens of the answer, without one that ended it.
    pub n_generated: usize,
    /// From its arrival to its slot.
    pub queued: Duration,
    /// From its slot to the logits of the prompt's last token.
    pub prefill: Duration,
    /// From there to the end.
    pub decode: Duration,
}
