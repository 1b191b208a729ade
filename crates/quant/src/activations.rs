//! Activations as integers, in units of 32 with a scale each.
//!
//! A row is quantised in two ways, and [`IntegerForm::wide`](crate::IntegerForm) says which one the products of a type take.
//! Per unit, `amax` is the greatest magnitude, compared by bits so that not-a-number wins; after a short last unit, zeros
//! follow.
//!
//! **Narrow**, for weights whose codes have up to 7 bits:
//! - `amax` not finite: `scale` is not a number and `q` is 0, so that every product with the unit is not a number.
//! - `amax` below 1e-30: `scale` and `q` are 0.
//! - Else `scale = amax / 127`, `inv = 127 / amax` and `q = round_ties_even(x * inv)`, which never exceeds ±127.
//!
//! [`n_second`] units of the row get a second digit: those of the greatest `amax`, of equal ones the first. It holds what
//! the first left: `rest = fma(-q, scale, x)`, `q2 = round_ties_even(rest * (inv * 254))`, `scale2 = scale / 254`. Half a step is
//! 127 steps of the second digit, so that `q2` never exceeds ±127 either; where `scale` is zero or not a number, `q2` is 0.
//!
//! `sum` is what the minimum of 32 weights is multiplied with: `scale * Σq`, or `fma(scale2, Σq2, scale * Σq)`.
//!
//! **Wide**, for all other quantised weights: as the first digit, with 32,767 for 127.

use std::cmp::Reverse;

use crate::UNIT_LEN;

/// Largest magnitude of an integer of a narrow unit, and of its second digit.
pub const MAX_NARROW: i8 = 127;

/// Largest magnitude of an integer of a wide unit. A sum of 32 products with 8-bit weights is below 2^27.
pub const MAX_WIDE: i16 = 32_767;

/// Steps of a second digit in one of the first.
pub const SECOND_STEPS: f32 = 254.0;

/// Of how many units one has a second digit.
const SECOND_SHARE: usize = 8;

/// Least magnitude that gets a scale. It keeps the scales and their inverses normal.
const TINY: f32 = 1e-30;

/// Units of a row of `n_unit` that have a second digit.
///
/// It depends on nothing but the length, so that the cost of a product does not depend on values.
pub const fn n_second(n_unit: usize) -> usize {
    n_unit / SECOND_SHARE
}

/// Thirty-two activations: `x[e]` is about `q[e] * scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NarrowUnit {
    /// The integers.
    pub q: [i8; UNIT_LEN],
    /// The step.
    pub scale: f32,
    /// The sum of what the integers stand for, those of the second digit among them.
    pub sum: f32,
}

/// The second digit of a unit: `x[e]` is about `first.q[e] * first.scale + q[e] * scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SecondDigit {
    /// The unit's place in the row.
    pub unit: usize,
    /// The integers.
    pub q: [i8; UNIT_LEN],
    /// The step.
    pub scale: f32,
}

/// Thirty-two activations in 16 bits: `x[e]` is about `q[e] * scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WideUnit {
    /// The integers.
    pub q: [i16; UNIT_LEN],
    /// The step.
    pub scale: f32,
}

/// A row of activations, quantised for integer products in both ways.
#[derive(Debug, Clone, PartialEq)]
pub struct Activations {
    len: usize,
    narrow: Vec<NarrowUnit>,
    second: Vec<SecondDigit>,
    wide: Vec<WideUnit>,
}

impl Activations {
    /// Elements of the row.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the row has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The narrow units. // `(ceil(len / 32))`
    pub fn narrow(&self) -> &[NarrowUnit] {
        &self.narrow
    }

    /// The second digits, in the order of their units. // `(n_second(ceil(len / 32)))`
    pub fn second(&self) -> &[SecondDigit] {
        &self.second
    }

    /// The wide units. // `(ceil(len / 32))`
    pub fn wide(&self) -> &[WideUnit] {
        &self.wide
    }
}

/// Quantises a row in both ways; see [`activations`](crate::activations).
pub fn quantize_activations(x: &[f32]) -> Activations {
    let units: Vec<[f32; UNIT_LEN]> = x.chunks(UNIT_LEN).map(padded).collect();
    let mut narrow: Vec<NarrowUnit> = units.iter().map(narrow_unit).collect();
    let second: Vec<SecondDigit> =
        greatest(&units).into_iter().map(|unit| second_digit(unit, &units[unit], &narrow[unit])).collect();
    for digit in &second {
        let unit = &mut narrow[digit.unit];
        unit.sum = digit.scale.mul_add(sum_of(&digit.q), unit.sum);
    }
    let wide = units.iter().map(wide_unit).collect();
    Activations { len: x.len(), narrow, second, wide }
}

fn padded(x: &[f32]) -> [f32; UNIT_LEN] {
    let mut unit = [0.0; UNIT_LEN];
    unit[..x.len()].copy_from_slice(x);
    unit
}

/// The places of the units that have a second digit, ascending.
fn greatest(units: &[[f32; UNIT_LEN]]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..units.len()).collect();
    places.sort_by_key(|&place| Reverse(greatest_magnitude(&units[place]).to_bits()));
    places.truncate(n_second(units.len()));
    places.sort_unstable();
    places
}

fn narrow_unit(x: &[f32; UNIT_LEN]) -> NarrowUnit {
    let (scale, inv) = step(x, f32::from(MAX_NARROW));
    let q = x.map(|x| integer(x, inv) as i8);
    NarrowUnit { q, scale, sum: scale * sum_of(&q) }
}

fn second_digit(unit: usize, x: &[f32; UNIT_LEN], first: &NarrowUnit) -> SecondDigit {
    let (scale, inv) = step(x, f32::from(MAX_NARROW));
    let mut q = [0; UNIT_LEN];
    for ((q, &x), &first) in q.iter_mut().zip(x).zip(&first.q) {
        let rest = f32::from(-first).mul_add(scale, x);
        *q = integer(rest, inv * SECOND_STEPS) as i8;
    }
    SecondDigit { unit, q, scale: scale / SECOND_STEPS }
}

fn wide_unit(x: &[f32; UNIT_LEN]) -> WideUnit {
    let (scale, inv) = step(x, f32::from(MAX_WIDE));
    WideUnit { q: x.map(|x| integer(x, inv) as i16), scale }
}

/// The scale of a unit and the factor that quantises it; the latter is zero where all integers are.
fn step(x: &[f32; UNIT_LEN], max: f32) -> (f32, f32) {
    let amax = greatest_magnitude(x);
    if !amax.is_finite() {
        (f32::NAN, 0.0)
    } else if amax < TINY {
        (0.0, 0.0)
    } else {
        (amax / max, max / amax)
    }
}

fn greatest_magnitude(x: &[f32; UNIT_LEN]) -> f32 {
    f32::from_bits(x.iter().map(|v| v.to_bits() & 0x7fff_ffff).fold(0, u32::max))
}

/// The integer of a value. What is not a number, as an infinite value times a zero `inv` is, becomes 0.
fn integer(x: f32, inv: f32) -> f32 {
    if inv == 0.0 { 0.0 } else { (x * inv).round_ties_even() }
}

/// The exact sum.
fn sum_of(q: &[i8; UNIT_LEN]) -> f32 {
    q.iter().map(|&q| i16::from(q)).sum::<i16>().into()
}
