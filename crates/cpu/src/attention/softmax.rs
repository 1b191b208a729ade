//! The exponentials of a row of scores, and the joining of partial results.

use std::ops::Range;

use super::chunk::{BLOCK, CHUNK};
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

/// Turns the scores of one query into exponentials, zero where it does not see.
#[inline(always)]
pub(super) fn exponentiate<S: Simd>(s: S, row: &mut [f32; CHUNK], visible: &Range<usize>) -> Softmax {
    let (start, len) = (visible.start % CHUNK, visible.len());
    let blocks = start / BLOCK * BLOCK..(start + len).next_multiple_of(BLOCK);
    row[blocks.start..start].fill(f32::NEG_INFINITY);
    row[start + len..blocks.end].fill(f32::NEG_INFINITY);

    let (blocks, _) = row[blocks].as_chunks_mut::<BLOCK>();
    let max = s.largest(largest(s, blocks));
    let mut sum = s.splat(0.0);
    let (fours, rest) = blocks.as_chunks_mut();
    for blocks in fours {
        sum = exponentiate_blocks::<S, 4>(s, blocks, max, sum);
    }
    for block in rest {
        sum = exponentiate_blocks(s, std::array::from_mut(block), max, sum);
    }
    Softmax { max, sum: s.fold(sum) }
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

/// Turns scores into exponentials, and adds them to `sum` block by block.
#[inline(always)]
fn exponentiate_blocks<S: Simd, const N: usize>(s: S, blocks: &mut [[f32; BLOCK]; N], max: f32, sum: S::F) -> S::F {
    let mut x = [sum; N];
    for i in 0..N {
        x[i] = s.sub(s.load(&blocks[i]), s.splat(max));
    }
    let p = exp2(s, x);
    let mut sum = sum;
    for i in 0..N {
        sum = s.add(sum, p[i]);
        s.store(p[i], &mut blocks[i]);
    }
    sum
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
