//! Numbers as integers with a scale.
//!
//! Some numbers that are multiplied with as many others become integers by the largest of them: with `most` the largest
//! integer,
//!
//! ```text
//! scale = (1 / most) * max |x|;  x' = x * (most / max |x|), rounded to the nearest, ties to even
//! ```
//!
//! The bounds are as large as exact sums in 32 bits allow:
//!
//! | | one scale for | largest integer |
//! | --- | --- | --- |
//! | queries and keys | a head's `head_dim` values at one position | √(2³¹ / `head_dim`): 5792 for 64, 2896 for 256 |
//! | values | a head's `head_dim` values at one position | 2047 |
//! | weights | the positions of a chunk that a query sees | 4095 |
//!
//! So keys and values, which are read as f16, keep the precision that their largest numbers have there. Where a number is not
//! finite its scale is not, and neither is what it is multiplied with.

use std::ops::Range;

use super::chunk::{BLOCK, CHUNK, KvHead, PANEL, panels_of};
use crate::arch::ints::Ints;
use crate::arch::simd::Simd;

/// The largest integer of values.
const MOST_OF_VALUES: u16 = 2047;
/// The largest integer of weights.
const MOST_OF_WEIGHTS: u16 = 4095;

const _: () = assert!(CHUNK as i64 * MOST_OF_VALUES as i64 * MOST_OF_WEIGHTS as i64 <= i32::MAX as i64);

/// Numbers that are smaller throughout are taken for zeros, as the factor to their integers may be infinite.
const TINY: f32 = 1e-30;

/// Added to a number of at most 22 bits, it leaves the nearest integer in the low half.
const ROUNDING: f32 = 12_582_912.0;

/// The bits of a number without its sign.
const MAGNITUDE: i32 = i32::MAX;
/// The bits of a half without its sign.
const HALF_MAGNITUDE: i16 = i16::MAX;

/// Vectors side by side in a panel.
pub(super) const COLS: usize = PANEL / BLOCK;

/// Two components of sixteen keys, or sixteen components of two values: the two of each stand together.
pub(super) type Pairs = [[i16; 2 * BLOCK]; COLS];

/// The largest integer of queries and keys.
pub(super) fn most_of_keys(head_dim: usize) -> f32 {
    (i32::MAX as usize / head_dim).isqrt().min(usize::from(u16::MAX / 2)) as f32
}

/// The scales of numbers whose largest magnitudes are `max`, and the factors that make them integers up to `most`.
#[inline(always)]
fn scales<S: Simd>(s: S, max: S::F, most: f32) -> (S::F, S::F) {
    let factor = s.select_lt(s.splat(TINY), max, s.div(s.splat(most), max), s.splat(0.0));
    (s.mul(max, s.splat(1.0 / most)), factor)
}

/// The nearest integers to the products of eight numbers and a factor, in the low halves of the lanes.
#[inline(always)]
fn low_halves<S: Simd>(s: S, x: S::F, factor: S::F) -> S::I {
    s.to_bits(s.fma(x, factor, s.splat(ROUNDING)))
}

/// The nearest integers to the products of sixteen numbers and a factor.
#[inline(always)]
fn integers<S: Ints>(s: S, x: &[f32; PANEL], factor: S::F) -> S::H {
    let offset = s.to_bits(s.splat(ROUNDING));
    let mut halves = [offset; COLS];
    for (half, x) in halves.iter_mut().zip(x.as_chunks().0) {
        *half = s.sub_int(low_halves(s, s.load(x), factor), offset);
    }
    let [low, high] = halves;
    s.narrow(low, high)
}

/// Converts a query to integers up to `most`, and returns its scale. Pair `i` goes to place `r` of `to[i]`. `to (head_dim/2, rounded up)`
#[inline(always)]
pub(super) fn convert_query<S: Ints, const ROWS: usize>(
    s: S,
    query: &[f32],
    most: f32,
    r: usize,
    to: &mut [[[i16; 2]; ROWS]],
) -> f32 {
    let (panels, rest) = query.as_chunks::<PANEL>();
    let mut last = [0.0; PANEL];
    last[..rest.len()].copy_from_slice(rest);

    let mut max = s.splat_int(0);
    for panel in panels.iter().chain([&last]) {
        for x in panel.as_chunks().0 {
            max = s.max_int(max, s.and(s.to_bits(s.load(x)), s.splat_int(MAGNITUDE)));
        }
    }
    let max = s.of_bits(s.splat_int(s.fold_max(max)));
    let (scale, factor) = scales(s, max, most);

    let (blocks, rest) = to.as_chunks_mut::<BLOCK>();
    for (panel, to) in panels.iter().zip(blocks) {
        let mut numbers = [0; PANEL];
        s.store_i16(integers(s, panel, factor), &mut numbers);
        for (to, &pair) in to.iter_mut().zip(numbers.as_chunks().0) {
            to[r] = pair;
        }
    }
    let mut numbers = [0; PANEL];
    s.store_i16(integers(s, &last, factor), &mut numbers);
    for (to, &pair) in rest.iter_mut().zip(numbers.as_chunks().0) {
        to[r] = pair;
    }
    first_lane(s, scale)
}

/// Converts sixteen keys from position `first` on, a multiple of sixteen, and returns their scales. Keys that the plane does
/// not hold become numbers without meaning. `to (head_dim/2, rounded up)`
#[inline(always)]
pub(super) fn convert_keys<S: Ints>(s: S, kv: &KvHead<'_>, first: usize, to: &mut [Pairs]) -> [S::F; COLS] {
    let mut all_scales = [s.splat(0.0); COLS];
    for c in 0..COLS {
        let keys = kv.keys(first + c * BLOCK);
        let (scale, factor) = scales(s, largest_keys(s, keys), kv.most);
        all_scales[c] = scale;
        let (pairs, odd) = keys.as_chunks();
        for ([a, b], to) in pairs.iter().zip(&mut *to) {
            let (a, b) = (low_halves(s, s.load_f16(a), factor), low_halves(s, s.load_f16(b), factor));
            s.store_i16(s.pair_low_halves(a, b), &mut to[c]);
        }
        if let ([a], Some(to)) = (odd, to.last_mut()) {
            let a = low_halves(s, s.load_f16(a), factor);
            s.store_i16(s.pair_low_halves(a, s.splat_int(0)), &mut to[c]);
        }
    }
    all_scales
}

/// The largest magnitude in each of eight keys.
#[inline(always)]
fn largest_keys<S: Ints>(s: S, keys: &[[u16; BLOCK]]) -> S::F {
    let (pairs, odd) = keys.as_chunks::<2>();
    let mut max = s.splat_i16(0);
    for pair in pairs {
        if let Some(halves) = pair.as_flattened().first_chunk() {
            max = s.max_i16(max, s.and_i16(s.load_u16(halves), s.splat_i16(HALF_MAGNITUDE)));
        }
    }
    let mut halves = [0; PANEL];
    s.store_u16(max, &mut halves);
    let mut max = s.splat_int(0);
    for halves in halves.as_chunks().0.iter().chain(odd) {
        max = s.max_int(max, s.and(s.to_bits(s.load_f16(halves)), s.splat_int(MAGNITUDE)));
    }
    s.of_bits(max)
}

/// Weights of a chunk's positions as integers, in pairs.
pub(super) type Weights = [[i16; 2]; CHUNK / 2];

/// Converts the weights of sixteen positions after sixteen, and returns their scale. `max` is the largest weight, or a NaN
/// if there is one.
#[inline(always)]
pub(super) fn convert_weights<S: Ints>(s: S, weights: &[[f32; PANEL]], max: f32, to: &mut [[[i16; 2]; BLOCK]]) -> f32 {
    let (scale, factor) = scales(s, s.splat(max), f32::from(MOST_OF_WEIGHTS));
    for (weights, to) in weights.iter().zip(to) {
        if let Some(to) = to.as_flattened_mut().first_chunk_mut() {
            s.store_i16(integers(s, weights, factor), to);
        }
    }
    first_lane(s, scale)
}

/// A chunk's values as integers.
#[derive(Default)]
pub(super) struct Values {
    /// Sixteen components of two values after two, then the next sixteen. `(n_panel, CHUNK/2 + 1)`
    pairs: Vec<Pairs>,
    /// Scales. `(CHUNK/8)`
    pub scales: Vec<[f32; BLOCK]>,
    /// Eight values whose components do not fill panels, and zeros after them. `(8, n_panel)`
    filled_up: Vec<[u16; PANEL]>,
}

/// Rows of [`Values`]. One is not used: with it, rows do not begin in the same set of the cache.
const VALUES_STRIDE: usize = CHUNK / 2 + 1;

impl Values {
    /// Makes room for values of `head_dim` components.
    pub(super) fn resize(&mut self, head_dim: usize) {
        let n_panel = head_dim.div_ceil(PANEL);
        self.pairs.resize(n_panel * VALUES_STRIDE, Pairs::default());
        self.scales.resize(CHUNK / BLOCK, [0.0; BLOCK]);
        self.filled_up.clear();
        self.filled_up.resize(BLOCK * n_panel, [0; PANEL]);
    }

    /// Converts the values in the sixteens of a chunk that `positions` touch. Values that the plane does not hold become
    /// numbers without meaning.
    #[inline(always)]
    pub(super) fn load<S: Ints>(&mut self, s: S, kv: &KvHead<'_>, positions: &Range<usize>) {
        let panels = panels_of(positions);
        let chunk = positions.start / CHUNK * CHUNK;
        for block in panels.start * COLS..panels.end * COLS {
            let values = kv.values(chunk + block * BLOCK);
            if let (panels, []) = values.as_chunks() {
                self.load_block(s, panels, block);
            } else {
                let n_panel = self.filled_up.len() / BLOCK;
                for (to, value) in self.filled_up.chunks_mut(n_panel).zip(values.chunks_exact(kv.head_dim)) {
                    to.as_flattened_mut()[..kv.head_dim].copy_from_slice(value);
                }
                let filled_up = std::mem::take(&mut self.filled_up);
                self.load_block(s, &filled_up, block);
                self.filled_up = filled_up;
            }
        }
    }

    /// Converts eight values, which are block `block` of the chunk. `values (8, n_panel)`
    #[inline(always)]
    fn load_block<S: Ints>(&mut self, s: S, values: &[[u16; PANEL]], block: usize) {
        let n_panel = values.len() / BLOCK;
        let mut rows = [&values[..0]; BLOCK];
        let mut max = [0; BLOCK];
        for r in 0..BLOCK {
            rows[r] = &values[r * n_panel..][..n_panel];
            let mut largest = s.splat_i16(0);
            for panel in rows[r] {
                largest = s.max_i16(largest, s.and_i16(s.load_u16(panel), s.splat_i16(HALF_MAGNITUDE)));
            }
            max[r] = s.fold_max_i16(largest);
        }
        let (scale, factor) = scales(s, s.load_f16(&max), f32::from(MOST_OF_VALUES));
        s.store(scale, &mut self.scales[block]);
        let mut factors = [0.0; BLOCK];
        s.store(factor, &mut factors);

        let pairs = self.pairs.chunks_exact_mut(VALUES_STRIDE).take(n_panel).enumerate();
        for (d, to) in pairs {
            let (fours, _) = to.as_chunks_mut::<{ BLOCK / 2 }>();
            let four = &mut fours[block];
            for i in 0..BLOCK / 2 {
                let (even, odd) = (rows[2 * i][d].as_chunks().0, rows[2 * i + 1][d].as_chunks().0);
                for c in 0..COLS {
                    let even = low_halves(s, s.load_f16(&even[c]), s.splat(factors[2 * i]));
                    let odd = low_halves(s, s.load_f16(&odd[c]), s.splat(factors[2 * i + 1]));
                    s.store_i16(s.pair_low_halves(even, odd), &mut four[i][c]);
                }
            }
        }
    }

    /// Sixteen components, number `panel` of them. `(CHUNK/2)`
    #[inline(always)]
    pub(super) fn components(&self, panel: usize) -> &[Pairs] {
        &self.pairs[panel * VALUES_STRIDE..][..CHUNK / 2]
    }
}

#[inline(always)]
fn first_lane<S: Simd>(s: S, x: S::F) -> f32 {
    let mut lanes = [0.0; BLOCK];
    s.store(x, &mut lanes);
    lanes[0]
}
