//! Attention as two products: scores are keys times queries, the result is values times weights.

use std::ops::Range;

use muser_memory::{KV_LANES, KvPlane};

use super::product::{RUN_LEN, Step, TILE_ROWS, TILE_VECTORS, n_steps, on_threads, pack, threads_for, tile};
use crate::{AttentionSpan, Rows};

#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub n_head: usize,
    pub window: Option<usize>,
    pub scale: f32,
    pub soft_cap: Option<f32>,
}

impl Shape {
    fn first_visible(&self, pos: usize) -> usize {
        self.window.map_or(0, |window| (pos + 1).saturating_sub(window))
    }

    /// Turns the products of queries and visible keys into weights, all others to zero. Returns the sum of the weights.
    fn softmax(&self, scores: &mut [f32], visible: Range<usize>) -> f64 {
        scores[..visible.start].fill(0.0);
        scores[visible.end..].fill(0.0);
        let scores = &mut scores[visible];
        scores.iter_mut().for_each(|score| *score *= self.scale);
        if let Some(cap) = self.soft_cap {
            scores.iter_mut().for_each(|score| *score = cap * (*score / cap).tanh());
        }
        let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        scores.iter_mut().for_each(|score| *score = (*score - max).exp());
        scores.iter().map(|&weight| f64::from(weight)).sum()
    }
}

/// Fills `out` on up to `max_threads` threads. `(n, n_head * head_dim)`
pub(super) fn run(shape: Shape, spans: &[AttentionSpan<'_>], q: Rows<'_>, max_threads: usize, mut out: &mut [f32]) {
    let mut q = q.values();
    for &AttentionSpan { n, pos, plane } in spans {
        let width = shape.n_head * plane.geometry().head_dim;
        let (span_q, span_out);
        (span_q, q) = q.split_at(n * width);
        (span_out, out) = std::mem::take(&mut out).split_at_mut(n * width);
        let visible = pos + n - shape.first_visible(pos);
        let n_each = n.div_ceil(threads_for(2 * n * width * visible, max_threads).min(n));
        let shares = span_q.chunks(n_each * width).zip(span_out.chunks_mut(n_each * width)).enumerate();
        on_threads(shares, |(share, (q, out))| {
            for head_kv in 0..plane.geometry().n_head_kv {
                attend(shape, plane, head_kv, pos + share * n_each, q, out);
            }
        });
    }
}

/// Attends with the query heads of one KV head, for the positions from `pos` on.
///
/// Shape of `q` and `out`: `(n, n_head * head_dim)`.
fn attend(shape: Shape, plane: &KvPlane, head_kv: usize, pos: usize, q: &[f32], out: &mut [f32]) {
    let head_dim = plane.geometry().head_dim;
    let width = shape.n_head * head_dim;
    let group = shape.n_head / plane.geometry().n_head_kv;
    let end = pos + q.len() / width;
    let held = Held::new(plane, head_kv, shape.first_visible(pos), end);

    let queries: Vec<(usize, usize)> = // position, and where its values start
        (0..end - pos).flat_map(|row| (0..group).map(move |head| (pos + row, row * width + (head_kv * group + head) * head_dim))).collect();
    let mut vectors = vec![Step::<TILE_VECTORS>::default(); n_steps(head_dim)];
    let mut weights = vec![Step::<TILE_VECTORS>::default(); n_steps(end - held.start)];
    let mut scores = [(); TILE_VECTORS].map(|()| vec![0.0; n_steps(end - held.start) * TILE_ROWS]);
    for queries in queries.chunks(TILE_VECTORS) {
        let start = shape.first_visible(queries[0].0) / RUN_LEN * RUN_LEN;
        let end = queries[queries.len() - 1].0 + 1;
        for (index, &(_, at)) in queries.iter().enumerate() {
            pack(&q[at..at + head_dim], index, &mut vectors);
        }
        for (quad, keys) in held.keys(start, end).enumerate() {
            for (row, products) in tile(keys, &vectors).into_iter().enumerate() {
                for (scores, product) in scores.iter_mut().zip(products) {
                    scores[quad * TILE_ROWS + row] = product as f32;
                }
            }
        }
        let mut sums = [1.0; TILE_VECTORS];
        let len = (end - start).next_multiple_of(TILE_ROWS);
        for (index, (&(pos, _), scores)) in queries.iter().zip(&mut scores).enumerate() {
            sums[index] = shape.softmax(&mut scores[..len], shape.first_visible(pos) - start..pos + 1 - start);
            pack(&scores[..len], index, &mut weights);
        }
        for (quad, values) in held.values(start, end).enumerate() {
            for (d, mixed) in (quad * TILE_ROWS..head_dim).zip(tile(values, &weights[..n_steps(end - start)])) {
                for (&(_, at), (mixed, sum)) in queries.iter().zip(mixed.into_iter().zip(sums)) {
                    out[at + d] = (mixed / sum) as f32;
                }
            }
        }
    }
}

/// Keys and values of one KV head as f32, in tiles, in the order of positions.
///
/// Tiles start at the start of a run, counted from position 0, so that a sum over positions is taken in the same order
/// whatever is held beside them.
struct Held {
    start: usize,
    n_key_steps: usize,
    n_value_steps: usize,
    keys: Vec<Step<TILE_ROWS>>,   // (positions / 4, head_dim / 4), 4 positions, 4 dimensions
    values: Vec<Step<TILE_ROWS>>, // (head_dim / 4, positions / 4), 4 dimensions, 4 positions
}

impl Held {
    /// The positions from `first` to `end`. Where a tile holds others, they are zero.
    fn new(plane: &KvPlane, head: usize, first: usize, end: usize) -> Self {
        let head_dim = plane.geometry().head_dim;
        let start = first / RUN_LEN * RUN_LEN;
        let n_key_steps = n_steps(head_dim);
        // Whole blocks of eight positions.
        let n_value_steps = n_steps((end - start).next_multiple_of(KV_LANES));
        let mut keys = vec![Step::default(); n_value_steps * n_key_steps];
        let mut values = vec![Step::default(); head_dim.div_ceil(TILE_ROWS) * n_value_steps];
        let (mut k, mut v) = (vec![0.0; head_dim], vec![0.0; head_dim]);
        for pos in first..end {
            let row = plane.row_of(pos).expect("a position that a query sees is held");
            let (step, lane) = ((pos - start) / 4, (pos - start) % 4);
            plane.read(head, row, &mut k, &mut v);
            for (d, (k, v)) in k.iter().zip(&v).enumerate() {
                keys[step * n_key_steps + d / 4][lane][d % 4] = *k;
                values[d / 4 * n_value_steps + step][d % 4][lane] = *v;
            }
        }
        Self { start, n_key_steps, n_value_steps, keys, values }
    }

    /// A tile for every four positions from `start`, where a run starts, to `end`.
    fn keys(&self, start: usize, end: usize) -> impl Iterator<Item = &[Step<TILE_ROWS>]> {
        let steps = (start - self.start) / 4..n_steps(end - self.start);
        self.keys[steps.start * self.n_key_steps..steps.end * self.n_key_steps].chunks_exact(self.n_key_steps)
    }

    /// A tile for every four dimensions, of the positions from `start`, where a run starts, to `end`.
    fn values(&self, start: usize, end: usize) -> impl Iterator<Item = &[Step<TILE_ROWS>]> {
        let steps = (start - self.start) / 4..n_steps(end - self.start);
        self.values.chunks_exact(self.n_value_steps).map(move |values| &values[steps.clone()])
    }
}
