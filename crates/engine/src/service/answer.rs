//! One answer in the making: from the logits at its end to the next token and its text.

use std::sync::Arc;

use muser_text::{DecodeOptions, Detokenizer, Tokenizer};

use super::stop::StopMatcher;
use super::{Constraint, ConstraintError, GenerateOptions, TokenLogprobs};
use crate::logits::first_not_finite;
use crate::sampler::{Sampler, log_softmax_of_and_top};
use crate::{Error, Finish};

/// The bias that excludes a token, and the one that excludes those without it.
const EXCLUDED: f32 = -100.0;
const FORCED: f32 = 100.0;

pub(super) struct Answer {
    tokenizer: Arc<Tokenizer>,
    sampler: Sampler,
    logit_bias: Vec<(u32, f32)>,
    top_logprobs: Option<usize>,
    ignore_eos: bool,
    constraint: Option<Box<dyn Constraint>>,
    text: Detokenizer<Arc<Tokenizer>>,
    stop: StopMatcher,
    /// Most tokens.
    limit: usize,
    n_generated: usize,
    /// The token chosen last, which is processed next.
    last: u32,
}

/// What follows the tokens so far.
pub(super) enum Chosen {
    Token { id: u32, text: String, logprob: Option<TokenLogprobs>, finish: Option<Finish> },
    End(Finish),
}

impl Answer {
    /// An answer to `prompt`, without a token.
    pub(super) fn new(options: GenerateOptions, prompt: &[u32], tokenizer: &Arc<Tokenizer>) -> Result<Self, Error> {
        let GenerateOptions { max_tokens, sampler, logit_bias, top_logprobs, stop, ignore_eos, constraint, special } =
            options;
        let mut sampler = Sampler::new(sampler)?;
        sampler.restart(prompt);
        let text = Detokenizer::new(Arc::clone(tokenizer), DecodeOptions { special, continues: true });
        Ok(Self {
            tokenizer: Arc::clone(tokenizer),
            sampler,
            logit_bias,
            top_logprobs,
            ignore_eos,
            constraint,
            text,
            stop: StopMatcher::new(stop),
            limit: max_tokens.unwrap_or(usize::MAX),
            n_generated: 0,
            last: 0,
        })
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn n_generated(&self) -> usize {
        self.n_generated
    }

    /// The token chosen last.
    pub(super) fn last(&self) -> &u32 {
        &self.last
    }

    /// Chooses the next token by the logits, `(n_vocab)`, after a sequence that holds `n_held` tokens and may hold `n_ctx`.
    /// `raw` is room for a copy of them.
    pub(super) fn choose(
        &mut self,
        logits: &mut [f32],
        raw: &mut Vec<f32>,
        n_held: usize,
        n_ctx: usize,
    ) -> Result<Chosen, Error> {
        if self.n_generated == self.limit {
            return Ok(Chosen::End(Finish::Length));
        }
        if let Some(id) = first_not_finite(logits) {
            return Err(Error::NotFinite { pos: n_held - 1, id });
        }
        if self.top_logprobs.is_some() {
            raw.clear();
            raw.extend_from_slice(logits);
        }
        let Self { logit_bias, ignore_eos, constraint, tokenizer, .. } = self;
        restrict(logits, logit_bias, *ignore_eos, constraint.as_deref_mut(), tokenizer)?;
        let id = self.sampler.sample(logits)?;
        if self.tokenizer.is_end_of_generation(id) && !self.ignore_eos {
            return Ok(Chosen::End(Finish::Stop));
        }
        self.last = id;
        self.n_generated += 1;
        let logprob = self.top_logprobs.map(|k| {
            let (logprob, top) = log_softmax_of_and_top(raw, id, k);
            TokenLogprobs { logprob, top }
        });
        let (text, stopped) = self.stop.push(self.text.push(id)?);
        let mut is_finished = false;
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id)?;
            is_finished = constraint.is_finished();
        }
        let finish = match stopped {
            Some(index) => Some(Finish::StopString(index)),
            None if is_finished => Some(Finish::Stop),
            None if self.n_generated == self.limit => Some(Finish::Length),
            None if n_held == n_ctx => Some(Finish::ContextFull),
            None => None,
        };
        Ok(Chosen::Token { id, text, logprob, finish })
    }

    /// Ends the text. Returns what was held back, and why the answer ends after all: a stop text may lie in it.
    pub(super) fn finish(&mut self, finish: Finish) -> (String, Finish) {
        if matches!(finish, Finish::StopString(_)) {
            return (String::new(), finish);
        }
        let (mut text, mut stopped) = self.stop.push(self.text.flush());
        if stopped.is_none() {
            let (rest, stopped_in_rest) = self.stop.finish();
            text += &rest;
            stopped = stopped_in_rest;
        }
        (text, stopped.map_or(finish, Finish::StopString))
    }
}

impl GenerateOptions {
    /// Whether any token can be the first of an answer: whether bias and constraint, and the tokens that may not end it, leave
    /// one.
    ///
    /// # Errors
    /// The constraint can't begin.
    pub fn can_begin(&mut self, tokenizer: &Tokenizer) -> Result<bool, ConstraintError> {
        let mut logits = vec![0.0; tokenizer.n_vocab()];
        let constraint = self.constraint.as_deref_mut();
        restrict(&mut logits, &self.logit_bias, self.ignore_eos, constraint, tokenizer)?;
        Ok(logits.iter().any(|logit| *logit > f32::NEG_INFINITY))
    }
}

/// Excludes what a request excludes of the logits, `(n_vocab)`.
fn restrict<'a>(
    logits: &mut [f32],
    logit_bias: &[(u32, f32)],
    ignore_eos: bool,
    constraint: Option<&mut (dyn Constraint + 'a)>,
    tokenizer: &Tokenizer,
) -> Result<(), ConstraintError> {
    for &(id, bias) in logit_bias {
        let logit = &mut logits[id as usize];
        *logit = if bias <= EXCLUDED { f32::NEG_INFINITY } else { *logit + bias };
    }
    let forced = logit_bias.iter().filter(|(_, bias)| *bias >= FORCED);
    let forced: Vec<(usize, f32)> = forced.map(|&(id, _)| (id as usize, logits[id as usize])).collect();
    if !forced.is_empty() {
        logits.fill(f32::NEG_INFINITY);
        forced.into_iter().for_each(|(id, logit)| logits[id] = logit);
    }
    if ignore_eos {
        for &id in tokenizer.end_of_generation_ids() {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    constraint.map_or(Ok(()), |constraint| constraint.mask(logits))
}
