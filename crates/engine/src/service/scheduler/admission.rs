//! From the queue into a slot, with what is there already of the prompt.

use super::Scheduler;
use crate::service::answer::Answer;
use crate::service::inbox::Queued;
use crate::service::pool::Pool;
use crate::service::reuse::{LEAST_COPIED, Place, Source, neighbour, place};
use crate::service::slot::{self, Task};
use crate::service::{Request, Work};

impl Scheduler {
    /// Gives waiting requests the slots that are free, in the order of their arrival.
    pub(super) fn admit(&mut self) {
        while self.slots.iter().any(|slot| slot.task.is_none()) {
            let Some(queued) = self.shared.inbox.next() else { break };
            self.start(queued);
        }
    }

    fn start(&mut self, queued: Queued) {
        let Queued { id, request: Request { prompt, work }, sink, arrived } = queued;
        let work = match work {
            Work::Generate(options) => match Answer::new(options, &prompt, &self.tokenizer) {
                Ok(answer) => slot::Work::Generate(Box::new(answer)),
                Err(error) => return self.fail(id, sink, error),
            },
            Work::Embed(pooling) => slot::Work::Embed(Pool::new(pooling, self.engine.model().spec().n_embd)),
        };
        let mut task = Task::new(id, prompt, work, arrived, sink);
        let Some(place) = place(&self.slots, &self.prefixes, &task.prompt, !task.needs_all()) else {
            unreachable!("a request is taken out of the queue only for a slot that is free")
        };
        task.n_reused = self.prepare(place);
        task.branch = place.branch;
        self.n_placed += 1;
        let ending = task.tell_started(place.slot);
        let slot = &mut self.slots[place.slot];
        (slot.task, slot.last_used) = (Some(task), self.n_placed);
        if let Some(ending) = ending {
            self.end(place.slot, ending);
        }
    }

    /// Brings a slot's session to the start of a prompt that is reused, and returns its length. What the session loses by
    /// that is kept, if there is room.
    fn prepare(&mut self, place: Place) -> usize {
        let Place { slot, n_reused, copied_from, miss, .. } = place;
        // Lent, it can't be what makes room for what the slot held.
        let kept = match copied_from {
            Some(Source::Kept(at)) => Some(self.prefixes.lend(at)),
            Some(Source::Slot(_)) | None => None,
        };
        let n_left = if copied_from.is_some() { 0 } else { n_reused };
        let session = &self.slots[slot].session;
        if session.tokens().len() - n_left >= LEAST_COPIED {
            self.prefixes.keep(session, self.engine.model().spec(), self.engine.device());
        }
        match (copied_from, &kept) {
            (Some(Source::Slot(from)), _) => self.copy_between(from, slot, n_reused),
            (_, Some(entry)) => self.slots[slot].session.become_start_of(entry.session(), n_reused),
            (_, None) => {}
        }
        let n_reused = self.slots[slot].session.keep(n_reused);
        if let Some(entry) = kept {
            self.prefixes.give_back(entry);
        }

        let stats = &self.shared.stats;
        stats.prefix_hits.add(u64::from(n_reused > 0));
        stats.prefix_hit_tokens.add(n_reused as u64);
        if copied_from.is_some() {
            stats.prefix_copied_tokens.add(n_reused as u64);
        }
        if let Some(miss) = miss {
            stats.miss(miss).add(1);
        }
        n_reused
    }

    /// Gives prompts the starts that other slots have processed since they were admitted.
    pub(super) fn share_progress(&mut self) {
        for to in 0..self.slots.len() {
            let Some((from, n_common)) = neighbour(&self.slots, to) else { continue };
            let n_held = self.slots[to].session.tokens().len();
            self.copy_between(from, to, n_common);
            let n_copied = self.slots[to].session.tokens().len().saturating_sub(n_held);
            if let Some(task) = &mut self.slots[to].task {
                self.shared.stats.prefix_hits.add(u64::from(task.n_reused == 0));
                task.n_reused += n_copied;
            }
            self.shared.stats.prefix_hit_tokens.add(n_copied as u64);
            self.shared.stats.prefix_copied_tokens.add(n_copied as u64);
        }
    }

    fn copy_between(&mut self, from: usize, to: usize, n_token: usize) {
        let Ok([from, to]) = self.slots.get_disjoint_mut([from, to]) else {
            unreachable!("a slot has nothing to copy from itself")
        };
        to.session.become_start_of(&from.session, n_token);
    }
}
