//! Products of float weights with f32 activations: see [`muser_quant::float`] for their order.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use muser_quant::blocks::{Bf16, F16, F32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::band::Band;
use crate::arch::ints::{Ints, Kernel};
use crate::arch::quads::Quads;

/// Elements that are multiplied at once.
const LANES: usize = 8;

/// Weight rows that are multiplied at once.
pub(crate) const ROWS: usize = 4;

/// Activation rows that are multiplied at once: with four weight rows, eight independent sums hide the latency of a
/// multiply-add.
pub(crate) const TOKENS: usize = 2;

/// Vectors of a tile's row: with the activations that pass by it, a tile stays within 32 KiB.
pub(crate) const VECTORS: usize = 128;

/// A float type of weights.
pub(crate) trait FloatFormat {
    /// One stored element.
    type Element: FromBytes + Immutable + KnownLayout + Unaligned + Copy;

    /// Eight elements.
    fn load<S: Ints>(s: S, x: &[Self::Element; LANES]) -> S::F;
}

impl FloatFormat for F32 {
    type Element = Self;

    #[inline(always)]
    fn load<S: Ints>(s: S, x: &[Self; LANES]) -> S::F {
        s.load(&x.map(|x| x.0.get()))
    }
}

impl FloatFormat for F16 {
    type Element = Self;

    #[inline(always)]
    fn load<S: Ints>(s: S, x: &[Self; LANES]) -> S::F {
        s.load_f16(&x.map(|x| x.0.get()))
    }
}

impl FloatFormat for Bf16 {
    type Element = Self;

    #[inline(always)]
    fn load<S: Ints>(s: S, x: &[Self; LANES]) -> S::F {
        s.load_bf16(&x.map(|x| x.0.get()))
    }
}

/// One vector of each row of a tile, decoded.
pub(crate) type TileVectors = [[f32; LANES]; ROWS];

/// The lane sums of a tile and one activation row.
pub(crate) type TileSums = [[f32; LANES]; ROWS];

/// The elements from `i * 8` on, with zeros after the last.
#[inline(always)]
fn vector<T: FromBytes + Copy>(row: &[T], i: usize) -> [T; LANES] {
    let rest = &row[i * LANES..];
    if let Some(vector) = rest.first_chunk() {
        return *vector;
    }
    let mut padded = [T::new_zeroed(); LANES];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// Decodes vectors of a tile's rows.
pub(crate) struct Decode<'a, F: FloatFormat> {
    pub rows: [&'a [F::Element]; ROWS], // (k)
    pub first: usize,
    pub vectors: &'a mut [TileVectors],
}

impl<F: FloatFormat> Kernel for Decode<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        for (r, row) in self.rows.into_iter().enumerate() {
            for (i, to) in self.vectors.iter_mut().enumerate() {
                s.store(F::load(s, &vector(row, self.first + i)), &mut to[r]);
            }
        }
    }
}

/// Multiplies a range of a tile's vectors with activation rows.
pub(crate) struct Multiply<'a, 'b> {
    pub tile: &'a [TileVectors],
    /// The vector of a row that the tile's first one is.
    pub first: usize,
    /// Whether the tile ends where the rows end.
    pub last: bool,
    pub x: &'a [f32], // (n_token, k)
    pub k: usize,
    /// The activation row that `sums` starts with.
    pub first_token: usize,
    pub sums: &'a mut [TileSums], // (n_token)
    pub out: &'a mut Band<'b>,
    /// The row of `out` that the tile's first one is; rows past the end of `out` are dropped.
    pub row: usize,
}

impl Kernel for Multiply<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(mut self, s: S) {
        let n_token = self.sums.len();
        let whole = n_token - n_token % TOKENS;
        for token in (0..whole).step_by(TOKENS) {
            self.tokens::<S, TOKENS>(s, token);
        }
        for token in whole..n_token {
            self.tokens::<S, 1>(s, token);
        }
    }
}

impl Multiply<'_, '_> {
    #[inline(always)]
    fn tokens<S: Ints, const T: usize>(&mut self, s: S, token: usize) {
        let mut acc = [[s.splat(0.0); T]; ROWS];
        let mut x = [&self.x[..0]; T];
        for t in 0..T {
            x[t] = &self.x[(self.first_token + token + t) * self.k..][..self.k][self.first * LANES..];
            if self.first > 0 {
                for r in 0..ROWS {
                    acc[r][t] = s.load(&self.sums[token + t][r]);
                }
            }
        }
        let whole = self.tile.len().min(x[0].len() / LANES);
        let mut vectors = [&[[0.0; LANES]; 0][..]; T];
        for t in 0..T {
            vectors[t] = &x[t].as_chunks().0[..whole];
        }
        for (i, weights) in self.tile[..whole].iter().enumerate() {
            let mut x = [s.splat(0.0); T];
            for t in 0..T {
                x[t] = s.load(&vectors[t][i]);
            }
            add(s, weights, x, &mut acc);
        }
        if let Some(weights) = self.tile.get(whole) {
            let mut tail = [s.splat(0.0); T];
            for t in 0..T {
                tail[t] = s.load(&vector(x[t], whole));
            }
            add(s, weights, tail, &mut acc);
        }
        for t in 0..T {
            if !self.last {
                for r in 0..ROWS {
                    s.store(acc[r][t], &mut self.sums[token + t][r]);
                }
                continue;
            }
            let mut lanes = [s.splat(0.0); ROWS];
            for r in 0..ROWS {
                lanes[r] = acc[r][t];
            }
            let folded = s.fold4(lanes);
            let out = &mut self.out.token(self.first_token + token + t)[self.row..];
            let n = out.len().min(ROWS);
            out[..n].copy_from_slice(&folded[..n]);
        }
    }
}

#[inline(always)]
fn add<S: Ints, const T: usize>(s: S, weights: &TileVectors, x: [S::F; T], acc: &mut [[S::F; T]; ROWS]) {
    for r in 0..ROWS {
        let w = s.load(&weights[r]);
        for t in 0..T {
            acc[r][t] = s.fma(w, x[t], acc[r][t]);
        }
    }
}

/// Multiplies weight rows with one activation row, decoding in registers.
pub(crate) struct Stream<'a, 'b, F: FloatFormat> {
    pub weights: &'a [F::Element], // (n_row, k)
    pub n_row: usize,
    pub x: &'a [f32], // (k)
    /// The token of `out` that the activation row is.
    pub token: usize,
    pub out: &'a mut Band<'b>,
}

impl<F: FloatFormat> Kernel for Stream<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(mut self, s: S) {
        let whole = self.n_row - self.n_row % ROWS;
        for row in (0..whole).step_by(ROWS) {
            self.rows::<S, ROWS>(s, row);
        }
        for row in whole..self.n_row {
            self.rows::<S, 1>(s, row);
        }
    }
}

impl<F: FloatFormat> Stream<'_, '_, F> {
    #[inline(always)]
    fn rows<S: Ints, const R: usize>(&mut self, s: S, row: usize) {
        let k = self.x.len();
        let mut rows = [&self.weights[..0]; R];
        let mut acc = [s.splat(0.0); R];
        for r in 0..R {
            rows[r] = &self.weights[(row + r) * k..][..k];
        }
        let (vectors, tail) = self.x.as_chunks();
        for (i, x) in vectors.iter().enumerate() {
            let x = s.load(x);
            for r in 0..R {
                if let Some(w) = rows[r][i * LANES..].first_chunk() {
                    acc[r] = s.fma(F::load(s, w), x, acc[r]);
                }
            }
        }
        if !tail.is_empty() {
            let x = s.load(&vector(tail, 0));
            for r in 0..R {
                acc[r] = s.fma(F::load(s, &vector(rows[r], vectors.len())), x, acc[r]);
            }
        }
        let out = &mut self.out.token(self.token)[row..row + R];
        for r in 0..R {
            out[r] = s.fold(acc[r]);
        }
    }
}
