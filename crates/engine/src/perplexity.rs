//! Perplexity: how surprised a model is by a text.

use std::ops::ControlFlow;

use muser_text::{Affixes, Special, Tokenizer};

use crate::engine::Advance;
use crate::sampler::logprob_of;
use crate::{Engine, Error, Session};

/// Tokens of the shortest chunk that has one to score: its second half less the token that the half begins with.
pub(crate) const MIN_CHUNK: usize = 3;

/// How a text is measured.
#[derive(Clone, Copy, Debug)]
pub struct PerplexityOptions {
    /// Tokens in a chunk; the second half of each is scored.
    pub chunk: usize,
    /// Most chunks; `None` takes all whole ones.
    pub n_chunks: Option<usize>,
}

/// How far a measurement has come.
#[derive(Clone, Copy, Debug)]
pub struct PerplexityProgress {
    /// Tokens processed.
    pub tokens: usize,
    /// Tokens to process in all.
    pub total: usize,
    /// The perplexity after the last whole chunk.
    pub ppl: Option<f64>,
}

/// The exponential of the mean negative log-likelihood of a text's tokens, after each chunk; the last entry is the result.
///
/// The text is tokenised once and cut into chunks. A model whose texts begin with a certain token gets it in place of each
/// chunk's first. In each chunk the tokens after the middle are scored, given all before them.
///
/// # Errors
/// When a chunk has nothing to score, the text has no whole chunk, a chunk outgrows the context, or the backend fails.
pub fn perplexity(
    engine: &mut Engine,
    session: &mut Session,
    tokenizer: &Tokenizer,
    text: &str,
    options: PerplexityOptions,
    on_progress: &mut dyn FnMut(PerplexityProgress) -> ControlFlow<()>,
) -> Result<Vec<f64>, Error> {
    let PerplexityOptions { chunk, n_chunks } = options;
    let mut tokens = tokenizer.encode(text, Special::Plain, Affixes::Model);
    if chunk < MIN_CHUNK {
        return Err(Error::ChunkTooShort { tokens: chunk });
    }
    let whole = tokens.len() / chunk;
    if whole == 0 {
        return Err(Error::TextTooShort { tokens: tokens.len(), needed: chunk });
    }
    let n_chunks = n_chunks.map_or(whole, |n_chunks| n_chunks.clamp(1, whole));
    let total = n_chunks * chunk;
    let (mut sum, mut n_scored) = (0.0f64, 0usize);
    let mut running = Vec::with_capacity(n_chunks);
    for (index, tokens) in tokens.chunks_exact_mut(chunk).take(n_chunks).enumerate() {
        if let Some(bos) = tokenizer.bos().filter(|_| tokenizer.add_bos()) {
            tokens[0] = bos;
        }
        session.clear();
        let ppl = running.last().copied();
        engine.advance(
            session,
            &tokens[..chunk - 1],
            Advance {
                logits_from: chunk / 2,
                on_batch: &mut |done| on_progress(PerplexityProgress { tokens: index * chunk + done, total, ppl }),
                on_logits: &mut |at, logits| {
                    sum -= logprob_of(logits, tokens[at + 1]);
                    n_scored += 1;
                    Ok(())
                },
                taps: None,
            },
        )?;
        running.push((sum / n_scored as f64).exp());
    }
    if on_progress(PerplexityProgress { tokens: total, total, ppl: running.last().copied() }).is_break() {
        return Err(Error::Interrupted);
    }
    Ok(running)
}
