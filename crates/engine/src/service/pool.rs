//! The hidden states of a prompt's tokens, gathered into one vector.

use super::Pooling;
use crate::Error;

pub(super) struct Pool {
    pooling: Pooling,
    /// The sum, or the last token's state.
    vector: Vec<f32>, // (n_embd)
    n_added: usize,
}

impl Pool {
    pub(super) fn new(pooling: Pooling, n_embd: usize) -> Self {
        Self { pooling, vector: vec![0.0; n_embd], n_added: 0 }
    }

    pub(super) fn pooling(&self) -> Pooling {
        self.pooling
    }

    /// Takes the states of the next tokens, `(n, n_embd)`, the first of which is at position `pos`.
    ///
    /// Sums grow token by token, so they don't depend on how many come at once.
    pub(super) fn add(&mut self, states: &[f32], pos: usize) -> Result<(), Error> {
        for (pos, state) in (pos..).zip(states.chunks_exact(self.vector.len())) {
            if state.iter().any(|value| !value.is_finite()) {
                return Err(Error::StateNotFinite { pos });
            }
            match self.pooling {
                Pooling::Mean => self.vector.iter_mut().zip(state).for_each(|(sum, value)| *sum += value),
                Pooling::Last => self.vector.copy_from_slice(state),
            }
            self.n_added += 1;
        }
        Ok(())
    }

    /// The vector, `(n_embd)`.
    pub(super) fn finish(&mut self) -> Vec<f32> {
        let mut vector = std::mem::take(&mut self.vector);
        if self.pooling == Pooling::Mean {
            let n = self.n_added as f32;
            vector.iter_mut().for_each(|sum| *sum /= n);
        }
        vector
    }
}
