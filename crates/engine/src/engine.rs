//! A backend and a decoder, which run sessions.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;

use muser_memory::Device;
use muser_model::{Decoder, LogitRows, Model, Span, TapSink};
use muser_ops::Backend;

use crate::logits::first_not_finite;
use crate::{Error, Session};

/// Tokens that are processed at once: enough to amortise reading a weight, few enough to stay in the cache and to answer an
/// interrupt soon.
pub const DEFAULT_BATCH: NonZero<usize> = NonZero::new(256).unwrap();

/// Runs sessions over a backend.
pub struct Engine {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) decoder: Decoder,
    n_ctx: usize,
}

/// Takes a token's index and its logits.
pub(crate) type OnLogits<'a> = dyn FnMut(usize, &mut [f32]) -> Result<(), Error> + 'a;

/// What [`Engine::advance`] reports to and asks of its caller.
pub(crate) struct Advance<'a, 't> {
    /// Index of the first token whose logits are wanted; the number of tokens for none.
    pub logits_from: usize,
    /// Called after each batch with the number of tokens done; a break ends the pass with [`Error::Interrupted`].
    pub on_batch: &'a mut dyn FnMut(usize) -> ControlFlow<()>,
    /// Called with each wanted token's index and logits, in order.
    pub on_logits: &'a mut OnLogits<'a>,
    /// Records taps.
    pub taps: Option<&'t mut dyn TapSink>,
}

impl Engine {
    /// An engine for sessions of up to `n_ctx` tokens, that processes up to `n_batch` tokens of one of them at once.
    ///
    /// # Errors
    /// When the memory can't be had.
    pub fn new(model: Arc<Model>, backend: Box<dyn Backend>, n_batch: usize, n_ctx: usize) -> Result<Self, Error> {
        Self::for_slots(model, backend, n_batch, n_ctx, 1)
    }

    /// An engine that processes up to `n_batch` tokens at once, of up to `n_slot` sessions of up to `n_ctx` tokens each.
    ///
    /// # Errors
    /// When the memory can't be had.
    pub fn for_slots(
        model: Arc<Model>,
        backend: Box<dyn Backend>,
        n_batch: usize,
        n_ctx: usize,
        n_slot: usize,
    ) -> Result<Self, Error> {
        let decoder = Decoder::new(model, backend.device(), batch_rows(n_batch, n_ctx, n_slot), n_ctx)?;
        Ok(Self { backend, decoder, n_ctx })
    }

    /// What computes, in words.
    pub fn describe_backend(&self) -> String {
        self.backend.describe()
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        self.decoder.model()
    }

    /// The device that sessions live on.
    pub fn device(&self) -> &Device {
        self.backend.device()
    }

    /// Longest sequence of a session, in tokens.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// A session without tokens.
    ///
    /// # Errors
    /// When the memory can't be had.
    pub fn session(&self) -> Result<Session, Error> {
        Session::new(self.model().spec(), self.device(), self.n_ctx)
    }

    /// Most tokens in one batch.
    pub fn n_batch(&self) -> usize {
        self.decoder.n_batch()
    }

    /// Appends `tokens` to a session, batch by batch.
    ///
    /// On an error or a break the session holds the batches that were completed, or is cleared if one was torn.
    pub(crate) fn advance(
        &mut self,
        session: &mut Session,
        tokens: &[u32],
        mut advance: Advance<'_, '_>,
    ) -> Result<(), Error> {
        let n_vocab = self.model().spec().n_vocab;
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= n_vocab) {
            return Err(Error::UnknownToken { id, n_vocab });
        }
        let mut done = 0;
        for batch in tokens.chunks(self.decoder.n_batch()) {
            let logits = match advance.logits_from.saturating_sub(done) {
                from if from >= batch.len() => LogitRows::None,
                from => LogitRows::From(from),
            };
            let mut spans = [Span { tokens: batch, cache: &mut session.cache, logits }];
            let selected = self.decoder.forward(self.backend.as_mut(), &mut spans, reborrow(&mut advance.taps));
            let selected = selected.inspect_err(|_| session.clear())?;
            session.tokens.extend_from_slice(batch);
            // A file that was written in place gives no bus error, only wrong numbers.
            self.model().arena().check_unchanged()?;
            let first_index = done + batch.len() - selected;
            self.logits(session, first_index, selected, &mut advance)?;
            done += batch.len();
            if (advance.on_batch)(done).is_break() {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }

    fn logits(
        &mut self,
        session: &Session,
        first_index: usize,
        selected: usize,
        advance: &mut Advance<'_, '_>,
    ) -> Result<(), Error> {
        let (n_vocab, at_once) = (self.model().spec().n_vocab, self.decoder.n_logit_rows());
        for first in (0..selected).step_by(at_once) {
            let n = at_once.min(selected - first);
            let logits = self.decoder.logits(self.backend.as_mut(), first, n, reborrow(&mut advance.taps))?;
            for (row, logits) in logits.chunks_exact_mut(n_vocab).enumerate() {
                if let Some(id) = first_not_finite(logits) {
                    let pos = session.tokens.len() - selected + first + row;
                    return Err(Error::NotFinite { pos, id });
                }
                (advance.on_logits)(first_index + first + row, logits)?;
            }
        }
        Ok(())
    }
}

/// Rows of a batch of up to `n_batch` tokens: no more than there can be tokens.
pub(crate) fn batch_rows(n_batch: usize, n_ctx: usize, n_slot: usize) -> usize {
    n_batch.min(n_ctx.saturating_mul(n_slot))
}

/// The sink for one call. A plain reborrow would tie the option's lifetime to the sink's.
fn reborrow<'a>(taps: &'a mut Option<&mut dyn TapSink>) -> Option<&'a mut dyn TapSink> {
    match taps {
        Some(taps) => Some(&mut **taps),
        None => None,
    }
}
