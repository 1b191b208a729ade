//! One step: a batch over what each slot has to process, and what comes of it.

use std::sync::Arc;

use muser_memory::Error as MemoryError;
use muser_model::LogitRows;

use super::Scheduler;
use crate::service::Pooling;
use crate::service::pack::{Prompt, share, turns};
use crate::service::slot::{Ending, Slot, Task, Work};
use crate::step::StepSpan;
use crate::{Error, Finish};

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

impl Piece {
    fn n_selected(&self) -> usize {
        match self.selected {
            LogitRows::None => 0,
            LogitRows::Last => 1,
            LogitRows::From(first) => self.n_token - first,
        }
    }
}

impl Scheduler {
    /// Runs one batch, if any slot works, and tells what came of it.
    pub(super) fn step(&mut self) {
        self.share_progress();
        let pieces = self.pieces();
        if pieces.is_empty() {
            return;
        }
        let mut endings = pieces.iter().map(|_| None).collect::<Vec<_>>();
        let stepped = self.forward(&pieces).and_then(|()| self.deliver(&pieces, &mut endings));
        if let Err(error) = stepped {
            let error = Arc::new(error);
            if matches!(*error, Error::Memory(MemoryError::FileChanged { .. })) {
                // Where the file lies is nobody's business but of who runs the service.
                endings.fill_with(|| Some(Ending::Failed(Error::ModelChanged)));
                self.shared.changed.get_or_init(|| error);
            } else {
                endings.fill_with(|| Some(Ending::Failed(Error::Step(Arc::clone(&error)))));
            }
        } else {
            self.count(&pieces);
            self.keep_prompts(&pieces);
        }
        for (piece, ending) in pieces.iter().zip(endings) {
            if let Some(ending) = ending {
                self.end(piece.slot, ending);
            }
        }
    }

    /// What each slot adds to the next step.
    fn pieces(&self) -> Vec<Piece> {
        let working =
            self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot, slot.task.as_ref()?)));
        let (mut prefilling, decoding): (Vec<_>, Vec<_>) =
            working.partition(|(_, slot, task)| slot.session.tokens().len() < task.prompt.len());
        prefilling.sort_by_key(|(_, slot, _)| slot.last_used);
        let prompts = prefilling.iter().map(|&(_, slot, task)| Prompt {
            tokens: &task.prompt,
            n_held: slot.session.tokens().len(),
            needs_all: task.needs_all(),
            branch: task.branch,
        });
        let prompts: Vec<Prompt<'_>> = prompts.collect();
        let shares = share(self.engine.n_batch(), decoding.len(), &turns(&prompts));

        let decode = |(slot, ..): (usize, &Slot, &Task)| Piece {
            slot,
            n_token: 1,
            selected: LogitRows::Last,
            kind: Kind::Decode,
        };
        let prefill = |((slot, Slot { session, .. }, task), n_token): ((usize, &Slot, &Task), usize)| {
            let is_last = session.tokens().len() + n_token == task.prompt.len();
            let last = if is_last { LogitRows::Last } else { LogitRows::None };
            let (kind, selected) = match &task.work {
                Work::Generate(_) => (Kind::Prefill, last),
                Work::Embed(pool) if pool.pooling() == Pooling::Mean => (Kind::Embed, LogitRows::From(0)),
                Work::Embed(_) => (Kind::Embed, last),
            };
            Piece { slot, n_token, selected, kind }
        };
        let prefilling = prefilling.into_iter().zip(shares).map(prefill).filter(|piece| piece.n_token > 0);
        let mut pieces: Vec<Piece> = decoding.into_iter().map(decode).chain(prefilling).collect();
        pieces.sort_by_key(|piece| piece.kind);
        pieces
    }

    fn forward(&mut self, pieces: &[Piece]) -> Result<(), Error> {
        let mut slots: Vec<Option<&mut Slot>> = self.slots.iter_mut().map(Some).collect();
        let mut spans = Vec::with_capacity(pieces.len());
        for &Piece { slot, n_token, selected, .. } in pieces {
            if let Some(Slot { session, task: Some(task), .. }) = slots[slot].take() {
                let tokens = &task.pending(session.tokens().len())[..n_token];
                spans.push(StepSpan { session, tokens, selected });
            }
        }
        self.engine.step(&mut spans).map(|_| ())
    }

    /// Hands the outputs of a step to the requests, and notes which are done.
    fn deliver(&mut self, pieces: &[Piece], endings: &mut [Option<Ending>]) -> Result<(), Error> {
        let Self { engine, slots, raw, shared, .. } = self;
        for (piece, ending) in pieces.iter().zip(&mut *endings).filter(|(piece, _)| piece.kind != Kind::Decode) {
            if let Slot { session, task: Some(task), .. } = &mut slots[piece.slot] {
                *ending = task.tell_prefill(session.tokens().len());
            }
        }

        let has_logits = |piece: &Piece| piece.kind != Kind::Embed && piece.n_selected() > 0;
        let with_logits: Vec<usize> = (0..pieces.len()).filter(|&index| has_logits(&pieces[index])).collect();
        engine.step_logits(0..with_logits.len(), &mut |row, logits| {
            let index = with_logits[row];
            if let (Slot { session, task: Some(task), .. }, ending @ None) =
                (&mut slots[pieces[index].slot], &mut endings[index])
            {
                *ending = task.take_logits(session, logits, raw, &shared.stats);
            }
        })?;

        let mut row = with_logits.len();
        for (piece, ending) in pieces.iter().zip(endings).filter(|(piece, _)| piece.kind == Kind::Embed) {
            let rows = row..row + piece.n_selected();
            row = rows.end;
            if let (Slot { session, task: Some(task), .. }, None) = (&mut slots[piece.slot], &ending)
                && !rows.is_empty()
            {
                let pos = session.tokens().len() - rows.len();
                *ending = match engine.step_hidden(rows).and_then(|states| task.take_states(states, pos)) {
                    Err(error) => Some(Ending::Failed(error)),
                    Ok(()) if session.tokens().len() == task.prompt.len() => Some(Ending::Finished(Finish::Stop)),
                    Ok(()) => None,
                };
            }
        }
        Ok(())
    }

    fn count(&self, pieces: &[Piece]) {
        let n_decoded = pieces.iter().filter(|piece| piece.kind == Kind::Decode).count();
        let n_token: usize = pieces.iter().map(|piece| piece.n_token).sum();
        let stats = &self.shared.stats;
        stats.steps.add(1);
        stats.batch_rows.add(n_token as f64);
        stats.decode_tokens.add(n_decoded as u64);
        stats.prefill_tokens.add((n_token - n_decoded) as u64);
    }

    /// Keeps copies of sessions at places that others start from, where a window will move on: at the end of their prompt,
    /// and where others parted from it before.
    fn keep_prompts(&mut self, pieces: &[Piece]) {
        let Some(window) = self.window else { return };
        let (spec, device) = (self.engine.model().spec(), self.engine.device());
        for piece in pieces.iter().filter(|piece| piece.kind == Kind::Prefill) {
            let slot = &self.slots[piece.slot];
            if slot.answer_leaves(window) || slot.is_at_branch() {
                self.prefixes.keep(&slot.session, spec, device);
            }
        }
    }
}
