//! What attention computes: chunks of positions, and how they are joined.
//!
//! Positions are cut in chunks of [`CHUNK`], aligned to absolute positions. For one query head at one position, a chunk
//! with visible positions `j` gives a partial result that depends on nothing else:
//!
//! ```text
//! q', k'_j, v'_j                               the query, keys and values as integers, each with a scale: q is about
//!                                              q' * scale(q)
//! s_j = (q'_0 k'_j0 + q'_1 k'_j1 + …) * scale(k_j) * (scale(q) * scale * log2 e)
//!                                              the sum is exact; with a soft cap instead
//!                                              cap * tanh((…) * scale(k_j) * (scale(q) * scale / cap)) * (cap * log2 e)
//! m_c = max s_j
//! p_j = 2^(s_j - m_c)
//! l_c = sum of p_j in eight lanes, lane j % 8, in the order of j, then folded
//! w_j = p_j * scale(v_j);  w'                  all w_j as integers with a scale
//! o_c = (w'_j v'_j + …) * scale(w)             the sum is exact
//! ```
//!
//! Partial results are joined in the order of the chunks, starting from `m = -inf, l = 0, o = 0`:
//!
//! ```text
//! m' = max(m, m_c);  a = 2^(m - m');  b = 2^(m_c - m')
//! l' = fma(l_c, b, l * a);  o' = fma(o_c, b, o * a)
//! ```
//!
//! and the output is `o * (1 / l)`. A chunk without a visible position is left out. So it is free who computes which chunk
//! when, how many queries share the reading of a key, and in which order products are summed. The module `fixed` says how
//! numbers become integers.
//!
//! Keys lie with eight positions side by side, so that a register holds one component of eight keys and a score needs no
//! sum across lanes.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use muser_memory::KvPlane;

use super::fixed::most_of_keys;
use crate::arch::simd::Simd;
use crate::math::tanh;

/// Positions in a chunk.
pub(super) const CHUNK: usize = 256;
/// Positions in a block of keys.
pub(super) const BLOCK: usize = 8;
/// Keys, or components of values, that are multiplied at once.
pub(super) const PANEL: usize = 2 * BLOCK;

/// Length of a row of results: `head_dim` filled up to whole panels.
pub(super) fn o_width(head_dim: usize) -> usize {
    head_dim.next_multiple_of(PANEL)
}

/// The sixteens of a chunk that positions in it touch.
pub(super) fn panels_of(positions: &Range<usize>) -> Range<usize> {
    let start = positions.start % CHUNK;
    start / PANEL..(start + positions.len()).div_ceil(PANEL)
}

/// One KV head's keys and values.
#[derive(Clone, Copy)]
pub(super) struct KvHead<'a> {
    /// Halves. `(capacity/8, head_dim, 8)`
    k: &'a [[u16; BLOCK]],
    /// Halves. `(capacity, head_dim)`
    v: &'a [u16],
    /// Rows; a multiple of 8.
    capacity: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Position `pos` is in row `(pos + shift) % capacity`; a multiple of 8 below `capacity`.
    shift: usize,
    /// The largest integer of keys.
    pub most: f32,
}

impl<'a> KvHead<'a> {
    /// Head `head` of a plane.
    pub(super) fn new(plane: &'a KvPlane, head: usize) -> Self {
        let (capacity, head_dim) = (plane.capacity(), plane.geometry().head_dim);
        let len = capacity * head_dim;
        let (k, _) = plane.k_bits()[head * len..][..len].as_chunks();
        let v = &plane.v_bits()[head * len..][..len];
        let shift = (plane.origin_physical() + capacity - plane.origin_logical() % capacity) % capacity;
        debug_assert_eq!(shift % BLOCK, 0, "a position's lane is its remainder by {BLOCK}");
        Self { k, v, capacity, head_dim, shift, most: most_of_keys(head_dim) }
    }

    /// The keys of eight positions from `pos` on, a multiple of eight. Those that the plane does not hold are numbers
    /// without meaning. `(head_dim, 8)`
    #[inline(always)]
    pub(super) fn keys(&self, pos: usize) -> &'a [[u16; BLOCK]] {
        &self.k[self.row_of(pos) / BLOCK * self.head_dim..][..self.head_dim]
    }

    /// The values of eight positions from `pos` on, a multiple of eight, as [`keys`](Self::keys). `(8, head_dim)`
    #[inline(always)]
    pub(super) fn values(&self, pos: usize) -> &'a [u16] {
        &self.v[self.row_of(pos) * self.head_dim..][..BLOCK * self.head_dim]
    }

    /// The row of a position.
    #[inline(always)]
    fn row_of(&self, pos: usize) -> usize {
        (pos + self.shift) % self.capacity
    }
}

/// How scores, in units of `ln 2`, are made of products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scoring {
    /// Factor on the products.
    factor: f32,
    /// What a hyperbolic tangent is multiplied by.
    cap: Option<f32>,
}

impl Scoring {
    /// Scores that are products times `scale`, bounded by `soft_cap`.
    pub(super) fn new(scale: f32, soft_cap: Option<f32>) -> Self {
        match soft_cap {
            None => Self { factor: scale * LOG2_E, cap: None },
            Some(cap) => Self { factor: scale / cap, cap: Some(cap * LOG2_E) },
        }
    }

    /// The factor on the products of a query with this scale.
    pub(super) fn query_factor(self, scale: f32) -> f32 {
        scale * self.factor
    }

    /// Scores of products that have been multiplied by [`query_factor`](Self::query_factor).
    #[inline(always)]
    pub(super) fn score<S: Simd>(self, s: S, products: S::F) -> S::F {
        match self.cap {
            None => products,
            Some(cap) => s.mul(tanh(s, products), s.splat(cap)),
        }
    }
}
