//! The engine thread: takes requests into slots and runs them, step by step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use muser_model::LogitRows;
use muser_text::Tokenizer;

use super::answer::Answer;
use super::inbox::{End, Orders, Queued};
use super::pack::share;
use super::pool::Pool;
use super::prefix::PrefixCache;
use super::reuse::{Place, Source, place};
use super::slot::{Ending, Slot, Task, Work};
use super::{Event, Miss, Outcome, Pooling, Request, RequestId, Shared};
use crate::step::StepSpan;
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

/// What a slot adds to a step.
struct Piece {
    slot: usize,
    n_token: usize,
    selected: LogitRows,
    kind: Kind,
}

/// In the order in which pieces lie in a batch: those with logits first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Decode,
    Prefill,
    Embed,
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

    /// Works until a shutdown.
    pub(super) fn run(&mut self) {
        loop {
            let Orders { cancelled, deadline } = self.shared.inbox.take_orders(self.is_working());
            cancelled.into_iter().for_each(|id| self.cancel(id));
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return;
            }
            self.admit();
            if deadline.is_some() && !self.is_working() {
                return;
            }
            self.step();
            self.publish();
        }
    }

    /// Ends whatever is left, and with it the service.
    pub(super) fn finish(&mut self, end: End) {
        let queued = self.shared.inbox.finish(end);
        // A sink may be what panicked, and do so again.
        let guard = |last_words: &mut dyn FnMut()| {
            let _ = catch_unwind(AssertUnwindSafe(last_words));
        };
        for slot in 0..self.slots.len() {
            let ending = match end {
                End::Shutdown => Ending::Finished(Finish::Interrupted),
                End::Panic => Ending::Failed(Error::EnginePanicked),
            };
            let mut ending = Some(ending);
            guard(&mut || {
                if let Some(ending) = ending.take() {
                    self.end(slot, ending);
                }
            });
        }
        for queued in queued {
            let mut queued = Some(queued);
            guard(&mut || {
                if let Some(queued) = queued.take() {
                    self.end_queued(queued, end);
                }
            });
        }
        self.publish();
    }

    fn end_queued(&self, mut queued: Queued, end: End) {
        let outcome = match end {
            End::Shutdown => {
                let _ = queued.interrupt();
                Outcome::Interrupted
            }
            End::Panic => {
                let _ = (queued.sink)(Event::Failed(Error::EnginePanicked));
                Outcome::Failed
            }
        };
        self.shared.stats.outcome(outcome).add(1);
    }

    fn is_working(&self) -> bool {
        self.slots.iter().any(|slot| slot.task.is_some())
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(queued) = self.shared.inbox.remove(id) {
            let _ = queued.interrupt();
            self.shared.inbox.close(id);
            self.shared.stats.outcome(Outcome::Cancelled).add(1);
        } else if let Some(slot) = self.slots.iter().position(|slot| slot.is_working_on(id)) {
            self.end_as(slot, Ending::Finished(Finish::Interrupted), Some(Outcome::Cancelled));
        }
    }

    /// Gives waiting requests the slots that are free, in the order of their arrival.
    fn admit(&mut self) {
        while self.slots.iter().any(|slot| slot.task.is_none()) {
            let Some(queued) = self.shared.inbox.next() else { break };
            self.start(queued);
            self.publish();
        }
    }

    fn start(&mut self, queued: Queued) {
        let Queued { id, request: Request { prompt, work }, sink, arrived } = queued;
        let reuses = !matches!(work, super::Work::Embed(Pooling::Mean));
        let (n_embd, tokenizer) = (self.engine.model().spec().n_embd, &self.tokenizer);
        let work = match work {
            super::Work::Generate(options) => {
                Answer::new(options, &prompt, tokenizer).map(Box::new).map(Work::Generate)
            }
            super::Work::Embed(pooling) => Ok(Work::Embed(Pool::new(pooling, n_embd))),
        };
        let mut place = place(&self.slots, &self.prefixes, &prompt).expect("a slot is free");
        if !reuses {
            place = Place { n_reused: 0, copied_from: None, miss: Some(Miss::AllNeeded), ..place };
        }
        let mut task = match work {
            Ok(work) => Task::new(id, prompt, work, arrived, sink),
            Err(error) => return self.fail_at_start(id, sink, error),
        };
        self.prepare(&mut task, place);
        self.n_placed += 1;
        let slot = &mut self.slots[place.slot];
        slot.last_used = self.n_placed;
        let ending = task.tell_started(place.slot);
        slot.task = Some(task);
        if let Some(ending) = ending {
            self.end(place.slot, ending);
        }
    }

    fn fail_at_start(&mut self, id: RequestId, mut sink: super::EventSink, error: Error) {
        let _ = sink(Event::Failed(error));
        self.shared.inbox.close(id);
        self.shared.stats.outcome(Outcome::Failed).add(1);
    }

    /// Brings a slot's session to the start of the prompt that is reused. What it loses by that is kept, if there is room.
    fn prepare(&mut self, task: &mut Task, place: Place) {
        let Place { slot, n_reused, copied_from, miss } = place;
        let (spec, device) = (self.engine.model().spec(), self.engine.device());
        // Taken out, it can't be what makes room for what the slot held.
        let kept = match copied_from {
            Some(Source::Kept(at)) => Some(self.prefixes.take(at)),
            Some(Source::Slot(_)) | None => None,
        };
        let in_place = if copied_from.is_some() { 0 } else { n_reused };
        if self.slots[slot].session.tokens().len() - in_place >= super::reuse::LEAST_COPIED {
            self.prefixes.keep(&self.slots[slot].session, spec, device);
        }
        let copied = match (copied_from, &kept) {
            (Some(Source::Slot(from)), _) => {
                let [from, to] = self.slots.get_disjoint_mut([from, slot]).expect("a copy is made between two slots");
                to.session.copy_from(&from.session, n_reused)
            }
            (Some(Source::Kept(_)), Some(entry)) => self.slots[slot].session.copy_from(entry.session(), n_reused),
            _ => Ok(()),
        };
        let session = &mut self.slots[slot].session;
        if copied.is_err() {
            session.clear();
        }
        task.n_reused = session.keep(n_reused);
        if let Some(entry) = kept {
            self.prefixes.put(entry);
        }

        let stats = &self.shared.stats;
        stats.prefix_hits.add(u64::from(task.n_reused > 0));
        stats.prefix_hit_tokens.add(task.n_reused as u64);
        if copied_from.is_some() {
            stats.prefix_copied_tokens.add(task.n_reused as u64);
        }
        if let Some(miss) = miss {
            stats.miss(miss).add(1);
        }
    }

    /// Runs one batch, if any slot works, and tells what came of it.
    fn step(&mut self) {
        let pieces = self.pieces();
        if pieces.is_empty() {
            return;
        }
        let n_decoded = pieces.iter().filter(|piece| piece.kind == Kind::Decode).count();
        let n_token: usize = pieces.iter().map(|piece| piece.n_token).sum();
        let stepped = self.forward(&pieces).and_then(|_| self.deliver(&pieces));
        if let Err(error) = stepped {
            let error = Arc::new(error);
            for piece in &pieces {
                self.end(piece.slot, Ending::Failed(Error::Step(Arc::clone(&error))));
            }
            return;
        }
        let stats = &self.shared.stats;
        stats.steps.add(1);
        stats.batch_rows.add(n_token as f64);
        stats.decode_tokens.add(n_decoded as u64);
        stats.prefill_tokens.add((n_token - n_decoded) as u64);
    }

    /// What each slot adds to the next step.
    fn pieces(&self) -> Vec<Piece> {
        let working = || {
            let slots = self.slots.iter().enumerate();
            slots.filter_map(|(index, slot)| Some((index, slot.session.tokens().len(), slot.task.as_ref()?)))
        };
        let (mut decoding, mut prefilling) = (Vec::new(), Vec::new());
        for (slot, n_held, task) in working() {
            if n_held < task.prompt.len() {
                prefilling.push((slot, task.prompt.len() - n_held, task));
            } else {
                decoding.push(Piece { slot, n_token: 1, selected: LogitRows::Last, kind: Kind::Decode });
            }
        }
        prefilling.sort_by_key(|&(slot, ..)| self.slots[slot].last_used);
        let left: Vec<usize> = prefilling.iter().map(|&(_, left, _)| left).collect();
        let shares = share(self.engine.n_batch(), decoding.len(), &left);
        let mut pieces = decoding;
        for ((slot, left, task), n_token) in prefilling.into_iter().zip(shares) {
            let (kind, takes_all) = match &task.work {
                Work::Generate(_) => (Kind::Prefill, false),
                Work::Embed(pool) => (Kind::Embed, pool.pooling() == Pooling::Mean),
            };
            let selected = match (takes_all, n_token == left) {
                (true, _) => LogitRows::From(0),
                (false, true) => LogitRows::Last,
                (false, false) => LogitRows::None,
            };
            pieces.push(Piece { slot, n_token, selected, kind });
        }
        pieces.retain(|piece| piece.n_token > 0);
        pieces.sort_by_key(|piece| piece.kind);
        pieces
    }

    fn forward(&mut self, pieces: &[Piece]) -> Result<usize, Error> {
        let mut slots: Vec<Option<&mut Slot>> = self.slots.iter_mut().map(Some).collect();
        let mut spans = Vec::with_capacity(pieces.len());
        for &Piece { slot, n_token, selected, .. } in pieces {
            let Some(Slot { session, task: Some(task), .. }) = slots[slot].take() else { continue };
            let tokens = &task.pending(session.tokens().len())[..n_token];
            spans.push(StepSpan { session, tokens, selected });
        }
        self.engine.step(&mut spans)
    }

    /// Hands the outputs of a step to the requests, and ends those that are done.
    fn deliver(&mut self, pieces: &[Piece]) -> Result<(), Error> {
        let Self { engine, slots, raw, shared, prefixes, window, .. } = self;
        let mut endings: Vec<(usize, Option<Ending>)> = pieces.iter().map(|piece| (piece.slot, None)).collect();
        for (piece, (_, ending)) in pieces.iter().zip(&mut endings) {
            let Slot { session, task: Some(task), .. } = &mut slots[piece.slot] else { continue };
            if piece.kind != Kind::Decode {
                *ending = task.tell_prefill(session.tokens().len());
            }
        }

        let with_logits: Vec<usize> = (0..pieces.len())
            .filter(|&index| pieces[index].kind != Kind::Embed && pieces[index].selected == LogitRows::Last)
            .collect();
        engine.step_logits(0..with_logits.len(), &mut |row, logits| {
            let index = with_logits[row];
            let Slot { session, task: Some(task), .. } = &mut slots[pieces[index].slot] else { return };
            let ending = &mut endings[index].1;
            if ending.is_none() {
                *ending = task.take_logits(session, logits, raw, &shared.stats);
            }
        })?;

        let mut row = with_logits.len();
        for (piece, (_, ending)) in pieces.iter().zip(&mut endings).filter(|(piece, _)| piece.kind == Kind::Embed) {
            let Slot { session, task: Some(task), .. } = &mut slots[piece.slot] else { continue };
            let Work::Embed(pool) = &mut task.work else { continue };
            let n_row = match piece.selected {
                LogitRows::None => 0,
                LogitRows::Last => 1,
                LogitRows::From(first) => piece.n_token - first,
            };
            if n_row > 0 && ending.is_none() {
                let pos = session.tokens().len() - n_row;
                let added = engine.step_hidden(row..row + n_row).and_then(|states| pool.add(states, pos));
                *ending = match added {
                    Err(error) => Some(Ending::Failed(error)),
                    Ok(()) if pos + n_row == task.prompt.len() => Some(Ending::Finished(Finish::Stop)),
                    Ok(()) => None,
                };
            }
            row += n_row;
        }

        if let Some(window) = *window {
            let (spec, device) = (engine.model().spec(), engine.device());
            for piece in pieces.iter().filter(|piece| piece.kind == Kind::Prefill) {
                let slot = &slots[piece.slot];
                if slot.answer_leaves(window) {
                    prefixes.keep(&slot.session, spec, device);
                }
            }
        }
        for (slot, ending) in endings {
            if let Some(ending) = ending {
                self.end(slot, ending);
            }
        }
        Ok(())
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
        let ended = task.end(ending);
        self.shared.stats.outcome(outcome.unwrap_or(ended)).add(1);
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
