//! How fast a model computes, measured as it is used: prompts and answers at a depth that is really there.
//!
//! Input is a fixed sequence of token ids without meaning, spread over the vocabulary: what a dense model takes for a
//! token does not depend on which it is. Answers continue it with the likeliest token each time, so that reading the
//! logits is part of the measurement, and nothing ends them early.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use muser_model::{Model, ModelSpec};

use crate::engine::Advance;
use crate::sampler::{Sampler, SamplerSpec};
use crate::{DEFAULT_BATCH, Engine, Error, Session};

/// What is measured.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Tokens of a prompt; 0 measures none.
    pub n_prompt: usize,
    /// Tokens of an answer; 0 measures none.
    pub n_decode: usize,
    /// How many tokens the session holds before each measurement.
    pub depths: Vec<usize>,
    /// How often each measurement is repeated.
    pub n_repeat: usize,
}

impl BenchOptions {
    /// The context that the measurements need, in tokens.
    pub fn n_ctx(&self) -> usize {
        self.deepest().saturating_add(self.longest()).max(1)
    }

    fn deepest(&self) -> usize {
        self.depths.iter().copied().max().unwrap_or(0)
    }

    fn longest(&self) -> usize {
        self.n_prompt.max(self.n_decode)
    }
}

/// What the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Processing tokens that nobody times, up to the depth of a measurement.
    Fill,
    /// Processing a prompt, up to its last token's logits.
    Prefill,
    /// Producing an answer, token by token.
    Decode,
}

impl Phase {
    /// The phase in one word, as reports spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

/// How far a benchmark has come: `done` of `total` tokens of one phase of one repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchProgress {
    /// What is under way.
    pub phase: Phase,
    /// Tokens that the session holds, or is to hold, before it.
    pub depth: usize,
    /// Which repetition, from 0.
    pub repeat: usize,
    /// Tokens processed.
    pub done: usize,
    /// Tokens to process.
    pub total: usize,
}

impl BenchProgress {
    fn start(phase: Phase, depth: usize, repeat: usize, total: usize) -> Self {
        Self { phase, depth, repeat, done: 0, total }
    }
}

/// One measurement and its repetitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// [`Phase::Prefill`] or [`Phase::Decode`].
    pub phase: Phase,
    /// Tokens that the session held before it.
    pub depth: usize,
    /// Tokens processed in each repetition.
    pub n_token: usize,
    /// What each repetition took, in the order they were made.
    pub durations: Vec<Duration>,
    /// Bytes of weights and of keys and values that a decoded token needs once, as the mean over the tokens; `None` for a
    /// prefill, which reads them once for many tokens.
    pub bytes_per_token: Option<f64>,
}

impl Measurement {
    /// Tokens a second, over the repetitions.
    pub fn tokens_per_second(&self) -> Spread {
        Spread::of(self.durations.iter().map(|duration| self.n_token as f64 / duration.as_secs_f64()))
    }
}

/// The middle of some values, and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The value in the middle, or the mean of the two there.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of some values.
    ///
    /// # Panics
    /// When there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (middle, last) = (values.len() / 2, values.len() - 1);
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Self { median, min: values[0], max: values[last] }
    }
}

/// Measures prefill and decode at each depth, in that order. `session` ends up holding what the last measurement left.
///
/// The session is brought to its depth before each repetition. A session of a model with a sliding window can't go back,
/// and is filled anew each time.
///
/// # Errors
/// When `on_progress` breaks ([`Error::Interrupted`]), the session has no room for a measurement, or the backend fails.
pub fn bench(
    engine: &mut Engine,
    session: &mut Session,
    options: &BenchOptions,
    on_progress: &mut dyn FnMut(BenchProgress) -> ControlFlow<()>,
) -> Result<Vec<Measurement>, Error> {
    if options.n_ctx() > session.n_ctx() {
        let (held, more, n_ctx) = (options.deepest(), options.longest(), session.n_ctx());
        return Err(muser_model::Error::ContextFull { held, more, n_ctx }.into());
    }
    let ids = ids(engine.model().spec().n_vocab, options.n_ctx() + 1);
    let sampler = Sampler::new(SamplerSpec::default())?;
    let mut bench = Bench { engine, session, ids, sampler, on_progress };
    bench.warm_up(options)?;
    let mut measurements = Vec::new();
    for &depth in &options.depths {
        for (phase, n_token) in [(Phase::Prefill, options.n_prompt), (Phase::Decode, options.n_decode)] {
            if n_token > 0 && options.n_repeat > 0 {
                measurements.push(bench.measure(phase, depth, n_token, options.n_repeat)?);
            }
        }
    }
    Ok(measurements)
}

/// Token ids spread evenly over the vocabulary, always the same ones.
fn ids(n_vocab: usize, len: usize) -> Vec<u32> {
    /// 2³² divided by the golden ratio: no two of its multiples lie close together for long.
    const STEP: u32 = 0x9e37_79b9;
    let id = |index: u32| ((u64::from(index.wrapping_mul(STEP)) * n_vocab as u64) >> 32) as u32;
    (0..len as u32).map(id).collect()
}

/// How tokens are appended.
#[derive(Clone, Copy)]
enum Pace {
    /// As a prompt is.
    AtOnce,
    /// As an answer is: each token the likeliest after those before it.
    OneByOne,
}

struct Bench<'a> {
    engine: &'a mut Engine,
    session: &'a mut Session,
    ids: Vec<u32>, // (n_ctx + 1)
    sampler: Sampler,
    on_progress: &'a mut dyn FnMut(BenchProgress) -> ControlFlow<()>,
}

impl Bench<'_> {
    /// Touches what is touched in any measurement: buffers, the caller's stack, the pool's threads.
    fn warm_up(&mut self, options: &BenchOptions) -> Result<(), Error> {
        let n_prompt = options.n_prompt.min(DEFAULT_BATCH.get());
        for (n_token, pace) in [(n_prompt, Pace::AtOnce), (options.n_decode.min(1), Pace::OneByOne)] {
            if n_token > 0 {
                self.fill(0, 0)?;
                self.advance(BenchProgress::start(Phase::Fill, 0, 0, n_token), pace)?;
            }
        }
        Ok(())
    }

    fn measure(&mut self, phase: Phase, depth: usize, n_token: usize, n_repeat: usize) -> Result<Measurement, Error> {
        let pace = if phase == Phase::Decode { Pace::OneByOne } else { Pace::AtOnce };
        let mut durations = Vec::with_capacity(n_repeat);
        for repeat in 0..n_repeat {
            self.fill(depth, repeat)?;
            let started = Instant::now();
            self.advance(BenchProgress::start(phase, depth, repeat, n_token), pace)?;
            durations.push(started.elapsed());
        }
        let bytes_per_token = (phase == Phase::Decode).then(|| bytes_per_token(self.engine.model(), depth, n_token));
        Ok(Measurement { phase, depth, n_token, durations, bytes_per_token })
    }

    /// Brings the session to exactly the first `depth` ids.
    fn fill(&mut self, depth: usize, repeat: usize) -> Result<(), Error> {
        let held = self.session.reuse(&self.ids[..=depth]);
        let Self { engine, session, ids, on_progress, .. } = self;
        let at = BenchProgress::start(Phase::Fill, depth, repeat, depth - held);
        let advance = Advance {
            logits_from: depth - held,
            on_batch: &mut |done| on_progress(BenchProgress { done, ..at }),
            on_logits: &mut |_, _| Ok(()),
            taps: None,
        };
        engine.advance(session, &ids[held..depth], advance)
    }

    /// Appends as many tokens after the depth as `at` says.
    fn advance(&mut self, at: BenchProgress, pace: Pace) -> Result<(), Error> {
        let Self { engine, session, ids, sampler, on_progress } = self;
        let mut step = |tokens: &[u32], before: usize| {
            let mut chosen = Ok(0);
            let advance = Advance {
                logits_from: tokens.len() - 1,
                on_batch: &mut |done| on_progress(BenchProgress { done: before + done, ..at }),
                on_logits: &mut |_, logits| {
                    chosen = sampler.sample(logits);
                    Ok(())
                },
                taps: None,
            };
            engine.advance(session, tokens, advance)?;
            Ok::<u32, Error>(chosen?)
        };
        let ids = &ids[at.depth..at.depth + at.total];
        match pace {
            Pace::AtOnce => step(ids, 0).map(|_| ()),
            Pace::OneByOne => {
                let mut next = ids[0];
                for done in 0..at.total {
                    next = step(&[next], done)?;
                }
                Ok(())
            }
        }
    }
}

/// Bytes of weights, keys and values that a token needs, as the mean over the `n_token` positions from `depth` on.
fn bytes_per_token(model: &Model, depth: usize, n_token: usize) -> f64 {
    let kv: u64 = (depth..depth + n_token).map(|pos| kv_bytes(model.spec(), pos)).sum();
    weight_bytes(model) as f64 + kv as f64 / n_token as f64
}

/// Bytes of weights that one token needs: all of them, but of an embedding table that is not the output matrix too, one row.
fn weight_bytes(model: &Model) -> u64 {
    let arena = model.arena();
    let all: u64 = arena.regions().iter().map(|region| region.size_bytes() as u64).sum();
    match (arena.region("token_embd.weight"), arena.region("output.weight")) {
        (Some(table), Some(_)) => {
            let table_bytes = table.size_bytes() as u64;
            all - table_bytes + table_bytes / model.spec().n_vocab as u64
        }
        _ => all,
    }
}

/// Bytes of keys and values that the token at `pos` sees.
fn kv_bytes(spec: &ModelSpec, pos: usize) -> u64 {
    /// A key and a value, each of two bytes.
    const PAIR_BYTES: usize = 2 * size_of::<u16>();
    let layers = spec.layers.iter().map(|layer| {
        let n_visible = layer.window.unwrap_or(usize::MAX).min(pos + 1);
        (n_visible * layer.kv_width() * PAIR_BYTES) as u64
    });
    layers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_of_values_is_the_mean_of_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn ids_are_of_the_vocabulary_and_spread_over_all_of_it() {
        let ids = ids(1000, 500);
        assert!(ids.iter().all(|&id| id < 1000));
        let mut tenths = [0; 10];
        ids.iter().for_each(|&id| tenths[id as usize / 100] += 1);
        assert!(tenths.iter().all(|&count| (45..=55).contains(&count)), "{tenths:?}");
    }

    #[test]
    fn the_context_has_room_for_the_longer_of_prompt_and_answer_at_the_deepest_depth() {
        let options = BenchOptions { n_prompt: 5, n_decode: 8, depths: vec![100, 3], n_repeat: 1 };
        assert_eq!(options.n_ctx(), 108);
    }
}
