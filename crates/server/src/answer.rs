//! Answers in pieces: the one way from the engine's events to both streamed and whole replies.

mod logprobs;

use std::time::Instant;

use axum::http::StatusCode;
use muser_engine::sampler::SamplerError;
use muser_engine::service::{Event, Summary};
use muser_engine::{Error, Finish};
use serde_json::{Value, json};
use tracing::{Span, info, warn};

pub use logprobs::{Scored, ScoredTokens};

use crate::jobs::{Jobs, Progress};
use crate::reply::{ApiError, ApiResult};
use crate::structured::GrammarError;

/// A part of a choice's answer.
pub struct Piece {
    /// The choice.
    pub choice: usize,
    /// More of its text; may be empty.
    pub text: String,
    /// Tokens whose text is complete with it, if log-probabilities were asked for.
    pub scored: Vec<Scored>,
    /// Why the answer is over, if it is.
    pub finish: Option<&'static str>,
}

/// The answers to a request, as they come. Choices of one prompt follow one another.
pub struct Answers {
    jobs: Jobs,
    scored: Option<Vec<ScoredTokens>>,
    /// Choices of each prompt.
    n: usize,
    usage: Usage,
    /// Tokens that came, of answers that are over and of others.
    n_token: usize,
    n_open: usize,
    span: Span,
    started: Instant,
    first_token: Option<Instant>,
}

/// How many tokens a request took.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_field_names, reason = "counts are named so everywhere")]
pub struct Usage {
    /// Tokens of the prompts, each counted once however many choices it has.
    pub n_prompt: usize,
    /// Tokens of the answers.
    pub n_generated: usize,
    /// Tokens of the prompts that were not processed again.
    pub n_reused: usize,
}

impl Usage {
    /// The document.
    pub fn json(self) -> Value {
        json!({
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_generated,
            "total_tokens": self.n_prompt + self.n_generated,
            "prompt_tokens_details": {"cached_tokens": self.n_reused},
        })
    }
}

impl Answers {
    /// The answers of `n_choice` jobs, `n` for each prompt. If tokens are scored, there is something to do so for each.
    pub fn new(jobs: Jobs, n_choice: usize, n: usize, scored: Option<Vec<ScoredTokens>>) -> Self {
        Self {
            jobs,
            scored,
            n,
            usage: Usage::default(),
            n_token: 0,
            n_open: n_choice,
            span: Span::current(),
            started: Instant::now(),
            first_token: None,
        }
    }

    /// The tokens so far; all of them when the last piece has come.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The next piece; `None` after the last piece of the last choice.
    ///
    /// # Errors
    /// One of the answers failed; the others are given up with it.
    pub async fn next(&mut self) -> ApiResult<Option<Piece>> {
        loop {
            let Some((choice, progress)) = self.jobs.next().await? else { return Ok(None) };
            let event = match progress {
                Progress::Event(event) => event,
                Progress::Unread => {
                    let message = "the answer was given up: too much of it waited to be read";
                    return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "reader_too_slow", message));
                }
                Progress::Lost => return Err(ApiError::internal("the engine has gone away")),
            };
            if let Some(piece) = self.piece(choice, event)? {
                return Ok(Some(piece));
            }
        }
    }

    fn piece(&mut self, choice: usize, event: Event) -> ApiResult<Option<Piece>> {
        match event {
            Event::Token { id, text, logprob } => {
                self.first_token.get_or_insert_with(Instant::now);
                self.n_token += 1;
                let mut scored = Vec::new();
                if let Some(tokens) = self.scored.as_mut().map(|scored| &mut scored[choice]) {
                    tokens.push(id, logprob);
                    scored = tokens.shown(text.len());
                }
                let is_silent = text.is_empty() && scored.is_empty();
                Ok((!is_silent).then_some(Piece { choice, text, scored, finish: None }))
            }
            Event::Done { text, summary } => {
                self.n_open -= 1;
                self.count(choice, &summary);
                let finish = finish_reason(summary.finish)?;
                let scored = match self.scored.as_mut().map(|scored| &mut scored[choice]) {
                    Some(tokens) if matches!(summary.finish, Finish::StopString(_)) => tokens.shown(text.len()),
                    Some(tokens) => tokens.rest(),
                    None => Vec::new(),
                };
                Ok(Some(Piece { choice, text, scored, finish: Some(finish) }))
            }
            Event::Failed(error) => Err(failed(&error)),
            _ => Ok(None),
        }
    }

    fn count(&mut self, choice: usize, summary: &Summary) {
        self.usage.n_generated += summary.n_generated;
        // The other choices of a prompt find what its first one has computed.
        if choice.is_multiple_of(self.n) {
            self.usage.n_prompt += summary.n_prompt;
            self.usage.n_reused += summary.n_reused;
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let Usage { n_prompt, n_generated, n_reused } = self.usage;
        let seconds = self.started.elapsed().as_secs_f64();
        let first = self.first_token.map(|at| at.duration_since(self.started).as_secs_f64());
        let _entered = self.span.enter();
        if self.n_open == 0 {
            info!(n_prompt, n_reused, n_generated, first_token_seconds = first, seconds, "answered");
        } else {
            warn!(n_open = self.n_open, n_generated = self.n_token, first_token_seconds = first, seconds, "given up");
        }
    }
}

/// The reason as the interface spells it.
fn finish_reason(finish: Finish) -> ApiResult<&'static str> {
    match finish {
        Finish::Stop | Finish::StopString(_) => Ok("stop"),
        Finish::Length | Finish::ContextFull => Ok("length"),
        Finish::Interrupted => {
            let message = "the server shut down before the answer was complete";
            Err(ApiError {
                retry_after: Some(1),
                ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "shutting_down", message)
            })
        }
    }
}

/// The reply to a request that the engine took and could not serve. What a client can get wrong is refused before, but for
/// what shows only as the answer goes on.
pub fn failed(error: &Error) -> ApiError {
    if let Some(reply) = led_astray(error) {
        info!(code = reply.code, "the answer could not go on");
        return reply;
    }
    warn!(%error, "the engine failed");
    ApiError::internal(error.to_string())
}

/// The reply where what the request demands of the answer left it no way to go on.
fn led_astray(error: &Error) -> Option<ApiError> {
    let (code, reason) = match error {
        Error::Sampler(SamplerError::NothingToChoose { .. }) => {
            let reason = "its form, `logit_bias` and `ignore_eos` together exclude every token that could come next";
            ("no_token_left", reason.to_owned())
        }
        Error::Constraint(error) => match error.0.downcast_ref()? {
            error @ GrammarError::TooComplex => ("form_too_complex", error.to_string()),
            error @ GrammarError::NothingFollows => ("form_without_end", error.to_string()),
            _ => return None,
        },
        _ => return None,
    };
    Some(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, format!("the answer could not go on: {reason}")))
}
