//! Counters and histograms of a service, readable at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Refusal;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// The number.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}

/// Upper bounds of [`Stats::time_to_first_token`], in seconds.
pub const FIRST_TOKEN_BOUNDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Upper bounds of [`Stats::time_between_tokens`], in seconds.
pub const BETWEEN_TOKENS_BOUNDS: &[f64] =
    &[0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Upper bounds of [`Stats::batch_rows`], in tokens.
pub const BATCH_ROWS_BOUNDS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// How values are spread, in fixed buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them.
    buckets: Box<[AtomicU64]>,
    /// Millionths.
    sum: AtomicU64,
}

/// What a histogram holds at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bounds, which belong to their buckets.
    pub bounds: &'static [f64],
    /// How many values are at most as large as each bound.
    pub cumulative: Vec<u64>,
    /// How many values there are.
    pub count: u64,
    /// Their sum, to a millionth each.
    pub sum: f64,
}

impl Histogram {
    const MILLION: f64 = 1e6;

    fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// What it holds. The count is that of the buckets, whatever is added meanwhile.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let sum = self.sum.load(Ordering::Relaxed) as f64 / Self::MILLION;
        let mut count = 0;
        let mut cumulative: Vec<u64> = Vec::with_capacity(self.buckets.len());
        for bucket in &self.buckets {
            count += bucket.load(Ordering::Relaxed);
            cumulative.push(count);
        }
        cumulative.pop();
        HistogramSnapshot { bounds: self.bounds, cumulative, count, sum }
    }

    pub(super) fn add(&self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * Self::MILLION) as u64, Ordering::Relaxed);
    }

    pub(super) fn add_duration(&self, duration: Duration) {
        self.add(duration.as_secs_f64());
    }
}

/// How a request that was queued ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The model ended the answer, or the constraint did.
    Stop,
    /// A stop text ended it.
    StopString,
    /// It has as many tokens as were asked for.
    Length,
    /// The context is full.
    ContextFull,
    /// An embedding was made.
    Embedding,
    /// A shutdown ended it.
    Interrupted,
    /// Its client ended it.
    Cancelled,
    /// It failed.
    Failed,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Stop,
        Self::StopString,
        Self::Length,
        Self::ContextFull,
        Self::Embedding,
        Self::Interrupted,
        Self::Cancelled,
        Self::Failed,
    ];

    /// The outcome as metrics spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::StopString => "stop_string",
            Self::Length => "length",
            Self::ContextFull => "context_full",
            Self::Embedding => "embedding",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// Why tokens that a prompt has in common with an earlier sequence were processed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No sequence that is known begins like the prompt.
    NoCommonPrefix,
    /// What they have in common is too short to be worth a copy.
    TooShort,
    /// The rows that a sliding window needs there have been overwritten.
    WindowLeft,
    /// The sequence was dropped to stay within the budget, or never fitted into it.
    Budget,
    /// The request needs the hidden states of all tokens.
    AllNeeded,
}

impl Miss {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::NoCommonPrefix, Self::TooShort, Self::WindowLeft, Self::Budget, Self::AllNeeded];

    /// The reason as metrics spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCommonPrefix => "no_common_prefix",
            Self::TooShort => "too_short",
            Self::WindowLeft => "window_left",
            Self::Budget => "budget",
            Self::AllNeeded => "all_needed",
        }
    }
}

/// What a service has done.
#[derive(Debug)]
pub struct Stats {
    outcomes: [Counter; Outcome::ALL.len()],
    misses: [Counter; Miss::ALL.len()],
    refusals: [Counter; Refusal::NAMES.len()],
    /// Requests that were queued.
    pub requests: Counter,
    /// Requests that wait for a slot.
    pub queue_depth: Gauge,
    /// Tokens of prompts that were processed.
    pub prefill_tokens: Counter,
    /// Tokens of answers that were processed to find the next one.
    pub decode_tokens: Counter,
    /// Tokens of answers that were told.
    pub generated_tokens: Counter,
    /// Tokens of prompts that were found in the slot itself or copied, and not processed.
    pub prefix_hit_tokens: Counter,
    /// Those of them that were copied from another slot or an ended session.
    pub prefix_copied_tokens: Counter,
    /// Requests that found any.
    pub prefix_hits: Counter,
    /// Bytes of ended sessions.
    pub prefix_cache_bytes: Gauge,
    /// Ended sessions that are kept.
    pub prefix_cache_entries: Gauge,
    /// Batches.
    pub steps: Counter,
    /// Tokens in a batch.
    pub batch_rows: Histogram,
    /// From a request's arrival to its first token, in seconds.
    pub time_to_first_token: Histogram,
    /// From each token to the next of the same answer, in seconds.
    pub time_between_tokens: Histogram,
    /// Bytes of the keys and values that slots hold.
    pub kv_used_bytes: Gauge,
    /// Bytes of all slots' planes.
    pub kv_planned_bytes: Gauge,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            outcomes: Default::default(),
            misses: Default::default(),
            refusals: Default::default(),
            requests: Counter::default(),
            queue_depth: Gauge::default(),
            prefill_tokens: Counter::default(),
            decode_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            prefix_hit_tokens: Counter::default(),
            prefix_copied_tokens: Counter::default(),
            prefix_hits: Counter::default(),
            prefix_cache_bytes: Gauge::default(),
            prefix_cache_entries: Gauge::default(),
            steps: Counter::default(),
            batch_rows: Histogram::new(BATCH_ROWS_BOUNDS),
            time_to_first_token: Histogram::new(FIRST_TOKEN_BOUNDS),
            time_between_tokens: Histogram::new(BETWEEN_TOKENS_BOUNDS),
            kv_used_bytes: Gauge::default(),
            kv_planned_bytes: Gauge::default(),
        }
    }
}

impl Stats {
    /// Requests that ended so.
    pub fn outcome(&self, outcome: Outcome) -> &Counter {
        &self.outcomes[outcome as usize]
    }

    /// Requests of which tokens were processed again for this reason: at most one reason a request, that of the sequence
    /// with most in common.
    pub fn miss(&self, miss: Miss) -> &Counter {
        &self.misses[miss as usize]
    }

    /// Requests that were refused, by [`Refusal::name`].
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, &Counter)> {
        Refusal::NAMES.into_iter().zip(&self.refusals)
    }

    pub(super) fn count_refusal(&self, refusal: &Refusal) {
        if let Some((_, counter)) = self.refusals().find(|(name, _)| *name == refusal.name()) {
            counter.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_first_bucket_whose_bound_it_does_not_pass() {
        let histogram = Histogram::new(&[1.0, 2.0, 4.0]);
        for value in [0.0, 1.0, 1.5, 2.0, 3.0, 4.5, 100.25] {
            histogram.add(value);
        }
        let expected = HistogramSnapshot { bounds: &[1.0, 2.0, 4.0], cumulative: vec![2, 4, 5], count: 7, sum: 112.25 };
        assert_eq!(histogram.snapshot(), expected);
    }

    #[test]
    fn every_name_is_another() {
        let names = Outcome::ALL.map(Outcome::name).into_iter().chain(Miss::ALL.map(Miss::name));
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
        }
        for (index, miss) in Miss::ALL.into_iter().enumerate() {
            assert_eq!(miss as usize, index);
        }
    }
}
