//! The engine thread: takes requests into slots and runs them, step by step.

mod admission;
mod batch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use muser_text::Tokenizer;

use super::inbox::{End, Orders, Queued};
use super::prefix::PrefixCache;
use super::slot::{Ending, Slot};
use super::{Event, EventSink, Outcome, RequestId, Shared};
use crate::{Engine, Error, Finish};

pub(super) struct Scheduler {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    slots: Vec<Slot>,
    prefixes: PrefixCache,
    shared: Arc<Shared>,
    /// Requests that were given a slot so far.
    n_placed: u64,
    /// Room for a copy of a row of logits.
    raw: Vec<f32>, // (n_vocab)
    /// Rows of the narrowest sliding window, if there is one.
    window: Option<usize>,
}

/// Sessions for slots.
pub(super) fn slots(engine: &Engine, n_slot: usize) -> Result<Vec<Slot>, Error> {
    (0..n_slot).map(|_| Ok(Slot { session: engine.session()?, task: None, last_used: 0 })).collect()
}

impl Scheduler {
    pub(super) fn new(
        engine: Engine,
        tokenizer: Arc<Tokenizer>,
        slots: Vec<Slot>,
        prefix_cache_bytes: u64,
        shared: Arc<Shared>,
    ) -> Self {
        let window = engine.model().spec().layers.iter().filter_map(|layer| layer.window).min();
        let prefixes = PrefixCache::new(prefix_cache_bytes);
        Self { engine, tokenizer, slots, prefixes, shared, n_placed: 0, raw: Vec::new(), window }
    }

    /// Works until a shutdown, or until a file of the model has changed.
    pub(super) fn run(&mut self) -> End {
        loop {
            let Orders { cancelled, deadline } = self.shared.inbox.take_orders(self.is_working());
            cancelled.into_iter().for_each(|id| self.cancel(id));
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return End::Shutdown;
            }
            self.admit();
            if deadline.is_some() && !self.is_working() {
                return End::Shutdown;
            }
            self.publish();
            self.step();
            self.publish();
            if self.shared.changed.get().is_some() {
                return End::Changed;
            }
        }
    }

    /// Ends whatever is left, and with it the service.
    pub(super) fn finish(&mut self, end: End) {
        let queued = self.shared.inbox.finish(end);
        // A sink may be what panicked, and may do so again.
        for slot in 0..self.slots.len() {
            let ending = match end {
                End::Shutdown => Ending::Finished(Finish::Interrupted),
                End::Panic | End::Changed => Ending::Failed(end.into()),
            };
            let _ = catch_unwind(AssertUnwindSafe(|| self.end(slot, ending)));
        }
        for queued in queued {
            let _ = catch_unwind(AssertUnwindSafe(|| match end {
                End::Shutdown => self.interrupt(queued, Outcome::Interrupted),
                End::Panic | End::Changed => self.fail(queued.id, queued.sink, end.into()),
            }));
        }
        self.publish();
    }

    fn is_working(&self) -> bool {
        self.slots.iter().any(|slot| slot.task.is_some())
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(queued) = self.shared.inbox.remove(id) {
            self.interrupt(queued, Outcome::Cancelled);
        } else if let Some(slot) = self.slots.iter().position(|slot| slot.is_working_on(id)) {
            self.end_as(slot, Ending::Finished(Finish::Interrupted), Some(Outcome::Cancelled));
        }
    }

    /// Ends a request that never had a slot.
    fn interrupt(&self, queued: Queued, outcome: Outcome) {
        self.shared.inbox.close(queued.id);
        self.shared.stats.outcome(outcome).add(1);
        queued.tell_interrupted();
    }

    /// Ends a request that has no slot.
    fn fail(&self, id: RequestId, mut sink: EventSink, error: Error) {
        self.shared.inbox.close(id);
        self.shared.stats.outcome(Outcome::Failed).add(1);
        let _ = sink(Event::Failed(error));
    }

    fn end(&mut self, slot: usize, ending: Ending) {
        self.end_as(slot, ending, None);
    }

    /// Frees a slot, tells its request the end, and counts it as `outcome` or else as what it is.
    fn end_as(&mut self, slot: usize, ending: Ending, outcome: Option<Outcome>) {
        let slot = &mut self.slots[slot];
        let Some(task) = slot.task.take() else { return };
        if matches!(ending, Ending::Failed(_)) {
            // Whatever failed, nothing goes on from it.
            slot.session.clear();
        }
        self.shared.inbox.close(task.id);
        task.end(ending, outcome, &self.shared.stats);
    }

    /// Puts up what the slots do, for everybody to see.
    pub(super) fn publish(&self) {
        let Shared { inbox, stats, board, .. } = &*self.shared;
        let prefix_cache = self.prefixes.status();
        let used_bytes = self.slots.iter().map(|slot| slot.session.cache.held_bytes()).sum();
        let mut board = board.lock().unwrap_or_else(PoisonError::into_inner);
        board.slots.clear();
        board.slots.extend(self.slots.iter().map(Slot::status));
        (board.prefix_cache, board.kv_used_bytes) = (prefix_cache, used_bytes);
        stats.queue_depth.set(inbox.n_waiting() as u64);
        stats.prefix_cache_bytes.set(prefix_cache.size_bytes);
        stats.prefix_cache_entries.set(prefix_cache.n_entries as u64);
        stats.kv_used_bytes.set(used_bytes);
        stats.kv_planned_bytes.set(board.kv_planned_bytes);
    }
}
