//! A chunk for some queries.
//!
//! A tile of queries takes sixteen keys, or sixteen components of each value, at a time: its twelve sums, two vectors of
//! those, a pair of a query and a product take the sixteen registers that there are. Every tile passes by them while they lie
//! in the first-level cache.
//!
//! With few queries, as in decoding, reading is what takes time. Keys are read as they lie, and values are asked for
//! meanwhile.

use std::ops::Range;

use muser_memory::KvGeometry;

use super::chunk::{BLOCK, CHUNK, COLS, KvHead, PANEL, Scoring, Vector, panels_of};
use super::integers::{Weights, convert_query};
use super::softmax::{Results, Softmax, join_softmax, weigh};
use crate::arch::ints::{Ints, Kernel};
use crate::arch::quads::Quads;
use crate::caps::Tier;

/// Queries in a tile.
pub(super) const ROWS: usize = 6;

/// A pair of components of each query of a tile.
type QueryPairs = [[i16; 2]; ROWS];

/// Some queries of one KV head, and what their chunks take on the way.
#[derive(Default)]
pub(super) struct Tiles {
    n: usize,
    n_pair: usize,
    /// Queries as integers. `(n_tile, n_pair)`
    q: Vec<QueryPairs>,
    /// Factors on their products. `(n_tile)`
    q_factors: Vec<[f32; ROWS]>,
    /// What each tile sees of a chunk. `(n_tile)`
    views: Vec<View>,
    /// Scores, and then weights. `(n_tile)`
    scores: Vec<[[f32; CHUNK]; ROWS]>,
    /// The weights as integers. `(n_tile)`
    weights: Vec<[Weights; ROWS]>,
    /// How a chunk's results are joined. `(n_tile)`
    joins: Vec<[Join; ROWS]>,
    /// Scales of the chunk's values. `(CHUNK/8)`
    value_scales: Vec<[f32; BLOCK]>,
}

/// What becomes of a chunk's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are joined to those of the chunks before it.
    Join,
    /// They are stored, to be joined later.
    Store,
}

/// What becomes of one query's sums.
#[derive(Clone, Copy, Default)]
struct Join {
    /// Scale of the weights.
    scale: f32,
    /// Factors on the results of the chunks before it and on its own, if they are joined.
    factors: Option<(f32, f32)>,
}

/// The positions of a chunk that a tile's queries see.
#[derive(Clone, Default)]
struct View {
    /// Those that each sees.
    rows: [Range<usize>; ROWS],
    /// From the first to the last that one of them sees.
    any: Range<usize>,
}

/// Takes `n` queries, at least one, to be multiplied with keys of this shape. `query` is what gives a query's row.
pub(super) fn load<'q>(
    tier: Tier,
    tiles: &mut Tiles,
    scoring: Scoring,
    n: usize,
    geometry: KvGeometry,
    query: impl Fn(usize) -> &'q [f32],
) {
    let (n_tile, n_pair) = (n.div_ceil(ROWS), geometry.head_width() / 2);
    (tiles.n, tiles.n_pair) = (n, n_pair);
    tiles.q.resize(n_tile * n_pair, QueryPairs::default());
    tiles.q_factors.resize(n_tile, [0.0; ROWS]);
    tiles.views.resize(n_tile, View::default());
    tiles.scores.resize(n_tile, [[0.0; CHUNK]; ROWS]);
    tiles.weights.resize(n_tile, [[[0; 2]; CHUNK / 2]; ROWS]);
    tiles.joins.resize(n_tile, [Join::default(); ROWS]);
    tiles.value_scales.resize(CHUNK / BLOCK, [0.0; BLOCK]);
    tier.run(Load { tiles, scoring, query });
}

struct Load<'a, Q> {
    tiles: &'a mut Tiles,
    scoring: Scoring,
    query: Q,
}

impl<'q, Q: Fn(usize) -> &'q [f32]> Kernel for Load<'_, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        let Tiles { n, n_pair, q, q_factors, .. } = self.tiles;
        for row in 0..*n {
            let to = &mut q[row / ROWS * *n_pair..][..*n_pair];
            let scale = convert_query(s, (self.query)(row), row % ROWS, to);
            q_factors[row / ROWS][row % ROWS] = self.scoring.query_factor(scale);
        }
    }
}

impl Tiles {
    /// Sets the positions of a chunk that each query sees.
    pub(super) fn see(&mut self, visible: impl Fn(usize) -> Range<usize>) {
        for (tile, view) in self.views.iter_mut().enumerate() {
            let first = tile * ROWS;
            *view = View::default();
            for row in first..self.n.min(first + ROWS) {
                let visible = visible(row);
                if !visible.is_empty() {
                    view.any = if view.any.is_empty() {
                        visible.clone()
                    } else {
                        view.any.start.min(visible.start)..view.any.end.max(visible.end)
                    };
                }
                view.rows[row - first] = visible;
            }
        }
    }
}

/// Computes a chunk for the queries of `tiles`, which have been loaded and told what they see. The results of queries that
/// see no position of the chunk are left as they are. `goes_on` says that the next chunk follows.
///
/// # Panics
/// When an operand is too short.
pub(super) fn attend(
    tier: Tier,
    kv: &KvHead<'_>,
    scoring: Scoring,
    fate: Fate,
    goes_on: bool,
    tiles: &mut Tiles,
    results: Results<'_>,
) {
    tier.run(Attend { kv, scoring, fate, goes_on, tiles, results });
}

struct Attend<'a, 'r> {
    kv: &'a KvHead<'a>,
    scoring: Scoring,
    fate: Fate,
    goes_on: bool,
    tiles: &'a mut Tiles,
    results: Results<'r>,
}

impl Kernel for Attend<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        let Self { kv, scoring, fate, goes_on, tiles, results: Results { softmax, o } } = self;
        let (mut start, mut end) = (usize::MAX, 0);
        for View { any, .. } in tiles.views.iter().filter(|view| !view.any.is_empty()) {
            (start, end) = (start.min(any.start), end.max(any.end));
        }
        if end == 0 {
            return;
        }
        tiles.score(s, kv, scoring, &(start..end));
        tiles.weigh(s, fate, softmax);
        tiles.add_values(s, kv, start / CHUNK * CHUNK, goes_on, o);
    }
}

/// Calls a function with as many rows as there are in a tile, known when it is compiled.
macro_rules! with_rows {
    ($n:expr, $name:ident::<S, ROWS>$args:tt) => {
        match $n {
            1 => $name::<S, 1>$args,
            2 => $name::<S, 2>$args,
            3 => $name::<S, 3>$args,
            4 => $name::<S, 4>$args,
            5 => $name::<S, 5>$args,
            _ => $name::<S, 6>$args,
        }
    };
}

impl Tiles {
    /// The scores of the chunk's positions, sixteen after sixteen. Takes the scales of the values, too.
    #[inline(always)]
    fn score<S: Ints>(&mut self, s: S, kv: &KvHead<'_>, scoring: Scoring, positions: &Range<usize>) {
        let Self { n, n_pair, q, q_factors, views, scores, value_scales, .. } = self;
        for first in (positions.start / PANEL * PANEL..positions.end).step_by(PANEL) {
            let at = first % CHUNK;
            let block = kv.block_of(first);
            let blocks = [block, kv.next(block)];
            let mut keys = Keys { vectors: blocks.map(|block| kv.keys(block)), scales: [s.splat(0.0); COLS], at };
            for c in 0..COLS {
                keys.scales[c] = s.load_bf16(kv.key_scales(blocks[c]));
                s.store(s.load_bf16(kv.value_scales(blocks[c])), &mut value_scales[at / BLOCK + c]);
            }
            // The first tile brings what comes next into the cache for the others.
            let mut ahead =
                Some(blocks.map(|block| Ahead { keys: &kv.keys(block)[0], values: &kv.values(block, 0)[0][0] }));
            let tiles = q.chunks_exact(*n_pair).zip(&*q_factors).zip(&*views).zip(&mut *scores);
            for (tile, (((q, factors), View { any, .. }), scores)) in tiles.enumerate() {
                if first < any.end && first + PANEL > any.start {
                    let (n_row, queries, ahead) = (*n - tile * ROWS, Queries { q, factors }, ahead.take());
                    with_rows!(n_row, score::<S, ROWS>(s, scoring, &queries, &keys, ahead, scores));
                }
            }
        }
    }

    /// From scores to weights.
    #[inline(always)]
    fn weigh<S: Ints>(&mut self, s: S, fate: Fate, softmax: &mut [Softmax]) {
        for (row, softmax) in softmax.iter_mut().enumerate().take(self.n) {
            let (tile, r) = (row / ROWS, row % ROWS);
            let View { rows, any } = &self.views[tile];
            if rows[r].is_empty() {
                continue;
            }
            let (scores, weights) = (&mut self.scores[tile][r], &mut self.weights[tile][r]);
            let (part, scale) = weigh(s, scores, &self.value_scales, &rows[r], any, weights);
            self.joins[tile][r] = match fate {
                Fate::Join => Join { scale, factors: Some(join_softmax(s, softmax, part)) },
                Fate::Store => {
                    *softmax = part;
                    Join { scale, factors: None }
                }
            };
        }
    }

    /// The sums of values times weights, sixteen components after sixteen. `o (n, o_width)`
    #[inline(always)]
    fn add_values<S: Ints>(&self, s: S, kv: &KvHead<'_>, chunk: usize, goes_on: bool, o: &mut [f32]) {
        let width = kv.n_panel * PANEL;
        for panel in 0..kv.n_panel {
            let panel = Panel { kv, chunk, number: panel };
            let mut ahead = goes_on.then(|| &kv.keys(kv.block_of(chunk + CHUNK))[0]);
            let tiles = self.views.iter().zip(&self.weights).zip(&self.joins).zip(o.chunks_mut(ROWS * width));
            for (tile, (((view, weights), joins), o)) in tiles.enumerate() {
                if !view.any.is_empty() {
                    let (n_row, weights, ahead) =
                        (self.n - tile * ROWS, Weighted { view, weights, joins }, ahead.take());
                    with_rows!(n_row, add_values::<S, ROWS>(s, &panel, &weights, ahead, o));
                }
            }
        }
    }
}

/// The queries of a tile.
struct Queries<'a> {
    q: &'a [QueryPairs], // (n_pair)
    factors: &'a [f32; ROWS],
}

/// Sixteen keys, which are number `at` and following of the chunk.
struct Keys<'a, S: Ints> {
    vectors: [&'a [Vector]; COLS], // (n_pair)
    scales: [S::F; COLS],
    at: usize,
}

/// Sixteen components of a chunk's values.
struct Panel<'a> {
    kv: &'a KvHead<'a>,
    /// Where the chunk begins.
    chunk: usize,
    number: usize,
}

/// The weights of a tile.
struct Weighted<'a> {
    view: &'a View,
    weights: &'a [Weights; ROWS],
    joins: &'a [Join; ROWS],
}

/// What is asked for while keys are multiplied: the values that belong to them, and keys further on in memory. It is read in
/// steps that the hardware does not foresee.
#[derive(Clone, Copy)]
struct Ahead<'a> {
    keys: &'a Vector,
    values: &'a Vector,
}

/// How many blocks of keys further on.
const KEYS_AHEAD: usize = 2 * COLS;

/// The scores of a tile for sixteen keys.
#[inline(always)]
fn score<S: Ints, const N: usize>(
    s: S,
    scoring: Scoring,
    Queries { q, factors }: &Queries<'_>,
    keys: &Keys<'_, S>,
    ahead: Option<[Ahead<'_>; COLS]>,
    scores: &mut [[f32; CHUNK]; ROWS],
) {
    let mut sums = [[s.splat_int(0); COLS]; N];
    let [low, high] = keys.vectors;
    if let Some(ahead) = ahead {
        for (i, ((x, low), high)) in q.iter().zip(low).zip(high).enumerate() {
            if i % 2 == 0 {
                for Ahead { keys, values } in ahead {
                    s.prefetch(values, i * size_of::<Vector>());
                    s.prefetch(keys, (KEYS_AHEAD * q.len() + i) * size_of::<Vector>());
                }
            }
            add(s, x, [low, high], &mut sums);
        }
    } else {
        for ((x, low), high) in q.iter().zip(low).zip(high) {
            add(s, x, [low, high], &mut sums);
        }
    }
    for r in 0..N {
        let (out, _) = scores[r][keys.at..][..PANEL].as_chunks_mut();
        for c in 0..COLS {
            let products = s.mul(s.mul(s.to_f32(sums[r][c]), keys.scales[c]), s.splat(factors[r]));
            s.store(scoring.score(s, products), &mut out[c]);
        }
    }
}

/// Adds the sums of sixteen components of the values to the results of a tile, or stores them. With `ahead`, asks for a part
/// of what lies from there on, the parts of all panels being as much as a chunk's values.
#[inline(always)]
fn add_values<S: Ints, const N: usize>(
    s: S,
    panel: &Panel<'_>,
    weights: &Weighted<'_>,
    ahead: Option<&Vector>,
    o: &mut [f32],
) {
    let sums: [[S::I; COLS]; N] = match ahead {
        Some(ahead) => sum_values::<S, N, true>(s, panel, weights, ahead),
        None => sum_values::<S, N, false>(s, panel, weights, &[0; 2 * BLOCK]),
    };
    let width = panel.kv.n_panel * PANEL;
    for r in 0..N {
        if weights.view.rows[r].is_empty() {
            continue;
        }
        let Join { scale, factors } = weights.joins[r];
        let (out, _) = o[r * width + panel.number * PANEL..][..PANEL].as_chunks_mut();
        for c in 0..COLS {
            let part = s.mul(s.to_f32(sums[r][c]), s.splat(scale));
            let joined = match factors {
                Some((before, factor)) => s.fma(part, s.splat(factor), s.mul(s.load(&out[c]), s.splat(before))),
                None => part,
            };
            s.store(joined, &mut out[c]);
        }
    }
}

/// The sums of [`add_values`].
#[inline(always)]
fn sum_values<S: Ints, const N: usize, const AHEAD: bool>(
    s: S,
    &Panel { kv, chunk, number }: &Panel<'_>,
    Weighted { view, weights, .. }: &Weighted<'_>,
    ahead: &Vector,
) -> [[S::I; COLS]; N] {
    let panels = panels_of(&view.any);
    let blocks = panels.start * COLS..panels.end * COLS;
    let mut sums = [[s.splat_int(0); COLS]; N];
    let mut block = kv.block_of(chunk + blocks.start * BLOCK);
    for at in blocks {
        for (i, [low, high]) in kv.values(block, number).iter().enumerate() {
            let pair = at * BLOCK / 2 + i;
            if AHEAD {
                s.prefetch(ahead, (number * CHUNK / 2 + pair) * COLS * size_of::<Vector>());
            }
            let mut of_rows = [[0; 2]; ROWS];
            for r in 0..N {
                of_rows[r] = weights[r][pair];
            }
            add(s, &of_rows, [low, high], &mut sums);
        }
        block = kv.next(block);
    }
    sums
}

/// Adds the products of a pair of each query, or of two weights, with two vectors.
#[inline(always)]
fn add<S: Ints, const N: usize>(s: S, x: &QueryPairs, vectors: [&Vector; COLS], sums: &mut [[S::I; COLS]; N]) {
    let [low, high] = vectors;
    let vectors = [s.load_u16(low), s.load_u16(high)];
    for r in 0..N {
        let x = s.splat_pair(&x[r]);
        for c in 0..COLS {
            sums[r][c] = s.dot(sums[r][c], x, vectors[c]);
        }
    }
}
