//! A slot: a session's room, and the request that works in it.

use std::time::{Duration, Instant};

use super::answer::{Answer, Chosen};
use super::inbox::Queued;
use super::pool::Pool;
use super::status::{SlotState, SlotStatus};
use super::{Event, EventSink, Outcome, Pooling, RequestId, Stats, Summary};
use crate::{Error, Finish, Session};

pub(super) struct Slot {
    pub session: Session,
    pub task: Option<Task>,
    /// The later, the more recently it began to work.
    pub last_used: u64,
}

/// A request in its slot.
pub(super) struct Task {
    pub id: RequestId,
    pub prompt: Vec<u32>,
    pub work: Work,
    pub n_reused: usize,
    /// Where in the prompt a copy of the session is kept, for others that part from it there.
    pub branch: Option<usize>,
    sink: EventSink,
    times: Times,
}

pub(super) enum Work {
    Generate(Box<Answer>),
    Embed(Pool),
}

struct Times {
    arrived: Instant,
    started: Instant,
    prefilled: Option<Instant>,
    last_token: Option<Instant>,
}

/// Why a request leaves its slot.
pub(super) enum Ending {
    Finished(Finish),
    /// Nobody listens any more.
    Gone,
    Failed(Error),
}

impl Slot {
    pub(super) fn is_working_on(&self, id: RequestId) -> bool {
        self.task.as_ref().is_some_and(|task| task.id == id)
    }

    /// Whether the slot holds exactly a prompt, and its answer can make a window of so many rows leave what another answer
    /// would start from.
    pub(super) fn answer_leaves(&self, window: usize) -> bool {
        let n_held = self.session.tokens().len();
        let Some(Task { prompt, work: Work::Generate(answer), .. }) = &self.task else { return false };
        n_held == prompt.len() && n_held.saturating_add(answer.limit()).min(self.session.n_ctx()) > window
    }

    /// Whether the slot holds a prompt exactly up to where others part from it.
    pub(super) fn is_at_branch(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.branch == Some(self.session.tokens().len()))
    }

    pub(super) fn status(&self) -> SlotStatus {
        let n_held = self.session.tokens().len();
        let idle =
            SlotStatus { state: SlotState::Idle, request: None, n_held, n_prompt: 0, n_reused: 0, n_generated: 0 };
        let Some(task) = &self.task else { return idle };
        SlotStatus {
            state: if n_held < task.prompt.len() { SlotState::Prefill } else { SlotState::Decode },
            request: Some(task.id),
            n_held,
            n_prompt: task.prompt.len(),
            n_reused: task.n_reused,
            n_generated: task.n_generated(),
        }
    }
}

impl Task {
    pub(super) fn new(id: RequestId, prompt: Vec<u32>, work: Work, arrived: Instant, sink: EventSink) -> Self {
        let times = Times { arrived, started: Instant::now(), prefilled: None, last_token: None };
        Self { id, prompt, work, n_reused: 0, branch: None, sink, times }
    }

    /// Whether each token of the prompt has to be processed for this request.
    pub(super) fn needs_all(&self) -> bool {
        matches!(&self.work, Work::Embed(pool) if pool.pooling() == Pooling::Mean)
    }

    fn n_generated(&self) -> usize {
        match &self.work {
            Work::Generate(answer) => answer.n_generated(),
            Work::Embed(_) => 0,
        }
    }

    /// The tokens that come after the `n_held` that are processed.
    pub(super) fn pending(&self, n_held: usize) -> &[u32] {
        match &self.work {
            Work::Generate(answer) if n_held >= self.prompt.len() => std::slice::from_ref(answer.last()),
            _ => &self.prompt[n_held..],
        }
    }

    /// Tells of an event. Returns why the request ends, if nobody listens.
    pub(super) fn tell(&mut self, event: Event) -> Option<Ending> {
        (self.sink)(event).is_break().then_some(Ending::Gone)
    }

    pub(super) fn tell_started(&mut self, slot: usize) -> Option<Ending> {
        let (n_reused, queued) = (self.n_reused, self.times.started - self.times.arrived);
        self.tell(Event::Started { slot, n_reused, queued })
    }

    /// Tells that `done` tokens of the prompt are processed.
    pub(super) fn tell_prefill(&mut self, done: usize) -> Option<Ending> {
        let total = self.prompt.len();
        if done == total {
            self.times.prefilled = Some(Instant::now());
        }
        self.tell(Event::Prefill { done, total })
    }

    /// Takes the logits after the sequence, and tells of the token that follows.
    pub(super) fn take_logits(
        &mut self,
        session: &Session,
        logits: &mut [f32],
        raw: &mut Vec<f32>,
        stats: &Stats,
    ) -> Option<Ending> {
        let Work::Generate(answer) = &mut self.work else { return None };
        let (id, text, logprob, finish) = match answer.choose(logits, raw, session.tokens().len(), session.n_ctx()) {
            Err(error) => return Some(Ending::Failed(error)),
            Ok(Chosen::End(finish)) => return Some(Ending::Finished(finish)),
            Ok(Chosen::Token { id, text, logprob, finish }) => (id, text, logprob, finish),
        };
        let now = Instant::now();
        match self.times.last_token.replace(now) {
            None => stats.time_to_first_token.add_duration(now - self.times.arrived),
            Some(last) => stats.time_between_tokens.add_duration(now - last),
        }
        stats.generated_tokens.add(1);
        self.tell(Event::Token { id, text, logprob }).or(finish.map(Ending::Finished))
    }

    /// Takes the hidden states, `(n, n_embd)`, of the prompt's tokens from `pos` on.
    pub(super) fn take_states(&mut self, states: &[f32], pos: usize) -> Result<(), Error> {
        match &mut self.work {
            Work::Embed(pool) => pool.add(states, pos),
            Work::Generate(_) => Ok(()),
        }
    }

    /// Counts the end as `outcome`, or else as what it is, and tells it.
    pub(super) fn end(mut self, ending: Ending, outcome: Option<Outcome>, stats: &Stats) {
        let count = |ended| stats.outcome(outcome.unwrap_or(ended)).add(1);
        let finish = match ending {
            Ending::Finished(finish) => finish,
            Ending::Gone => return count(Outcome::Cancelled),
            Ending::Failed(error) => {
                count(Outcome::Failed);
                let _ = self.tell(Event::Failed(error));
                return;
            }
        };
        let (text, finish) = match &mut self.work {
            Work::Generate(answer) => answer.finish(finish),
            Work::Embed(_) => (String::new(), finish),
        };
        count(self.outcome(finish));
        let summary = self.summary(finish);
        if let (Work::Embed(pool), Finish::Stop) = (&mut self.work, finish) {
            let vector = pool.finish();
            if self.tell(Event::Embedding(vector)).is_some() {
                return;
            }
        }
        let _ = self.tell(Event::Done { text, summary });
    }

    fn outcome(&self, finish: Finish) -> Outcome {
        match (finish, &self.work) {
            (Finish::Stop, Work::Embed(_)) => Outcome::Embedding,
            (Finish::Stop, Work::Generate(_)) => Outcome::Stop,
            (Finish::StopString(_), _) => Outcome::StopString,
            (Finish::Length, _) => Outcome::Length,
            (Finish::ContextFull, _) => Outcome::ContextFull,
            (Finish::Interrupted, _) => Outcome::Interrupted,
        }
    }

    fn summary(&self, finish: Finish) -> Summary {
        let Times { arrived, started, prefilled, .. } = self.times;
        Summary {
            finish,
            n_prompt: self.prompt.len(),
            n_reused: self.n_reused,
            n_generated: self.n_generated(),
            queued: started - arrived,
            prefill: prefilled.map_or_else(|| started.elapsed(), |prefilled| prefilled - started),
            decode: prefilled.map_or(Duration::ZERO, |prefilled| prefilled.elapsed()),
        }
    }
}

impl Queued {
    /// Tells that it ends without having had a slot.
    pub(super) fn tell_interrupted(mut self) {
        let summary = Summary {
            finish: Finish::Interrupted,
            n_prompt: self.request.prompt.len(),
            n_reused: 0,
            n_generated: 0,
            queued: self.arrived.elapsed(),
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
        };
        let _ = (self.sink)(Event::Done { text: String::new(), summary });
    }
}
