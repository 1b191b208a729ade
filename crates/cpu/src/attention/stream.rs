//! A chunk for a few queries: keys and values are read once, and converted as they are loaded.
//!
//! So it is in decoding, where the reading is what takes time. The conversion runs beside the multiply-adds, and the
//! queries of a KV head share it.

use std::ops::Range;

use super::chunk::{BLOCK, CHUNK, KvHead, Scoring, o_width};
use super::softmax::{Results, exponentiate};
use crate::arch::ints::Ints;
use crate::arch::simd::Simd;
use crate::dispatch::kernel;

/// The most query rows at once.
pub(super) const MAX_ROWS: usize = 4;

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
        results: Results<'_>,
    ) = attend_rows;
}

#[inline(always)]
fn attend_rows<S: Ints>(
    s: S,
    kv: &KvHead<'_>,
    scoring: Scoring,
    queries: &[Query<'_>],
    fresh: bool,
    scores: &mut Scores,
    Results { softmax, o }: Results<'_>,
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
    scoring: Scoring,
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
            s.store(scoring.score(s, sums[r][c]), &mut row[c]);
        }
    }
}

/// The sums of the values that `R` queries see, weighted by their exponentials. `o (R, o_width)`
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
            weigh_value(kv, &visible[r], p[r], d, &mut o[r * o_width(kv.head_dim) + d]);
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
            let (out, _) = o[r * o_width(kv.head_dim) + d..][..D * BLOCK].as_chunks_mut();
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
