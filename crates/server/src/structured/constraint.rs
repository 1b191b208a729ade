//! One answer under a grammar.

use std::fmt;

use llguidance::toktrie::SimpleVob;
use llguidance::{Matcher, TokenParser};
use muser_engine::service::{Constraint, ConstraintError};

use super::GrammarError;

/// What may come next in one answer.
pub struct GrammarConstraint {
    matcher: Matcher,
}

impl GrammarConstraint {
    /// At the start of an answer.
    pub fn new(parser: TokenParser) -> Self {
        Self { matcher: Matcher::new(Ok(parser)) }
    }

    /// Finds what may be the first of `n_vocab` tokens, and keeps nothing of it.
    ///
    /// # Errors
    /// Nothing may be, or finding it takes too many steps.
    pub fn begin(&mut self, n_vocab: usize) -> Result<(), GrammarError> {
        self.restrict(&mut vec![0.0; n_vocab])
    }

    /// The same grammar at the same place for another answer; they share nothing.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { matcher: self.matcher.deep_clone() }
    }

    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), GrammarError> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| GrammarError::step(&error))?;
        mask(&allowed, logits);
        Ok(())
    }
}

impl Constraint for GrammarConstraint {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        Ok(self.restrict(logits)?)
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        self.matcher.consume_token(id).map_err(|error| GrammarError::step(&error))?;
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

impl fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarConstraint").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

fn mask(allowed: &SimpleVob, logits: &mut [f32]) {
    let n_known = allowed.len().min(logits.len());
    let (known, unknown) = logits.split_at_mut(n_known);
    unknown.fill(f32::NEG_INFINITY);
    for (logits, &bits) in known.chunks_mut(32).zip(allowed.as_slice()) {
        match bits {
            u32::MAX => {}
            0 => logits.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if bits >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}
