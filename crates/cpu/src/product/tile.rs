//! Products with many activation rows: a few weight rows are unpacked, and used for all of them.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes, KnownLayout};

use super::activations::{ActivationUnit, Activations};
use super::band::Band;
use super::format::Format;
use super::unit::{Multiply, Sums, Unit};
use crate::arch::ints::Kernel;
use crate::arch::quads::Quads;

/// Weight rows whose sums are the lanes of a register.
const LANES: usize = 8;

/// Registers of weight rows that a tile has at most.
pub(crate) const GROUPS: usize = 2;

/// Weight rows that a tile has at most.
pub(crate) const ROWS: usize = GROUPS * LANES;

/// A cache line of a tile's memory, which holds units of any kind.
#[derive(Clone, Copy, FromBytes, IntoBytes, zerocopy::Immutable, KnownLayout)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

impl Line {
    const ZERO: Self = Self([0; 64]);
}

/// Memory for `n` units.
fn units<U: Multiply>(memory: &mut Vec<Line>, n: usize) -> &mut [U] {
    let n_line = (n * size_of::<U>()).div_ceil(size_of::<Line>());
    if memory.len() < n_line {
        memory.resize(n_line, Line::ZERO);
    }
    let bytes = memory.as_mut_bytes();
    <[U]>::mut_from_prefix_with_elems(bytes, n).expect("lines are aligned as units, and enough").0
}

/// The units of a format in a tile.
type Tiled<F> = <<F as Format>::Unit as Unit>::Tile;

/// Multiplies the rows of a tile, `R` times eight, with activation rows.
pub(crate) struct Tile<'a, 'b, F: Format, const R: usize> {
    pub weights: &'a [F::Block], // (n_row, n_block)
    pub n_block: usize,
    /// The first row of the tile. After the last row, it is repeated.
    pub row: usize,
    pub x: &'a Activations,
    pub tokens: Range<usize>,
    pub out: &'a mut Band<'b>,
    pub memory: &'a mut Vec<Line>,
}

impl<F: Format, const R: usize> Kernel for Tile<'_, '_, F, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        let Self { weights, n_block, row, x, tokens, out, memory } = self;
        let (n_row, n_unit) = (out.n_row(), x.n_unit());
        let memory = units::<Tiled<F>>(memory, R * n_unit);
        for (r, units) in memory.chunks_exact_mut(n_unit).enumerate() {
            let mut rows = [&weights[..0]; LANES];
            for lane in 0..LANES {
                rows[lane] = &weights[(row + r * LANES + lane).min(n_row - 1) * n_block..][..n_block];
            }
            for (b, units) in units.chunks_exact_mut(F::UNITS).enumerate().take(n_block) {
                let mut blocks = [&rows[0][b]; LANES];
                for lane in 1..LANES {
                    blocks[lane] = &rows[lane][b];
                }
                F::Unit::unpack_tile::<S, F>(s, blocks, units);
            }
        }
        let mut groups = [&memory[..0]; R];
        for r in 0..R {
            groups[r] = &memory[r * n_unit..][..n_unit];
        }
        let mut multiply = Product { tile: groups, row, x, out };
        let mut token = tokens.start;
        while token < tokens.end {
            token += match (tokens.end - token).min(Tiled::<F>::TOKENS) {
                1 => multiply.tokens::<S, 1>(s, token),
                2 => multiply.tokens::<S, 2>(s, token),
                3 => multiply.tokens::<S, 3>(s, token),
                _ => multiply.tokens::<S, 4>(s, token),
            };
        }
    }
}

/// An unpacked tile and what it is multiplied with.
struct Product<'a, 'b, U: Multiply, const R: usize> {
    tile: [&'a [U]; R], // (n_unit)
    row: usize,
    x: &'a Activations,
    out: &'a mut Band<'b>,
}

impl<U: Multiply, const R: usize> Product<'_, '_, U, R> {
    /// Multiplies `T` activation rows from `token` on, and returns how many they are.
    #[inline(always)]
    fn tokens<S: Quads, const T: usize>(&mut self, s: S, token: usize) -> usize {
        let n_unit = self.x.n_unit();
        let mut tile = self.tile;
        for r in 0..R {
            tile[r] = &tile[r][..n_unit];
        }
        let mut x = [&U::X::row(self.x, token)[..n_unit]; T];
        let mut second = [U::X::second(self.x, token); T];
        for t in 1..T {
            x[t] = &U::X::row(self.x, token + t)[..n_unit];
            second[t] = U::X::second(self.x, token + t);
        }
        let mut acc: Sums<S, R, T> = [[s.splat(0.0); T]; R];
        for u in 0..n_unit {
            let mut w = [&tile[0][u]; R];
            for r in 1..R {
                w[r] = &tile[r][u];
            }
            let mut of_unit = [&x[0][u]; T];
            for t in 1..T {
                of_unit[t] = &x[t][u];
            }
            U::add::<S, true, true, R, T>(s, &[w; T], &of_unit, &mut acc);
        }
        let mut acc2: Sums<S, R, T> = [[s.splat(0.0); T]; R];
        for i in 0..second[0].len() {
            let mut digits = [&second[0][i]; T];
            for t in 1..T {
                digits[t] = &second[t][i];
            }
            let mut w = [[&tile[0][0]; R]; T];
            for t in 0..T {
                for r in 0..R {
                    w[t][r] = &tile[r][digits[t].unit()];
                }
            }
            U::add::<S, false, true, R, T>(s, &w, &digits, &mut acc2);
        }
        let end = self.out.n_row().min(self.row + R * LANES);
        for t in 0..T {
            let mut y = [[0.0; LANES]; R];
            for r in 0..R {
                s.store(s.add(acc[r][t], acc2[r][t]), &mut y[r]);
            }
            let out = &mut self.out.token(token + t)[self.row..end];
            out.copy_from_slice(&y.as_flattened()[..out.len()]);
        }
        T
    }
}
