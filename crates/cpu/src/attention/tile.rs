//! A chunk for many queries: keys and values are converted once for all of them.
//!
//! Sixteen keys, or sixteen components of each value, are converted into a panel, and every tile of queries passes by it
//! while it lies in the first-level cache. A tile's twelve sums, two vectors of the panel and one number of a query take
//! fifteen registers, and twelve multiply-adds take eight loads: so the multiply-adds alone set the pace.

use std::ops::Range;

use super::chunk::{BLOCK, CHUNK, KvHead, PANEL, Scoring, o_width};
use super::softmax::{Results, exponentiate, join_softmax};
use crate::arch::simd::Simd;
use crate::dispatch::kernel;

/// Queries in a tile.
pub(super) const ROWS: usize = 6;
/// Vectors in a row of a panel.
const COLS: usize = PANEL / BLOCK;

/// Some queries of one KV head, and what their chunks take on the way.
#[derive(Default)]
pub(super) struct Tiles {
    /// Queries; the last one again in what fills up the last tile. In a tile, the same component of all stands together.
    q: Vec<[f32; ROWS]>, // (n_tile, head_dim)
    /// What each tile sees of a chunk.
    views: Vec<View>, // (n_tile)
    /// Scores, and then their exponentials.
    scores: Vec<[[f32; CHUNK]; ROWS]>, // (n_tile)
    /// How a chunk is joined: the factors on the values before it, and on its own.
    factors: Vec<[(f32, f32); ROWS]>, // (n_tile)
    /// The sixteen keys, or sixteen components of the values, that are multiplied.
    panel: Vec<[[f32; BLOCK]; COLS]>, // (head_dim or CHUNK)
}

/// What becomes of a chunk's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are joined to those of the chunks before it.
    Join,
    /// They are stored, to be joined later.
    Store,
}

/// The positions of a chunk that a tile's queries see.
#[derive(Clone)]
struct View {
    /// Those that each sees; none for what fills up the last tile.
    rows: [Range<usize>; ROWS],
    /// From the first to the last that one of them sees.
    any: Range<usize>,
    /// Those that all of them see but the ones that see none.
    all: Range<usize>,
}

impl View {
    const EMPTY: Self = Self { rows: [const { 0..0 }; ROWS], any: 0..0, all: 0..0 };

    fn new(rows: [Range<usize>; ROWS]) -> Self {
        let (mut first, mut end) = (usize::MAX, 0);
        let (mut first_of_all, mut end_of_all) = (0, usize::MAX);
        for row in rows.iter().filter(|row| !row.is_empty()) {
            (first, end) = (first.min(row.start), end.max(row.end));
            (first_of_all, end_of_all) = (first_of_all.max(row.start), end_of_all.min(row.end));
        }
        if end == 0 {
            return Self::EMPTY;
        }
        let (any, all) = (first..end, first_of_all..end_of_all.max(first_of_all));
        Self { rows, any, all }
    }
}

impl Tiles {
    /// Takes `n` queries of `head_dim` values, one from each call of `query`. There is at least one.
    pub(super) fn load<'q>(&mut self, n: usize, head_dim: usize, query: impl Fn(usize) -> &'q [f32]) {
        let n_tile = n.div_ceil(ROWS);
        self.q.resize(n_tile * head_dim, [0.0; ROWS]);
        self.views.resize(n_tile, View::EMPTY);
        self.scores.resize(n_tile, [[0.0; CHUNK]; ROWS]);
        self.factors.resize(n_tile, [(0.0, 0.0); ROWS]);
        self.panel.resize(head_dim.max(CHUNK), [[0.0; BLOCK]; COLS]);
        for (tile, to) in self.q.chunks_exact_mut(head_dim).enumerate() {
            let q: [&[f32]; ROWS] = std::array::from_fn(|r| &query((tile * ROWS + r).min(n - 1))[..head_dim]);
            for (d, to) in to.iter_mut().enumerate() {
                *to = q.map(|q| q[d]);
            }
        }
    }

    /// Sets the positions of a chunk that each of the `n` queries sees.
    pub(super) fn see(&mut self, n: usize, visible: impl Fn(usize) -> Range<usize>) {
        for (tile, view) in self.views.iter_mut().enumerate() {
            *view = View::new(std::array::from_fn(|r| {
                let row = tile * ROWS + r;
                if row < n { visible(row) } else { 0..0 }
            }));
        }
    }
}

kernel! {
    /// Computes a chunk for the queries of `tiles`, which have been loaded and told what they see. The results of queries
    /// that see no position of the chunk are left as they are.
    ///
    /// # Panics
    /// When an operand is too short.
    pub(super) fn attend(
        kv: &KvHead<'_>,
        scoring: Scoring,
        fate: Fate,
        tiles: &mut Tiles,
        results: Results<'_>,
    ) = attend_tiles;
}

#[inline(always)]
fn attend_tiles<S: Simd>(
    s: S,
    kv: &KvHead<'_>,
    scoring: Scoring,
    fate: Fate,
    tiles: &mut Tiles,
    Results { softmax, o }: Results<'_>,
) {
    let Tiles { q, views, scores, factors, panel } = tiles;
    let (mut start, mut end) = (usize::MAX, 0);
    for View { any, .. } in views.iter().filter(|view| !view.any.is_empty()) {
        (start, end) = (start.min(any.start), end.max(any.end));
    }

    start = start.min(end);
    for first in (start / PANEL * PANEL..end).step_by(PANEL) {
        let keys = &mut panel[..kv.head_dim];
        convert_keys(s, kv, first, keys);
        let tiles = q.chunks_exact(kv.head_dim).zip(views.iter()).zip(scores.iter_mut());
        for ((q, View { any, .. }), scores) in tiles {
            if first < any.end && first + PANEL > any.start {
                score(s, scoring, q, keys, scores, first % CHUNK);
            }
        }
    }

    let rows = views.iter().flat_map(|view| &view.rows);
    let rows = rows.zip(scores.as_flattened_mut()).zip(factors.as_flattened_mut()).zip(softmax);
    for (((visible, scores), factors), softmax) in rows {
        if visible.is_empty() {
            continue;
        }
        let part = exponentiate(s, scores, visible);
        match fate {
            Fate::Join => *factors = join_softmax(s, softmax, part),
            Fate::Store => *softmax = part,
        }
    }

    let o_width = o_width(kv.head_dim);
    let n_row = o.len() / o_width;
    for d in (0..kv.head_dim).step_by(PANEL) {
        let values = &mut panel[..CHUNK];
        convert_values(s, kv, start..end, d, values);
        for (tile, ((view, p), factors)) in views.iter().zip(scores.iter()).zip(factors.iter()).enumerate() {
            if view.any.is_empty() {
                continue;
            }
            let sums = weigh(s, view, p, values);
            for r in 0..ROWS {
                let row = tile * ROWS + r;
                if row < n_row && !view.rows[r].is_empty() {
                    let (out, _) = o[row * o_width + d..][..PANEL].as_chunks_mut();
                    for c in 0..COLS {
                        let sum = match fate {
                            Fate::Join => {
                                let (a, b) = factors[r];
                                s.fma(sums[r][c], s.splat(b), s.mul(s.load(&out[c]), s.splat(a)))
                            }
                            Fate::Store => sums[r][c],
                        };
                        s.store(sum, &mut out[c]);
                    }
                }
            }
        }
    }
}

/// Converts sixteen keys from position `first` on, a multiple of sixteen. Those that the plane does not hold become
/// numbers without meaning.
#[inline(always)]
fn convert_keys<S: Simd>(s: S, kv: &KvHead<'_>, first: usize, keys: &mut [[[f32; BLOCK]; COLS]]) {
    for c in 0..COLS {
        let block = kv.row_of(first + c * BLOCK) / BLOCK;
        let halves = &kv.k[block * kv.head_dim..][..kv.head_dim];
        for (to, from) in keys.iter_mut().zip(halves) {
            s.store(s.load_f16(from), &mut to[c]);
        }
    }
}

/// Converts sixteen components, from `d` on, of the values at `positions`, which lie in one chunk. Components past the
/// last are zero.
#[inline(always)]
fn convert_values<S: Simd>(
    s: S,
    kv: &KvHead<'_>,
    positions: Range<usize>,
    d: usize,
    values: &mut [[[f32; BLOCK]; COLS]],
) {
    let mut row = kv.row_of(positions.start);
    for to in &mut values[positions.start % CHUNK..][..positions.len()] {
        let from = &kv.v[row * kv.head_dim..][..kv.head_dim][d..];
        if let Some(halves) = from.first_chunk::<PANEL>() {
            let (halves, _) = halves.as_chunks();
            for c in 0..COLS {
                s.store(s.load_f16(&halves[c]), &mut to[c]);
            }
        } else {
            let mut halves = [[0; BLOCK]; COLS];
            halves.as_flattened_mut()[..from.len()].copy_from_slice(from);
            for c in 0..COLS {
                s.store(s.load_f16(&halves[c]), &mut to[c]);
            }
        }
        row += 1;
        if row == kv.capacity {
            row = 0;
        }
    }
}

/// The scores of a tile for sixteen keys, which are number `at` and following of the chunk.
#[inline(always)]
fn score<S: Simd>(
    s: S,
    scoring: Scoring,
    q: &[[f32; ROWS]],
    keys: &[[[f32; BLOCK]; COLS]],
    scores: &mut [[f32; CHUNK]; ROWS],
    at: usize,
) {
    let mut sums = [[s.splat(0.0); COLS]; ROWS];
    for (q, keys) in q.iter().zip(keys) {
        add(s, q, keys, &mut sums);
    }
    for r in 0..ROWS {
        let (out, _) = scores[r][at..][..PANEL].as_chunks_mut();
        for c in 0..COLS {
            s.store(scoring.score(s, sums[r][c]), &mut out[c]);
        }
    }
}

/// The sums of sixteen components of the values that a tile's queries see, weighted by their exponentials.
///
/// Positions that all queries see are multiplied together; the few before and after, which only some see, are added for
/// those alone: a product with a zero would not do, since a value may be infinite.
#[inline(always)]
fn weigh<S: Simd>(
    s: S,
    View { rows, any, all }: &View,
    p: &[[f32; CHUNK]; ROWS],
    values: &[[[f32; BLOCK]; COLS]],
) -> [[S::F; COLS]; ROWS] {
    let mut sums = [[s.splat(0.0); COLS]; ROWS];
    if any.start < all.start {
        for r in 0..ROWS {
            let before = rows[r].start..rows[r].end.min(all.start);
            sums[r] = weigh_row(s, before, &p[r], values, sums[r]);
        }
    }
    let first = all.start % CHUNK;
    for (i, values) in values[first..].iter().take(all.len()).enumerate() {
        let mut weights = [0.0; ROWS];
        for r in 0..ROWS {
            weights[r] = p[r][first + i];
        }
        add(s, &weights, values, &mut sums);
    }
    if any.end > all.end {
        for r in 0..ROWS {
            let after = rows[r].start.max(all.end)..rows[r].end;
            sums[r] = weigh_row(s, after, &p[r], values, sums[r]);
        }
    }
    sums
}

/// [`weigh`] for one query.
#[inline(always)]
fn weigh_row<S: Simd>(
    s: S,
    positions: Range<usize>,
    p: &[f32; CHUNK],
    values: &[[[f32; BLOCK]; COLS]],
    mut sums: [S::F; COLS],
) -> [S::F; COLS] {
    for pos in positions {
        let weight = s.splat(p[pos % CHUNK]);
        for c in 0..COLS {
            sums[c] = s.fma(weight, s.load(&values[pos % CHUNK][c]), sums[c]);
        }
    }
    sums
}

/// Adds the products of one number of each query with one row of a panel.
#[inline(always)]
fn add<S: Simd>(s: S, x: &[f32; ROWS], panel: &[[f32; BLOCK]; COLS], sums: &mut [[S::F; COLS]; ROWS]) {
    let mut vectors = [s.splat(0.0); COLS];
    for c in 0..COLS {
        vectors[c] = s.load(&panel[c]);
    }
    for r in 0..ROWS {
        let x = s.splat(x[r]);
        for c in 0..COLS {
            sums[r][c] = s.fma(x, vectors[c], sums[r][c]);
        }
    }
}
