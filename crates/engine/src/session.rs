//! A conversation's tokens, and the keys and values computed from them.

use muser_memory::Device;
use muser_model::{KvCache, ModelSpec};

use crate::Error;

/// One conversation: its tokens, and the keys and values computed from them.
#[derive(Debug)]
pub struct Session {
    pub(crate) cache: KvCache,
    pub(crate) tokens: Vec<u32>,
}

impl Session {
    /// A session without tokens.
    pub(crate) fn new(spec: &ModelSpec, device: &Device, n_ctx: usize) -> Result<Self, Error> {
        Ok(Self { cache: KvCache::new(spec, device, n_ctx)?, tokens: Vec::new() })
    }

    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Longest sequence it holds, in tokens.
    pub fn n_ctx(&self) -> usize {
        self.cache.n_ctx()
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.cache.clear();
        self.tokens.clear();
    }

    /// Keeps what can be reused for a sequence that starts with `tokens`: the longest common start, if the cache can go
    /// back that far, else nothing. At least the last of `tokens` is left to be processed, so that its logits are computed.
    /// Returns the number of tokens kept.
    ///
    /// What is kept holds the bits that processing the same tokens again would give.
    pub fn reuse(&mut self, tokens: &[u32]) -> usize {
        let kept = common_start(&self.tokens, tokens).min(tokens.len().saturating_sub(1));
        self.keep(kept)
    }

    /// Forgets the tokens from `pos` on, or all of them if the cache can't go back that far. Returns the number of tokens
    /// kept.
    pub(crate) fn keep(&mut self, pos: usize) -> usize {
        match self.cache.truncate(pos) {
            Ok(true) => self.tokens.truncate(pos),
            Ok(false) | Err(_) => self.clear(),
        }
        self.tokens.len()
    }

    /// Whether a sequence that shares the first `pos` tokens can go on from there.
    pub(crate) fn reaches(&self, pos: usize) -> bool {
        self.cache.reaches(pos)
    }

    /// Becomes a copy of the first `pos` tokens of `other`, of the same model, if that [reaches](Self::reaches) so far and
    /// there is room. If not, no token is left.
    pub(crate) fn become_start_of(&mut self, other: &Self, pos: usize) {
        self.tokens.clear();
        if let Ok(true) = self.cache.copy_from(&other.cache, pos) {
            self.tokens.extend_from_slice(&other.tokens[..pos]);
        } else {
            self.cache.clear();
        }
    }
}

/// How many tokens two sequences have in common at their start.
pub(crate) fn common_start(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
