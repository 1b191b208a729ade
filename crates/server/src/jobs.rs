//! The requests to the engine that one request over HTTP comes to, from their submission to their last event.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use muser_engine::service::{Event, EventSink, Refusal, Request, RequestId, Service};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use crate::reply::{ApiError, ApiResult};

/// Bytes of events that may wait for a client that does not read. An answer beyond them is cancelled, since the engine
/// waits for nobody. A hundred thousand tokens fit, or ten thousand with all their log-probabilities.
const MAX_UNREAD_BYTES: usize = 16 << 20;

/// After how long a full queue is tried again, for a request of which a part has been taken.
const RETRY: Duration = Duration::from_millis(20);

/// Seconds after which a client may try a full queue again.
const RETRY_AFTER: u64 = 1;

/// Makes the request of a job by its index.
pub type MakeRequest = Box<dyn Fn(usize) -> Request + Send>;

/// Jobs of one request, of which so many are with the engine at a time. They are cancelled when this is dropped, as it is
/// when the client goes away.
pub struct Jobs {
    service: Service,
    make: MakeRequest,
    n_job: usize,
    /// The first that was not submitted yet.
    next: usize,
    /// Index and id of those with the engine.
    running: Vec<(usize, RequestId)>,
    at_once: usize,
    outlet: Outlet,
    receiver: UnboundedReceiver<Told>,
}

/// Where the sinks of a request's jobs lead.
struct Outlet {
    sender: UnboundedSender<Told>,
    unread_bytes: Arc<AtomicUsize>,
}

/// What a sink tells of its job.
enum Told {
    Event {
        job: usize,
        event: Event,
        size_bytes: usize,
    },
    /// It is given up, since too much waits to be read.
    Unread {
        job: usize,
    },
    /// The engine has let go of it: nothing more will come.
    Over {
        job: usize,
    },
}

/// What happens to a job.
pub enum Progress {
    /// The engine tells of it.
    Event(Event),
    /// It was given up, since too much waited to be read.
    Unread,
    /// The engine has gone away.
    Lost,
}

impl Jobs {
    /// Submits the first of `n_job` jobs, as many as may be with the engine at a time.
    ///
    /// # Errors
    /// The engine refuses the first one.
    pub fn submit(service: Service, n_job: usize, at_once: usize, make: MakeRequest) -> ApiResult<Self> {
        let (outlet, receiver) = Outlet::new();
        let at_once = at_once.max(1);
        let mut jobs = Self { service, make, n_job, next: 0, running: Vec::new(), at_once, outlet, receiver };
        jobs.fill()?;
        Ok(jobs)
    }

    /// What happens next, and to which job. `None` when all have ended.
    ///
    /// # Errors
    /// The engine refuses a further job.
    pub async fn next(&mut self) -> ApiResult<Option<(usize, Progress)>> {
        loop {
            if self.running.is_empty() {
                if self.next == self.n_job {
                    return Ok(None);
                }
                // Others have filled the queue since this request's first jobs were taken.
                if !self.try_fill()? {
                    sleep(RETRY).await;
                }
                continue;
            }
            // This holds a sender itself, so the channel never closes.
            let Some(told) = self.receiver.recv().await else { return Ok(None) };
            match told {
                Told::Event { job, event, size_bytes } => {
                    self.outlet.unread_bytes.fetch_sub(size_bytes, Ordering::Relaxed);
                    if matches!(event, Event::Done { .. } | Event::Failed(_)) {
                        self.forget(job);
                        self.try_fill()?;
                    }
                    return Ok(Some((job, Progress::Event(event))));
                }
                Told::Unread { job } if self.forget(job) => return Ok(Some((job, Progress::Unread))),
                Told::Over { job } if self.forget(job) => return Ok(Some((job, Progress::Lost))),
                // It has ended before, in good order.
                Told::Unread { .. } | Told::Over { .. } => {}
            }
        }
    }

    /// Counts a job as ended. Returns whether it was running.
    fn forget(&mut self, job: usize) -> bool {
        let n_running = self.running.len();
        self.running.retain(|&(running, _)| running != job);
        self.running.len() < n_running
    }

    /// Submits what may be with the engine now. Stops at a full queue, unless no job runs at all.
    fn fill(&mut self) -> ApiResult<()> {
        while self.next < self.n_job && self.running.len() < self.at_once {
            let job = self.next;
            match self.service.submit((self.make)(job), self.outlet.sink(job)) {
                Ok(id) => {
                    self.running.push((job, id));
                    self.next += 1;
                }
                Err(Refusal::QueueFull { .. }) if !self.running.is_empty() => break,
                Err(refusal) => return Err(refused(&refusal)),
            }
        }
        Ok(())
    }

    /// As [`fill`](Self::fill), for a request of which some was taken already: a full queue is waited for. Returns
    /// whether any job runs.
    fn try_fill(&mut self) -> ApiResult<bool> {
        match self.fill() {
            Ok(()) => Ok(!self.running.is_empty()),
            Err(error) if error.code == QUEUE_FULL => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.running.iter().for_each(|&(_, id)| self.service.cancel(id));
    }
}

impl Outlet {
    fn new() -> (Self, UnboundedReceiver<Told>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, unread_bytes: Arc::default() }, receiver)
    }

    /// Passes the events of a job on. Breaks when nobody listens, or too much waits.
    fn sink(&self, job: usize) -> EventSink {
        let unread_bytes = Arc::clone(&self.unread_bytes);
        let over = Over { sender: self.sender.clone(), job };
        Box::new(move |event| {
            let size_bytes = size_bytes(&event);
            let is_too_much = unread_bytes.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes > MAX_UNREAD_BYTES;
            let told = if is_too_much { Told::Unread { job } } else { Told::Event { job, event, size_bytes } };
            let is_sent = over.sender.send(told).is_ok();
            if is_sent && !is_too_much { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    }
}

/// Tells when the engine lets go of a sink, for whatever reason.
struct Over {
    sender: UnboundedSender<Told>,
    job: usize,
}

impl Drop for Over {
    fn drop(&mut self) {
        // Nobody has to listen any more.
        let _ = self.sender.send(Told::Over { job: self.job });
    }
}

/// About what an event takes while it waits.
fn size_bytes(event: &Event) -> usize {
    let held = match event {
        Event::Token { text, logprob, .. } => {
            text.len() + logprob.as_ref().map_or(0, |logprob| size_of_val(&*logprob.top))
        }
        Event::Done { text, .. } => text.len(),
        Event::Embedding(values) => size_of_val(&**values),
        _ => 0,
    };
    size_of::<Told>() + held
}

const QUEUE_FULL: &str = "queue_full";

/// The reply to a request that the engine did not take.
fn refused(refusal: &Refusal) -> ApiError {
    let unavailable = |code| ApiError {
        retry_after: Some(RETRY_AFTER),
        ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, refusal.to_string())
    };
    match refusal {
        Refusal::QueueFull { .. } => unavailable(QUEUE_FULL),
        Refusal::ShuttingDown => unavailable("shutting_down"),
        Refusal::Ended => ApiError { retry_after: None, ..unavailable("engine_ended") },
        // The request was checked before, so that the field to blame is known; this is for what is not known here.
        refusal => ApiError::new(StatusCode::BAD_REQUEST, "invalid_value", refusal.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(len: usize) -> Event {
        Event::Token { id: 1, text: "a".repeat(len), logprob: None }
    }

    #[test]
    fn a_sink_breaks_when_too_much_waits_and_says_so() {
        let (outlet, mut told) = Outlet::new();
        let mut sink = outlet.sink(3);
        assert!(sink(token(MAX_UNREAD_BYTES / 2)).is_continue());
        assert!(sink(token(MAX_UNREAD_BYTES / 2)).is_break());
        drop(sink);
        assert!(matches!(told.try_recv(), Ok(Told::Event { job: 3, .. })));
        assert!(matches!(told.try_recv(), Ok(Told::Unread { job: 3 })));
        assert!(matches!(told.try_recv(), Ok(Told::Over { job: 3 })));
    }

    #[test]
    fn a_sink_breaks_when_nobody_listens() {
        let (outlet, told) = Outlet::new();
        let mut sink = outlet.sink(0);
        assert!(sink(token(1)).is_continue());
        drop(told);
        assert!(sink(token(1)).is_break());
    }
}
