//! Activations as 16-bit integers: see [`muser_quant::quantize_activations`] for their meaning.

use muser_quant::MAX_ACTIVATION;

use super::UNITS;
use crate::arch::ints::{Ints, Kernel};
use crate::caps::Tier;
use crate::pool::Disjoint;

/// Elements of a unit.
const UNIT_LEN: usize = 32;

/// Elements of a group.
const GROUP_LEN: usize = UNITS * UNIT_LEN;

/// Below this magnitude a group is all zeros.
const TINY: f32 = 1e-30;

/// Thirty-two quantised activations.
pub(crate) type Unit = [[i16; 16]; 2];

/// A group of quantised activations. A row's last group may have fewer units; what lies in the others is unspecified.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct ActivationGroup {
    pub units: [Unit; UNITS],
    /// The sum of each unit; for one that the row lacks -0, whose product with a minimum of +0 changes no sum.
    pub sums: [f32; UNITS],
    pub scale: f32,
}

impl ActivationGroup {
    const EMPTY: Self = Self { units: [[[0; 16]; 2]; UNITS], sums: [0.0; UNITS], scale: 0.0 };
}

/// Rows of quantised activations. Keep one and reuse it: it only ever grows.
#[derive(Default)]
pub struct Activations {
    n: usize,
    k: usize,
    groups: Vec<ActivationGroup>, // (n, n_group)
}

impl Activations {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Quantises `x`, rows of `k` values, in place of what was here. // `(n, k)`
    ///
    /// # Panics
    /// When `k` is no multiple of 32, or `x` no whole number of rows.
    pub fn quantize(&mut self, tier: Tier, x: &[f32], k: usize) {
        assert!(k > 0 && x.len().is_multiple_of(k), "{} values are no rows of {k}", x.len());
        let rows = self.resize(x.len() / k, k);
        for (row, x) in x.chunks_exact(k).enumerate() {
            // SAFETY: no other call is running.
            unsafe { rows.quantize(tier, row, x) };
        }
    }

    /// Makes room for `n` rows of `k` values, to be quantised by several threads. Until they are, their values are
    /// unspecified.
    ///
    /// # Panics
    /// When `k` is no multiple of 32.
    pub fn resize(&mut self, n: usize, k: usize) -> ActivationRows<'_> {
        assert!(k.is_multiple_of(UNIT_LEN), "rows of {k} values are no whole number of units of {UNIT_LEN}");
        (self.n, self.k) = (n, k);
        let len = n * self.n_group();
        if self.groups.len() < len {
            self.groups.resize(len, ActivationGroup::EMPTY);
        }
        ActivationRows { n, k, groups: Disjoint::new(&mut self.groups) }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Groups in a row.
    pub(crate) fn n_group(&self) -> usize {
        self.k.div_ceil(GROUP_LEN)
    }

    /// Units in the last group of a row.
    pub(crate) fn last_units(&self) -> usize {
        self.k / UNIT_LEN - (self.n_group().max(1) - 1) * UNITS
    }

    /// Rows from `first` on. // `(n, n_group)`
    pub(crate) fn rows(&self, first: usize, n: usize) -> &[ActivationGroup] {
        &self.groups[first * self.n_group()..(first + n) * self.n_group()]
    }
}

/// Room for rows of quantised activations, filled row by row.
pub struct ActivationRows<'a> {
    n: usize,
    k: usize,
    groups: Disjoint<'a, ActivationGroup>,
}

impl ActivationRows<'_> {
    /// Quantises one row. // `(k)`
    ///
    /// # Panics
    /// When `row` is not below the number of rows, or `x` has another length than a row.
    ///
    /// # Safety
    /// - No other call for the same `row` is running.
    pub unsafe fn quantize(&self, tier: Tier, row: usize, x: &[f32]) {
        assert!(row < self.n, "row {row} of {}", self.n);
        assert!(x.len() == self.k, "{} values for a row of {}", x.len(), self.k);
        let n_group = self.k.div_ceil(GROUP_LEN);
        // SAFETY: the ranges of different rows do not meet, and the caller promises that this row is not in use.
        let groups = unsafe { self.groups.slice(row * n_group..(row + 1) * n_group) };
        tier.run(Quantize { x: x.as_chunks().0, groups });
    }
}

struct Quantize<'a> {
    x: &'a [[f32; UNIT_LEN]],
    groups: &'a mut [ActivationGroup],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(self, s: S) {
        for (x, group) in self.x.chunks(UNITS).zip(self.groups) {
            let inv;
            (group.scale, inv) = group_scale(greatest(s, x));
            group.sums = [-0.0; UNITS];
            for ((x, unit), sum) in x.iter().zip(&mut group.units).zip(&mut group.sums) {
                *sum = quantize_unit(s, x, inv, unit) as f32;
            }
        }
    }
}

/// The greatest magnitude, compared by bits so that not-a-number wins.
#[inline(always)]
fn greatest<S: Ints>(s: S, x: &[[f32; UNIT_LEN]]) -> f32 {
    let magnitude = s.splat_int(0x7fff_ffff);
    let mut greatest = s.splat_int(0);
    for lanes in x.as_flattened().as_chunks().0 {
        greatest = s.max_int(greatest, s.and(s.to_bits(s.load(lanes)), magnitude));
    }
    f32::from_bits(s.fold_max(greatest).cast_unsigned())
}

/// The scale of a group, and the factor that quantises it; zero where all integers are zero.
#[inline(always)]
fn group_scale(greatest: f32) -> (f32, f32) {
    let max = f32::from(MAX_ACTIVATION);
    if !greatest.is_finite() {
        (f32::NAN, 0.0)
    } else if greatest < TINY {
        (0.0, 0.0)
    } else {
        (greatest / max, max / greatest)
    }
}

/// Writes the integers of a unit and returns their sum. No product exceeds 16383 by more than rounding, so they need no
/// limit.
#[inline(always)]
fn quantize_unit<S: Ints>(s: S, x: &[f32; UNIT_LEN], inv: f32, unit: &mut Unit) -> i32 {
    if inv == 0.0 {
        // Not by multiplying: an infinite value times zero is not a number.
        *unit = [[0; 16]; 2];
        return 0;
    }
    let inv = s.splat(inv);
    let mut sum = s.splat_int(0);
    for (x, q) in x.as_chunks::<16>().0.iter().zip(unit) {
        let [low, high] = x.as_chunks().0 else { continue };
        let narrow = s.narrow(s.round(s.mul(s.load(low), inv)), s.round(s.mul(s.load(high), inv)));
        sum = s.dot(sum, narrow, s.splat_i16(1));
        s.store_i16(narrow, q);
    }
    s.fold_add(sum)
}
