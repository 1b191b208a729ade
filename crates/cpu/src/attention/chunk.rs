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
//! when, how many queries share the reading of a key, and in which order products are summed. Keys and values are integers in
//! the planes; the module `integers` says how queries and weights become such.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use muser_memory::KvPlane;

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

/// Vectors of keys, or of components of values, that are multiplied at once.
pub(super) const COLS: usize = PANEL / BLOCK;

/// Sixteen integers, as bits.
pub(super) type Vector = [u16; 2 * BLOCK];

/// One KV head's keys and values.
#[derive(Clone, Copy)]
pub(super) struct KvHead<'a> {
    k: &'a [Vector],              // (capacity/8, width/2), pairs of components of eight keys
    k_scales: &'a [[u16; BLOCK]], // (capacity/8)
    v: &'a [[Vector; COLS]],      // (capacity/8, width/16, 4), sixteen components of pairs of values
    v_scales: &'a [[u16; BLOCK]], // (capacity/8)
    /// Pairs of components in a head.
    pub n_pair: usize,
    /// Sixteens of components in a head.
    pub n_panel: usize,
    /// Pairs of values in a block. It is four, but the compiler is not to know: unrolled, the loop over them would take more
    /// registers than there are.
    n_value_pair: usize,
    /// Blocks; position `pos` is in block `pos / 8 + shift` of them, counted round.
    n_block: usize,
    shift: usize,
}

impl<'a> KvHead<'a> {
    /// Head `head` of a plane.
    pub(super) fn new(plane: &'a KvPlane, head: usize) -> Self {
        let (capacity, width) = (plane.capacity(), plane.geometry().head_width());
        let shift = (plane.origin_physical() + capacity - plane.origin_logical() % capacity) % capacity;
        debug_assert_eq!(shift % BLOCK, 0, "a position's lane is its remainder by {BLOCK}");
        Self {
            k: plane.keys(head).as_chunks().0,
            k_scales: plane.key_scales(head).as_chunks().0,
            v: plane.values(head).as_chunks().0.as_chunks().0,
            v_scales: plane.value_scales(head).as_chunks().0,
            n_pair: width / 2,
            n_panel: width / PANEL,
            n_value_pair: std::hint::black_box(BLOCK / 2),
            n_block: capacity / BLOCK,
            shift: shift / BLOCK,
        }
    }

    /// The place of the block of eight positions from `pos` on, a multiple of eight.
    #[inline(always)]
    pub(super) fn block_of(&self, pos: usize) -> usize {
        (pos / BLOCK + self.shift) % self.n_block
    }

    /// The block after a block.
    #[inline(always)]
    pub(super) fn next(&self, block: usize) -> usize {
        if block + 1 == self.n_block { 0 } else { block + 1 }
    }

    /// The keys of a block. Those that the plane does not hold are numbers without meaning. `(n_pair)`
    #[inline(always)]
    pub(super) fn keys(&self, block: usize) -> &'a [Vector] {
        &self.k[block * self.n_pair..][..self.n_pair]
    }

    /// The scales of the keys of a block.
    #[inline(always)]
    pub(super) fn key_scales(&self, block: usize) -> &'a [u16; BLOCK] {
        &self.k_scales[block]
    }

    /// Sixteen components, number `panel` of them, of the values of a block in pairs. `(4)`
    #[inline(always)]
    pub(super) fn values(&self, block: usize, panel: usize) -> &'a [[Vector; COLS]] {
        &self.v[(block * self.n_panel + panel) * self.n_value_pair..][..self.n_value_pair]
    }

    /// The scales of the values of a block.
    #[inline(always)]
    pub(super) fn value_scales(&self, block: usize) -> &'a [u16; BLOCK] {
        &self.v_scales[block]
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
