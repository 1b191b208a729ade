//! Products with few activation rows: each weight byte is read once, from where the file has it.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use zerocopy::FromZeros;

use super::activations::{ActivationUnit, Activations};
use super::band::Band;
use super::format::Format;
use super::unit::{Multiply, Sums};
use crate::arch::ints::Kernel;
use crate::arch::quads::Quads;

/// Weight rows whose sums are the lanes of a register.
const ROWS: usize = 8;

/// The activations that a format's products take.
type X<F> = <<F as Format>::Unit as Multiply>::X;

/// Multiplies weight rows with `T` activation rows.
pub(crate) struct Stream<'a, 'b, F: Format, const T: usize> {
    pub weights: &'a [F::Block], // (n_row, n_block)
    pub n_block: usize,
    pub x: &'a Activations,
    /// The first of the activation rows.
    pub token: usize,
    pub out: &'a mut Band<'b>,
}

impl<F: Format, const T: usize> Kernel for Stream<'_, '_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(mut self, s: S) {
        for row in (0..self.out.n_row()).step_by(ROWS) {
            self.rows(s, row);
        }
    }
}

impl<F: Format, const T: usize> Stream<'_, '_, F, T> {
    /// The products of [`ROWS`] rows from `row` on. After the last row, it is repeated.
    #[inline(always)]
    fn rows<S: Quads>(&mut self, s: S, row: usize) {
        let (n_row, n_block, n_unit) = (self.out.n_row(), self.n_block, self.x.n_unit());
        let mut rows = [&self.weights[..0]; ROWS];
        for r in 0..ROWS {
            rows[r] = &self.weights[(row + r).min(n_row - 1) * n_block..][..n_block];
        }
        let mut x = [&X::<F>::row(self.x, 0)[..0]; T];
        let mut second = x;
        for t in 0..T {
            x[t] = &X::<F>::row(self.x, self.token + t)[..n_unit];
            second[t] = X::<F>::second(self.x, self.token + t);
        }
        let mut acc: Sums<S, 1, T> = [[s.splat(0.0); T]];
        let mut acc2 = acc;
        // A block of each row, unpacked; at most eight units.
        let mut units: [F::Unit; 8] = FromZeros::new_zeroed();
        for b in 0..n_block {
            prefetch(s, rows[0], b);
            let mut blocks = [&rows[0][b]; ROWS];
            for r in 1..ROWS {
                blocks[r] = &rows[r][b];
            }
            F::unpack(s, blocks, &mut units[..F::UNITS]);
            for u in 0..F::UNITS {
                let place = b * F::UNITS + u;
                let mut of_unit = [&x[0][place]; T];
                for t in 1..T {
                    of_unit[t] = &x[t][place];
                }
                F::Unit::add::<S, true, false, 1, T>(s, &[[&units[u]]; T], &of_unit, &mut acc);
                for t in 0..T {
                    let Some((digit, rest)) = second[t].split_first() else { continue };
                    if digit.unit() == place {
                        let mut sums = [[acc2[0][t]]];
                        F::Unit::add::<S, false, false, 1, 1>(s, &[[&units[u]]], &[digit], &mut sums);
                        acc2[0][t] = sums[0][0];
                        second[t] = rest;
                    }
                }
            }
        }
        for t in 0..T {
            let mut y = [0.0; ROWS];
            s.store(s.add(acc[0][t], acc2[0][t]), &mut y);
            let out = &mut self.out.token(self.token + t)[row..n_row.min(row + ROWS)];
            out.copy_from_slice(&y[..out.len()]);
        }
    }
}

/// Asks for what lies ahead of block `b` of eight rows, as many bytes as they have there.
///
/// Rows lie one after the other, and so do the eight that follow. Asking for them in the order of memory, rather than for
/// the next block of each, makes one stream of what would be eight.
#[inline(always)]
fn prefetch<S: Quads, B>(s: S, row: &[B], b: usize) {
    let step = ROWS * size_of::<B>();
    for offset in (0..step).step_by(64) {
        s.prefetch(&row[0], ROWS * size_of_val(row) + b * step + offset);
    }
}
