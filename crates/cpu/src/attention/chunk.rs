//! What attention computes: chunks of positions, and how they are joined.
//!
//! Positions are cut in chunks of [`CHUNK`], aligned to absolute positions. For one query head at one position, a chunk
//! with visible positions `j` gives a partial result that depends on nothing else:
//!
//! ```text
//! s_j = (q_0 k_j0 + q_1 k_j1 + …) * (scale * log2 e)
//!                                              one chain of fused multiply-adds from 0, in the order of d; with a soft
//!                                              cap instead cap * tanh((…) * scale / cap) * log2 e
//! m_c = max s_j
//! p_j = 2^(s_j - m_c)
//! l_c = sum of p_j in eight lanes, lane j % 8, in the order of j, then folded
//! o_c = p_j v_j + …                            one chain of fused multiply-adds from 0, in the order of j
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
//! when, and how many queries share the reading of a key.
//!
//! There are two ways to it: `tile` for many queries at once, `stream` for a few.
//!
//! Keys lie with eight positions side by side, so that a register holds one component of eight keys and a score needs no
//! sum across lanes.

use std::f32::consts::LOG2_E;

use muser_memory::KvPlane;

use crate::arch::simd::Simd;
use crate::elementwise::soft_cap;

/// Positions in a chunk.
pub(super) const CHUNK: usize = 256;
/// Positions in a block of keys.
pub(super) const BLOCK: usize = 8;
/// Keys, or components of values, that `tile` multiplies at once.
pub(super) const PANEL: usize = 2 * BLOCK;

/// Length of a row of results: `head_dim` filled up to whole panels.
pub(super) fn o_width(head_dim: usize) -> usize {
    head_dim.next_multiple_of(PANEL)
}

/// One KV head's keys and values.
#[derive(Clone, Copy)]
pub(super) struct KvHead<'a> {
    /// Halves. `(capacity/8, head_dim, 8)`
    pub k: &'a [[u16; BLOCK]],
    /// Halves. `(capacity, head_dim)`
    pub v: &'a [u16],
    /// Rows; a multiple of 8.
    pub capacity: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Position `pos` is in row `(pos + shift) % capacity`; a multiple of 8 below `capacity`.
    pub shift: usize,
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
        Self { k, v, capacity, head_dim, shift }
    }

    /// The row of a position.
    #[inline(always)]
    pub(super) fn row_of(&self, pos: usize) -> usize {
        (pos + self.shift) % self.capacity
    }
}

/// How scores are made of products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scoring {
    /// Factor on the products.
    pub scale: f32,
    /// Bound on the scores' magnitude.
    pub soft_cap: Option<f32>,
}

impl Scoring {
    /// Scores of products, in units of `ln 2`.
    #[inline(always)]
    pub(super) fn score<S: Simd>(self, s: S, products: S::F) -> S::F {
        match self.soft_cap {
            None => s.mul(products, s.splat(self.scale * LOG2_E)),
            Some(cap) => s.mul(soft_cap(s, s.mul(products, s.splat(self.scale)), cap), s.splat(LOG2_E)),
        }
    }
}
