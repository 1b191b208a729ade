//! Queries and weights as integers with a scale.
//!
//! A number is its integer, rounded to the nearest (ties to even), times the scale. The scales are as small as exact sums of
//! products in 32 bits allow:
//!
//! ```text
//! q' = q / scale(q);  scale(q) = max |q| * max(|q / max |q|| / 46,000, 1 / 32,767)
//! w' = w / scale(w);  scale(w) = sum w * max(1 / 130,900, max w / sum w / 32,767)
//! ```
//!
//! where `|q|` is the length of the vector, the sum of its squares taken in eight lanes and folded, and so is the sum of `w`.
//! A query is thereby not longer than a key can be, and the weights of a chunk do not pass 2¹⁷ in all. Where a number is not
//! finite its scale is not, and neither is what it is multiplied with.

use muser_memory::{KV_MOST_OF_V, KV_NORM_OF_K};

use super::chunk::{BLOCK, CHUNK, PANEL};
use crate::arch::ints::Ints;

/// The largest integer.
const MOST: f32 = 32_767.0;

/// The largest sum of the integers of weights before they are rounded.
const SUM_OF_WEIGHTS: u16 = 32_725;
const SUM: f32 = 4.0 * SUM_OF_WEIGHTS as f32;

const _: () = {
    // Each weight is rounded up by a half at most, and their sum, of 32 in a lane, by a millionth or two.
    let most = 4 * SUM_OF_WEIGHTS as i64 + CHUNK as i64 / 2 + 1;
    assert!(most * KV_MOST_OF_V as i64 <= i32::MAX as i64);
};

/// Numbers that are smaller throughout are taken for zeros, as the factor to their integers may be infinite.
const TINY: f32 = 1e-30;

/// Added to a number of at most 22 bits, it leaves the nearest integer in the low half.
const ROUNDING: f32 = 12_582_912.0;

/// The bits of a number without its sign.
const MAGNITUDE: i32 = i32::MAX;

/// The scale of numbers of this size, of which a step is this part, and the factor that makes them integers.
fn scale(size: f32, step: f32) -> (f32, f32) {
    if size < TINY {
        return (0.0, 0.0);
    }
    let scale = size * step;
    (scale, 1.0 / scale)
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

/// Converts a query, and returns its scale. Pair `i` goes to place `r` of `to[i]`; there are whole sixteens of components,
/// which fill up with zeros. `to (n_pair)`
#[inline(always)]
pub(super) fn convert_query<S: Ints, const ROWS: usize>(
    s: S,
    query: &[f32],
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
    let max = f32::from_bits(s.fold_max(max).cast_unsigned());
    // Relative to the largest, as squares may pass what an f32 holds.
    let reciprocal = s.splat(1.0 / max);
    let mut squares = s.splat(0.0);
    for panel in panels.iter().chain([&last]) {
        for x in panel.as_chunks().0 {
            let x = s.mul(s.load(x), reciprocal);
            squares = s.fma(x, x, squares);
        }
    }
    let (scale, factor) = scale(max, (s.fold(squares).sqrt() * (1.0 / KV_NORM_OF_K)).max(1.0 / MOST));

    for (panel, to) in panels.iter().chain([&last]).zip(to.as_chunks_mut::<BLOCK>().0) {
        let mut numbers = [0; PANEL];
        s.store_i16(integers(s, panel, s.splat(factor)), &mut numbers);
        for (to, &pair) in to.iter_mut().zip(numbers.as_chunks().0) {
            to[r] = pair;
        }
    }
    scale
}

/// Weights of a chunk's positions as integers, in pairs.
pub(super) type Weights = [[i16; 2]; CHUNK / 2];

/// Converts the weights of sixteen positions after sixteen, and returns their scale. `max` is the largest weight, `sum` their
/// sum, which is NaN if there is one among them.
#[inline(always)]
pub(super) fn convert_weights<S: Ints>(s: S, weights: &[[f32; PANEL]], max: f32, sum: f32, to: &mut [[i16; 2]]) -> f32 {
    let (scale, factor) = scale(sum, (1.0 / SUM).max(max / sum * (1.0 / MOST)));
    let (to, _) = to.as_flattened_mut().as_chunks_mut();
    for (weights, to) in weights.iter().zip(to) {
        s.store_i16(integers(s, weights, s.splat(factor)), to);
    }
    scale
}
