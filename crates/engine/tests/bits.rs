//! The determinism contract over whole models: the same tokens give the same bits, for any cut of the prompt into batches, any
//! number of threads, any tier, cold or from what a session holds.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::Arc;

use muser_cpu::CpuBackend;
use muser_cpu::caps::Tier;
use muser_engine::sampler::{Sampler, SamplerSpec};
use muser_engine::{Engine, Event, LoadOptions, Loaded, PlanOptions, Session, load};
use muser_memory::{Device, LoadPolicy};
use muser_model::{Tap, TapPoint, TapSink};
use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};
use muser_tests::model_path;
use muser_text::Tokenizer;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// A model of the tests.
struct Model {
    name: &'static str,
    weights: Arc<muser_model::Model>,
    tokenizer: Arc<Tokenizer>,
}

fn open(name: &'static str) -> Model {
    let options = LoadOptions {
        weights: muser_memory::LoadOptions { policy: LoadPolicy::Map, n_threads: 2, resident: false, strict: false },
        scan: true,
        plan: PlanOptions {
            n_ctx: Some(512),
            n_slot: 1,
            n_batch: 512,
            prefix_cache_bytes: 0,
            table_bytes_per_token: 0,
        },
        force_pre: None,
    };
    let loaded = load(&model_path(name), &Device::host(), &options, &|_| ControlFlow::Continue(()));
    let Loaded { model: weights, tokenizer, .. } = loaded.expect("a good model");
    Model { name, weights, tokenizer }
}

/// One way of computing.
#[derive(Clone, Copy, Debug)]
struct Way {
    tier: Tier,
    threads: usize,
    /// Tokens processed at once.
    batch: usize,
}

fn engine(model: &Model, way: Way, n_ctx: usize) -> Engine {
    let threads = NonZero::new(way.threads).expect("at least one thread");
    let backend = CpuBackend::new(Device::host(), threads, Some(way.tier)).expect("threads can be started");
    Engine::new(model.weights.clone(), Box::new(backend), way.batch, n_ctx).expect("memory for a short context")
}

/// Keeps the bits of every token's logits, hashed.
#[derive(Default)]
struct LogitBits(Vec<u64>);

impl TapSink for LogitBits {
    fn record(&mut self, point: TapPoint, values: &[f32]) {
        if point.tap == Tap::Logits {
            let mut hasher = DefaultHasher::new();
            values.iter().for_each(|value| value.to_bits().hash(&mut hasher));
            self.0.push(hasher.finish());
        }
    }
}

/// The bits of the logits after each of a prompt's last `n` tokens, hashed.
fn logits(model: &Model, way: Way, prompt: &[u32], n: usize) -> Vec<u64> {
    let mut engine = engine(model, way, prompt.len() + 1);
    let mut session = engine.session().expect("memory for a short context");
    let (ids, rest) = prompt.split_at(prompt.len() - n + 1);
    // Logits come with every token that has one after it.
    let next = [rest, &[0]].concat();
    let mut bits = LogitBits::default();
    let scored = engine.score(&mut session, ids, &next, 1, Some(&mut bits), &mut |_| ControlFlow::Continue(()));
    scored.expect("a prompt within the context");
    assert_eq!(bits.0.len(), n);
    bits.0
}

/// Compares random ways of computing random prompts with one token at a time on one thread.
fn all_ways_agree(model: &Model, tiers: &[Tier], cases: u32, longest: usize) {
    let n_vocab = model.weights.spec().n_vocab as u32;
    let way = (prop::sample::select(tiers.to_vec()), 1..=3usize, 1..=longest);
    let prompts = prop::collection::vec(0..n_vocab, 1..=longest);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let plain = Way { tier: Tier::detect(), threads: 1, batch: 1 };
    let agreed = runner.run(&(prompts, way), |(prompt, (tier, threads, batch))| {
        let way = Way { tier, threads, batch };
        let n = prompt.len().min(40);
        prop_assert_eq!(logits(model, way, &prompt, n), logits(model, plain, &prompt, n), "{:?}", way);
        Ok(())
    });
    if let Err(error) = agreed {
        panic!("{}: {error}", model.name);
    }
}

#[test]
fn every_cut_thread_count_and_tier_gives_the_same_bits() {
    for name in MUSE {
        all_ways_agree(&open(name), &Tier::available(), 6, 300);
    }
}

#[test]
fn real_models_give_the_same_bits_for_every_cut_and_thread_count() {
    for name in [SMOLLM2, GEMMA3] {
        all_ways_agree(&open(name), &[Tier::detect()], 2, 300);
    }
}

#[test]
fn real_models_give_the_same_bits_on_every_tier() {
    for name in [SMOLLM2, GEMMA3] {
        all_ways_agree(&open(name), &Tier::available(), 2, 12);
    }
}

/// The bits of the distribution after each token of an answer, told by greedy choices and their log-probabilities.
fn answer(engine: &mut Engine, session: &mut Session, model: &Model, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(SamplerSpec { temperature: 0.0, ..SamplerSpec::default() }).expect("greedy");
    let mut ids = Vec::new();
    let on_event = &mut |event: Event<'_>| {
        if let Event::Token { id, .. } = event {
            ids.push(id);
        }
        ControlFlow::Continue(())
    };
    let answered = engine.generate(session, &model.tokenizer, prompt, &mut sampler, Some(n), on_event);
    answered.expect("a prompt within the context");
    ids
}

#[test]
fn what_a_session_holds_is_reused_without_a_trace() {
    let model = open(MUSE[1]);
    let way = Way { tier: Tier::detect(), threads: 2, batch: 64 };
    let mut warm_engine = engine(&model, way, 512);
    let mut warm = warm_engine.session().expect("memory for a short context");
    let prompts: [Vec<u32>; 5] = [
        (0..40).collect(),
        // Goes on from the first.
        (0..90).collect(),
        // Shares a start, and goes back further than a window of 32 holds.
        (0..50).chain(200..260).collect(),
        // Goes back by one token.
        (0..50).chain(200..259).collect(),
        // Shares nothing.
        (300..340).collect(),
    ];
    for prompt in &prompts {
        let mut cold_engine = engine(&model, way, 512);
        let mut cold = cold_engine.session().expect("memory for a short context");
        let expected = answer(&mut cold_engine, &mut cold, &model, prompt, 12);
        assert_eq!(answer(&mut warm_engine, &mut warm, &model, prompt, 12), expected, "prompt of {}", prompt.len());
        assert_eq!(warm.tokens(), cold.tokens());
    }
}

#[test]
fn a_longer_prompt_computes_only_what_is_new() {
    let model = open(MUSE[1]);
    let mut engine = engine(&model, Way { tier: Tier::detect(), threads: 1, batch: 64 }, 512);
    let mut session = engine.session().expect("memory for a short context");
    let mut sampler = Sampler::new(SamplerSpec::default()).expect("default settings");
    let mut generate = |prompt: &[u32]| {
        let go_on = &mut |_: Event<'_>| ControlFlow::Continue(());
        let done = engine.generate(&mut session, &model.tokenizer, prompt, &mut sampler, Some(1), go_on);
        done.expect("a prompt within the context")
    };
    let first: Vec<u32> = (0..40).collect();
    let longer: Vec<u32> = (0..60).collect();
    assert_eq!(generate(&first).n_reused, 0);
    assert_eq!(generate(&longer).n_reused, 40);
    // All of it is held, and the last token is computed again for its logits.
    assert_eq!(generate(&longer).n_reused, 59);
}
