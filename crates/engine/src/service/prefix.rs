//! Ended sessions, kept for what later prompts have in common with them.

use std::collections::VecDeque;

use muser_memory::{Device, KvPlane};
use muser_model::{KvCache, ModelSpec};

use super::reuse::LEAST_COPIED;
use super::status::PrefixCacheStatus;
use crate::Session;

/// Most dropped sequences that are remembered, to tell a miss by the budget from others. They have what is left of it.
const MOST_DROPPED: usize = 64;

/// Copies of sessions within a budget. The one that was not used for longest goes first.
pub(super) struct PrefixCache {
    /// The least recently used first.
    entries: Vec<Entry>,
    /// Bytes that they take.
    size_bytes: u64,
    /// Most bytes of entries and dropped sequences together.
    budget_bytes: u64,
    /// Tokens of sequences that had no room, the oldest first.
    dropped: VecDeque<Vec<u32>>,
    /// Bytes that they take.
    dropped_bytes: u64,
}

/// A session as long as what it holds.
pub(super) struct Entry {
    session: Session,
    size_bytes: u64,
}

impl Entry {
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    fn new(session: &Session, spec: &ModelSpec, device: &Device) -> Option<Self> {
        let n_held = session.tokens().len();
        let mut copy = Session::new(spec, device, n_held).ok()?;
        copy.become_start_of(session, n_held);
        let size_bytes = copy.cache.size_bytes() + bookkeeping_bytes(spec, n_held);
        (copy.tokens().len() == n_held).then_some(Self { session: copy, size_bytes })
    }
}

/// Bytes that a kept session of `n_token` tokens takes beside its keys and values: its tokens, and what says where the planes
/// are. Vectors that grow by doubling have room for twice of what they hold.
fn bookkeeping_bytes(spec: &ModelSpec, n_token: usize) -> u64 {
    let of_layer = 2 * size_of::<KvPlane>() + size_of::<Option<usize>>();
    let of_layers: usize = spec.layers.iter().map(|layer| of_layer + layer.head_dim * size_of::<u16>()).sum();
    (2 * size_of::<Entry>() + of_layers + n_token * size_of::<u32>()) as u64
}

/// Bytes that a remembered sequence takes.
fn dropped_bytes(tokens: &[u32]) -> u64 {
    (2 * size_of::<Vec<u32>>() + size_of_val(tokens)) as u64
}

/// Whether every place that one session can be gone on from, the other can, too.
fn is_covered(one: &Session, other: &Session) -> bool {
    other.tokens().starts_with(one.tokens()) && other.cache.reach() <= one.cache.reach()
}

impl PrefixCache {
    pub(super) fn new(budget_bytes: u64) -> Self {
        Self { entries: Vec::new(), size_bytes: 0, budget_bytes, dropped: VecDeque::new(), dropped_bytes: 0 }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn dropped(&self) -> impl Iterator<Item = &[u32]> {
        self.dropped.iter().map(Vec::as_slice)
    }

    pub(super) fn status(&self) -> PrefixCacheStatus {
        PrefixCacheStatus {
            n_entries: self.entries.len(),
            n_tokens: self.entries.iter().map(|entry| entry.session.tokens().len()).sum(),
            size_bytes: self.size_bytes + self.dropped_bytes,
            budget_bytes: self.budget_bytes,
        }
    }

    /// Keeps a copy of what a session holds, if it is long enough to be of use and the budget has room for it.
    pub(super) fn keep(&mut self, session: &Session, spec: &ModelSpec, device: &Device) {
        let n_held = session.tokens().len();
        if n_held < LEAST_COPIED || !session.reaches(n_held) {
            return;
        }
        if let Some(at) = self.entries.iter().position(|entry| is_covered(session, &entry.session)) {
            let entry = self.lend(at);
            self.give_back(entry);
            return;
        }
        while let Some(at) = self.entries.iter().position(|entry| is_covered(&entry.session, session)) {
            self.remove(at);
        }
        let has_room = KvCache::planned_bytes(spec, n_held)
            .is_ok_and(|size_bytes| self.make_room(size_bytes.saturating_add(bookkeeping_bytes(spec, n_held))));
        match has_room.then(|| Entry::new(session, spec, device)).flatten() {
            Some(entry) => {
                self.size_bytes += entry.size_bytes;
                self.entries.push(entry);
            }
            None => self.remember_dropped(session),
        }
    }

    /// Takes an entry out, to be [given back](Self::give_back). Its bytes count as before.
    pub(super) fn lend(&mut self, at: usize) -> Entry {
        self.entries.remove(at)
    }

    /// Puts a lent entry back, as the one that was used last.
    pub(super) fn give_back(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Drops entries until there is room for so many bytes. Returns whether there is.
    fn make_room(&mut self, size_bytes: u64) -> bool {
        while self.size_bytes.saturating_add(size_bytes) > self.budget_bytes {
            if self.entries.is_empty() || size_bytes > self.budget_bytes {
                return false;
            }
            let oldest = self.remove(0);
            self.remember_dropped(&oldest.session);
        }
        self.forget_dropped(size_bytes);
        true
    }

    fn remove(&mut self, at: usize) -> Entry {
        let entry = self.entries.remove(at);
        self.size_bytes -= entry.size_bytes;
        entry
    }

    fn remember_dropped(&mut self, session: &Session) {
        let tokens = session.tokens().to_vec();
        self.dropped_bytes += dropped_bytes(&tokens);
        self.dropped.push_back(tokens);
        self.forget_dropped(0);
    }

    /// Forgets dropped sequences until there are few enough, and room for so many bytes beside the entries.
    fn forget_dropped(&mut self, more_bytes: u64) {
        let left_bytes = self.budget_bytes.saturating_sub(self.size_bytes).saturating_sub(more_bytes);
        while self.dropped.len() > MOST_DROPPED || self.dropped_bytes > left_bytes {
            let Some(oldest) = self.dropped.pop_front() else { break };
            self.dropped_bytes -= dropped_bytes(&oldest);
        }
    }
}
