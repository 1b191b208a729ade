//! What of a prompt has been computed before, and where it can be had.

use super::prefix::PrefixCache;
use super::slot::Slot;
use super::stats::Miss;
use crate::Session;
use crate::session::common_start;

/// Fewer tokens than this are computed sooner than found, copied and kept, and nearly every prompt of a chat has its first
/// few in common with any other.
pub(super) const LEAST_COPIED: usize = 16;

/// Where a start of a prompt can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The session of a slot, whether it works or not.
    Slot(usize),
    /// An entry of the prefix cache.
    Kept(usize),
}

/// Where a prompt goes, and what it finds there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub slot: usize,
    /// Tokens that need not be processed.
    pub n_reused: usize,
    /// Where they are copied from; `None` when they are in the slot.
    pub copied_from: Option<Source>,
    /// Why not more.
    pub miss: Option<Miss>,
    /// Where the prompt parts from a sequence whose window has moved on. Others may part there, too.
    pub branch: Option<usize>,
}

/// Looks for the longest start of a prompt that can be reused, token by token, and chooses a slot that is idle. `None` if
/// none is. Unless it `may_reuse`, all of the prompt has to be processed.
pub(super) fn place(slots: &[Slot], cache: &PrefixCache, prompt: &[u32], may_reuse: bool) -> Option<Place> {
    let why = if may_reuse { Miss::NoCommonPrefix } else { Miss::AllNeeded };
    let mut search = Search { prompt, best: 0, source: None, longest: 0, why };
    let mut in_slots = vec![0; slots.len()];
    if may_reuse {
        for (index, slot) in slots.iter().enumerate() {
            in_slots[index] = search.look(&slot.session, Source::Slot(index));
        }
        for (index, entry) in cache.entries().iter().enumerate() {
            search.look(entry.session(), Source::Kept(index));
        }
        cache.dropped().for_each(|tokens| search.look_at_dropped(tokens));
    }
    let Search { best, source, longest, why, .. } = search;
    let miss = (longest > best || best == 0).then_some(why);
    let branch = (miss == Some(Miss::WindowLeft)).then_some(longest);

    let idle = || slots.iter().enumerate().filter(|(_, slot)| slot.task.is_none());
    let loss = |slot: &Slot| slot.session.tokens().len() - best;
    let unused = idle().find(|(_, slot)| slot.session.tokens().is_empty());
    let own = idle().filter(|(index, _)| best > 0 && in_slots[*index] == best).min_by_key(|(_, slot)| loss(slot));
    let place = |slot, copied_from| Place { slot, n_reused: best, copied_from, miss, branch };
    match (own, unused) {
        // A slot that has nothing to lose is better than one that would lose what may be asked for again.
        (Some((_, slot)), Some((unused, _))) if loss(slot) >= LEAST_COPIED => Some(place(unused, source)),
        (Some((own, _)), _) => Some(place(own, None)),
        (None, Some((unused, _))) => Some(place(unused, source)),
        (None, None) => {
            let (oldest, _) = idle().min_by_key(|(_, slot)| slot.last_used)?;
            Some(place(oldest, source))
        }
    }
}

/// The slot that holds most of the prompt that slot `to` is at, and how much, if that is worth a copy. One that is still on
/// the way to where the two part is not looked at.
pub(super) fn neighbour(slots: &[Slot], to: usize) -> Option<(usize, usize)> {
    let Slot { session, task: Some(task), .. } = &slots[to] else { return None };
    let n_held = session.tokens().len();
    if n_held >= task.prompt.len() || task.needs_all() {
        return None;
    }
    let common = |(index, Slot { session, task: from, .. }): (usize, &Slot)| {
        let held = session.tokens();
        let ahead = from.as_ref().map_or(held, |from| if held.len() < from.prompt.len() { &from.prompt } else { held });
        let common = common_to_reuse(ahead, &task.prompt);
        let is_there = common >= n_held + LEAST_COPIED && common <= held.len() && session.reaches(common);
        (index != to && is_there).then_some((index, common))
    };
    slots.iter().enumerate().filter_map(common).max_by_key(|&(_, common)| common)
}

/// Tokens that a sequence begins with as a prompt does. The prompt's last one is always processed, for its logits.
pub(super) fn common_to_reuse(tokens: &[u32], prompt: &[u32]) -> usize {
    common_start(tokens, prompt).min(prompt.len() - 1)
}

struct Search<'a> {
    prompt: &'a [u32],
    /// Most tokens that can be reused, and where.
    best: usize,
    source: Option<Source>,
    /// Most tokens in common with a sequence of which they can't be reused, and why not.
    longest: usize,
    why: Miss,
}

impl Search<'_> {
    /// Returns how many tokens of the prompt can be reused from a session.
    fn look(&mut self, session: &Session, source: Source) -> usize {
        let common = common_to_reuse(session.tokens(), self.prompt);
        if common == 0 {
            return 0;
        }
        if !self.is_worth(common) && common < session.tokens().len() {
            self.lose(common, Miss::TooShort);
            return 0;
        }
        if !session.reaches(common) {
            self.lose(common, Miss::WindowLeft);
            return 0;
        }
        if common > self.best {
            (self.best, self.source) = (common, Some(source));
        }
        common
    }

    fn look_at_dropped(&mut self, tokens: &[u32]) {
        let common = common_to_reuse(tokens, self.prompt);
        if common > 0 {
            self.lose(common, if self.is_worth(common) { Miss::Budget } else { Miss::TooShort });
        }
    }

    fn lose(&mut self, common: usize, why: Miss) {
        if common > self.longest {
            (self.longest, self.why) = (common, why);
        }
    }

    /// Whether it is long enough, or all that can be reused.
    fn is_worth(&self, common: usize) -> bool {
        common >= LEAST_COPIED || common + 1 == self.prompt.len()
    }
}
