//! Queries and weights as integers with a scale.
//!
//! Some numbers that are multiplied with as many others become integers by the largest of them: with `most` the largest
//! integer,
//!
//! ```text
//! scale = (1 / most) * max |x|;  x' = x * (most / max |x|), rounded to the nearest, ties to even
//! ```
//!
//! The bounds are as large as exact sums in 32 bits allow. A query's numbers at one position go as far as those of keys, and
//! the weights of the positions of a chunk that a query sees up to 4095. Where a number is not finite its scale is not, and
//! neither is what it is multiplied with.

use muser_memory::KV_MOST_OF_V;

use super::chunk::{BLOCK, CHUNK, PANEL};
use crate::arch::ints::Ints;
use crate::arch::simd::Simd;

/// The largest integer of weights.
const MOST_OF_WEIGHTS: u16 = 4095;

const _: () = assert!(CHUNK as i64 * KV_MOST_OF_V as i64 * MOST_OF_WEIGHTS as i64 <= i32::MAX as i64);

/// Numbers that are smaller throughout are taken for zeros, as the factor to their integers may be infinite.
const TINY: f32 = 1e-30;

/// Added to a number of at most 22 bits, it leaves the nearest integer in the low half.
const ROUNDING: f32 = 12_582_912.0;

/// The bits of a number without its sign.
const MAGNITUDE: i32 = i32::MAX;

/// The scales of numbers whose largest magnitudes are `max`, and the factors that make them integers up to `most`.
#[inline(always)]
fn scales<S: Simd>(s: S, max: S::F, most: f32) -> (S::F, S::F) {
    let factor = s.select_lt(s.splat(TINY), max, s.div(s.splat(most), max), s.splat(0.0));
    (s.mul(max, s.splat(1.0 / most)), factor)
}

/// The nearest integers to the products of sixteen numbers and a factor.
#[inline(always)]
fn integers<S: Ints>(s: S, x: &[f32; PANEL], factor: S::F) -> S::H {
    let offset = s.to_bits(s.splat(ROUNDING));
    let mut halves = [offset; PANEL / BLOCK];
    for (half, x) in halves.iter_mut().zip(x.as_chunks().0) {
        *half = s.sub_int(s.to_bits(s.fma(s.load(x), factor, s.splat(ROUNDING))), offset);
    }
    let [low, high] = halves;
    s.narrow(low, high)
}

/// Converts a query to integers up to `most`, and returns its scale. Pair `i` goes to place `r` of `to[i]`; there are whole
/// sixteens of components, which fill up with zeros. `to (n_pair)`
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

    for (panel, to) in panels.iter().chain([&last]).zip(to.as_chunks_mut::<BLOCK>().0) {
        let mut numbers = [0; PANEL];
        s.store_i16(integers(s, panel, factor), &mut numbers);
        for (to, &pair) in to.iter_mut().zip(numbers.as_chunks().0) {
            to[r] = pair;
        }
    }
    first_lane(s, scale)
}

/// Weights of a chunk's positions as integers, in pairs.
pub(super) type Weights = [[i16; 2]; CHUNK / 2];

/// Converts the weights of sixteen positions after sixteen, and returns their scale. `max` is the largest weight, or a NaN
/// if there is one.
#[inline(always)]
pub(super) fn convert_weights<S: Ints>(s: S, weights: &[[f32; PANEL]], max: f32, to: &mut [[i16; 2]]) -> f32 {
    let (scale, factor) = scales(s, s.splat(max), f32::from(MOST_OF_WEIGHTS));
    let (to, _) = to.as_flattened_mut().as_chunks_mut();
    for (weights, to) in weights.iter().zip(to) {
        s.store_i16(integers(s, weights, factor), to);
    }
    first_lane(s, scale)
}

#[inline(always)]
fn first_lane<S: Simd>(s: S, x: S::F) -> f32 {
    let mut lanes = [0.0; BLOCK];
    s.store(x, &mut lanes);
    lanes[0]
}
