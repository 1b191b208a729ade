//! Products with one activation row: each weight byte is read once, from where the file has it.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use zerocopy::FromZeros;

use super::activations::{ActivationUnit, Activations};
use super::band::Band;
use super::format::Format;
use super::unit::Unit;
use crate::arch::ints::Kernel;
use crate::arch::quads::Quads;

/// Weight rows whose sums are the lanes of a register.
const ROWS: usize = 8;

/// The activations that a format's products take.
type X<F> = <<F as Format>::Unit as Unit>::X;

/// Multiplies weight rows with one activation row.
pub(crate) struct Stream<'a, 'b, F: Format> {
    pub weights: &'a [F::Block], // (n_row, n_block)
    pub x: &'a Activations,
    pub token: usize,
    pub out: &'a mut Band<'b>,
}

impl<F: Format> Kernel for Stream<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(mut self, s: S) {
        // Once for all, as making it costs something and a unit is written as a whole.
        let mut chunk = F::Chunk::new_zeroed();
        for row in (0..self.out.n_row()).step_by(ROWS) {
            self.rows(s, row, &mut chunk);
        }
    }
}

impl<F: Format> Stream<'_, '_, F> {
    /// The products of [`ROWS`] rows from `row` on. After the last row, it is repeated.
    #[inline(always)]
    fn rows<S: Quads>(&mut self, s: S, row: usize, units: &mut F::Chunk) {
        let n_row = self.out.n_row();
        let n_block = self.weights.len() / n_row;
        let mut rows = [&self.weights[..0]; ROWS];
        for r in 0..ROWS {
            rows[r] = &self.weights[(row + r).min(n_row - 1) * n_block..][..n_block];
        }
        let mut x = X::<F>::row(self.x, self.token).iter();
        let (mut places, mut digits) = X::<F>::second(self.x, self.token);
        let mut acc = s.splat(0.0);
        let mut acc2 = acc;
        let mut place = 0;
        for b in 0..n_block {
            prefetch(s, rows[0], b);
            let mut blocks = [&rows[0][b]; ROWS];
            for r in 1..ROWS {
                blocks[r] = &rows[r][b];
            }
            let head = F::head(s, blocks);
            for c in 0..F::CHUNKS {
                F::unpack(s, blocks, &head, c, units.as_mut());
                for (unit, x) in units.as_ref().iter().zip(&mut x) {
                    F::Unit::add_row::<S, true>(s, unit, x, &mut acc);
                    if let (Some((&next, later)), Some((digit, rest))) = (places.split_first(), digits.split_first())
                        && next == place
                    {
                        F::Unit::add_row::<S, false>(s, unit, digit, &mut acc2);
                        (places, digits) = (later, rest);
                    }
                    place += 1;
                }
            }
        }
        let mut y = [0.0; ROWS];
        s.store(s.add(acc, acc2), &mut y);
        let out = &mut self.out.token(self.token)[row..n_row.min(row + ROWS)];
        // Eight rows need no call to be copied.
        match <&mut [f32; ROWS]>::try_from(&mut *out) {
            Ok(out) => *out = y,
            Err(_) => out.copy_from_slice(&y[..out.len()]),
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
