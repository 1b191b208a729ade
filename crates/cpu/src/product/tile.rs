//! Products with many activation rows: a few weight rows are unpacked into the first-level cache and used for all of them.

use std::marker::PhantomData;

use super::UNITS;
use super::activations::Activations;
use super::band::Band;
use super::format::{Form, Format};
use super::group::{Sums, WeightGroup, add_group};
use crate::arch::ints::{Ints, Kernel};

/// Weight rows of a tile.
pub(crate) const ROWS: usize = 4;

/// Activation rows that are multiplied with a tile at once: with four weight rows, eight sums in registers.
const TOKENS: usize = 2;

/// Groups of a tile: with the activations that pass by it, it stays within 32 KiB.
pub(crate) const GROUPS: usize = 4;

/// One group of the rows of a tile, in integer form.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct TileGroup {
    units: [[[[i16; 16]; 2]; ROWS]; UNITS],
    scale: [[f32; 2 * UNITS]; ROWS],
    min: [[f32; UNITS]; ROWS],
}

impl TileGroup {
    pub(crate) const EMPTY: Self =
        Self { units: [[[[0; 16]; 2]; ROWS]; UNITS], scale: [[0.0; 2 * UNITS]; ROWS], min: [[0.0; UNITS]; ROWS] };
}

/// Lane sums of a tile and one activation row, kept from one range of groups to the next.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct TileSums {
    acc: [[f32; 8]; ROWS],
    min: [[f32; 8]; ROWS],
}

impl TileSums {
    pub(crate) const ZERO: Self = Self { acc: [[0.0; 8]; ROWS], min: [[0.0; 8]; ROWS] };
}

/// Unpacks groups of a tile's rows.
pub(crate) struct Unpack<'a, F: Format> {
    pub rows: [&'a [F::Block]; ROWS], // (n_group, BLOCKS), the last group may be shorter
    pub groups: &'a mut [TileGroup],
}

impl<F: Format> Kernel for Unpack<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(self, s: S) {
        for (r, row) in self.rows.into_iter().enumerate() {
            for (blocks, group) in row.chunks(F::BLOCKS).zip(&mut *self.groups) {
                let head = F::head(s, blocks);
                let n_unit = if F::BLOCKS == 1 { UNITS } else { blocks.len() * UNITS / F::BLOCKS };
                for u in 0..n_unit {
                    let [first, second] = F::unit(s, blocks, &head, u);
                    s.store_i16(first, &mut group.units[u][r][0]);
                    s.store_i16(second, &mut group.units[u][r][1]);
                }
                group.scale[r] = head.scale;
                if F::Form::HAS_MIN {
                    s.store(head.min, &mut group.min[r]);
                }
            }
        }
    }
}

/// One row of one group of a tile.
struct TileRow<'a, F> {
    group: &'a TileGroup,
    r: usize,
    form: PhantomData<F>,
}

impl<F> Clone for TileRow<'_, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for TileRow<'_, F> {}

impl<S: Ints, F: Form> WeightGroup<S> for TileRow<'_, F> {
    type Form = F;

    #[inline(always)]
    fn unit(self, s: S, u: usize) -> [S::H; 2] {
        let unit = &self.group.units[u][self.r];
        [s.load_i16(&unit[0]), s.load_i16(&unit[1])]
    }

    #[inline(always)]
    fn scale(self, i: usize) -> f32 {
        self.group.scale[self.r][i]
    }

    #[inline(always)]
    fn min(self, s: S) -> S::F {
        s.load(&self.group.min[self.r])
    }
}

/// Multiplies a range of groups of a tile with activation rows.
pub(crate) struct Multiply<'a, 'b, F: Form> {
    pub tile: &'a [TileGroup],
    /// The group of the activations that the tile's first one belongs to.
    pub first_group: usize,
    pub x: &'a Activations,
    /// The activation row that `sums` starts with.
    pub first_token: usize,
    pub sums: &'a mut [TileSums], // (n_token)
    pub out: &'a mut Band<'b>,
    /// The row of `out` that the tile's first one is; rows past the end of `out` are dropped.
    pub row: usize,
    pub form: PhantomData<F>,
}

impl<F: Form> Kernel for Multiply<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(mut self, s: S) {
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

impl<F: Form> Multiply<'_, '_, F> {
    #[inline(always)]
    fn tokens<S: Ints, const T: usize>(&mut self, s: S, token: usize) {
        let mut sums = Sums::<S, ROWS, T>::new(s);
        if self.first_group > 0 {
            for t in 0..T {
                self.sums[token + t].load::<S, T, F>(s, &mut sums, t);
            }
        }
        for (g, group) in self.tile.iter().enumerate() {
            let mut x = [self.x.group(self.first_token + token, self.first_group + g); T];
            for t in 1..T {
                x[t] = self.x.group(self.first_token + token + t, self.first_group + g);
            }
            let mut weights = [TileRow::<F> { group, r: 0, form: PhantomData }; ROWS];
            for r in 1..ROWS {
                weights[r].r = r;
            }
            let n_unit = x[0].units.len();
            add_group(s, weights, x, n_unit, &mut sums);
        }
        if self.first_group + self.tile.len() < self.x.n_group() {
            for t in 0..T {
                self.sums[token + t].store::<S, T, F>(s, &sums, t);
            }
            return;
        }
        for t in 0..T {
            let mut lanes = [s.splat(0.0); ROWS];
            for r in 0..ROWS {
                lanes[r] = sums.lanes::<F>(s, r, t);
            }
            let folded = s.fold4(lanes);
            let out = &mut self.out.token(self.first_token + token + t)[self.row..];
            if let Some(out) = out.first_chunk_mut() {
                *out = folded;
            } else {
                out.copy_from_slice(&folded[..out.len()]);
            }
        }
    }
}

impl TileSums {
    #[inline(always)]
    fn load<S: Ints, const T: usize, F: Form>(&self, s: S, sums: &mut Sums<S, ROWS, T>, t: usize) {
        for r in 0..ROWS {
            sums.acc[r][t] = s.load(&self.acc[r]);
            if F::HAS_MIN {
                sums.min[r][t] = s.load(&self.min[r]);
            }
        }
    }

    #[inline(always)]
    fn store<S: Ints, const T: usize, F: Form>(&mut self, s: S, sums: &Sums<S, ROWS, T>, t: usize) {
        for r in 0..ROWS {
            s.store(sums.acc[r][t], &mut self.acc[r]);
            if F::HAS_MIN {
                s.store(sums.min[r][t], &mut self.min[r]);
            }
        }
    }
}
