//! Services over the test models, and requests that are followed event by event.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use muser_cpu::CpuBackend;
use muser_engine::sampler::SamplerSpec;
use muser_engine::service::{
    Event, GenerateOptions, Refusal, Request, RequestId, Service, ServiceOptions, Summary, TokenLogprobs, Work,
};
use muser_engine::{Engine, Error, Finish, LoadOptions, Loaded, PlanOptions, load};
use muser_memory::{Device, LoadPolicy};
use muser_ops::Backend;
use muser_tests::model_path;
use muser_text::{Affixes, Special, Tokenizer};

/// How long a test waits for what has to happen.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// A model of the tests.
pub struct Model {
    pub weights: Arc<muser_model::Model>,
    pub tokenizer: Arc<Tokenizer>,
}

pub fn open(name: &str) -> Model {
    open_at(&model_path(name))
}

pub fn open_at(path: &Path) -> Model {
    let options = LoadOptions {
        weights: muser_memory::LoadOptions { policy: LoadPolicy::Map, n_threads: 2, resident: false, strict: false },
        scan: false,
        plan: PlanOptions { n_ctx: Some(512), n_slot: 4, n_batch: 64, prefix_cache_bytes: 0, table_bytes_per_token: 0 },
        force_pre: None,
    };
    let loaded = load(path, &Device::host(), &options, &|_| ControlFlow::Continue(()));
    let Loaded { model: weights, tokenizer, .. } = loaded.expect("a good model");
    Model { weights, tokenizer }
}

/// How a service is set up.
#[derive(Clone, Copy)]
pub struct Setup {
    pub n_slot: usize,
    pub max_queue: usize,
    pub n_ctx: usize,
    pub n_batch: usize,
    pub prefix_cache_bytes: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self { n_slot: 4, max_queue: 64, n_ctx: 512, n_batch: 64, prefix_cache_bytes: 64 << 20 }
    }
}

impl Setup {
    /// One slot that remembers nothing but its last session.
    pub fn alone() -> Self {
        Self { n_slot: 1, prefix_cache_bytes: 0, ..Self::default() }
    }
}

impl Model {
    pub fn n_vocab(&self) -> u32 {
        self.weights.spec().n_vocab as u32
    }

    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text, Special::Plain, Affixes::Model)
    }

    pub fn serve(&self, setup: Setup) -> Service {
        let threads = NonZero::new(2).expect("two");
        let backend = CpuBackend::new(Device::host(), threads, None).expect("threads can be started");
        self.serve_on(Box::new(backend), setup)
    }

    pub fn serve_on(&self, backend: Box<dyn Backend>, setup: Setup) -> Service {
        let Setup { n_slot, max_queue, n_ctx, n_batch, prefix_cache_bytes } = setup;
        let engine = Engine::for_slots(self.weights.clone(), backend, n_batch, n_ctx, n_slot)
            .expect("memory for short contexts");
        let options = ServiceOptions { n_slot, max_queue, prefix_cache_bytes };
        Service::start(engine, self.tokenizer.clone(), options).expect("memory for short contexts")
    }
}

/// The likeliest tokens, `n` of them, each with its log-probability and those of two others.
pub fn greedy(n: usize) -> GenerateOptions {
    GenerateOptions { max_tokens: Some(n), top_logprobs: Some(2), ignore_eos: true, ..GenerateOptions::default() }
}

/// Drawn tokens, `n` of them.
pub fn drawn(n: usize, seed: u64) -> GenerateOptions {
    GenerateOptions { sampler: SamplerSpec { temperature: 1.0, seed, ..SamplerSpec::default() }, ..greedy(n) }
}

/// A token, the bits of its log-probability, and the likeliest tokens and theirs.
pub type TokenBits = (u32, u64, Vec<(u32, u64)>);

/// What came of a request.
#[derive(Debug)]
pub struct Reply {
    pub ids: Vec<u32>,
    pub logprobs: Vec<TokenLogprobs>,
    pub text: String,
    pub embedding: Option<Vec<f32>>,
    pub end: Result<Summary, Error>,
}

impl Reply {
    pub fn summary(&self) -> Summary {
        match &self.end {
            Ok(summary) => *summary,
            Err(error) => panic!("it failed: {error}"),
        }
    }

    pub fn finish(&self) -> Finish {
        self.summary().finish
    }

    /// Every token, and the bits of its log-probabilities.
    pub fn bits(&self) -> Vec<TokenBits> {
        let top = |logprobs: &TokenLogprobs| logprobs.top.iter().map(|(id, p)| (*id, p.to_bits())).collect();
        let logprobs = self.logprobs.iter().map(|logprobs| (logprobs.logprob.to_bits(), top(logprobs)));
        self.ids.iter().zip(logprobs).map(|(&id, (logprob, top))| (id, logprob, top)).collect()
    }
}

/// A request under way.
pub struct Pending {
    pub id: RequestId,
    pub events: Receiver<Event>,
}

impl Pending {
    /// The next event.
    pub fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event comes")
    }

    /// Waits for an event that passes, and drops those before it.
    pub fn until(&self, is_it: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next();
            assert!(!matches!(event, Event::Failed(_)), "{event:?}");
            if is_it(&event) {
                return event;
            }
        }
    }

    pub fn reply(self) -> Reply {
        let (mut ids, mut logprobs, mut text, mut embedding) = (Vec::new(), Vec::new(), String::new(), None);
        loop {
            match self.next() {
                Event::Started { .. } | Event::Prefill { .. } => {}
                Event::Token { id, text: piece, logprob } => {
                    ids.push(id);
                    text += &piece;
                    logprobs.extend(logprob);
                }
                Event::Embedding(vector) => embedding = Some(vector),
                Event::Done { text: rest, summary } => {
                    return Reply { ids, logprobs, text: text + &rest, embedding, end: Ok(summary) };
                }
                Event::Failed(error) => return Reply { ids, logprobs, text, embedding, end: Err(error) },
            }
        }
    }
}

/// Submits a request whose sink breaks when `is_gone` says so.
pub fn try_submit(
    service: &Service,
    prompt: &[u32],
    work: Work,
    mut is_gone: impl FnMut(&Event) -> bool + Send + 'static,
) -> Result<Pending, Refusal> {
    let (sender, events): (Sender<Event>, _) = channel();
    let on_event = Box::new(move |event| {
        let is_gone = is_gone(&event);
        let _ = sender.send(event);
        if is_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let id = service.submit(Request { prompt: prompt.to_vec(), work }, on_event)?;
    Ok(Pending { id, events })
}

pub fn submit(service: &Service, prompt: &[u32], options: GenerateOptions) -> Pending {
    try_submit(service, prompt, Work::Generate(options), |_| false).expect("a good request")
}

/// The reply to a request, waited for.
pub fn ask(service: &Service, prompt: &[u32], options: GenerateOptions) -> Reply {
    submit(service, prompt, options).reply()
}

/// The reply of a service that has done nothing else.
pub fn solo(model: &Model, n_ctx: usize, prompt: &[u32], options: GenerateOptions) -> Reply {
    let service = model.serve(Setup { n_ctx, ..Setup::alone() });
    let reply = ask(&service, prompt, options);
    end(&service);
    reply
}

/// Ends a service, which must do so well before its deadline.
pub fn end(service: &Service) {
    let deadline = Instant::now() + PATIENCE;
    service.shutdown(deadline);
    assert!(Instant::now() < deadline, "the shutdown took to its deadline");
}

/// Repeatable numbers below `most`.
pub fn tokens(n: usize, most: u32, seed: u32) -> Vec<u32> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % most
    };
    std::iter::repeat_with(next).take(n).collect()
}

/// Holds the engine thread, in the sinks of requests or in the backend, until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    is_open: bool,
    n_come: usize,
}

impl Gate {
    /// Lets through who waits and who comes.
    pub fn open(&self) {
        self.0.0.lock().expect("nobody panics here").is_open = true;
        self.0.1.notify_all();
    }

    /// Waits until somebody has come.
    pub fn until_somebody_comes(&self) {
        self.until(|state| state.n_come > 0);
    }

    /// Waits until it is open.
    pub fn pass(&self) {
        self.0.0.lock().expect("nobody panics here").n_come += 1;
        self.0.1.notify_all();
        self.until(|state| state.is_open);
    }

    fn until(&self, is_so: impl Fn(&GateState) -> bool) {
        let state = self.0.0.lock().expect("nobody panics here");
        let (state, _) = self.0.1.wait_timeout_while(state, PATIENCE, |state| !is_so(state)).expect("nobody panics");
        assert!(is_so(&state), "nobody came to the gate, or nobody opened it");
    }

    /// For a request's sink: waits for the gate at events that pass, and never breaks.
    pub fn at(&self, is_it: impl Fn(&Event) -> bool + Send + 'static) -> impl FnMut(&Event) -> bool + Send + 'static {
        let gate = self.clone();
        move |event| {
            if is_it(event) {
                gate.pass();
            }
            false
        }
    }
}

/// Submits a request whose sink does something first, and breaks when that says so.
pub fn submit_through(
    service: &Service,
    prompt: &[u32],
    options: GenerateOptions,
    first: impl FnMut(&Event) -> bool + Send + 'static,
) -> Pending {
    try_submit(service, prompt, Work::Generate(options), first).expect("a good request")
}
