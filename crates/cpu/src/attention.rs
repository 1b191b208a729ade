//! Softmax attention over KV planes.
//!
//! The modules `chunk` and `integers` say what is computed, `tile` computes it. Here the work is cut: a *block* is some positions of one sequence and one KV
//! head with the query heads that read it. Usually one task computes a block, chunk after chunk. A block that would keep
//! one thread busy while others wait, as in the decoding of one long sequence, is split into a task for each chunk, and the
//! one that ends last joins them. The arithmetic is the same either way.

mod chunk;
mod integers;
mod softmax;
mod tile;

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use muser_ops::{Attention, AttentionSpan};

use crate::caps::Tier;
use crate::elementwise::sigmoid_gate;
use crate::grow::grow;
use crate::pool::{Disjoint, Pool};
use chunk::{CHUNK, KvHead, Scoring, o_width};
use softmax::{Results, Softmax, finish, join};
use tile::{Fate, Tiles};

/// The most query rows in a block: enough to share the reading of a chunk, few enough that their state stays in the
/// second-level cache beside the chunk.
const BLOCK_ROWS: usize = 192;

/// Blocks for each thread, if there are rows enough to fill tiles: so threads of unequal speed end together.
const BLOCKS_PER_THREAD: usize = 4;

/// Query rows that are worth the reading of keys and values for them alone.
const MIN_ROWS: usize = 24;

/// A block is split when its share of the work is more than one in this many per thread. Fewer than there are blocks, since
/// those of a long batch differ a little and should stay whole: the partial results of many rows are megabytes.
const SPLIT_SHARE: usize = BLOCKS_PER_THREAD - 1;

/// Chunks of a split block that a task computes one after the other: while it computes one, the next comes into the cache.
const RUN: usize = 4;

/// Memory that attention reuses from call to call. It grows to what the largest call needs.
#[derive(Default)]
pub struct Scratch {
    workers: Vec<Worker>,
    blocks: Vec<Block>,
    tasks: Vec<Task>,
    /// Tasks of each block that have not ended. `(n_block)`
    unfinished: Vec<AtomicUsize>,
    /// Partial results of split blocks, by block, chunk and row.
    partial: Vec<Softmax>, // (n_partial)
    partial_o: Vec<f32>, // (n_partial, o_width)
}

/// A worker's own memory.
struct Worker {
    /// Results of the chunks so far. `(rows of a block)`
    softmax: Vec<Softmax>,
    o: Vec<f32>, // (rows of a block, o_width)
    tiles: Tiles,
}

/// Some positions of a sequence with the query heads of one KV head.
struct Block {
    span: usize,
    head_kv: usize,
    /// Query heads of the KV head.
    group: usize,
    /// Row in the batch and position of the first query.
    first: usize,
    pos: usize,
    /// Number of query rows: positions times query heads.
    n_row: usize,
    /// The chunks that one of them sees.
    chunks: Range<usize>,
    /// Where its partial results begin, if it is split.
    partial: Option<usize>,
}

impl Block {
    fn cost(&self) -> usize {
        self.n_row * self.chunks.len()
    }

    /// The position of a query row.
    fn pos_of(&self, row: usize) -> usize {
        self.pos + row / self.group
    }

    /// The batch row and the query head of a query row.
    fn place_of(&self, row: usize) -> (usize, usize) {
        (self.first + row / self.group, self.head_kv * self.group + row % self.group)
    }

    /// Where the partial results of a chunk lie.
    fn partial_of(&self, start: usize, chunk: usize) -> Range<usize> {
        let start = start + (chunk - self.chunks.start) * self.n_row;
        start..start + self.n_row
    }
}

/// What one task computes.
struct Task {
    block: usize,
    /// Some chunks of a split block, or all of a whole one.
    chunks: Option<Range<usize>>,
    cost: usize,
}

/// Computes attention.
pub fn attention(tier: Tier, pool: &mut Pool, scratch: &mut Scratch, op: Attention<'_>) {
    let Attention { q, spans, n_head, window, scale, soft_cap, gate, mut out } = op;
    let head_dim = q.width() / n_head;
    scratch.plan(pool.threads(), spans, n_head, head_dim, window);
    let Scratch { workers, blocks, tasks, unfinished, partial, partial_o } = scratch;
    let run = Run {
        tier,
        spans,
        window,
        scoring: Scoring::new(scale, soft_cap),
        n_head,
        head_dim,
        o_width: o_width(head_dim),
        q: q.values(),
        gate: gate.map(|gate| gate.values()),
        out: Disjoint::new(out.values_mut()),
        partial: Disjoint::new(partial),
        partial_o: Disjoint::new(partial_o),
    };
    pool.run_with(workers, tasks.len(), |index, worker| {
        let Task { block, ref chunks, .. } = tasks[index];
        match (chunks, blocks[block].partial) {
            (Some(chunks), Some(start)) => {
                run.split(&blocks[block], start, chunks.clone(), worker);
                // AcqRel: whoever ends last sees what the others wrote.
                if unfinished[block].fetch_sub(1, Ordering::AcqRel) == 1 {
                    run.join_split(&blocks[block], start, worker);
                }
            }
            _ => run.whole(&blocks[block], worker),
        }
    });
}

impl Scratch {
    /// Cuts the work into blocks and tasks, and grows what is too small for them.
    fn plan(
        &mut self,
        threads: usize,
        spans: &[AttentionSpan<'_>],
        n_head: usize,
        head_dim: usize,
        window: Option<usize>,
    ) {
        self.blocks.clear();
        let n_row = n_head * spans.iter().map(|span| span.n).sum::<usize>();
        let rows_each = if threads == 1 { n_row } else { n_row.div_ceil(BLOCKS_PER_THREAD * threads) };
        let mut first = 0;
        for (span, &AttentionSpan { n, pos, plane }) in spans.iter().enumerate() {
            let n_head_kv = plane.geometry().n_head_kv;
            let group = n_head / n_head_kv;
            let positions = block_positions(n, group, rows_each);
            for offset in (0..n).step_by(positions) {
                let (first, pos, n) = (first + offset, pos + offset, positions.min(n - offset));
                let chunks = first_visible(pos, window) / CHUNK..(pos + n).div_ceil(CHUNK);
                let block = |head_kv| {
                    let (chunks, n_row) = (chunks.clone(), n * group);
                    Block { span, head_kv, group, first, pos, n_row, chunks, partial: None }
                };
                self.blocks.extend((0..n_head_kv).map(block));
            }
            first += n;
        }

        self.tasks.clear();
        self.unfinished.clear();
        let share = self.blocks.iter().map(Block::cost).sum::<usize>() / (SPLIT_SHARE * threads);
        let mut n_partial = 0;
        for (index, block) in self.blocks.iter_mut().enumerate() {
            if threads > 1 && block.chunks.len() > 1 && block.cost() > share {
                block.partial = Some(n_partial);
                n_partial += block.cost();
                let Range { start, end } = block.chunks;
                let runs = (start..end).step_by(RUN).map(|start| start..end.min(start + RUN));
                let task = |chunks: Range<usize>| {
                    let cost = block.n_row * chunks.len();
                    Task { block: index, chunks: Some(chunks), cost }
                };
                self.tasks.extend(runs.map(task));
            } else {
                self.tasks.push(Task { block: index, chunks: None, cost: block.cost() });
            }
            self.unfinished.push(AtomicUsize::new(block.chunks.len().div_ceil(RUN)));
        }
        // The longest first, so that the threads end together.
        self.tasks.sort_unstable_by_key(|task| Reverse(task.cost));

        grow(&mut self.partial, n_partial, Softmax::EMPTY);
        let o_width = o_width(head_dim);
        grow(&mut self.partial_o, n_partial * o_width, 0.0);
        let n_row = self.blocks.iter().map(|block| block.n_row).max().unwrap_or(0);
        self.workers.resize_with(threads.max(self.workers.len()), Worker::new);
        for worker in &mut self.workers {
            grow(&mut worker.softmax, n_row, Softmax::EMPTY);
            grow(&mut worker.o, n_row * o_width, 0.0);
        }
    }
}

impl Worker {
    fn new() -> Self {
        Self { softmax: Vec::new(), o: Vec::new(), tiles: Tiles::default() }
    }
}

/// Positions in a block of about `rows` rows, of a span of `n` positions with `group` rows each.
fn block_positions(n: usize, group: usize, rows: usize) -> usize {
    let most = (rows.clamp(MIN_ROWS, BLOCK_ROWS) / group).max(1);
    let even = n.div_ceil(n.div_ceil(most));
    // Rounded up to whole tiles.
    let whole = (1..tile::ROWS).find(|positions| (positions * group).is_multiple_of(tile::ROWS));
    even.next_multiple_of(whole.unwrap_or(tile::ROWS))
}

/// The first position that a query at `pos` sees.
fn first_visible(pos: usize, window: Option<usize>) -> usize {
    window.map_or(0, |window| (pos + 1).saturating_sub(window))
}

/// The operands of a call, shared by its tasks.
struct Run<'a> {
    tier: Tier,
    spans: &'a [AttentionSpan<'a>],
    window: Option<usize>,
    scoring: Scoring,
    n_head: usize,
    head_dim: usize,
    /// Length of a row of partial results.
    o_width: usize,
    q: &'a [f32],            // (n, n_head, head_dim)
    gate: Option<&'a [f32]>, // (n, n_head, head_dim)
    out: Disjoint<'a, f32>,  // (n, n_head, head_dim)
    partial: Disjoint<'a, Softmax>,
    partial_o: Disjoint<'a, f32>,
}

impl Run<'_> {
    /// Computes a block.
    fn whole(&self, block: &Block, worker: &mut Worker) {
        let kv = KvHead::new(self.spans[block.span].plane, block.head_kv);
        let Worker { softmax, o, tiles } = worker;
        let (softmax, o) = (&mut softmax[..block.n_row], &mut o[..block.n_row * self.o_width]);
        softmax.fill(Softmax::EMPTY);
        o.fill(0.0);
        self.load(block, tiles);
        for chunk in block.chunks.clone() {
            tiles.see(|row| self.visible(block, row, chunk));
            let results = Results { softmax: &mut *softmax, o: &mut *o };
            tile::attend(self.tier, &kv, self.scoring, Fate::Join, chunk + 1 < block.chunks.end, tiles, results);
        }
        for (row, &softmax) in softmax.iter().enumerate() {
            self.finish(block, row, softmax, self.row(o, row));
        }
    }

    /// Computes the partial results of some chunks of a split block.
    fn split(&self, block: &Block, start: usize, chunks: Range<usize>, worker: &mut Worker) {
        let kv = KvHead::new(self.spans[block.span].plane, block.head_kv);
        let tiles = &mut worker.tiles;
        self.load(block, tiles);
        for chunk in chunks.clone() {
            let range = block.partial_of(start, chunk);
            // SAFETY: each chunk of each split block is part of one task, and their ranges do not meet.
            let softmax = unsafe { self.partial.slice(range.clone()) };
            // SAFETY: as above.
            let o = unsafe { self.partial_o.slice(range.start * self.o_width..range.end * self.o_width) };
            tiles.see(|row| self.visible(block, row, chunk));
            let results = Results { softmax, o };
            tile::attend(self.tier, &kv, self.scoring, Fate::Store, chunk + 1 < chunks.end, tiles, results);
        }
    }

    /// Takes the queries of a block.
    fn load(&self, block: &Block, tiles: &mut Tiles) {
        let query = |row| &self.q[self.place(block, row)];
        let geometry = self.spans[block.span].plane.geometry();
        tile::load(self.tier, tiles, self.scoring, block.n_row, geometry, query);
    }

    /// Joins the chunks of a split block, in their order. All of its tasks have ended.
    fn join_split(&self, block: &Block, start: usize, worker: &mut Worker) {
        let range = start..start + block.cost();
        // SAFETY: the tasks that write to this range have ended, and only the last of them comes here.
        let partial = unsafe { self.partial.slice(range.clone()) };
        // SAFETY: as above.
        let partial_o = unsafe { self.partial_o.slice(range.start * self.o_width..range.end * self.o_width) };
        for row in 0..block.n_row {
            let o = self.row(&mut worker.o, row);
            let mut softmax = Softmax::EMPTY;
            o.fill(0.0);
            for chunk in block.chunks.clone() {
                if !self.visible(block, row, chunk).is_empty() {
                    let slot = block.partial_of(0, chunk).start + row;
                    join(self.tier, &mut softmax, o, partial[slot], self.row(partial_o, slot));
                }
            }
            self.finish(block, row, softmax, o);
        }
    }

    /// Writes the output of a query row.
    fn finish(&self, block: &Block, row: usize, softmax: Softmax, o: &[f32]) {
        let place = self.place(block, row);
        // SAFETY: a query row is finished once, and different ones have different places.
        let out = unsafe { self.out.slice(place.clone()) };
        finish(self.tier, softmax, &o[..self.head_dim], out);
        if let Some(gate) = self.gate {
            sigmoid_gate(self.tier, out, &gate[place]);
        }
    }

    /// The positions of a chunk that a query row sees.
    fn visible(&self, block: &Block, row: usize, chunk: usize) -> Range<usize> {
        let pos = block.pos_of(row);
        first_visible(pos, self.window).max(chunk * CHUNK)..(pos + 1).min((chunk + 1) * CHUNK)
    }

    /// Where the query and the output of a query row lie.
    fn place(&self, block: &Block, row: usize) -> Range<usize> {
        let (n, head) = block.place_of(row);
        let start = (n * self.n_head + head) * self.head_dim;
        start..start + self.head_dim
    }

    /// Row `row` of `values`. `(n, o_width)`
    fn row<'v>(&self, values: &'v mut [f32], row: usize) -> &'v mut [f32] {
        &mut values[row * self.o_width..][..self.o_width]
    }
}

#[cfg(test)]
mod tests;
