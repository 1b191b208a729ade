//! From a prompt to an answer, token by token.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use muser_text::{DecodeOptions, Detokenizer, Tokenizer};

use crate::engine::Advance;
use crate::sampler::Sampler;
use crate::{Engine, Error, Session};

/// What happens while an answer is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// Tokens of the prompt were processed.
    Prefill {
        /// How many are done; those reused from the session count from the start.
        done: usize,
        /// How many there are.
        total: usize,
    },
    /// A token of the answer.
    Token {
        /// Its id.
        id: u32,
        /// Text that is complete with it; may be empty, when the token ends inside a character.
        text: &'a str,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The stop text with this index ended it.
    StopString(usize),
    /// It has as many tokens as were asked for.
    Length,
    /// The context is full.
    ContextFull,
    /// The caller asked to stop.
    Interrupted,
}

impl Finish {
    /// The reason in one word, as reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::StopString(_) => "stop_string",
            Self::Length => "length",
            Self::ContextFull => "context",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How an answer came about.
#[derive(Clone, Copy, Debug)]
pub struct Generation {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// How many of them the session already held.
    pub n_reused: usize,
    /// Tokens of the answer.
    pub n_generated: usize,
    /// Time for the prompt, up to its last token's logits.
    pub prefill: Duration,
    /// Time for the answer's tokens after the first, which comes with the prompt's logits.
    pub decode: Duration,
}

impl Generation {
    /// Tokens that took [`prefill`](Self::prefill).
    pub fn n_prefilled(&self) -> usize {
        self.n_prompt - self.n_reused
    }

    /// Tokens that took [`decode`](Self::decode).
    pub fn n_decoded(&self) -> usize {
        self.n_generated.saturating_sub(1)
    }
}

impl Engine {
    /// Answers a prompt. The session keeps what it has in common with the prompt, and ends up holding both prompt and answer,
    /// but for the answer's last token.
    ///
    /// A break from `on_event` ends the answer with [`Finish::Interrupted`].
    ///
    /// # Errors
    /// When the prompt is empty or leaves no room for an answer, a logit is not finite, or the backend fails.
    pub fn generate(
        &mut self,
        session: &mut Session,
        tokenizer: &Tokenizer,
        prompt: &[u32],
        sampler: &mut Sampler,
        max_tokens: Option<usize>,
        on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Generation, Error> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() >= session.n_ctx() {
            return Err(Error::PromptTooLong { tokens: prompt.len(), n_ctx: session.n_ctx() });
        }
        let n_reused = session.reuse(prompt);
        let mut generation = Generation {
            finish: Finish::Interrupted,
            n_prompt: prompt.len(),
            n_reused,
            n_generated: 0,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
        };
        let started = Instant::now();
        let mut on_batch = |done| on_event(Event::Prefill { done: n_reused + done, total: prompt.len() });
        sampler.restart(prompt);
        let mut next = match self.next_token(session, &prompt[n_reused..], sampler, &mut on_batch) {
            Err(Error::Interrupted) => return Ok(generation),
            next => next?,
        };
        generation.prefill = started.elapsed();

        let limit = max_tokens.unwrap_or(usize::MAX);
        let started = Instant::now();
        let mut text = Detokenizer::new(tokenizer, DecodeOptions { continues: true, ..DecodeOptions::default() });
        generation.finish = loop {
            if generation.n_generated == limit {
                break Finish::Length;
            }
            if tokenizer.is_end_of_generation(next) {
                break Finish::Stop;
            }
            generation.n_generated += 1;
            if on_event(Event::Token { id: next, text: text.push(next)? }).is_break() {
                break Finish::Interrupted;
            }
            if generation.n_generated == limit {
                break Finish::Length;
            }
            // The last token needs no place: a context of n holds a prompt and an answer of n + 1 tokens together.
            if session.tokens().len() == session.n_ctx() {
                break Finish::ContextFull;
            }
            next = self.next_token(session, &[next], sampler, &mut |_| ControlFlow::Continue(()))?;
        };
        generation.decode = started.elapsed();
        let rest = text.flush();
        if !rest.is_empty() {
            // The answer is over, so there is nothing left that a break could end.
            let _ = on_event(Event::Token { id: next, text: rest });
        }
        Ok(generation)
    }

    /// Appends tokens and samples what follows the last of them.
    fn next_token(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        sampler: &mut Sampler,
        on_batch: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        let mut next = None;
        let on_logits = &mut |_, logits: &mut [f32]| {
            next = Some(sampler.sample(logits)?);
            Ok(())
        };
        self.advance(session, tokens, Advance { logits_from: tokens.len() - 1, on_batch, on_logits, taps: None })?;
        Ok(next.expect("the last token's logits were asked for"))
    }
}
