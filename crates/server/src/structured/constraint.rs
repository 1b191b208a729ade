//! One answer under a grammar.

use llguidance::toktrie::SimpleVob;
use llguidance::{Matcher, TokenParser};
use muser_text::Tokenizer;

use super::GrammarError;

/// What may come next in one answer.
pub struct GrammarConstraint {
    matcher: Matcher,
    /// Tokens that end generation, sorted.
    end_ids: Vec<u32>,
}

impl GrammarConstraint {
    pub(super) fn new(parser: TokenParser, tokenizer: &Tokenizer) -> Self {
        Self { matcher: Matcher::new(Ok(parser)), end_ids: tokenizer.end_of_generation_ids().to_vec() }
    }

    /// The same grammar at the same place for another answer; they share nothing.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), end_ids: self.end_ids.clone() }
    }

    /// Sets the logits of all tokens that may not come next to negative infinity. // (`n_vocab`)
    ///
    /// # Errors
    ///
    /// [`GrammarError::Step`] when the grammar takes too many steps.
    pub fn mask(&mut self, logits: &mut [f32]) -> Result<(), GrammarError> {
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| GrammarError::step(&error))?;
        mask(&allowed, logits);
        Ok(())
    }

    /// Goes on by one token.
    ///
    /// # Errors
    ///
    /// [`GrammarError::Step`] when the token is not one that [`mask`](Self::mask) leaves.
    pub fn accept(&mut self, id: u32) -> Result<(), GrammarError> {
        if self.matcher.is_stopped() && self.end_ids.binary_search(&id).is_ok() {
            return Ok(());
        }
        self.matcher.consume_token(id).map_err(|error| GrammarError::step(&error))
    }

    /// Whether nothing but the end may follow.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }
}

impl std::fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
