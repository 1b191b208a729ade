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
use crate::arch::lanes::{Lanes, PairKernel};
use crate::arch::quads::Quads;

/// Weight rows whose sums are the lanes of a register.
pub(crate) const LANES: usize = 8;

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
pub(crate) fn units<U: Multiply>(memory: &mut Vec<Line>, n: usize) -> &mut [U] {
    let n_line = (n * size_of::<U>()).div_ceil(size_of::<Line>());
    if memory.len() < n_line {
        memory.resize(n_line, Line::ZERO);
    }
    let bytes = memory.as_mut_bytes();
    <[U]>::mut_from_prefix_with_elems(bytes, n).expect("lines are aligned as units, and enough").0
}

/// Unpacks the rows of a tile.
pub(crate) struct Unpack<'a, F: Format> {
    pub weights: &'a [F::Block], // (n_row, n_block)
    pub n_row: usize,
    /// The first row of the tile. After the last row, it is repeated.
    pub row: usize,
    pub units: &'a mut [<F::Unit as Unit>::Tile], // (groups, n_unit)
}

impl<F: Format> Kernel for Unpack<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        let Self { weights, n_row, row, units } = self;
        let n_block = weights.len() / n_row;
        for (r, units) in units.chunks_exact_mut(n_block * F::UNITS).enumerate() {
            let mut rows = [&weights[..0]; LANES];
            for lane in 0..LANES {
                rows[lane] = &weights[(row + r * LANES + lane).min(n_row - 1) * n_block..][..n_block];
            }
            let mut chunks = units.chunks_exact_mut(F::UNITS / F::CHUNKS);
            for b in 0..n_block {
                let mut blocks = [&rows[0][b]; LANES];
                for lane in 1..LANES {
                    blocks[lane] = &rows[lane][b];
                }
                let head = F::head(s, blocks);
                for (c, units) in chunks.by_ref().take(F::CHUNKS).enumerate() {
                    F::Unit::unpack_tile::<S, F>(s, blocks, &head, c, units);
                }
            }
        }
    }
}

/// Multiplies the rows of a tile, `N` groups of eight, with activation rows.
pub(crate) struct Tile<'a, 'b, U: Multiply, const N: usize> {
    pub units: &'a [U], // (N, n_unit)
    /// The row of `out` that the tile's first one is; rows past the end of `out` are dropped.
    pub row: usize,
    pub x: &'a Activations,
    pub tokens: Range<usize>,
    pub out: &'a mut Band<'b>,
}

impl<U: Multiply> Kernel for Tile<'_, '_, U, 1> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        self.multiply::<S, 1, 1>(s);
    }
}

impl<U: Multiply> Kernel for Tile<'_, '_, U, GROUPS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        s.run_pair(self);
    }
}

impl<U: Multiply> PairKernel for Tile<'_, '_, U, GROUPS> {
    #[inline(always)]
    fn apart<S: Quads>(self, s: S) {
        self.multiply::<S, 1, GROUPS>(s);
    }

    #[inline(always)]
    fn together<L: Lanes<GROUPS>>(self, lanes: L) {
        self.multiply::<L, GROUPS, 1>(lanes);
    }
}

impl<U: Multiply, const N: usize> Tile<'_, '_, U, N> {
    /// The products, with the tile in `R` registers of `G` groups.
    #[inline(always)]
    fn multiply<L: Lanes<G>, const G: usize, const R: usize>(mut self, s: L) {
        let Range { start: mut token, end } = self.tokens;
        while token < end {
            if L::HOLDS_EIGHT && end - token >= 8 {
                token += self.tokens::<L, G, R, 8>(s, token);
                continue;
            }
            token += match (end - token).min(if L::HOLDS_EIGHT { 4 } else { U::TOKENS }) {
                1 => self.tokens::<L, G, R, 1>(s, token),
                2 => self.tokens::<L, G, R, 2>(s, token),
                3 => self.tokens::<L, G, R, 3>(s, token),
                _ => self.tokens::<L, G, R, 4>(s, token),
            };
        }
    }

    /// Multiplies `T` activation rows from `token` on, and returns how many they are.
    #[inline(always)]
    fn tokens<L: Lanes<G>, const G: usize, const R: usize, const T: usize>(&mut self, s: L, token: usize) -> usize {
        let n_unit = self.x.n_unit();
        let mut tile = [[&self.units[..n_unit]; G]; R];
        for r in 0..R {
            for g in 0..G {
                tile[r][g] = &self.units[(r * G + g) * n_unit..][..n_unit];
            }
        }
        let mut x = [&U::X::row(self.x, token)[..n_unit]; T];
        for t in 1..T {
            x[t] = &U::X::row(self.x, token + t)[..n_unit];
        }
        let mut acc: Sums<L, G, R, T> = [[s.splat(0.0); T]; R];
        for u in 0..n_unit {
            let mut of_unit = [&x[0][u]; T];
            for t in 1..T {
                of_unit[t] = &x[t][u];
            }
            let w = [units_at(&tile, u); T];
            if L::IS_FUSED {
                U::add::<L, true, false, G, R, T>(s, &w, &of_unit, &mut acc);
            } else {
                U::add::<L, true, true, G, R, T>(s, &w, &of_unit, &mut acc);
            }
        }
        // Each activation row has its digits elsewhere, so rows would share nothing.
        let mut acc2 = [[[s.splat(0.0); 1]; R]; T];
        for t in 0..T {
            let (places, digits) = U::X::second(self.x, token + t);
            for (&u, digit) in places.iter().zip(digits) {
                U::add::<L, false, false, G, R, 1>(s, &[units_at(&tile, u as usize)], &[digit], &mut acc2[t]);
            }
        }
        let end = self.out.n_row().min(self.row + R * G * LANES);
        for t in 0..T {
            let mut y = [[[0.0; LANES]; G]; R];
            for r in 0..R {
                s.store(s.add(acc[r][t], acc2[t][r][0]), &mut y[r]);
            }
            let out = &mut self.out.token(token + t)[self.row..end];
            // A whole tile has a length that the compiler knows, and so needs no call.
            match <&mut [[[f32; LANES]; G]; R]>::try_from(out.as_chunks_mut().0.as_chunks_mut().0) {
                Ok(out) => *out = y,
                Err(_) => out.copy_from_slice(&y.as_flattened().as_flattened()[..out.len()]),
            }
        }
        T
    }
}

/// Unit `u` of each group.
#[inline(always)]
fn units_at<'a, U, const G: usize, const R: usize>(tile: &[[&'a [U]; G]; R], u: usize) -> [[&'a U; G]; R] {
    let mut units = [[&tile[0][0][u]; G]; R];
    for r in 0..R {
        for g in 0..G {
            units[r][g] = &tile[r][g][u];
        }
    }
    units
}
