//! Attention of a few queries to one chunk of positions, and the joining of chunks.
//!
//! Positions are cut in chunks of [`CHUNK`], aligned to absolute positions. For one query head at one position, a chunk
//! with visible positions `j` gives a partial result that depends on nothing else:
//!
//! ```text
//! s_j = (q_0 k_j0 + q_1 k_j1 + …) * scale      one chain of fused multiply-adds from 0, in the order of d;
//!                                              with a soft cap then cap * tanh(s_j / cap)
//! m_c = max s_j
//! p_j = exp(s_j - m_c)
//! l_c = sum of p_j in eight lanes, lane j % 8, in the order of j, then folded
//! o_c = p_j v_j + …                            one chain of fused multiply-adds from 0, in the order of j
//! ```
//!
//! Partial results are joined in the order of the chunks, starting from `m = -inf, l = 0, o = 0`:
//!
//! ```text
//! m' = max(m, m_c);  a = exp(m - m');  b = exp(m_c - m')
//! l' = fma(l_c, b, l * a);  o' = fma(o_c, b, o * a)
//! ```
//!
//! and the output is `o * (1 / l)`. A chunk without a visible position is left out. So it is free who computes which chunk
//! when, and how many queries share the reading of a key.
//!
//! Keys lie with eight positions side by side, so that a register holds one component of eight keys and a score needs no
//! sum across lanes. Halves are converted as they are loaded, which costs less than a pass of its own: the conversion runs
//! beside the multiply-adds, and a tile of queries shares it.

use std::ops::Range;

use muser_memory::KvPlane;

use crate::arch::ints::Ints;
use crate::arch::simd::Simd;
use crate::dispatch::kernel;
use crate::elementwise::soft_cap;
use crate::math::exp;

/// Positions in a chunk.
pub(super) const CHUNK: usize = 256;
/// Positions in a block of keys.
pub(super) const BLOCK: usize = 8;
/// The most query rows in a tile.
pub(super) const MAX_ROWS: usize = 4;

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

    #[inline(always)]
    fn row_of(&self, pos: usize) -> usize {
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

/// One query head at one position.
#[derive(Clone)]
pub(super) struct Query<'a> {
    /// The query. `(head_dim)`
    pub q: &'a [f32],
    /// The positions of the chunk that it sees; may be empty.
    pub visible: Range<usize>,
}

/// Scores of a tile, and then their exponentials.
pub(super) type Scores = [[f32; CHUNK]; MAX_ROWS];

/// Maximum and sum of the exponentials of a partial result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Softmax {
    /// The largest score.
    pub max: f32,
    /// Sum of `exp(score - max)`.
    pub sum: f32,
}

impl Softmax {
    /// What joining starts from.
    pub(super) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };
}

/// Where the partial results of some queries for a chunk go.
pub(super) struct Partial<'a> {
    pub softmax: &'a mut [Softmax], // (n)
    pub o: &'a mut [f32],           // (n, head_dim)
}

kernel! {
    /// Computes the partial results of `n`, up to [`MAX_ROWS`], queries for one chunk. Those of queries that see no
    /// position of the chunk are left as they are. `fresh` says that the chunk is probably not in the cache.
    ///
    /// # Panics
    /// When there are more queries, or an operand is too short.
    pub(super) fn attend(
        kv: &KvHead<'_>,
        scoring: Scoring,
        queries: &[Query<'_>],
        fresh: bool,
        scores: &mut Scores,
        partial: Partial<'_>,
    ) = attend_rows;
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

#[inline(always)]
fn attend_rows<S: Ints>(
    s: S,
    kv: &KvHead<'_>,
    scoring: Scoring,
    queries: &[Query<'_>],
    fresh: bool,
    scores: &mut Scores,
    Partial { softmax, o }: Partial<'_>,
) {
    // Tile shapes: eight or nine sums, which hides the latency of a multiply-add; with more, the operands beside them are
    // too many for sixteen registers.
    match queries.len() {
        0 => return,
        1 => score_tile::<S, 1, 8>(s, kv, scoring, queries, fresh, scores),
        2 => score_tile::<S, 2, 4>(s, kv, scoring, queries, fresh, scores),
        3 => score_tile::<S, 3, 3>(s, kv, scoring, queries, fresh, scores),
        4 => score_tile::<S, 4, 2>(s, kv, scoring, queries, fresh, scores),
        n => panic!("{n} queries in a tile of {MAX_ROWS}"),
    }
    for ((query, row), softmax) in queries.iter().zip(scores.iter_mut()).zip(softmax.iter_mut()) {
        if !query.visible.is_empty() {
            *softmax = exponentiate(s, row, &query.visible);
        }
    }
    match queries.len() {
        1 => weigh::<S, 1, 8>(s, kv, queries, scores, o),
        2 => weigh::<S, 2, 4>(s, kv, queries, scores, o),
        3 => weigh::<S, 3, 3>(s, kv, queries, scores, o),
        _ => weigh::<S, 4, 2>(s, kv, queries, scores, o),
    }
}

/// The scores of `R` queries for every block that one of them sees, `C` blocks at a time.
#[inline(always)]
fn score_tile<S: Ints, const R: usize, const C: usize>(
    s: S,
    kv: &KvHead<'_>,
    scoring: Scoring,
    queries: &[Query<'_>],
    fresh: bool,
    scores: &mut Scores,
) {
    let (mut start, mut end) = (usize::MAX, 0);
    for Query { visible, .. } in queries.iter().filter(|query| !query.visible.is_empty()) {
        (start, end) = (start.min(visible.start), end.max(visible.end));
    }
    let q: [&[f32]; R] = std::array::from_fn(|r| &queries[r].q[..kv.head_dim]);
    let (mut block, end) = (start / BLOCK, end.div_ceil(BLOCK));
    while block + C <= end {
        if fresh {
            score_blocks::<S, R, C, true>(s, kv, scoring, &q, block, scores);
        } else {
            score_blocks::<S, R, C, false>(s, kv, scoring, &q, block, scores);
        }
        block += C;
    }
    while block < end {
        score_blocks::<S, R, 1, false>(s, kv, scoring, &q, block, scores);
        block += 1;
    }
}

/// With `PREFETCH`, asks for the values that belong to the keys, line by line: they will be read panel by panel, in steps
/// that the hardware does not foresee, and the scores leave time for them to come.
#[inline(always)]
fn score_blocks<S: Ints, const R: usize, const C: usize, const PREFETCH: bool>(
    s: S,
    kv: &KvHead<'_>,
    Scoring { scale, soft_cap: cap }: Scoring,
    q: &[&[f32]; R],
    block: usize,
    scores: &mut Scores,
) {
    let head_dim = kv.head_dim;
    let q: [&[f32]; R] = std::array::from_fn(|r| &q[r][..head_dim]);
    let k: [&[[u16; BLOCK]]; C] = std::array::from_fn(|c| {
        let block = kv.row_of((block + c) * BLOCK) / BLOCK;
        &kv.k[block * head_dim..][..head_dim]
    });
    let values: [&u16; C] = std::array::from_fn(|c| &kv.v[kv.row_of((block + c) * BLOCK) * head_dim]);
    let mut sums = [[s.splat(0.0); C]; R];
    for d in 0..head_dim {
        if PREFETCH && d % 4 == 0 {
            for value in values {
                s.prefetch(value, d * size_of::<[u16; BLOCK]>());
            }
        }
        let mut key = [s.splat(0.0); C];
        for c in 0..C {
            key[c] = s.load_f16(&k[c][d]);
        }
        for r in 0..R {
            let q = s.splat(q[r][d]);
            for c in 0..C {
                sums[r][c] = s.fma(q, key[c], sums[r][c]);
            }
        }
    }
    let first = block * BLOCK % CHUNK;
    for r in 0..R {
        let (row, _) = scores[r][first..][..C * BLOCK].as_chunks_mut();
        for c in 0..C {
            let mut score = s.mul(sums[r][c], s.splat(scale));
            if let Some(cap) = cap {
                score = soft_cap(s, score, cap);
            }
            s.store(score, &mut row[c]);
        }
    }
}

/// Turns the scores of one query into exponentials, zero where it does not see.
#[inline(always)]
fn exponentiate<S: Simd>(s: S, row: &mut [f32; CHUNK], visible: &Range<usize>) -> Softmax {
    let (start, len) = (visible.start % CHUNK, visible.len());
    let blocks = start / BLOCK * BLOCK..(start + len).next_multiple_of(BLOCK);
    row[blocks.start..start].fill(f32::NEG_INFINITY);
    row[start + len..blocks.end].fill(f32::NEG_INFINITY);

    let (blocks, _) = row[blocks].as_chunks_mut();
    let mut max = s.splat(f32::NEG_INFINITY);
    for block in blocks.iter() {
        max = s.max(s.load(block), max);
    }
    let max = s.largest(max);
    let mut sum = s.splat(0.0);
    for block in blocks {
        let p = exp(s, s.sub(s.load(block), s.splat(max)));
        sum = s.add(sum, p);
        s.store(p, block);
    }
    Softmax { max, sum: s.fold(sum) }
}

/// The sums of the values that `R` queries see, weighted by their exponentials. `o (R, head_dim)`
#[inline(always)]
fn weigh<S: Simd, const R: usize, const D: usize>(
    s: S,
    kv: &KvHead<'_>,
    queries: &[Query<'_>],
    scores: &[[f32; CHUNK]],
    o: &mut [f32],
) {
    let p: [&[f32; CHUNK]; R] = std::array::from_fn(|r| &scores[r]);
    let visible: [Range<usize>; R] = std::array::from_fn(|r| queries[r].visible.clone());
    let mut d = 0;
    while d + D * BLOCK <= kv.head_dim {
        weigh_panel::<S, R, D>(s, kv, &visible, &p, d, o);
        d += D * BLOCK;
    }
    while d + 2 * BLOCK <= kv.head_dim {
        weigh_panel::<S, R, 2>(s, kv, &visible, &p, d, o);
        d += 2 * BLOCK;
    }
    while d + BLOCK <= kv.head_dim {
        weigh_panel::<S, R, 1>(s, kv, &visible, &p, d, o);
        d += BLOCK;
    }
    for d in d..kv.head_dim {
        for r in 0..R {
            weigh_value(kv, &visible[r], p[r], d, &mut o[r * kv.head_dim + d]);
        }
    }
}

/// `D` times eight components of [`weigh`], from component `d` on.
///
/// Positions that all queries see are read once for all; the few before and after, which only some see, are added for
/// those alone: a product with a zero would not do, since a value may be infinite.
#[inline(always)]
fn weigh_panel<S: Simd, const R: usize, const D: usize>(
    s: S,
    kv: &KvHead<'_>,
    visible: &[Range<usize>; R],
    p: &[&[f32; CHUNK]; R],
    d: usize,
    o: &mut [f32],
) {
    let mut common = 0..usize::MAX;
    for visible in visible {
        common = common.start.max(visible.start)..common.end.min(visible.end);
    }
    common.end = common.end.max(common.start);

    let mut sums = [[s.splat(0.0); D]; R];
    for r in 0..R {
        let before = visible[r].start..visible[r].end.min(common.start);
        sums[r] = weigh_positions(s, kv, before, p[r], d, sums[r]);
    }
    let mut row = kv.row_of(common.start);
    for pos in common.clone() {
        let value: [S::F; D] = load_value(s, kv, row, d);
        for r in 0..R {
            let p = s.splat(p[r][pos % CHUNK]);
            for c in 0..D {
                sums[r][c] = s.fma(p, value[c], sums[r][c]);
            }
        }
        row += 1;
        if row == kv.capacity {
            row = 0;
        }
    }
    for r in 0..R {
        let after = visible[r].start.max(common.end)..visible[r].end;
        sums[r] = weigh_positions(s, kv, after, p[r], d, sums[r]);
    }
    for r in 0..R {
        if !visible[r].is_empty() {
            let (out, _) = o[r * kv.head_dim + d..][..D * BLOCK].as_chunks_mut();
            for c in 0..D {
                s.store(sums[r][c], &mut out[c]);
            }
        }
    }
}

#[inline(always)]
fn weigh_positions<S: Simd, const D: usize>(
    s: S,
    kv: &KvHead<'_>,
    positions: Range<usize>,
    p: &[f32; CHUNK],
    d: usize,
    mut sums: [S::F; D],
) -> [S::F; D] {
    for pos in positions {
        let value: [S::F; D] = load_value(s, kv, kv.row_of(pos), d);
        let p = s.splat(p[pos % CHUNK]);
        for c in 0..D {
            sums[c] = s.fma(p, value[c], sums[c]);
        }
    }
    sums
}

#[inline(always)]
fn load_value<S: Simd, const D: usize>(s: S, kv: &KvHead<'_>, row: usize, d: usize) -> [S::F; D] {
    let (halves, _) = kv.v[row * kv.head_dim + d..][..D * BLOCK].as_chunks();
    let mut value = [s.splat(0.0); D];
    for c in 0..D {
        value[c] = s.load_f16(&halves[c]);
    }
    value
}

/// One component of [`weigh`], for a `head_dim` that is not a multiple of eight.
#[inline(always)]
fn weigh_value(kv: &KvHead<'_>, visible: &Range<usize>, p: &[f32; CHUNK], d: usize, o: &mut f32) {
    if visible.is_empty() {
        return;
    }
    let mut sum = 0.0;
    for pos in visible.clone() {
        let value = half::f16::from_bits(kv.v[kv.row_of(pos) * kv.head_dim + d]).to_f32();
        sum = p[pos % CHUNK].mul_add(value, sum);
    }
    *o = sum;
}

#[inline(always)]
fn join_rows<S: Simd>(s: S, softmax: &mut Softmax, o: &mut [f32], part: Softmax, part_o: &[f32]) {
    assert_eq!(o.len(), part_o.len(), "length of the partial result");
    let max = if part.max > softmax.max { part.max } else { softmax.max };
    let mut factors = [0.0; 8];
    factors[..2].copy_from_slice(&[softmax.max - max, part.max - max]);
    let exponentials = exp(s, s.load(&factors));
    s.store(exponentials, &mut factors);
    let [a, b, ..] = factors;
    *softmax = Softmax { max, sum: part.sum.mul_add(b, softmax.sum * a) };
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
