//! How likely a model finds given tokens.

use std::ops::ControlFlow;

use muser_model::TapSink;

use crate::engine::Advance;
use crate::sampler::{log_softmax_top, logprob_of};
use crate::{Engine, Error, Session};

/// The model's opinion at one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The given token.
    pub id: u32,
    /// Natural logarithm of its probability, over the full vocabulary.
    pub logprob: f64,
    /// The likeliest tokens and their log-probabilities, likeliest first.
    pub top: Vec<(u32, f64)>,
}

impl Engine {
    /// Scores each token of `next`, given `ids` and the tokens of `next` before it.
    ///
    /// `session` ends up holding `ids` and all but the last of `next`; whatever it held before is forgotten, so that the
    /// taps see every token.
    ///
    /// # Errors
    /// When `ids` is empty, a token is unknown, the tokens outgrow the context, or the backend fails.
    pub fn score(
        &mut self,
        session: &mut Session,
        ids: &[u32],
        next: &[u32],
        n_top: usize,
        taps: Option<&mut dyn TapSink>,
        on_token: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Vec<Step>, Error> {
        if ids.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let n_vocab = self.model().spec().n_vocab;
        if let Some(&id) = next.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::UnknownToken { id, n_vocab });
        }
        session.clear();
        let mut steps = Vec::with_capacity(next.len());
        let Some((_, before_last)) = next.split_last() else { return Ok(steps) };
        let tokens = [ids, before_last].concat();
        let advance = Advance {
            logits_from: ids.len() - 1,
            on_batch: on_token,
            on_logits: &mut |index, logits| {
                let id = next[index + 1 - ids.len()];
                steps.push(Step { id, logprob: logprob_of(logits, id), top: log_softmax_top(logits, n_top) });
                Ok(())
            },
            taps,
        };
        self.advance(session, &tokens, advance)?;
        Ok(steps)
    }
}
