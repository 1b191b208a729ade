//! One batch over the tokens of several sessions.

use std::ops::Range;

use muser_model::{LogitRows, Span};

use crate::{Engine, Error, Session};

/// Tokens that follow those of a session.
pub(crate) struct StepSpan<'a> {
    pub session: &'a mut Session,
    pub tokens: &'a [u32],
    /// Which of them are selected for an output.
    pub selected: LogitRows,
}

impl Engine {
    /// Appends tokens to several sessions, in one batch. Returns how many tokens were selected; they are numbered in the
    /// order of the spans.
    ///
    /// # Errors
    /// When the batch is refused or fails, or the model's file has changed. All of its sessions are cleared then.
    pub(crate) fn step(&mut self, spans: &mut [StepSpan<'_>]) -> Result<usize, Error> {
        let stepped = self.try_step(spans);
        if stepped.is_err() {
            spans.iter_mut().for_each(|span| span.session.clear());
        }
        stepped
    }

    fn try_step(&mut self, spans: &mut [StepSpan<'_>]) -> Result<usize, Error> {
        let mut batch: Vec<Span<'_>> = spans
            .iter_mut()
            .map(|StepSpan { session, tokens, selected }| {
                let Session { cache, .. } = &mut **session;
                Span { tokens, cache, logits: *selected }
            })
            .collect();
        let n_selected = self.decoder.forward(self.backend.as_mut(), &mut batch, None)?;
        // A file that was written in place gives no bus error, only wrong numbers.
        self.model().arena().check_unchanged()?;
        spans.iter_mut().for_each(|span| span.session.tokens.extend_from_slice(span.tokens));
        Ok(n_selected)
    }

    /// Hands the logits, `(n_vocab)`, of each of the last step's selected tokens in `rows` to `on_row`, in order.
    ///
    /// # Errors
    /// When the backend fails; the sessions are whole then, but for the outputs that nobody has.
    pub(crate) fn step_logits(
        &mut self,
        rows: Range<usize>,
        on_row: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<(), Error> {
        let (n_vocab, at_once) = (self.model().spec().n_vocab, self.decoder.n_logit_rows());
        for first in rows.clone().step_by(at_once) {
            let n = at_once.min(rows.end - first);
            let logits = self.decoder.logits(self.backend.as_mut(), first, n, None)?;
            for (row, logits) in logits.chunks_exact_mut(n_vocab).enumerate() {
                on_row(first + row, logits);
            }
        }
        Ok(())
    }

    /// The normed final hidden states of the last step's selected tokens in `rows`, `(rows, n_embd)`.
    ///
    /// # Errors
    /// When the backend fails.
    pub(crate) fn step_hidden(&mut self, rows: Range<usize>) -> Result<&[f32], Error> {
        Ok(self.decoder.hidden(self.backend.as_mut(), rows.start, rows.len())?)
    }
}
