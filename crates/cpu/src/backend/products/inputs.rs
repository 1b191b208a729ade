//! The input of products, normed and quantised.

use std::ops::Range;

use muser_ops::{Matrix, Norm, Rows};

use crate::backend::gains;
use crate::caps::Tier;
use crate::grow::grow;
use crate::norm::rms_norm;
use crate::pool::Disjoint;
use crate::product::{ActivationRows, Activations, Forms};

/// Values that are worth a task of their own: some microseconds.
const TASK_LEN: usize = 4096;

/// An input as it is given, and what products need of it.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    x: Rows<'a>,
    norm: Option<Norm<'a>>,
    forms: Forms,
    /// Whether a matrix is of a float type.
    any_float: bool,
}

impl<'a> Source<'a> {
    pub(super) fn new<'w>(x: Rows<'a>, norm: Option<Norm<'a>>, weights: impl Iterator<Item = Matrix<'w>>) -> Self {
        let (mut forms, mut any_float) = (Forms::default(), false);
        for weight in weights {
            let needed = Forms::of([weight.ty()]);
            forms = Forms { narrow: forms.narrow || needed.narrow, wide: forms.wide || needed.wide };
            any_float |= !needed.any();
        }
        Self { x, norm, forms, any_float }
    }

    /// Number of rows.
    pub(super) fn n(&self) -> usize {
        self.x.n()
    }

    /// Tasks that its preparation is worth; none where products take it as it is.
    pub(super) fn n_task(&self) -> usize {
        if self.norm.is_none() && !self.forms.any() { 0 } else { self.n().div_ceil(self.rows_each()) }
    }

    fn rows_each(&self) -> usize {
        (TASK_LEN / self.x.width()).max(1)
    }

    fn rows(&self, task: usize) -> Range<usize> {
        task * self.rows_each()..self.n().min((task + 1) * self.rows_each())
    }
}

/// Memory for an input as its weights want it.
pub(super) struct Memory {
    activations: Activations,
    /// The normed input, for matrices of float types.
    normed: Vec<f32>, // (n, width)
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { activations: Activations::new(), normed: Vec::new() }
    }

    /// Makes room for an input.
    pub(super) fn make_room<'a>(&'a mut self, source: Source<'a>) -> Preparation<'a> {
        let Source { x, norm, forms, any_float } = source;
        let normed = if norm.is_some() && any_float { x.n() * x.width() } else { 0 };
        grow(&mut self.normed, normed, 0.0);
        let activations = forms.any().then(|| self.activations.resize(x.n(), x.width(), forms));
        Preparation { source, activations, normed: Disjoint::new(&mut self.normed) }
    }

    /// The input that was prepared.
    pub(super) fn inputs<'a>(&'a self, source: Source<'a>) -> Inputs<'a> {
        let float = if source.norm.is_some() { &self.normed } else { source.x.values() };
        Inputs { quantized: &self.activations, float }
    }
}

/// An input that is being prepared.
pub(super) struct Preparation<'a> {
    source: Source<'a>,
    activations: Option<ActivationRows<'a>>,
    normed: Disjoint<'a, f32>,
}

impl Preparation<'_> {
    /// Prepares the rows of a task. `spare` holds a normed row that only is on its way to be quantised.
    ///
    /// # Safety
    /// - No other call for the same `task` is running.
    pub(super) unsafe fn run(&self, tier: Tier, task: usize, spare: &mut Vec<f32>) {
        let Source { x, norm, any_float, .. } = self.source;
        let width = x.width();
        for row in self.source.rows(task) {
            let values = match norm {
                Some(norm) => {
                    let normed = if any_float {
                        // SAFETY: each row belongs to one task, which runs once at a time.
                        unsafe { self.normed.slice(row * width..(row + 1) * width) }
                    } else {
                        grow(spare, width, 0.0);
                        &mut spare[..width]
                    };
                    rms_norm(tier, x.row(row), gains(norm), norm.eps, normed);
                    &*normed
                }
                None => x.row(row),
            };
            if let Some(activations) = &self.activations {
                // SAFETY: as above.
                unsafe { activations.quantize(tier, row, values) };
            }
        }
    }
}

/// An input as its weights want it.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub quantized: &'a Activations,
    pub float: &'a [f32],
}
