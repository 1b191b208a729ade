//! Activations as 16-bit integers: see [`muser_quant::quantize_activations`] for their meaning.

use std::ops::Range;

use muser_quant::MAX_ACTIVATION;

use super::UNITS;
use super::group::ActivationGroup;
use crate::arch::ints::{Ints, Kernel};
use crate::caps::Tier;
use crate::pool::Disjoint;

/// Elements of a unit.
const UNIT_LEN: usize = 32;

/// Elements of a group.
const GROUP_LEN: usize = UNITS * UNIT_LEN;

/// Below this magnitude a group is all zeros.
const TINY: f32 = 1e-30;

/// Thirty-two quantised activations on one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Unit(pub [[i16; 16]; 2]);

/// Rows of quantised activations. Keep one and reuse it: it only ever grows.
#[derive(Default)]
pub struct Activations {
    n: usize,
    n_unit: usize,
    units: Vec<Unit>,        // (n, n_unit)
    scale: Vec<f32>,         // (n, n_group)
    sums: Vec<[f32; UNITS]>, // (n, n_group, UNITS), zeros after the last unit
}

impl Activations {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Quantises `x`, rows of `k` values, in place of what was here. // (n, k)
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
        (self.n, self.n_unit) = (n, k / UNIT_LEN);
        let n_group = k.div_ceil(GROUP_LEN);
        grow(&mut self.units, n * self.n_unit, Unit([[0; 16]; 2]));
        grow(&mut self.scale, n * n_group, 0.0);
        grow(&mut self.sums, n * n_group, [0.0; UNITS]);
        ActivationRows {
            n,
            n_unit: self.n_unit,
            units: Disjoint::new(&mut self.units),
            scale: Disjoint::new(&mut self.scale),
            sums: Disjoint::new(&mut self.sums),
        }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values in a row.
    pub fn k(&self) -> usize {
        self.n_unit * UNIT_LEN
    }

    /// Groups in a row.
    pub(crate) fn n_group(&self) -> usize {
        self.n_unit.div_ceil(UNITS)
    }

    /// The units of group `g` of a row, which has up to eight of them.
    #[inline(always)]
    pub(crate) fn group(&self, row: usize, g: usize) -> ActivationGroup<'_> {
        let n_unit = UNITS.min(self.n_unit - g * UNITS);
        let at = row * self.n_group() + g;
        ActivationGroup {
            units: &self.units[row * self.n_unit + g * UNITS..][..n_unit],
            scale: self.scale[at],
            sums: &self.sums[at],
        }
    }
}

/// Sets the length to at least `len`. What was here is of no interest, so it isn't cleared.
fn grow<T: Clone>(items: &mut Vec<T>, len: usize, value: T) {
    if items.len() < len {
        items.resize(len, value);
    }
}

/// Room for rows of quantised activations, filled row by row.
pub struct ActivationRows<'a> {
    n: usize,
    n_unit: usize,
    units: Disjoint<'a, Unit>,
    scale: Disjoint<'a, f32>,
    sums: Disjoint<'a, [f32; UNITS]>,
}

impl ActivationRows<'_> {
    /// Quantises one row. // (k)
    ///
    /// # Panics
    /// When `row` is not below the number of rows, or `x` has another length than a row.
    ///
    /// # Safety
    /// - No other call for the same `row` is running.
    pub unsafe fn quantize(&self, tier: Tier, row: usize, x: &[f32]) {
        assert!(row < self.n, "row {row} of {}", self.n);
        assert!(x.len() == self.n_unit * UNIT_LEN, "{} values for a row of {}", x.len(), self.n_unit * UNIT_LEN);
        let n_group = self.n_unit.div_ceil(UNITS);
        // SAFETY: the ranges of different rows do not meet, and the caller promises that this row is not in use.
        let (units, scale, sums) = unsafe {
            let part = |len: usize| -> Range<usize> { row * len..(row + 1) * len };
            (self.units.slice(part(self.n_unit)), self.scale.slice(part(n_group)), self.sums.slice(part(n_group)))
        };
        tier.run(Quantize { x: x.as_chunks().0, units, scale, sums });
    }
}

struct Quantize<'a> {
    x: &'a [[f32; UNIT_LEN]],
    units: &'a mut [Unit],
    scale: &'a mut [f32],
    sums: &'a mut [[f32; UNITS]],
}

impl Kernel for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Ints>(self, s: S) {
        let groups = self.x.chunks(UNITS).zip(self.units.chunks_mut(UNITS)).zip(self.scale).zip(self.sums);
        for (((x, units), scale), sums) in groups {
            let inv;
            (*scale, inv) = group_scale(greatest(s, x));
            *sums = [0.0; UNITS];
            for ((x, unit), sum) in x.iter().zip(units).zip(sums) {
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
        unit.0 = [[0; 16]; 2];
        return 0;
    }
    let inv = s.splat(inv);
    let mut sum = s.splat_int(0);
    for (x, q) in x.as_chunks::<16>().0.iter().zip(&mut unit.0) {
        let [low, high] = x.as_chunks().0 else { continue };
        let narrow = s.narrow(s.round(s.mul(s.load(low), inv)), s.round(s.mul(s.load(high), inv)));
        sum = s.dot(sum, narrow, s.splat_i16(1));
        s.store_i16(narrow, q);
    }
    s.fold_add(sum)
}
