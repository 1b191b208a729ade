//! Products with few activation rows: each weight byte is read once and used from registers.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use std::ops::Range;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::UNITS;
use super::activations::{ActivationGroup, Activations};
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
    pub n_block: usize,
    /// The rows to multiply, of the weights and of `out`.
    pub rows: Range<usize>,
    pub x: &'a Activations,
    /// The activation rows, which may repeat.
    pub tokens: [usize; T],
    pub out: &'a mut Band<'b>,
}

/// One group of a weight row as it is stored.
struct StoredGroup<'a, S: Ints, F: Format> {
    group: &'a F::Group,
    head: F::Head<S>,
}

impl<'a, S: Ints, F: Format> StoredGroup<'a, S, F> {
    #[inline(always)]
    fn new(s: S, group: &'a F::Group, n_unit: usize) -> Self {
        let head = F::head(s, group);
        Self { group, head: if n_unit < UNITS { head.shortened(s, n_unit) } else { head } }
    }
}

impl<S: Ints, F: Format> Clone for StoredGroup<'_, S, F> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Ints, F: Format> Copy for StoredGroup<'_, S, F> {}

impl<S: Ints, F: Format> WeightGroup<S> for &StoredGroup<'_, S, F> {
    type Form = F::Form;

    const UNROLLED: bool = true;

    #[inline(always)]
    fn unit(self, s: S, u: usize) -> [S::H; 2] {
        F::unit(s, self.group, &self.head, u)
    }

    #[inline(always)]
    fn scale(self, i: usize) -> f32 {
        self.head.scale(i)
    }

    #[inline(always)]
    fn min(self, _: S) -> S::F {
        self.head.min()
    }
}

impl<F: Format, const T: usize> Kernel for Stream<'_, '_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(mut self, s: S) {
        for row in self.rows.clone().step_by(ROWS) {
            self.rows(s, row);
        }
    }
}

impl<F: Format, const T: usize> Stream<'_, '_, F, T> {
    /// The products of [`ROWS`] rows from `row` on. After the last row, it is repeated.
    #[inline(always)]
    fn rows<S: Ints>(&mut self, s: S, row: usize) {
        let mut rows = [&self.weights[row * self.n_block..]; ROWS];
        for r in 1..ROWS {
            rows[r] = &self.weights[(row + r).min(self.rows.end - 1) * self.n_block..];
        }
        let n_group = self.x.n_group();
        let n_whole = self.n_block / F::BLOCKS;
        let mut x = [self.x.rows(self.tokens[0], 1); T];
        for t in 0..T {
            x[t] = &self.x.rows(self.tokens[t], 1)[..n_group];
        }
        let mut sums = Sums::<S, ROWS, T>::new(s);

        let mut whole = [groups::<F>(rows[0], n_whole); ROWS];
        for r in 1..ROWS {
            whole[r] = groups::<F>(rows[r], n_whole);
        }
        for g in 0..n_whole {
            let groups = at(&whole, g);
            for r in 0..ROWS {
                prefetch(s, groups[r]);
            }
            Self::group(s, groups, at(&x, g), UNITS, &mut sums);
        }
        if n_whole < n_group {
            // What follows a short group does no harm: its scales are not used, and its minimums are removed. So groups are
            // read in place as if they were whole, except where the weights end.
            let mut padded;
            let mut short = [None; ROWS];
            for r in 0..ROWS {
                short[r] = F::group(&rows[r][n_whole * F::BLOCKS..]);
            }
            let groups = if let Some(groups) = all(short) {
                groups
            } else {
                padded = [F::Group::new_zeroed(); ROWS];
                for r in 0..ROWS {
                    let blocks = rows[r][n_whole * F::BLOCKS..self.n_block].as_bytes();
                    padded[r].as_mut_bytes()[..blocks.len()].copy_from_slice(blocks);
                }
                each(&padded)
            };
            Self::group(s, groups, at(&x, n_whole), self.x.last_units(), &mut sums);
        }

        let end = self.rows.end.min(row + ROWS);
        for t in 0..T {
            sums.finish::<F::Form>(s, t, &mut self.out.token(self.tokens[t])[row..end]);
        }
    }

    #[inline(always)]
    fn group<S: Ints>(
        s: S,
        groups: [&F::Group; ROWS],
        x: [&ActivationGroup; T],
        n_unit: usize,
        sums: &mut Sums<S, ROWS, T>,
    ) {
        let mut stored = [StoredGroup::<S, F>::new(s, groups[0], n_unit); ROWS];
        for r in 1..ROWS {
            stored[r] = StoredGroup::new(s, groups[r], n_unit);
        }
        add_group(s, each(&stored), x, n_unit, sums);
    }
}

/// A reference to each.
#[inline(always)]
fn each<T, const R: usize>(items: &[T; R]) -> [&T; R] {
    let mut each = [&items[0]; R];
    for r in 1..R {
        each[r] = &items[r];
    }
    each
}

/// All of them, if there are all.
#[inline(always)]
fn all<T: Copy, const R: usize>(items: [Option<T>; R]) -> Option<[T; R]> {
    let mut all = [items[0]?; R];
    for r in 1..R {
        all[r] = items[r]?;
    }
    Some(all)
}

/// The `n` whole groups that a row starts with.
#[inline(always)]
fn groups<F: Format>(row: &[F::Block], n: usize) -> &[F::Group] {
    match <[F::Group]>::ref_from_prefix_with_elems(row.as_bytes(), n) {
        Ok((groups, _)) => groups,
        Err(_) => &[],
    }
}

/// Item `i` of each.
#[inline(always)]
fn at<'a, T, const N: usize>(items: &[&'a [T]; N], i: usize) -> [&'a T; N] {
    let mut at = [&items[0][i]; N];
    for n in 1..N {
        at[n] = &items[n][i];
    }
    at
}

/// Asks for what lies ahead of a group, as many bytes as the group has.
#[inline(always)]
fn prefetch<S: Ints, G>(s: S, group: &G) {
    for offset in (0..size_of::<G>()).step_by(64) {
        s.prefetch(group, AHEAD_BYTES + offset);
    }
}
