//! From logits to a token.
//!
//! # The chain
//!
//! The steps and their order are llama.cpp's default ones; a step at its neutral value is skipped.
//!
//! 1. **Penalties** on tokens among the last `penalty_last_n` of prompt and answer. A token that occurs there `count`
//!    times has its logit divided by `repetition_penalty` if positive, multiplied by it if not, and then lowered by
//!    `count * frequency_penalty + presence_penalty`.
//! 2. **Top-k** keeps the `top_k` likeliest.
//! 3. **Top-p** keeps the fewest of the likeliest whose probabilities (after step 2) add up to `top_p`.
//! 4. **Min-p** keeps those at least `min_p` times as likely as the likeliest.
//! 5. **Temperature** divides the logits of what is left, and one is drawn by its probability. At temperature 0 there are
//!    no steps 2 to 5: the likeliest token after the penalties is taken.
//!
//! Among equal logits the lower id is the likelier, everywhere. At least one token is always left.
//!
//! # The same seed gives the same text
//!
//! The generator is xoshiro256++ seeded through `SplitMix64`, one number a token; a number's upper 53 bits are a
//! fraction `u` of the weights' sum. Weights are added up from the likeliest on, or by ascending id where no step but the
//! fifth applies, and the token drawn is the first at which the running sum exceeds `u` times the whole. The exponential
//! is the one in this module, in arithmetic that is the same on every platform. So equal logits, settings and seed give
//! the same tokens everywhere.

mod random;
mod softmax;

use std::collections::{HashMap, VecDeque};

use crate::logits::Survey;
use random::Xoshiro256PlusPlus;
use softmax::{Candidate, exp, likelier, log_sum_exp, top};

/// What can go wrong when sampling.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplerError {
    /// A setting is out of its range.
    #[error("{name} is {value}; it must be {expected}")]
    Setting {
        /// The field of [`SamplerSpec`].
        name: &'static str,
        /// Its value.
        value: f32,
        /// The range.
        expected: &'static str,
    },
    /// A logit is not a number, or infinitely large. An infinitely small one is a mask.
    #[error("the logit of token {id} is {value}")]
    NotFinite {
        /// The first such token.
        id: u32,
        /// Its logit.
        value: f32,
    },
    /// There is no token to choose.
    #[error("all {n_vocab} tokens are masked")]
    NothingToChoose {
        /// How many logits there are.
        n_vocab: usize,
    },
}

/// How tokens are chosen. The default is greedy: temperature 0, everything else neutral.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerSpec {
    /// From 0 (greedy) up; 1 leaves the model's distribution as it is.
    pub temperature: f32,
    /// How many of the likeliest tokens are kept; 0 keeps all.
    pub top_k: usize,
    /// Probability of what is kept, 0 to 1; 1 keeps all.
    pub top_p: f32,
    /// Least probability relative to the likeliest, 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// Above 0; 1 is neutral, more makes repetition less likely.
    pub repetition_penalty: f32,
    /// -100 to 100; what occurred is lowered by it, 0 is neutral.
    pub presence_penalty: f32,
    /// -100 to 100; what occurred is lowered by it each time, 0 is neutral.
    pub frequency_penalty: f32,
    /// How many tokens back the penalties look; 0 turns them off.
    pub penalty_last_n: usize,
    /// Seed of the generator.
    pub seed: u64,
}

impl Default for SamplerSpec {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            penalty_last_n: 64,
            seed: 0,
        }
    }
}

impl SamplerSpec {
    pub(crate) fn check(&self) -> Result<(), SamplerError> {
        let fraction = 0.0..=1.0;
        let shift = -100.0..=100.0;
        for (name, value, is_good, expected) in [
            ("temperature", self.temperature, self.temperature >= 0.0, "a number from 0 up"),
            ("top_p", self.top_p, fraction.contains(&self.top_p), "from 0 to 1"),
            ("min_p", self.min_p, fraction.contains(&self.min_p), "from 0 to 1"),
            ("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "a number above 0"),
            ("presence_penalty", self.presence_penalty, shift.contains(&self.presence_penalty), "from -100 to 100"),
            ("frequency_penalty", self.frequency_penalty, shift.contains(&self.frequency_penalty), "from -100 to 100"),
        ] {
            if !(is_good && value.is_finite()) {
                return Err(SamplerError::Setting { name, value, expected });
            }
        }
        Ok(())
    }

    fn has_penalties(&self) -> bool {
        self.penalty_last_n > 0
            && (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)
    }
}

/// Chooses tokens, one after the other.
#[derive(Clone, Debug)]
pub struct Sampler {
    spec: SamplerSpec,
    random: Xoshiro256PlusPlus,
    recent: Recent,
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler at the start of a text.
    ///
    /// # Errors
    ///
    /// [`SamplerError::Setting`] for the first setting out of its range.
    pub fn new(spec: SamplerSpec) -> Result<Sampler, SamplerError> {
        spec.check()?;
        let last_n = if spec.has_penalties() { spec.penalty_last_n } else { 0 };
        Ok(Sampler {
            spec,
            random: Xoshiro256PlusPlus::seeded(spec.seed),
            recent: Recent { last_n, ..Recent::default() },
            candidates: Vec::new(),
        })
    }

    /// The settings.
    pub fn spec(&self) -> &SamplerSpec {
        &self.spec
    }

    /// Starts again behind `prompt`: the generator from its seed, and the penalties with the prompt's tokens.
    pub fn restart(&mut self, prompt: &[u32]) {
        self.random = Xoshiro256PlusPlus::seeded(self.spec.seed);
        self.recent.clear();
        for &id in &prompt[prompt.len().saturating_sub(self.recent.last_n)..] {
            self.recent.push(id);
        }
    }

    /// Chooses the next token by its logits, `(n_vocab)`, and remembers it for the penalties. The logits are left with
    /// the penalties applied.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NotFinite`] and [`SamplerError::NothingToChoose`]; then no token is remembered and no random
    /// number used up.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, SamplerError> {
        let n_vocab = logits.len();
        let mut survey = Survey::of(logits);
        if survey.has_nan || survey.max == f32::INFINITY {
            let is_bad = |logit: &f32| logit.is_nan() || *logit == f32::INFINITY;
            let id = logits.iter().position(is_bad).unwrap_or_default();
            return Err(SamplerError::NotFinite { id: id as u32, value: logits[id] });
        }
        if survey.max == f32::NEG_INFINITY {
            return Err(SamplerError::NothingToChoose { n_vocab });
        }
        if !self.recent.counts.is_empty() {
            self.penalise(logits)?;
            survey = Survey::of(logits);
        }
        let id = if self.spec.temperature == 0.0 {
            survey.first_largest(logits) as u32
        } else {
            self.filter(logits);
            self.draw()
        };
        self.recent.push(id);
        Ok(id)
    }

    fn penalise(&self, logits: &mut [f32]) -> Result<(), SamplerError> {
        for (&id, &count) in &self.recent.counts {
            let Some(logit) = logits.get_mut(id as usize) else { continue };
            let is_masked = !logit.is_finite();
            let factor = self.spec.repetition_penalty;
            *logit = if *logit > 0.0 { *logit / factor } else { *logit * factor };
            *logit -= count as f32 * self.spec.frequency_penalty + self.spec.presence_penalty;
            // Finite logits only leave the range of numbers with settings from beyond reason.
            if !logit.is_finite() && !is_masked {
                return Err(SamplerError::NotFinite { id, value: *logit });
            }
        }
        Ok(())
    }

    /// Fills `candidates` with the tokens that pass top-k, top-p and min-p: the likeliest first if one of these applies,
    /// else by id.
    fn filter(&mut self, logits: &[f32]) {
        let SamplerSpec { top_k, top_p, min_p, .. } = self.spec;
        let is_cut = (1..logits.len()).contains(&top_k);
        self.candidates.clear();
        if is_cut {
            top(logits, top_k, &mut self.candidates);
        } else {
            self.candidates.extend(logits.iter().zip(0..).map(|(&logit, id)| Candidate { logit, id }));
        }
        let max = self.candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max);
        let weight = |candidate: &Candidate| exp(f64::from(candidate.logit) - f64::from(max));
        let needed = if top_p < 1.0 {
            f64::from(top_p) * self.candidates.iter().map(weight).sum::<f64>()
        } else {
            f64::INFINITY
        };
        // Top-p and min-p each keep some of the likeliest, and which ones min-p keeps doesn't depend on top-p; so the
        // cheaper one goes first, with the sum that top-p needs taken before.
        if min_p > 0.0 {
            self.candidates.retain(|candidate| weight(candidate) >= f64::from(min_p));
        }
        if top_p < 1.0 {
            self.keep_likeliest(needed, weight);
        }
        if (top_p < 1.0 || min_p > 0.0) && !is_cut {
            self.candidates.sort_unstable_by(likelier);
        }
    }

    /// Keeps the fewest of the likeliest candidates whose weights reach `needed`, at least one. Sorts no more of them than
    /// four times what it keeps.
    fn keep_likeliest(&mut self, needed: f64, weight: impl Fn(&Candidate) -> f64) {
        let mut sorted = 0;
        let mut sum = 0.0;
        let mut chunk = 64;
        while sorted < self.candidates.len() {
            let rest = &mut self.candidates[sorted..];
            if chunk < rest.len() {
                rest.select_nth_unstable_by(chunk, likelier);
            }
            let len = chunk.min(rest.len());
            rest[..len].sort_unstable_by(likelier);
            for (at, candidate) in rest[..len].iter().enumerate() {
                sum += weight(candidate);
                if sum >= needed {
                    self.candidates.truncate(sorted + at + 1);
                    return;
                }
            }
            sorted += len;
            chunk = 3 * sorted;
        }
    }

    /// Draws one of `candidates`, which are not empty.
    fn draw(&mut self) -> u32 {
        let max = self.candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max);
        let temperature = f64::from(self.spec.temperature);
        let weight = |candidate: &Candidate| exp((f64::from(candidate.logit) - f64::from(max)) / temperature);
        let whole: f64 = self.candidates.iter().map(weight).sum();
        let target = self.random.next_fraction() * whole;
        let mut sum = 0.0;
        let mut last = 0;
        for candidate in &self.candidates {
            let weight = weight(candidate);
            sum += weight;
            if weight > 0.0 {
                last = candidate.id;
            }
            if sum > target {
                break;
            }
        }
        // The sums are the same ones, so the loop always breaks; were it not so, the last with a weight would be right.
        last
    }
}

/// The last tokens of a text, and how often each occurs in them.
#[derive(Clone, Debug, Default)]
struct Recent {
    last_n: usize,
    ids: VecDeque<u32>,
    counts: HashMap<u32, u32>,
}

impl Recent {
    fn clear(&mut self) {
        self.ids.clear();
        self.counts.clear();
    }

    fn push(&mut self, id: u32) {
        if self.last_n == 0 {
            return;
        }
        if self.ids.len() == self.last_n
            && let Some(oldest) = self.ids.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.ids.push_back(id);
        *self.counts.entry(id).or_default() += 1;
    }
}

/// Natural logarithm of the probability of token `id` in the distribution of `logits`, `(n_vocab)`, over all of them.
///
/// NaN if a logit is NaN or infinitely large, or if all are masked.
///
/// # Panics
///
/// If there is no logit for `id`.
pub fn logprob_of(logits: &[f32], id: u32) -> f64 {
    f64::from(logits[id as usize]) - log_sum_exp(logits)
}

/// The `k` likeliest tokens of `logits`, `(n_vocab)`, and the natural logarithms of their probabilities over all of
/// them; the likeliest first, among equals the lowest id first. Fewer if there are fewer logits.
pub fn log_softmax_top(logits: &[f32], k: usize) -> Vec<(u32, f64)> {
    top_given_sum(logits, k, log_sum_exp(logits))
}

/// [`logprob_of`] and [`log_softmax_top`] in one.
pub(crate) fn log_softmax_of_and_top(logits: &[f32], id: u32, k: usize) -> (f64, Vec<(u32, f64)>) {
    let log_sum = log_sum_exp(logits);
    (f64::from(logits[id as usize]) - log_sum, top_given_sum(logits, k, log_sum))
}

fn top_given_sum(logits: &[f32], k: usize, log_sum: f64) -> Vec<(u32, f64)> {
    let mut candidates = Vec::new();
    top(logits, k, &mut candidates);
    candidates.iter().map(|candidate| (candidate.id, f64::from(candidate.logit) - log_sum)).collect()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "bits are compared")]
mod tests;
