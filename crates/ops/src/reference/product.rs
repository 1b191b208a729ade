//! Products of matrices, and the one order in which all sums of the reference backend are taken.
//!
//! Value `i` of a sum goes to lane `i % 4`. Lanes add up in f32 over a run of 128 values, are folded, and joined with the
//! runs before in f64: the lanes are what a compiler vectorises on any target, and the joining keeps the error of one run.
//! Nothing else has a say: not the number of threads, nor what else is computed in the same tile.

use std::ops::Range;
use std::thread;

use muser_quant::decode_row;

use crate::{Error, Matrix};

const LANES: usize = 4;

/// Steps of a run. A step takes one value in each lane.
const RUN: usize = 32;

/// Values from one start of a run to the next.
pub(super) const RUN_LEN: usize = RUN * LANES;

/// Rows of a matrix, and vectors that they are multiplied with, in one tile: as many sums as fit the registers.
pub(super) const TILE_ROWS: usize = 4;
pub(super) const TILE_VECTORS: usize = 2;

/// Tiles of rows that are decoded together, so that a tile of vectors meets them while it is in the nearest cache.
const GROUP_TILES: usize = 4;

/// Products that are worth another thread.
const PRODUCTS_PER_THREAD: usize = 1 << 18;

/// One step of `N` vectors: four values of each.
pub(super) type Step<const N: usize> = [[f32; LANES]; N];

/// Number of steps of vectors of `len` values; the last may be padded with zeros.
pub(super) fn n_steps(len: usize) -> usize {
    len.div_ceil(LANES)
}

/// Lays `values` out as vector `index` of `steps`.
pub(super) fn pack<const N: usize>(values: &[f32], index: usize, steps: &mut [Step<N>]) {
    let (whole, tail) = values.as_chunks();
    for (step, values) in steps.iter_mut().zip(whole) {
        step[index] = *values;
    }
    if !tail.is_empty() {
        let last = &mut steps[whole.len()][index];
        *last = [0.0; LANES];
        last[..tail.len()].copy_from_slice(tail);
    }
}

/// The sums of products of each of `R` rows with each of `T` vectors.
pub(super) fn tile<const R: usize, const T: usize>(rows: &[Step<R>], vectors: &[Step<T>]) -> [[f64; T]; R] {
    let mut sums = [[0.0; T]; R];
    for (rows, vectors) in rows.chunks(RUN).zip(vectors.chunks(RUN)) {
        for (sums, lanes) in sums.iter_mut().zip(run(rows, vectors)) {
            for (sum, [a, b, c, d]) in sums.iter_mut().zip(lanes) {
                *sum += f64::from((a + c) + (b + d));
            }
        }
    }
    sums
}

/// The lanes of one run. Inlined into the folding above, it would be vectorised across sums, which takes five times as long.
#[inline(never)]
fn run<const R: usize, const T: usize>(rows: &[Step<R>], vectors: &[Step<T>]) -> [[[f32; LANES]; T]; R] {
    let mut lanes = [[[0.0f32; LANES]; T]; R];
    for (rows, vectors) in rows.iter().zip(vectors) {
        for (lanes, row) in lanes.iter_mut().zip(rows) {
            for (lanes, vector) in lanes.iter_mut().zip(vectors) {
                for ((lane, w), x) in lanes.iter_mut().zip(row).zip(vector) {
                    *lane += w * x;
                }
            }
        }
    }
    lanes
}

/// `out = weight · x`, on up to `max_threads` threads. // x (n, cols), out (n, rows)
pub(super) fn product(weight: Matrix<'_>, x: &[f32], max_threads: usize, out: &mut [f32]) -> Result<(), Error> {
    let (rows, cols) = (weight.rows(), weight.cols());
    let n = x.len() / cols;
    // (n / 2, n_steps), and a last tile of one vector beside nothing
    let mut vectors = vec![Step::<TILE_VECTORS>::default(); n.div_ceil(TILE_VECTORS) * n_steps(cols)];
    for (steps, x) in vectors.chunks_exact_mut(n_steps(cols)).zip(x.chunks(TILE_VECTORS * cols)) {
        for (index, x) in x.chunks_exact(cols).enumerate() {
            pack(x, index, steps);
        }
    }
    let n_thread = threads_for(rows * cols * n, max_threads);
    let rows_each = rows.div_ceil(n_thread).next_multiple_of(TILE_ROWS);
    let ranges = (0..rows).step_by(rows_each).map(|start| start..rows.min(start + rows_each));
    // Each thread fills a block of its own, (its rows, n); they are turned to (n, rows) at the end.
    let blocks = on_threads(ranges, |range| product_rows(weight, range, &vectors, n));
    for (block, values) in blocks.into_iter().enumerate() {
        for (row, values) in values?.chunks_exact(n).enumerate() {
            for (out, &value) in out.chunks_exact_mut(rows).zip(values) {
                out[block * rows_each + row] = value;
            }
        }
    }
    Ok(())
}

fn product_rows(
    weight: Matrix<'_>,
    range: Range<usize>,
    vectors: &[Step<TILE_VECTORS>],
    n: usize,
) -> Result<Vec<f32>, Error> {
    const GROUP: usize = GROUP_TILES * TILE_ROWS;
    let n_steps = n_steps(weight.cols());
    let mut decoded = vec![0.0; weight.cols()];
    let mut tiles = vec![Step::<TILE_ROWS>::default(); GROUP_TILES * n_steps];
    let mut out = vec![0.0; range.len() * n];
    for (out, first) in out.chunks_mut(GROUP * n).zip(range.clone().step_by(GROUP)) {
        for (index, row) in (first..range.end.min(first + GROUP)).enumerate() {
            decode_row(weight.ty(), weight.row(row), &mut decoded)?;
            pack(&decoded, index % TILE_ROWS, &mut tiles[index / TILE_ROWS * n_steps..][..n_steps]);
        }
        for (tile_no, vectors) in vectors.chunks_exact(n_steps).enumerate() {
            for (out, rows) in out.chunks_mut(TILE_ROWS * n).zip(tiles.chunks_exact(n_steps)) {
                for (out, sums) in out.chunks_exact_mut(n).zip(tile(rows, vectors)) {
                    for (out, sum) in out[tile_no * TILE_VECTORS..].iter_mut().zip(sums) {
                        *out = sum as f32 * weight.scale();
                    }
                }
            }
        }
    }
    Ok(out)
}

/// How many of at most `max_threads` threads are worth starting for so many products.
pub(super) fn threads_for(n_product: usize, max_threads: usize) -> usize {
    (n_product / PRODUCTS_PER_THREAD).clamp(1, max_threads)
}

/// The results of `work` on each of the shares, each on a thread of its own, the last on this one.
pub(super) fn on_threads<S: Send, R: Send>(
    shares: impl IntoIterator<Item = S>,
    work: impl Fn(S) -> R + Sync,
) -> Vec<R> {
    let mut shares: Vec<S> = shares.into_iter().collect();
    let Some(last) = shares.pop() else { return Vec::new() };
    thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = shares.into_iter().map(|share| scope.spawn(move || work(share))).collect();
        let last = work(last);
        let joined = started.into_iter().map(|thread| thread.join().expect("a share of the work panicked"));
        joined.chain([last]).collect()
    })
}
