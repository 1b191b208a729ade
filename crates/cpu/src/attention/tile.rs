//! A chunk for some queries: keys and values are converted once for all of them.
//!
//! Sixteen keys, or sixteen components of each value, are converted into a panel, and every tile of queries passes by it
//! while it lies in the first-level cache. A tile's twelve sums, two vectors of the panel, a pair of a query and a product take
//! the sixteen registers that there are.
//!
//! Reading is what takes time with few queries, as in decoding. The panels' order is the one in which keys lie in memory;
//! values are first read for their scales, in their order, and then again from the cache.

use std::ops::Range;

use super::chunk::{BLOCK, CHUNK, KvHead, PANEL, Scoring, o_width, panels_of};
use super::fixed::{COLS, Pairs, Values, Weights, convert_keys, convert_query, most_of_keys};
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
    /// Queries as integers. `(n_tile, head_dim/2)`
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
    /// Sixteen keys. `(head_dim/2)`
    keys: Vec<Pairs>,
    values: Values,
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

/// Takes `n` queries of `head_dim` values, at least one. `query` is what gives a query's row.
pub(super) fn load<'q>(
    tier: Tier,
    tiles: &mut Tiles,
    scoring: Scoring,
    n: usize,
    head_dim: usize,
    query: impl Fn(usize) -> &'q [f32],
) {
    let (n_tile, n_pair) = (n.div_ceil(ROWS), head_dim.div_ceil(2));
    (tiles.n, tiles.n_pair) = (n, n_pair);
    tiles.q.resize(n_tile * n_pair, QueryPairs::default());
    tiles.q_factors.resize(n_tile, [0.0; ROWS]);
    tiles.views.resize(n_tile, View::default());
    tiles.scores.resize(n_tile, [[0.0; CHUNK]; ROWS]);
    tiles.weights.resize(n_tile, [[[0; 2]; CHUNK / 2]; ROWS]);
    tiles.joins.resize(n_tile, [Join::default(); ROWS]);
    tiles.keys.resize(n_pair, Pairs::default());
    tiles.values.resize(head_dim);
    tier.run(Load { tiles, scoring, head_dim, query });
}

struct Load<'a, Q> {
    tiles: &'a mut Tiles,
    scoring: Scoring,
    head_dim: usize,
    query: Q,
}

impl<'q, Q: Fn(usize) -> &'q [f32]> Kernel for Load<'_, Q> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        let Tiles { n, n_pair, q, q_factors, .. } = self.tiles;
        let most = most_of_keys(self.head_dim);
        for row in 0..*n {
            let to = &mut q[row / ROWS * *n_pair..][..*n_pair];
            let scale = convert_query(s, (self.query)(row), most, row % ROWS, to);
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
/// see no position of the chunk are left as they are.
///
/// # Panics
/// When an operand is too short.
pub(super) fn attend(
    tier: Tier,
    kv: &KvHead<'_>,
    scoring: Scoring,
    fate: Fate,
    tiles: &mut Tiles,
    results: Results<'_>,
) {
    tier.run(Attend { kv, scoring, fate, tiles, results });
}

struct Attend<'a, 'r> {
    kv: &'a KvHead<'a>,
    scoring: Scoring,
    fate: Fate,
    tiles: &'a mut Tiles,
    results: Results<'r>,
}

impl Kernel for Attend<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        let Self { kv, scoring, fate, tiles, results: Results { softmax, o } } = self;
        let (mut start, mut end) = (usize::MAX, 0);
        for View { any, .. } in tiles.views.iter().filter(|view| !view.any.is_empty()) {
            (start, end) = (start.min(any.start), end.max(any.end));
        }
        if end == 0 {
            return;
        }
        tiles.score(s, kv, scoring, &(start..end));
        tiles.values.load(s, kv, &(start..end));
        tiles.weigh(s, fate, softmax);
        tiles.add_values(s, kv.head_dim, o);
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
    /// The scores of the chunk's positions, sixteen after sixteen.
    #[inline(always)]
    fn score<S: Ints>(&mut self, s: S, kv: &KvHead<'_>, scoring: Scoring, positions: &Range<usize>) {
        let Self { n, n_pair, q, q_factors, views, scores, keys, .. } = self;
        for first in (positions.start / PANEL * PANEL..positions.end).step_by(PANEL) {
            let key_scales = convert_keys(s, kv, first, keys);
            let tiles = q.chunks_exact(*n_pair).zip(&*q_factors).zip(&*views).zip(&mut *scores);
            for (tile, (((q, factors), View { any, .. }), scores)) in tiles.enumerate() {
                if first < any.end && first + PANEL > any.start {
                    let n_row = *n - tile * ROWS;
                    with_rows!(n_row, score::<S, ROWS>(s, scoring, q, factors, keys, key_scales, scores, first % CHUNK));
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
            let (part, scale) = weigh(s, scores, &self.values.scales, &rows[r], any, weights);
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
    fn add_values<S: Ints>(&self, s: S, head_dim: usize, o: &mut [f32]) {
        let width = o_width(head_dim);
        for d in (0..head_dim).step_by(PANEL) {
            let values = self.values.components(d / PANEL);
            let tiles = self.views.iter().zip(&self.weights).zip(&self.joins).zip(o.chunks_mut(ROWS * width));
            for (tile, (((view, weights), joins), o)) in tiles.enumerate() {
                if !view.any.is_empty() {
                    let o = &mut o[d..];
                    with_rows!(self.n - tile * ROWS, add_values::<S, ROWS>(s, view, weights, joins, values, o, width));
                }
            }
        }
    }
}

/// The scores of a tile for sixteen keys, which are number `at` and following of the chunk.
#[inline(always)]
fn score<S: Ints, const N: usize>(
    s: S,
    scoring: Scoring,
    q: &[QueryPairs],
    factors: &[f32; ROWS],
    keys: &[Pairs],
    key_scales: [S::F; COLS],
    scores: &mut [[f32; CHUNK]; ROWS],
    at: usize,
) {
    let mut sums = [[s.splat_int(0); COLS]; N];
    for (q, keys) in q.iter().zip(keys) {
        add(s, q, keys, &mut sums);
    }
    for r in 0..N {
        let (out, _) = scores[r][at..][..PANEL].as_chunks_mut();
        for c in 0..COLS {
            let products = s.mul(s.mul(s.to_f32(sums[r][c]), key_scales[c]), s.splat(factors[r]));
            s.store(scoring.score(s, products), &mut out[c]);
        }
    }
}

/// Adds the sums of sixteen components of the values to the results of a tile, or stores them.
#[inline(always)]
fn add_values<S: Ints, const N: usize>(
    s: S,
    view: &View,
    weights: &[Weights; ROWS],
    joins: &[Join; ROWS],
    values: &[Pairs],
    o: &mut [f32],
    width: usize,
) {
    let panels = panels_of(&view.any);
    let mut sums = [[s.splat_int(0); COLS]; N];
    for pair in panels.start * BLOCK..panels.end * BLOCK {
        let mut of_rows = [[0; 2]; ROWS];
        for r in 0..N {
            of_rows[r] = weights[r][pair];
        }
        add(s, &of_rows, &values[pair], &mut sums);
    }
    for r in 0..N {
        if view.rows[r].is_empty() {
            continue;
        }
        let (out, _) = o[r * width..][..PANEL].as_chunks_mut();
        for c in 0..COLS {
            let part = s.mul(s.to_f32(sums[r][c]), s.splat(joins[r].scale));
            let joined = match joins[r].factors {
                Some((before, factor)) => s.fma(part, s.splat(factor), s.mul(s.load(&out[c]), s.splat(before))),
                None => part,
            };
            s.store(joined, &mut out[c]);
        }
    }
}

/// Adds the products of a pair of each query with one row of a panel.
#[inline(always)]
fn add<S: Ints, const N: usize>(s: S, x: &QueryPairs, panel: &Pairs, sums: &mut [[S::I; COLS]; N]) {
    let mut vectors = [s.splat_i16(0); COLS];
    for c in 0..COLS {
        vectors[c] = s.load_i16(&panel[c]);
    }
    for r in 0..N {
        let x = s.splat_pair(&x[r]);
        for c in 0..COLS {
            sums[r][c] = s.dot(sums[r][c], x, vectors[c]);
        }
    }
}
