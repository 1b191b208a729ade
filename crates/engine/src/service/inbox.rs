//! Where callers and the engine thread meet: the queue, and what is asked of the thread between two steps.

use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{EventSink, Refusal, Request, RequestId};

/// A request on its way to a slot.
pub(super) struct Queued {
    pub id: RequestId,
    pub request: Request,
    pub sink: EventSink,
    pub arrived: Instant,
}

/// Why the engine thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Shutdown,
    Panic,
    /// A file of the model changed.
    Changed,
}

/// What the engine thread is to do before its next step.
pub(super) struct Orders {
    pub cancelled: Vec<RequestId>,
    /// When a shutdown ends what still runs.
    pub deadline: Option<Instant>,
}

pub(super) struct Inbox {
    state: Mutex<State>,
    /// The engine thread waits for work.
    work: Condvar,
    /// Callers wait for the engine thread.
    answered: Condvar,
    /// Most requests that are queued or in slots.
    max_open: usize,
    n_slot: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    /// Requests that are queued or in slots.
    open: HashSet<RequestId>,
    next_id: u64,
    cancelled: Vec<RequestId>,
    pings_asked: u64,
    pings_answered: u64,
    deadline: Option<Instant>,
    end: Option<End>,
}

impl Inbox {
    pub(super) fn new(n_slot: usize, max_queue: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            answered: Condvar::new(),
            max_open: n_slot.saturating_add(max_queue),
            n_slot,
        }
    }

    /// Nothing panics while it holds the lock, so the state is whole even where the lock says otherwise.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, request: Request, sink: EventSink) -> Result<RequestId, Refusal> {
        let mut state = self.lock();
        if state.end.is_some() {
            return Err(Refusal::Ended);
        }
        if state.deadline.is_some() {
            return Err(Refusal::ShuttingDown);
        }
        if state.open.len() >= self.max_open {
            return Err(Refusal::QueueFull { n_waiting: self.max_open - self.n_slot });
        }
        let id = RequestId(state.next_id);
        state.next_id += 1;
        state.open.insert(id);
        state.queue.push_back(Queued { id, request, sink, arrived: Instant::now() });
        self.work.notify_one();
        Ok(id)
    }

    pub(super) fn cancel(&self, id: RequestId) {
        let mut state = self.lock();
        if state.open.contains(&id) && !state.cancelled.contains(&id) {
            state.cancelled.push(id);
            self.work.notify_one();
        }
    }

    /// Whether the engine thread came by within `timeout`; or why it never will again.
    pub(super) fn ping(&self, timeout: Duration) -> Result<bool, End> {
        let mut state = self.lock();
        state.pings_asked += 1;
        let ping = state.pings_asked;
        self.work.notify_one();
        let is_pending = |state: &mut State| state.end.is_none() && state.pings_answered < ping;
        let waited = self.answered.wait_timeout_while(state, timeout, is_pending);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match state.end {
            _ if state.pings_answered >= ping => Ok(true),
            Some(end) => Err(end),
            None => Ok(false),
        }
    }

    /// Takes no more requests, and ends those that run at `deadline`, or at an earlier one that was set before.
    pub(super) fn shut_down(&self, deadline: Instant) {
        let mut state = self.lock();
        state.deadline = Some(state.deadline.map_or(deadline, |earlier| earlier.min(deadline)));
        self.work.notify_one();
    }

    /// Waits until the engine thread has ended, and tells why.
    pub(super) fn why_ended(&self) -> End {
        let mut state = self.lock();
        loop {
            if let Some(end) = state.end {
                return end;
            }
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the engine thread has ended. Returns whether it has.
    pub(super) fn wait_for_end(&self, deadline: Instant) -> bool {
        let timeout = deadline.saturating_duration_since(Instant::now());
        let waited = self.answered.wait_timeout_while(self.lock(), timeout, |state| state.end.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.end.is_some()
    }

    pub(super) fn n_waiting(&self) -> usize {
        self.lock().queue.len()
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.lock().deadline.is_some()
    }

    pub(super) fn end(&self) -> Option<End> {
        self.lock().end
    }

    /// Answers pings and hands over orders, on the engine thread. Where no slot works, it waits until there is any.
    pub(super) fn take_orders(&self, is_working: bool) -> Orders {
        let mut state = self.lock();
        if !is_working {
            let is_quiet = |state: &mut State| {
                state.queue.is_empty()
                    && state.cancelled.is_empty()
                    && state.pings_answered == state.pings_asked
                    && state.deadline.is_none()
            };
            state = self.work.wait_while(state, is_quiet).unwrap_or_else(PoisonError::into_inner);
        }
        if state.pings_answered < state.pings_asked {
            state.pings_answered = state.pings_asked;
            self.answered.notify_all();
        }
        Orders { cancelled: std::mem::take(&mut state.cancelled), deadline: state.deadline }
    }

    /// The request that has waited longest.
    pub(super) fn next(&self) -> Option<Queued> {
        self.lock().queue.pop_front()
    }

    /// Takes a request out of the queue, if it is there.
    pub(super) fn remove(&self, id: RequestId) -> Option<Queued> {
        let mut state = self.lock();
        let at = state.queue.iter().position(|queued| queued.id == id)?;
        state.queue.remove(at)
    }

    /// Makes room for another request: this one has ended.
    pub(super) fn close(&self, id: RequestId) {
        self.lock().open.remove(&id);
    }

    /// Tells everybody that the engine thread is about to end. Returns the requests that it leaves behind.
    pub(super) fn finish(&self, end: End) -> VecDeque<Queued> {
        let mut state = self.lock();
        state.end = Some(end);
        state.open.clear();
        self.answered.notify_all();
        std::mem::take(&mut state.queue)
    }
}
