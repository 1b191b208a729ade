//! What comes out of a forward pass: logits, or the hidden states before them.

use muser_ops::{Backend, Cap, Checked, Norm, NormRows, Product, Project, Rows, RowsMut};

use super::Decoder;
use crate::Error;
use crate::taps::{Tap, TapPoint, TapSink};

impl Decoder {
    /// Number of selected tokens whose logits are computed at once.
    pub fn n_logit_rows(&self) -> usize {
        self.activations.n_logit_rows
    }

    /// The logits of `n` of the tokens that the last [`forward`](Self::forward) selected, from the `first` on.
    /// Shape: `(n, n_vocab)`.
    ///
    /// # Errors
    /// When there are not that many, `n` exceeds [`n_logit_rows`](Self::n_logit_rows), or the backend fails.
    pub fn logits(
        &mut self,
        backend: &mut dyn Backend,
        first: usize,
        n: usize,
        taps: Option<&mut dyn TapSink>,
    ) -> Result<&mut [f32], Error> {
        let (spec, weights, arena) = (self.model.spec(), self.model.weights(), self.model.arena());
        let selected = Rows::new(&self.activations.selected, self.selected.len(), spec.n_embd)?;
        let logits = &mut self.activations.logits;
        backend.project(Checked::new(Project {
            x: selected.slice(first, n)?,
            norm: Some(Norm { weight: Some(weights.output_norm.bind(arena)?), eps: spec.output_eps }),
            products: &mut [Product {
                weight: weights.output().bind(arena)?,
                out: RowsMut::new(logits, n, spec.n_vocab)?,
            }],
        })?)?;
        if spec.logit_cap.is_some() || spec.logit_scale.to_bits() != 1.0f32.to_bits() {
            let x = RowsMut::new(logits, n, spec.n_vocab)?;
            backend.cap(Checked::new(Cap { x, scale: spec.logit_scale, cap: spec.logit_cap })?)?;
        }
        backend.synchronize()?;
        let logits = &mut logits.as_mut_slice()[..n * spec.n_vocab];
        if let Some(taps) = taps {
            for (row, &(span, pos)) in logits.chunks_exact(spec.n_vocab).zip(&self.selected[first..]) {
                taps.record(TapPoint { tap: Tap::Logits, layer: None, span, pos }, row);
            }
        }
        Ok(logits)
    }

    /// The final hidden states of `n` of the tokens that the last [`forward`](Self::forward) selected, from the `first`
    /// on, normed as the output matrix sees them. Shape: `(n, n_embd)`.
    ///
    /// # Errors
    /// When there are not that many, or the backend fails.
    pub fn hidden(&mut self, backend: &mut dyn Backend, first: usize, n: usize) -> Result<&[f32], Error> {
        let (spec, arena) = (self.model.spec(), self.model.arena());
        let weight = self.model.weights().output_norm.bind(arena)?;
        let selected = Rows::new(&self.activations.selected, self.selected.len(), spec.n_embd)?;
        let out = &mut self.activations.branch;
        backend.norm(Checked::new(NormRows {
            x: selected.slice(first, n)?,
            norm: Norm { weight: Some(weight), eps: spec.output_eps },
            out: RowsMut::new(out, n, spec.n_embd)?,
        })?)?;
        backend.synchronize()?;
        Ok(&out.as_slice()[..n * spec.n_embd])
    }
}
