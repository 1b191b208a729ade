//! Products of one normed input with one or several matrices: quantise once, then cut the outputs into bands.

mod bands;

use std::num::NonZero;

use muser_ops::{Error, Matrix, Norm, Rows};

use super::{TASK_LEN, gains};
use crate::caps::Tier;
use crate::grow::grow;
use crate::norm::rms_norm;
use crate::pool::{Disjoint, Pool};
use crate::product::{Activations, Band, Forms, Scratch, WeightRows, product_float, product_integer};
use bands::{OutputBand, cut};

/// Memory that products reuse from call to call. It grows to what the largest call needs.
pub(super) struct Products {
    workers: Vec<Worker>, // (threads)
    activations: Activations,
    /// The normed input, for matrices of float types.
    normed: Vec<f32>, // (n, cols)
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

/// The inputs of a product as its weights want them.
#[derive(Clone, Copy)]
struct Inputs<'a> {
    quantized: &'a Activations,
    float: &'a [f32],
}

/// Applied to the gate with the other product.
pub(super) type Activate = fn(Tier, &mut [f32], &[f32]);

impl Products {
    pub(super) fn new(threads: NonZero<usize>) -> Self {
        let workers = (0..threads.get()).map(|_| Worker::default()).collect();
        let (normed, up, bands) = (Vec::new(), Vec::new(), Vec::new());
        Self { workers, activations: Activations::new(), normed, up, bands }
    }

    /// Norms `x` if asked, and quantises it if one of the weights needs it.
    pub(super) fn prepare<'w>(
        &mut self,
        tier: Tier,
        pool: &mut Pool,
        x: Rows<'_>,
        norm: Option<Norm<'_>>,
        weights: impl IntoIterator<Item = Matrix<'w>>,
    ) {
        let (mut forms, mut any_float) = (Forms::default(), false);
        for weight in weights {
            let needed = Forms::of([weight.ty()]);
            forms = Forms { narrow: forms.narrow || needed.narrow, wide: forms.wide || needed.wide };
            any_float |= !needed.any();
        }
        let (n, width) = (x.n(), x.width());
        let rows_each = (TASK_LEN / width).max(1);
        let n_task = n.div_ceil(rows_each);
        let task_rows = |task: usize| task * rows_each..n.min((task + 1) * rows_each);

        if let (Some(norm), true) = (norm, any_float) {
            grow(&mut self.normed, n * width, 0.0);
            pool.run_chunks(&mut self.normed[..n * width], rows_each * width, |task, normed| {
                for (row, normed) in task_rows(task).zip(normed.chunks_exact_mut(width)) {
                    rms_norm(tier, x.row(row), gains(norm), norm.eps, normed);
                }
            });
        }
        if forms.any() {
            let activations = self.activations.resize(n, width, forms);
            pool.run_with(&mut self.workers, n_task, |task, worker| {
                grow(&mut worker.row, width, 0.0);
                let normed = &mut worker.row[..width];
                for row in task_rows(task) {
                    let values = match norm {
                        Some(norm) => {
                            rms_norm(tier, x.row(row), gains(norm), norm.eps, normed);
                            &*normed
                        }
                        None => x.row(row),
                    };
                    // SAFETY: each row belongs to one task.
                    unsafe { activations.quantize(tier, row, values) };
                }
            });
        }
    }

    /// Multiplies what was prepared with each matrix. `outs (n, rows)`
    pub(super) fn project<'a>(
        &mut self,
        tier: Tier,
        pool: &mut Pool,
        x: Rows<'_>,
        normed: bool,
        outs: impl Iterator<Item = (Matrix<'a>, &'a mut [f32])>,
    ) -> Result<(), Error> {
        let n = x.n();
        let products = outs
            .map(|(matrix, out)| Ok((matrix, weight_rows(matrix)?, Disjoint::new(out))))
            .collect::<Result<Vec<_>, Error>>()?;
        cut(
            &mut self.bands,
            pool.threads(),
            n,
            products.iter().map(|(matrix, ..)| (matrix.rows(), matrix.row_bytes())),
        );
        let inputs = Inputs { quantized: &self.activations, float: if normed { &self.normed } else { x.values() } };
        let bands = &self.bands;
        pool.run_with(&mut self.workers, bands.len(), |index, worker| {
            let OutputBand { product, rows } = &bands[index];
            let (_, weights, out) = &products[*product];
            // SAFETY: the bands of an output do not meet, and each is one task.
            let mut band = unsafe { Band::new(out, weights.n_row(), rows.clone(), 0..n) };
            multiply(tier, weights.rows(rows.clone()), inputs, &mut band, &mut worker.scratch);
        });
        Ok(())
    }

    /// Multiplies what was prepared with the gate and with the other matrix, and applies the activation to both.
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
        normed: bool,
        [gate, up]: [Matrix<'_>; 2],
        activate: Activate,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (n, n_ff) = (x.n(), gate.rows());
        grow(&mut self.up, n * n_ff, 0.0);
        // A band stands for the same rows of both matrices.
        cut(&mut self.bands, pool.threads(), n, [(gate.rows(), gate.row_bytes())]);
        let (gate, up) = (weight_rows(gate)?, weight_rows(up)?);
        let inputs = Inputs { quantized: &self.activations, float: if normed { &self.normed } else { x.values() } };
        let (gates, ups) = (Disjoint::new(out), Disjoint::new(&mut self.up));
        let bands = &self.bands;
        pool.run_with(&mut self.workers, bands.len(), |index, worker| {
            let rows = &bands[index].rows;
            // SAFETY: the bands do not meet, and each is one task.
            let mut gate_band = unsafe { Band::new(&gates, n_ff, rows.clone(), 0..n) };
            // SAFETY: as above.
            let mut up_band = unsafe { Band::new(&ups, n_ff, rows.clone(), 0..n) };
            multiply(tier, gate.rows(rows.clone()), inputs, &mut gate_band, &mut worker.scratch);
            multiply(tier, up.rows(rows.clone()), inputs, &mut up_band, &mut worker.scratch);
            for token in 0..n {
                activate(tier, gate_band.token(token), up_band.token(token));
            }
        });
        Ok(())
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
