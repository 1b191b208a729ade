//! Products with few activation rows: each weight byte is read once and used from registers.

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
    pub n_row: usize,
    pub x: &'a Activations,
    /// The first of the activation rows.
    pub token: usize,
    pub out: &'a mut Band<'b>,
}

/// One group of a weight row as it is stored.
struct StoredGroup<'a, S: Ints, F: Format> {
    group: &'a F::Group,
    head: F::Head<S>,
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
        let n_group = self.x.n_group();
        let n_whole = n_block / F::BLOCKS;
        let mut rows = [&self.weights[row * n_block..(row + 1) * n_block]; R];
        for r in 1..R {
            rows[r] = &self.weights[(row + r) * n_block..(row + r + 1) * n_block];
        }
        let mut tokens = [self.x.rows(self.token, 1); T];
        for t in 1..T {
            tokens[t] = self.x.rows(self.token + t, 1);
        }
        let mut sums = Sums::<S, R, T>::new(s);

        let mut whole = [groups::<F>(rows[0]); R];
        for r in 0..R {
            whole[r] = &groups::<F>(rows[r])[..n_whole];
        }
        for t in 0..T {
            tokens[t] = &tokens[t][..n_group];
        }
        for g in 0..n_whole {
            let mut groups = [&whole[0][g]; R];
            for r in 0..R {
                groups[r] = &whole[r][g];
                prefetch(s, groups[r]);
            }
            self.group(s, groups, at(&tokens, g), UNITS, &mut sums);
        }
        if n_whole < n_group {
            // What follows a short group does no harm: its scales are not used, and its minimums are removed. So groups are
            // read in place as if they were whole, except where the weights end.
            let mut padded;
            let mut groups = [F::group(&self.weights[row * n_block + n_whole * F::BLOCKS..]); R];
            for r in 1..R {
                groups[r] = F::group(&self.weights[(row + r) * n_block + n_whole * F::BLOCKS..]);
            }
            let groups = if let Some(groups) = all(groups) {
                groups
            } else {
                padded = [F::Group::new_zeroed(); R];
                for r in 0..R {
                    let blocks = rows[r][n_whole * F::BLOCKS..].as_bytes();
                    padded[r].as_mut_bytes()[..blocks.len()].copy_from_slice(blocks);
                }
                each(&padded)
            };
            self.group(s, groups, at(&tokens, n_whole), self.x.last_units(), &mut sums);
        }

        for t in 0..T {
            sums.finish::<F::Form>(s, t, &mut self.out.token(self.token + t)[row..row + R]);
        }
    }

    #[inline(always)]
    fn group<S: Ints, const R: usize>(
        &self,
        s: S,
        groups: [&F::Group; R],
        x: [&ActivationGroup; T],
        n_unit: usize,
        sums: &mut Sums<S, R, T>,
    ) {
        let mut stored = [StoredGroup::<S, F> { group: groups[0], head: F::head(s, groups[0]) }; R];
        for r in 0..R {
            let head = if r == 0 { stored[0].head } else { F::head(s, groups[r]) };
            stored[r] =
                StoredGroup { group: groups[r], head: if n_unit < UNITS { head.shortened(s, n_unit) } else { head } };
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

/// The whole groups of a row.
#[inline(always)]
fn groups<F: Format>(row: &[F::Block]) -> &[F::Group] {
    let n = row.len() / F::BLOCKS;
    match <[F::Group]>::ref_from_prefix_with_elems(row.as_bytes(), n) {
        Ok((groups, _)) => groups,
        Err(_) => &[],
    }
}

/// Group `g` of each token.
#[inline(always)]
fn at<'a, const T: usize>(tokens: &[&'a [ActivationGroup]; T], g: usize) -> [&'a ActivationGroup; T] {
    let mut groups = [&tokens[0][g]; T];
    for t in 1..T {
        groups[t] = &tokens[t][g];
    }
    groups
}

/// Asks for what lies ahead of a group, as many bytes as the group has.
#[inline(always)]
fn prefetch<S: Ints, G>(s: S, group: &G) {
    for offset in (0..size_of::<G>()).step_by(64) {
        s.prefetch(group, AHEAD_BYTES + offset);
    }
}
