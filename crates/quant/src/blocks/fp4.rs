//! 4-bit floats (E2M1) under a shared scale.
//!
//! E2M1 has the magnitudes 0, ½, 1, 1½, 2, 3, 4 and 6. Doubled, they are integers; the scale is halved to match.

use std::array;
use std::cmp::Ordering;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::legacy::{codes4, pack4};
use super::{Block, IntegerBlock, Unpacked, assert_layout, extreme, hi, lo, reciprocal};
use crate::WeightType;

/// Twice the value of each E2M1 code.
pub const E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `value = 2^(e - 127) * E2M1[code]`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockMxfp4 {
    /// Exponent (E8M0); see [`e8m0_half`].
    pub e: u8,
    /// Byte `j`: element `j` in the low half, element `j + 16` in the high half.
    pub qs: [u8; 16],
}

/// `value = e4m3(d[s]) * E2M1[code]`, one scale per 16 elements.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockNvfp4 {
    /// Scales (unsigned E4M3); see [`e4m3_half`].
    pub d: [u8; 4],
    /// Per sub-block, byte `t`: element `t` in the low half, element `t + 8` in the high half.
    pub qs: [[u8; 8]; 4],
}

assert_layout!(BlockMxfp4, BlockNvfp4);

/// Half of an E8M0 scale: `2^(e - 128)`, subnormal for `e` 0 and 1.
pub const fn e8m0_half(e: u8) -> f32 {
    match e {
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits((e as u32 - 1) << 23),
    }
}

/// Half of an unsigned E4M3 scale (bias 7). The sign bit has no weight; 0x7F, which E4M3 reads as not a number, is 0.
pub fn e4m3_half(byte: u8) -> f32 {
    let (exponent, mantissa) = (byte >> 3 & 15, f32::from(byte & 7));
    match (byte, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa * power_of_two(-10),
        _ => (8.0 + mantissa) * power_of_two(i32::from(exponent) - 11),
    }
}

impl Block for BlockMxfp4 {
    const TYPE: WeightType = WeightType::MXFP4;

    fn decode(&self, out: &mut [f32]) {
        let half = e8m0_half(self.e);
        for (out, code) in out.iter_mut().zip(codes4(&self.qs)) {
            *out = half * f32::from(E2M1_DOUBLED[usize::from(code)]);
        }
    }

    /// The extreme value lands on 4 or 6, the two codes of the top binade.
    fn encode(x: &[f32]) -> Self {
        let exponent = (extreme(x).to_bits() >> 23 & 0xff) as u8;
        let e = exponent.saturating_sub(2);
        // In f64, as 1 / 2^-128 is past the range of an f32.
        let inv = f64::from(e8m0_half(e)).recip();
        let codes = array::from_fn(|i| encode_e2m1((f64::from(x[i]) * inv) as f32));
        Self { e, qs: pack4(&codes) }
    }
}

impl IntegerBlock for BlockMxfp4 {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = e8m0_half(self.e);
        for (w, code) in out.w.iter_mut().zip(codes4(&self.qs)) {
            *w = i16::from(E2M1_DOUBLED[usize::from(code)]);
        }
    }
}

impl Block for BlockNvfp4 {
    const TYPE: WeightType = WeightType::NVFP4;

    fn decode(&self, out: &mut [f32]) {
        for ((out, qs), &d) in out.chunks_exact_mut(16).zip(&self.qs).zip(&self.d) {
            let half = e4m3_half(d);
            for (out, code) in out.iter_mut().zip(codes16(*qs)) {
                *out = half * f32::from(E2M1_DOUBLED[usize::from(code)]);
            }
        }
    }

    fn encode(x: &[f32]) -> Self {
        let d = array::from_fn(|s| encode_e4m3(extreme(&x[16 * s..][..16]).abs() / 6.0));
        let qs = array::from_fn(|s| {
            let inv = reciprocal(e4m3_half(d[s]));
            let code = |i: usize| encode_e2m1(x[16 * s + i] * inv);
            array::from_fn(|t| code(t) | code(t + 8) << 4)
        });
        Self { d, qs }
    }
}

impl IntegerBlock for BlockNvfp4 {
    const SUB_BLOCK: usize = 16;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale.copy_from_slice(&self.d.map(e4m3_half));
        for (w, qs) in out.w.chunks_exact_mut(16).zip(&self.qs) {
            for (w, code) in w.iter_mut().zip(codes16(*qs)) {
                *w = i16::from(E2M1_DOUBLED[usize::from(code)]);
            }
        }
    }
}

fn codes16(qs: [u8; 8]) -> [u8; 16] {
    array::from_fn(|i| if i < 8 { lo(qs[i]) } else { hi(qs[i - 8]) })
}

const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// The code nearest to half of `doubled`; of two equally near, the one with the even mantissa. Zero has no sign.
fn encode_e2m1(doubled: f32) -> u8 {
    let magnitudes = &E2M1_DOUBLED[..8];
    let size = doubled.abs();
    let above = magnitudes.partition_point(|&m| f32::from(m) < size).clamp(1, 7);
    let (to_above, to_below) = (f32::from(magnitudes[above]) - size, size - f32::from(magnitudes[above - 1]));
    let take_above = match to_above.total_cmp(&to_below) {
        Ordering::Less => true,
        Ordering::Equal => above.is_multiple_of(2),
        Ordering::Greater => false,
    };
    let code = (if take_above { above } else { above - 1 }) as u8;
    if code > 0 && doubled < 0.0 { code | 8 } else { code }
}

/// The E4M3 byte nearest to `x >= 0`, ties to even, at most 448.
fn encode_e4m3(x: f32) -> u8 {
    // Steps of the binade that `x` is in; below 2^-6 they are those of the subnormals.
    let exponent = ((x.to_bits() >> 23) as i32 - 127).clamp(-6, 8);
    let steps = (x / power_of_two(exponent - 3)).round_ties_even().min(16.0) as u8;
    // A mantissa that rounds up to the next binade carries into the exponent, as the fields adjoin.
    let byte = (((exponent + 6) as u8) << 3) + steps;
    byte.min(0x7e)
}
