//! The kernels that quantise a row of activations: see [`muser_quant::activations`].

use muser_quant::UNIT_LEN;
use muser_quant::activations::{MAX_NARROW, MAX_WIDE, SECOND_STEPS};

use super::activations::{NarrowUnit, WideUnit};
use crate::arch::ints::{Ints, Kernel};
use crate::arch::quads::Quads;

/// Below this magnitude a unit is all zeros.
const TINY: f32 = 1e-30;

/// Thirty-two values.
type Values = [f32; UNIT_LEN];

/// To 8 bits, and a second digit for some units.
pub(super) struct QuantizeNarrow<'a> {
    pub x: &'a [Values],
    pub narrow: &'a mut [NarrowUnit], // (n_unit)
    pub second: &'a mut [NarrowUnit], // (n_second)
    pub places: &'a mut [u32],        // (n_second)
    pub greatest: &'a mut [u32],      // (n_unit)
}

impl Kernel for QuantizeNarrow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        for (x, (unit, greatest)) in self.x.iter().zip(self.narrow.iter_mut().zip(&mut *self.greatest)) {
            *greatest = greatest_magnitude(s, x);
            let (scale, inv) = step(*greatest, f32::from(MAX_NARROW));
            let sum = quantize(s, x, inv, unit);
            unit.scale = scale;
            unit.sum = scale * f32::from(sum);
        }
        let mut chosen = Chosen::new(self.greatest, self.second.len());
        let mut second = self.second.iter_mut().zip(self.places);
        for (place, &greatest) in self.greatest.iter().enumerate() {
            if !chosen.takes(greatest) {
                continue;
            }
            let (Some((to, to_place)), x, first) = (second.next(), &self.x[place], &mut self.narrow[place]) else {
                break;
            };
            let (_, inv) = step(greatest, f32::from(MAX_NARROW));
            let sum = quantize_rest(s, x, first.scale, inv, to);
            to.scale = first.scale / SECOND_STEPS;
            *to_place = place as u32;
            first.sum = to.scale.mul_add(f32::from(sum), first.sum);
        }
    }
}

/// To 16 bits.
pub(super) struct QuantizeWide<'a> {
    pub x: &'a [Values],
    pub wide: &'a mut [WideUnit], // (n_unit)
}

impl Kernel for QuantizeWide<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Quads>(self, s: S) {
        for (x, unit) in self.x.iter().zip(self.wide) {
            let (scale, inv) = step(greatest_magnitude(s, x), f32::from(MAX_WIDE));
            unit.scale = scale;
            if inv == 0.0 {
                unit.q = WideUnit::ZERO.q;
                continue;
            }
            let inv = s.splat(inv);
            for (x, q) in x.as_chunks::<16>().0.iter().zip(unit.q.as_flattened_mut().as_chunks_mut().0) {
                if let [low, high] = x.as_chunks().0 {
                    s.store_i16(s.narrow(s.round(s.mul(s.load(low), inv)), s.round(s.mul(s.load(high), inv))), q);
                }
            }
        }
    }
}

/// Which units have a second digit: those with a greatest magnitude above `limit`, and the first few with just that.
struct Chosen {
    limit: u32,
    n_equal: usize,
}

impl Chosen {
    /// The `n` greatest. `n` is at most their number.
    #[inline(always)]
    fn new(greatest: &[u32], n: usize) -> Self {
        // The least limit with no more than `n` above it, bit by bit: counting is quick where sorting is not. Once there are
        // just `n` above, none of the limit itself is wanted.
        let above =
            |limit: i32| greatest.iter().map(|&bits| i32::from(bits.cast_signed() > limit)).sum::<i32>() as usize;
        let (mut low, mut high) = (0, i32::MAX);
        let mut n_above = 0;
        while low < high {
            let middle = low + (high - low) / 2;
            let n_middle = above(middle);
            if n_middle <= n {
                (high, n_above) = (middle, n_middle);
                if n_middle == n {
                    break;
                }
            } else {
                low = middle + 1;
            }
        }
        Self { limit: high.cast_unsigned(), n_equal: n - n_above }
    }

    /// Whether the next unit, with this greatest magnitude, is one of them. Units are asked about in order.
    #[inline(always)]
    fn takes(&mut self, greatest: u32) -> bool {
        if greatest == self.limit && self.n_equal > 0 {
            self.n_equal -= 1;
            return true;
        }
        greatest > self.limit
    }
}

/// The bits of the greatest magnitude, compared by bits so that not-a-number wins.
#[inline(always)]
fn greatest_magnitude<S: Ints>(s: S, x: &Values) -> u32 {
    let magnitude = s.splat_int(0x7fff_ffff);
    let mut greatest = s.splat_int(0);
    for lanes in x.as_chunks().0 {
        greatest = s.max_int(greatest, s.and(s.to_bits(s.load(lanes)), magnitude));
    }
    s.fold_max(greatest).cast_unsigned()
}

/// The scale of a unit, and the factor that quantises it; zero where all integers are zero.
#[inline(always)]
fn step(greatest: u32, max: f32) -> (f32, f32) {
    let greatest = f32::from_bits(greatest);
    if !greatest.is_finite() {
        (f32::NAN, 0.0)
    } else if greatest < TINY {
        (0.0, 0.0)
    } else {
        (greatest / max, max / greatest)
    }
}

/// Writes the integers of a unit and returns their sum.
#[inline(always)]
fn quantize<S: Ints>(s: S, x: &Values, inv: f32, to: &mut NarrowUnit) -> i16 {
    if inv == 0.0 {
        // Not by multiplying: an infinite value times zero is not a number.
        *to = NarrowUnit::ZERO;
        return 0;
    }
    let inv = s.splat(inv);
    let mut integers = [s.splat_int(0); 4];
    for (integers, x) in integers.iter_mut().zip(x.as_chunks().0) {
        *integers = s.round(s.mul(s.load(x), inv));
    }
    store(s, integers, to)
}

/// Writes the second digit of a unit whose first has this scale, and returns the sum of its integers.
#[inline(always)]
fn quantize_rest<S: Ints>(s: S, x: &Values, scale: f32, inv: f32, to: &mut NarrowUnit) -> i16 {
    if inv == 0.0 {
        *to = NarrowUnit::ZERO;
        return 0;
    }
    let (minus_scale, inv, inv2) = (s.splat(-scale), s.splat(inv), s.splat(inv * SECOND_STEPS));
    let mut integers = [s.splat_int(0); 4];
    for (integers, x) in integers.iter_mut().zip(x.as_chunks().0) {
        let x = s.load(x);
        let digit = s.to_f32(s.round(s.mul(x, inv)));
        *integers = s.round(s.mul(s.fma(digit, minus_scale, x), inv2));
    }
    store(s, integers, to)
}

/// Writes integers and their sums, and returns the sum of all.
#[inline(always)]
fn store<S: Ints>(s: S, integers: [S::I; 4], to: &mut NarrowUnit) -> i16 {
    if let Some(q) = to.q.as_flattened_mut().first_chunk_mut() {
        s.store_i8(integers, q);
    }
    let [first, last] = s.pair_sums(integers);
    to.pairs = [first[0] + last[0], first[1] + last[1]];
    to.last_pairs = last;
    to.pairs[0] + to.pairs[1]
}
