//! Products with many activation rows: a few weight rows are unpacked into the first-level cache and used for all of them.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use std::marker::PhantomData;

use zerocopy::{FromZeros, IntoBytes};

use super::UNITS;
use super::activations::{ActivationGroup, Activations};
use super::band::Band;
use super::format::{Form, Format, Head};
use super::group::{Sums, WeightGroup, add_group};
use crate::arch::ints::{Ints, Kernel};

/// Activation rows that are multiplied with a tile at once.
const TOKENS: usize = 2;

/// Groups of a tile, which is then about as large as a first-level cache. Half of it would leave room for the activations
/// that pass by, but measures a tenth slower: sums are kept in memory from one range of groups to the next.
pub(crate) const GROUPS: usize = 8;

/// One group of the `R` rows of a tile, in integer form.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct TileGroup<const R: usize> {
    units: [[[[i16; 16]; 2]; R]; UNITS],
    scale: [[f32; 2 * UNITS]; R],
    min: [[f32; UNITS]; R],
}

impl<const R: usize> TileGroup<R> {
    pub(crate) const EMPTY: Self =
        Self { units: [[[[0; 16]; 2]; R]; UNITS], scale: [[0.0; 2 * UNITS]; R], min: [[0.0; UNITS]; R] };
}

/// Lane sums of a tile and one activation row, kept from one range of groups to the next.
#[derive(Clone)]
#[repr(C, align(64))]
pub(crate) struct TileSums<const R: usize> {
    acc: [[f32; 8]; R],
    min: [[f32; 8]; R],
}

impl<const R: usize> TileSums<R> {
    pub(crate) const ZERO: Self = Self { acc: [[0.0; 8]; R], min: [[0.0; 8]; R] };
}

/// Unpacks groups of a tile's rows.
pub(crate) struct Unpack<'a, F: Format, const R: usize> {
    pub rows: [&'a [F::Block]; R], // (n_group, BLOCKS), the last group may be shorter
    pub groups: &'a mut [TileGroup<R>],
}

impl<F: Format, const R: usize> Kernel for Unpack<'_, F, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(self, s: S) {
        for (r, row) in self.rows.into_iter().enumerate() {
            for (blocks, group) in row.chunks(F::BLOCKS).zip(&mut *self.groups) {
                if let Some(whole) = F::group(blocks) {
                    unpack::<S, F, R>(s, whole, UNITS, group, r);
                } else {
                    let mut padded = F::Group::new_zeroed();
                    padded.as_mut_bytes()[..size_of_val(blocks)].copy_from_slice(blocks.as_bytes());
                    unpack::<S, F, R>(s, &padded, blocks.len() * UNITS / F::BLOCKS, group, r);
                }
            }
        }
    }
}

#[inline(always)]
fn unpack<S: Ints, F: Format, const R: usize>(
    s: S,
    group: &F::Group,
    n_unit: usize,
    tile: &mut TileGroup<R>,
    r: usize,
) {
    let head = F::head(s, group);
    for u in 0..n_unit {
        let [first, second] = F::unit(s, group, &head, u);
        s.store_i16(first, &mut tile.units[u][r][0]);
        s.store_i16(second, &mut tile.units[u][r][1]);
    }
    for i in 0..256 / F::Form::SUB_BLOCK {
        tile.scale[r][i] = head.scale(i);
    }
    if F::Form::HAS_MIN {
        s.store(head.min(), &mut tile.min[r]);
    }
}

/// One row of one group of a tile.
struct TileRow<'a, F, const R: usize> {
    group: &'a TileGroup<R>,
    r: usize,
    form: PhantomData<F>,
}

impl<F, const R: usize> Clone for TileRow<'_, F, R> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, const R: usize> Copy for TileRow<'_, F, R> {}

impl<S: Ints, F: Form, const R: usize> WeightGroup<S> for TileRow<'_, F, R> {
    type Form = F;

    const UNROLLED: bool = false;

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
pub(crate) struct Multiply<'a, 'b, F: Form, const R: usize> {
    pub tile: &'a [TileGroup<R>],
    /// The group of the activations that the tile's first one belongs to.
    pub first_group: usize,
    pub x: &'a Activations,
    /// The activation row that `sums` starts with.
    pub first_token: usize,
    pub sums: &'a mut [TileSums<R>], // (n_token)
    pub out: &'a mut Band<'b>,
    /// The row of `out` that the tile's first one is; rows past the end of `out` are dropped.
    pub row: usize,
    pub form: PhantomData<F>,
}

impl<F: Form, const R: usize> Kernel for Multiply<'_, '_, F, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(mut self, s: S) {
        let n_group = self.x.n_group();
        let x = self.x.rows(self.first_token, self.sums.len());
        let mut token = 0;
        let pairs = x.chunks_exact(TOKENS * n_group);
        for row in pairs.remainder().chunks_exact(n_group) {
            self.tokens::<S, 1>(s, self.sums.len() - 1, [&row[self.first_group..]]);
        }
        for pair in pairs {
            let (first, second) = pair.split_at(n_group);
            self.tokens::<S, TOKENS>(s, token, [&first[self.first_group..], &second[self.first_group..]]);
            token += TOKENS;
        }
    }
}

impl<F: Form, const R: usize> Multiply<'_, '_, F, R> {
    #[inline(always)]
    fn tokens<S: Ints, const T: usize>(&mut self, s: S, token: usize, x: [&[ActivationGroup]; T]) {
        let is_last = self.tile.len() == x[0].len();
        let mut sums = Sums::<S, R, T>::new(s);
        if self.first_group > 0 {
            for t in 0..T {
                self.sums[token + t].load::<S, T, F>(s, &mut sums, t);
            }
        }
        let n_whole = if is_last && self.x.last_units() < UNITS { self.tile.len() - 1 } else { self.tile.len() };
        let (whole, short) = self.tile.split_at(n_whole);
        let mut groups = x;
        for t in 0..T {
            groups[t] = &x[t][..n_whole];
        }
        for (g, group) in whole.iter().enumerate() {
            let mut x = [&groups[0][g]; T];
            for t in 1..T {
                x[t] = &groups[t][g];
            }
            add_group(s, tile_rows::<F, R>(group), x, UNITS, &mut sums);
        }
        for group in short {
            let mut last = [&x[0][n_whole]; T];
            for t in 1..T {
                last[t] = &x[t][n_whole];
            }
            add_group(s, tile_rows::<F, R>(group), last, self.x.last_units(), &mut sums);
        }
        for t in 0..T {
            if is_last {
                let out = &mut self.out.token(self.first_token + token + t)[self.row..];
                sums.finish::<F>(s, t, out);
            } else {
                self.sums[token + t].store::<S, T, F>(s, &sums, t);
            }
        }
    }
}

#[inline(always)]
fn tile_rows<F, const R: usize>(group: &TileGroup<R>) -> [TileRow<'_, F, R>; R] {
    let mut rows = [TileRow { group, r: 0, form: PhantomData }; R];
    for r in 1..R {
        rows[r].r = r;
    }
    rows
}

impl<const R: usize> TileSums<R> {
    #[inline(always)]
    fn load<S: Ints, const T: usize, F: Form>(&self, s: S, sums: &mut Sums<S, R, T>, t: usize) {
        for r in 0..R {
            sums.acc[r][t] = s.load(&self.acc[r]);
            if F::HAS_MIN {
                sums.min[r][t] = s.load(&self.min[r]);
            }
        }
    }

    #[inline(always)]
    fn store<S: Ints, const T: usize, F: Form>(&mut self, s: S, sums: &Sums<S, R, T>, t: usize) {
        for r in 0..R {
            s.store(sums.acc[r][t], &mut self.acc[r]);
            if F::HAS_MIN {
                s.store(sums.min[r][t], &mut self.min[r]);
            }
        }
    }
}
