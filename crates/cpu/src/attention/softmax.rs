//! From scores to weights, and the joining of partial results.

use std::array::{from_mut, from_ref};
use std::ops::Range;

use super::chunk::{BLOCK, CHUNK, COLS, PANEL, panels_of};
use super::integers::{Weights, convert_weights};
use crate::arch::ints::Ints;
use crate::arch::simd::Simd;
use crate::dispatch::kernel;
use crate::math::exp2;

/// Maximum and sum of the exponentials of a partial result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Softmax {
    /// The largest score.
    pub max: f32,
    /// Sum of `2^(score - max)`.
    pub sum: f32,
}

impl Softmax {
    /// What joining starts from.
    pub(super) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Where the results of some queries go. Rows of `o` are as long as [`o_width`](super::chunk::o_width) says.
pub(super) struct Results<'a> {
    pub softmax: &'a mut [Softmax], // (n)
    pub o: &'a mut [f32],           // (n, o_width)
}

kernel! {
    /// Joins a chunk's partial result `(part, part_o)` to those before it. `o, part_o (head_dim)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub(super) fn join(softmax: &mut Softmax, o: &mut [f32], part: Softmax, part_o: &[f32]) = join_rows;
}

kernel! {
    /// The output of a query whose chunks are joined. `o, out (head_dim)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub(super) fn finish(softmax: Softmax, o: &[f32], out: &mut [f32]) = finish_row;
}

/// Turns the scores of one query into weights: exponentials times the scales of the values. Of the sixteens that `any`
/// touches, in which the query sees something, what it does not see has weight zero. Returns with the partial result the scale
/// of the weights.
#[inline(always)]
pub(super) fn weigh<S: Ints>(
    s: S,
    scores: &mut [f32; CHUNK],
    value_scales: &[[f32; BLOCK]],
    visible: &Range<usize>,
    any: &Range<usize>,
    weights: &mut Weights,
) -> (Softmax, f32) {
    let (start, end) = (visible.start % CHUNK, visible.start % CHUNK + visible.len());
    let panels = panels_of(visible);
    let around = panels_of(any);
    weights[around.start * BLOCK..panels.start * BLOCK].fill([0; 2]);
    weights[panels.end * BLOCK..around.end * BLOCK].fill([0; 2]);
    scores[panels.start * PANEL..start].fill(f32::NEG_INFINITY);
    scores[end..panels.end * PANEL].fill(f32::NEG_INFINITY);

    let pairs = panels.start * BLOCK..panels.end * BLOCK;
    let blocks = panels.start * COLS..panels.end * COLS;
    let (row, _) = scores[panels.start * PANEL..panels.end * PANEL].as_chunks_mut::<BLOCK>();
    let max = s.largest(largest(s, row));
    let mut sums = Sums { p: s.splat(0.0), weights: s.splat(0.0), greatest: s.splat(0.0) };
    let ((fours, rest), (four_scales, rest_scales)) = (row.as_chunks_mut::<4>(), value_scales[blocks].as_chunks::<4>());
    for (blocks, scales) in fours.iter_mut().zip(four_scales) {
        weigh_blocks(s, blocks, scales, max, &mut sums);
    }
    for (block, scales) in rest.iter_mut().zip(rest_scales) {
        weigh_blocks(s, from_mut(block), from_ref(scales), max, &mut sums);
    }
    let Sums { p, weights: sum, greatest } = sums;
    let (greatest, sum) = (s.largest(greatest), s.fold(sum));
    let scale = convert_weights(s, &scores.as_chunks().0[panels], greatest, sum, &mut weights[pairs]);
    (Softmax { max, sum: s.fold(p) }, scale)
}

/// What is taken of exponentials and weights, by lane.
struct Sums<S: Simd> {
    /// Sum of the exponentials.
    p: S::F,
    /// Sum of the weights.
    weights: S::F,
    /// The largest weights; NaN among them is passed over.
    greatest: S::F,
}

/// The largest scores by lane; NaN among them is passed over.
#[inline(always)]
fn largest<S: Simd>(s: S, blocks: &[[f32; BLOCK]]) -> S::F {
    let mut max = s.splat(f32::NEG_INFINITY);
    for block in blocks {
        max = s.max(s.load(block), max);
    }
    max
}

/// Turns scores into weights, and takes their sums block by block.
#[inline(always)]
fn weigh_blocks<S: Simd, const N: usize>(
    s: S,
    blocks: &mut [[f32; BLOCK]; N],
    scales: &[[f32; BLOCK]; N],
    max: f32,
    sums: &mut Sums<S>,
) {
    let mut x = [s.splat(max); N];
    for i in 0..N {
        x[i] = s.sub(s.load(&blocks[i]), x[i]);
    }
    let p = exp2(s, x);
    for i in 0..N {
        sums.p = s.add(sums.p, p[i]);
        // What is not seen may have a scale without meaning.
        let weight = s.select_lt(s.splat(0.0), p[i], s.mul(p[i], s.load(&scales[i])), s.splat(0.0));
        sums.weights = s.add(sums.weights, weight);
        sums.greatest = s.max(weight, sums.greatest);
        s.store(weight, &mut blocks[i]);
    }
}

/// Joins a chunk's maximum and sum to those before it. Returns the factors on the values before it, and on the chunk's.
#[inline(always)]
pub(super) fn join_softmax<S: Simd>(s: S, softmax: &mut Softmax, part: Softmax) -> (f32, f32) {
    let max = if part.max > softmax.max { part.max } else { softmax.max };
    let mut factors = [0.0; 8];
    factors[..2].copy_from_slice(&[softmax.max - max, part.max - max]);
    let [exponentials] = exp2(s, [s.load(&factors)]);
    s.store(exponentials, &mut factors);
    let [a, b, ..] = factors;
    *softmax = Softmax { max, sum: part.sum.mul_add(b, softmax.sum * a) };
    (a, b)
}

#[inline(always)]
fn join_rows<S: Simd>(s: S, softmax: &mut Softmax, o: &mut [f32], part: Softmax, part_o: &[f32]) {
    assert_eq!(o.len(), part_o.len(), "length of the partial result");
    let (a, b) = join_softmax(s, softmax, part);
    for (o, part) in o.iter_mut().zip(part_o) {
        *o = part.mul_add(b, *o * a);
    }
}

#[inline(always)]
fn finish_row<S: Simd>(_: S, softmax: Softmax, o: &[f32], out: &mut [f32]) {
    assert_eq!(o.len(), out.len(), "length of the output");
    let factor = 1.0 / softmax.sum;
    for (out, o) in out.iter_mut().zip(o) {
        *out = o * factor;
    }
}
