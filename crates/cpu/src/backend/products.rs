//! Products of one normed input with one or several matrices: quantise once, then cut the outputs into bands.

mod bands;
mod inputs;

use std::num::NonZero;
use std::sync::{Mutex, OnceLock, PoisonError};

use muser_ops::{Error, Matrix, Norm, Rows};

use crate::arch::ints::Kernel;
use crate::arch::quads::Quads;
use crate::caps::Tier;
use crate::grow::grow;
use crate::pool::{Disjoint, Pool};
use crate::product::{Band, Scratch, WeightRows, product_float, product_integer};
use bands::{OutputBand, cut};
use inputs::{Inputs, Memory, Source};

/// Bytes of weights that a thread asks for while another one prepares the input: what a core gets from memory meanwhile, and its
/// first-level cache holds.
const AHEAD_BYTES: usize = 16 * 1024;

/// Memory that products reuse from call to call. It grows to what the largest call needs.
pub(super) struct Products {
    workers: Vec<Worker>, // (threads)
    inputs: Memory,
    /// The second product of a gated block.
    up: Vec<f32>, // (n, n_ff)
    bands: Vec<OutputBand>,
}

#[derive(Default)]
struct Worker {
    scratch: Scratch,
    /// A normed row on its way to be quantised.
    row: Vec<f32>,
}

/// Applied to the gate with the other product.
pub(super) type Activate = fn(Tier, &mut [f32], &[f32]);

impl Products {
    pub(super) fn new(threads: NonZero<usize>) -> Self {
        let workers = (0..threads.get()).map(|_| Worker::default()).collect();
        Self { workers, inputs: Memory::new(), up: Vec::new(), bands: Vec::new() }
    }

    /// Multiplies `x`, normed first if asked, with each matrix. `outs (n, rows)`
    pub(super) fn project<'a>(
        &mut self,
        tier: Tier,
        pool: &mut Pool,
        x: Rows<'_>,
        norm: Option<Norm<'_>>,
        outs: impl Iterator<Item = (Matrix<'a>, &'a mut [f32])>,
    ) -> Result<(), Error> {
        let products = outs
            .map(|(matrix, out)| Ok((matrix, weight_rows(matrix)?, Disjoint::new(out))))
            .collect::<Result<Vec<_>, Error>>()?;
        let source = Source::new(x, norm, products.iter().map(|(matrix, ..)| *matrix));
        let shapes = products.iter().map(|(matrix, ..)| (matrix.rows(), matrix.row_bytes()));
        cut(&mut self.bands, pool.threads(), x.n(), shapes);
        let Self { workers, inputs, bands, .. } = self;
        let weights = |OutputBand { product, rows }: &OutputBand| products[*product].1.rows(rows.clone());
        run(tier, pool, (workers, inputs, bands), source, weights, |band, inputs, scratch| {
            let (_, all, out) = &products[band.product];
            // SAFETY: the bands of an output do not meet, and each is one task.
            let mut out = unsafe { Band::new(out, all.n_row(), band.rows.clone(), 0..x.n()) };
            multiply(tier, weights(band), inputs, &mut out, scratch);
        });
        Ok(())
    }

    /// Multiplies `x`, normed first if asked, with the gate and with the other matrix, and applies the activation to both.
    /// `out (n, n_ff)`
    #[expect(
        clippy::too_many_arguments,
        reason = "the operands of one operation, some of them borrowed from the backend"
    )]
    pub(super) fn gated(
        &mut self,
        tier: Tier,
        pool: &mut Pool,
        x: Rows<'_>,
        norm: Option<Norm<'_>>,
        [gate, up]: [Matrix<'_>; 2],
        activate: Activate,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (n, n_ff) = (x.n(), gate.rows());
        let source = Source::new(x, norm, [gate, up].into_iter());
        // A band stands for the same rows of both matrices.
        cut(&mut self.bands, pool.threads(), n, [(n_ff, gate.row_bytes() + up.row_bytes())]);
        let (gate, up) = (weight_rows(gate)?, weight_rows(up)?);
        let Self { workers, inputs, up: ups, bands } = self;
        grow(ups, n * n_ff, 0.0);
        let (gates, ups) = (Disjoint::new(out), Disjoint::new(ups));
        let weights = |band: &OutputBand| gate.rows(band.rows.clone());
        run(tier, pool, (workers, inputs, bands), source, weights, |band, inputs, scratch| {
            let rows = &band.rows;
            // SAFETY: the bands do not meet, and each is one task.
            let mut gate_band = unsafe { Band::new(&gates, n_ff, rows.clone(), 0..n) };
            // SAFETY: as above.
            let mut up_band = unsafe { Band::new(&ups, n_ff, rows.clone(), 0..n) };
            multiply(tier, weights(band), inputs, &mut gate_band, scratch);
            multiply(tier, up.rows(rows.clone()), inputs, &mut up_band, scratch);
            for token in 0..n {
                activate(tier, gate_band.token(token), up_band.token(token));
            }
        });
        Ok(())
    }
}

/// Prepares the input, and calls `multiply` for each band, whose first weights are `weights`.
///
/// An input of many rows is prepared by all threads, before they multiply. One of few rows is a task of the same job: whoever
/// waits for it asks for the first weights of its band, so that memory does not rest meanwhile.
fn run<'w>(
    tier: Tier,
    pool: &mut Pool,
    (workers, memory, bands): (&mut [Worker], &mut Memory, &[OutputBand]),
    source: Source<'_>,
    weights: impl Fn(&OutputBand) -> WeightRows<'w> + Sync,
    multiply: impl Fn(&OutputBand, Inputs<'_>, &mut Scratch) + Sync,
) {
    if source.n_task() != 1 {
        let preparation = memory.make_room(source);
        pool.run_with(workers, source.n_task(), |task, worker| {
            // SAFETY: each task runs once.
            unsafe { preparation.run(tier, task, &mut worker.row) };
        });
        let inputs = memory.inputs(source);
        pool.run_with(workers, bands.len(), |index, worker| multiply(&bands[index], inputs, &mut worker.scratch));
        return;
    }
    let unprepared = Mutex::new(Some(memory));
    let prepared = OnceLock::new();
    pool.run_with(workers, 1 + bands.len(), |task, worker| {
        let Some(band) = task.checked_sub(1).map(|index| &bands[index]) else {
            // Tasks start in order, so nobody waits for a task that has not begun; a panic tells them that there is nothing.
            let announcement = Announcement(&prepared);
            let memory = unprepared.lock().unwrap_or_else(PoisonError::into_inner).take();
            let memory = memory.expect("the first task runs once");
            // SAFETY: as above.
            unsafe { memory.make_room(source).run(tier, 0, &mut worker.row) };
            announcement.make(memory.inputs(source));
            return;
        };
        let mut ahead = weights(band).bytes().chunks(1024).take(AHEAD_BYTES / 1024);
        let inputs = loop {
            match prepared.get() {
                Some(inputs) => break inputs,
                None => match ahead.next() {
                    Some(bytes) => tier.run(Prefetch(bytes)),
                    None => std::hint::spin_loop(),
                },
            }
        };
        if let Some(inputs) = inputs {
            multiply(band, *inputs, &mut worker.scratch);
        }
    });
}

/// Tells waiting threads that an input is prepared, or, when it is dropped before that, that there is none.
struct Announcement<'a, T>(&'a OnceLock<Option<T>>);

impl<T> Announcement<'_, T> {
    fn make(self, inputs: T) {
        self.0.get_or_init(|| Some(inputs));
    }
}

impl<T> Drop for Announcement<'_, T> {
    fn drop(&mut self) {
        self.0.get_or_init(|| None);
    }
}

/// Asks for bytes that will be read.
struct Prefetch<'a>(&'a [u8]);

impl Kernel for Prefetch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        for line in self.0.chunks(64) {
            s.prefetch(&line[0], 0);
        }
    }
}

fn weight_rows(matrix: Matrix<'_>) -> Result<WeightRows<'_>, Error> {
    Ok(WeightRows::new(matrix.ty(), matrix.bytes(), matrix.rows(), matrix.cols())?)
}

fn multiply(tier: Tier, weights: WeightRows<'_>, x: Inputs<'_>, out: &mut Band<'_>, scratch: &mut Scratch) {
    if weights.is_integer() {
        product_integer(tier, weights, x.quantized, out, scratch);
    } else {
        product_float(tier, weights, x.float, out, scratch);
    }
}
