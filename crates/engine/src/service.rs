//! Many requests at once over one engine, on a thread of its own.
//!
//! ```text
//! submit ──► queue ──► slot ──► step ──► events
//!             (bounded)  │        ▲
//!                        └────────┘  one batch: a token of each answer, the rest filled with prompts
//! ```
//!
//! A [`Service`] owns the engine and one [session](crate::Session) for each slot. Each step is one batch over the tokens of
//! several slots: one row for each answer in the making, and pieces of prompts. A request's tokens and log-probabilities are
//! the same bits alone, beside others, cold or with a prefix that was computed before.
//!
//! **Prefixes.** A prompt goes on from the longest start that it has in common, token by token, with what a slot holds or
//! what is kept of an ended session; rows are copied between slots and never shared. The last token is always processed. A
//! sliding window's rows are reused only where it still holds all that the next token sees, in every layer; for models with
//! such windows, a copy of the session is kept where the prompt ends, so that another answer to the same prompt can start
//! there. Why tokens were processed again is counted ([`Miss`]).
//!
//! **Rows that were left.** Planes zero the rows of forgotten tokens, which makes a slot that was used bit for bit a new
//! one; a poison of NaN in their place would reach results through kernels that multiply masked rows by zero.
//!
//! **Full contexts.** An answer that fills its context ends with [`Finish::ContextFull`](crate::Finish::ContextFull); nothing
//! is shifted out.
//!
//! **Failures.** What fails a step ends the requests that took part in it, with [`Event::Failed`]. A panic on the engine thread
//! ends all requests; from then on [`Service::ping`] fails and [`Service::submit`] refuses.

mod answer;
mod event;
mod inbox;
mod pack;
mod pool;
mod prefix;
mod request;
mod reuse;
mod scheduler;
mod slot;
mod stats;
mod status;
mod stop;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muser_text::Tokenizer;

pub use event::{Event, EventSink, Summary, TokenLogprobs};
pub use request::{Constraint, ConstraintError, GenerateOptions, Pooling, Refusal, Request, RequestId, Work};
pub use stats::{
    BATCH_ROWS_BOUNDS, BETWEEN_TOKENS_BOUNDS, Counter, FIRST_TOKEN_BOUNDS, Gauge, Histogram, HistogramSnapshot, Miss,
    Outcome, Stats,
};
pub use status::{PrefixCacheStatus, SlotState, SlotStatus, Status};

use crate::{Engine, Error};
use inbox::{End, Inbox};
use request::Limits;
use scheduler::Scheduler;

/// How long after its deadline a [shutdown](Service::shutdown) waits for a step that is under way.
const STEP_GRACE: Duration = Duration::from_secs(10);

/// How a service is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceOptions {
    /// Requests that are worked on at once, each with a session of the engine's context. At least one, and no more than
    /// the engine's batch has rows; the engine is [made](Engine::for_slots) for as many.
    pub n_slot: usize,
    /// Requests that may wait for a slot.
    pub max_queue: usize,
    /// Most bytes of ended sessions that are kept for their prefixes.
    pub prefix_cache_bytes: u64,
}

/// A running service. Clones are handles to the same one; when the last is dropped, it ends as at a
/// [shutdown](Self::shutdown) whose deadline is now, and nobody waits for that.
#[derive(Clone)]
pub struct Service {
    handle: Arc<Handle>,
}

/// Held by all clones, and not by the engine thread.
struct Handle {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The last handle may be dropped by a sink, on the engine thread, which can't wait for itself.
        self.shared.inbox.shut_down(Instant::now());
    }
}

/// What callers and the engine thread share.
struct Shared {
    inbox: Inbox,
    stats: Stats,
    limits: Limits,
    board: Mutex<Status>,
    /// What a step said of a file of the model that changed, which ended the engine thread.
    changed: OnceLock<Arc<Error>>,
}

impl From<End> for Error {
    fn from(end: End) -> Self {
        match end {
            End::Shutdown => Self::ServiceEnded,
            End::Panic => Self::EnginePanicked,
            End::Changed => Self::ModelChanged,
        }
    }
}

impl Service {
    /// Makes a session for each slot, and moves the engine to a thread of its own. The memory was planned when the model was
    /// [loaded](crate::load), with as many slots and the prefix cache's budget.
    ///
    /// # Errors
    /// When there is no slot or more than rows in a batch, or the memory or the thread can't be had.
    pub fn start(engine: Engine, tokenizer: Arc<Tokenizer>, options: ServiceOptions) -> Result<Self, Error> {
        let ServiceOptions { n_slot, max_queue, prefix_cache_bytes } = options;
        let limits = Limits { n_ctx: engine.n_ctx(), n_vocab: engine.model().spec().n_vocab };
        if n_slot == 0 || n_slot > engine.n_batch() {
            return Err(Error::SlotCount { n_slot, n_batch: engine.n_batch() });
        }
        let slots = scheduler::slots(&engine, n_slot)?;
        let shared = Arc::new(Shared {
            inbox: Inbox::new(n_slot, max_queue),
            stats: Stats::default(),
            limits,
            board: Mutex::new(Status {
                slots: Vec::new(),
                n_ctx: limits.n_ctx,
                n_batch: engine.n_batch(),
                n_waiting: 0,
                max_queue,
                prefix_cache: PrefixCacheStatus { budget_bytes: prefix_cache_bytes, ..PrefixCacheStatus::default() },
                kv_used_bytes: 0,
                kv_planned_bytes: slots.iter().map(|slot| slot.session.cache.size_bytes()).sum(),
                backend: engine.describe_backend(),
                is_shutting_down: false,
                is_ended: false,
            }),
            changed: OnceLock::new(),
        });
        let scheduler = Scheduler::new(engine, tokenizer, slots, prefix_cache_bytes, Arc::clone(&shared));
        scheduler.publish();
        let thread = std::thread::Builder::new().name("muser-engine".into()).spawn(move || run(scheduler));
        let thread = Mutex::new(Some(thread.map_err(Error::Thread)?));
        Ok(Self { handle: Arc::new(Handle { shared, thread }) })
    }

    /// Queues a request. Never blocks.
    ///
    /// # Errors
    /// When the prompt does not fit, a setting is out of its range, as many requests wait as may, or the service takes no
    /// more.
    pub fn submit(&self, request: Request, on_event: EventSink) -> Result<RequestId, Refusal> {
        let Shared { inbox, stats, limits, .. } = &*self.handle.shared;
        let submitted = request.check(*limits).and_then(|()| inbox.submit(request, on_event));
        match &submitted {
            Ok(_) => stats.requests.add(1),
            Err(refusal) => stats.count_refusal(refusal),
        }
        submitted
    }

    /// Ends a request, wherever it is: its last event is [`Event::Done`] with
    /// [`Finish::Interrupted`](crate::Finish::Interrupted). Returns at once; one that has ended stays as it is.
    pub fn cancel(&self, id: RequestId) {
        self.handle.shared.inbox.cancel(id);
    }

    /// Answered by the engine thread itself between two steps, so it tells whether that thread moves.
    ///
    /// # Errors
    /// When no answer comes in time ([`Error::NoAnswer`]), or the thread has ended ([`Error::ServiceEnded`],
    /// [`Error::EnginePanicked`]).
    pub fn ping(&self, timeout: Duration) -> Result<(), Error> {
        match self.handle.shared.inbox.ping(timeout) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::NoAnswer { timeout }),
            Err(end) => Err(end.into()),
        }
    }

    /// Waits until the engine thread has ended.
    ///
    /// # Errors
    /// When it was no shutdown that ended it: [`Error::EnginePanicked`], or the change of a file of the model, with its name and
    /// what it was.
    pub fn wait(&self) -> Result<(), Error> {
        let Shared { inbox, changed, .. } = &*self.handle.shared;
        match inbox.why_ended() {
            End::Shutdown => Ok(()),
            end => Err(changed.get().map_or_else(|| end.into(), |error| Error::Step(Arc::clone(error)))),
        }
    }

    /// What the service is doing. Slots are as they were after the last step.
    pub fn status(&self) -> Status {
        let Shared { inbox, board, .. } = &*self.handle.shared;
        let status = board.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Status {
            n_waiting: inbox.n_waiting(),
            is_shutting_down: inbox.is_shutting_down(),
            is_ended: inbox.end().is_some(),
            ..status
        }
    }

    /// What it has done.
    pub fn stats(&self) -> &Stats {
        &self.handle.shared.stats
    }

    /// Takes no more requests, lets those that are queued or in slots end until the deadline, then ends them with
    /// [`Finish::Interrupted`](crate::Finish::Interrupted), and waits for the engine thread. A step under way at the
    /// deadline is waited for too, but no longer than ten seconds: a thread that is stuck is left behind.
    ///
    /// Called again, it can only make the deadline an earlier one. On the engine thread itself it does not wait.
    pub fn shutdown(&self, deadline: Instant) {
        let Handle { shared, thread } = &*self.handle;
        shared.inbox.shut_down(deadline);
        let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        let is_elsewhere = thread.as_ref().is_some_and(|thread| thread.thread().id() != std::thread::current().id());
        if is_elsewhere && shared.inbox.wait_for_end(deadline.checked_add(STEP_GRACE).unwrap_or(deadline)) {
            // It has told that it ends, whether in good order or by a panic, which it reported.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

/// The engine thread.
fn run(mut scheduler: Scheduler) {
    let ran = catch_unwind(AssertUnwindSafe(|| scheduler.run()));
    scheduler.finish(ran.unwrap_or(End::Panic));
}
