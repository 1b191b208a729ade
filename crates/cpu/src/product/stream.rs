//! Products with few activation rows: each weight byte is read once and used from registers.

use super::UNITS;
use super::activations::Activations;
use super::band::Band;
use super::format::{Format, Head};
use super::group::{Sums, WeightGroup, add_group};
use crate::arch::ints::{Ints, Kernel};

/// Weight rows that share the loads of activations and hide each other's latencies.
const ROWS: usize = 2;

/// How far ahead of what is being read to ask for weights.
const AHEAD_BYTES: usize = 2048;

/// Multiplies weight rows with `T` activation rows.
pub(crate) struct Stream<'a, 'b, F: Format, const T: usize> {
    pub weights: &'a [F::Block], // (n_row, n_block)
    pub n_row: usize,
    pub x: &'a Activations,
    /// The first of the activation rows.
    pub token: usize,
    pub out: &'a mut Band<'b>,
}

/// One group of a weight row as it is stored.
struct Stored<'a, S: Ints, F: Format> {
    group: &'a [F::Block],
    head: Head<S>,
}

impl<S: Ints, F: Format> Clone for Stored<'_, S, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Ints, F: Format> Copy for Stored<'_, S, F> {}

impl<S: Ints, F: Format> WeightGroup<S> for &Stored<'_, S, F> {
    type Form = F::Form;

    #[inline(always)]
    fn unit(self, s: S, u: usize) -> [S::H; 2] {
        F::unit(s, self.group, &self.head, u)
    }

    #[inline(always)]
    fn scale(self, i: usize) -> f32 {
        self.head.scale[i]
    }

    #[inline(always)]
    fn min(self, _: S) -> S::F {
        self.head.min
    }
}

impl<F: Format, const T: usize> Kernel for Stream<'_, '_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(mut self, s: S) {
        let whole = self.n_row - self.n_row % ROWS;
        for row in (0..whole).step_by(ROWS) {
            self.rows::<S, ROWS>(s, row);
        }
        for row in whole..self.n_row {
            self.rows::<S, 1>(s, row);
        }
    }
}

impl<F: Format, const T: usize> Stream<'_, '_, F, T> {
    /// The products of rows `row .. row + R`.
    #[inline(always)]
    fn rows<S: Ints, const R: usize>(&mut self, s: S, row: usize) {
        let n_block = self.weights.len() / self.n_row;
        let mut rows = [&self.weights[..0]; R];
        for r in 0..R {
            rows[r] = &self.weights[(row + r) * n_block..][..n_block];
        }
        let mut sums = Sums::<S, R, T>::new(s);
        for g in 0..self.x.n_group() {
            let mut x = [self.x.group(self.token, g); T];
            for t in 1..T {
                x[t] = self.x.group(self.token + t, g);
            }
            // Known to be eight where a block is a group.
            let n_unit = if F::BLOCKS == 1 { UNITS } else { x[0].units.len() };
            let blocks = g * F::BLOCKS..n_block.min((g + 1) * F::BLOCKS);
            let mut stored = [Stored::<S, F> { group: &rows[0][blocks.clone()], head: Head::new(s) }; R];
            for r in 0..R {
                stored[r].group = &rows[r][blocks.clone()];
                prefetch(s, stored[r].group);
                stored[r].head = F::head(s, stored[r].group);
            }
            let mut weights = [&stored[0]; R];
            for r in 1..R {
                weights[r] = &stored[r];
            }
            add_group(s, weights, x, n_unit, &mut sums);
        }
        for t in 0..T {
            let out = &mut self.out.token(self.token + t)[row..row + R];
            for r in 0..R {
                out[r] = s.fold(sums.lanes::<F::Form>(s, r, t));
            }
        }
    }
}

/// Asks for what lies ahead of a group, as many bytes as the group has.
#[inline(always)]
fn prefetch<S: Ints, B>(s: S, group: &[B]) {
    if let Some(first) = group.first() {
        for offset in (0..size_of_val(group)).step_by(64) {
            s.prefetch(first, AHEAD_BYTES + offset);
        }
    }
}
