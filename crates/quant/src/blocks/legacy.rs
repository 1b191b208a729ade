//! The 32-element blocks with one half scale, some with a half minimum.

use std::array;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Block, F16, IntegerBlock, Unpacked, assert_layout, extreme, finite_half, hi, lo, reciprocal};
use crate::WeightType;

/// `value[i] = d * qs[i]`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Scale.
    pub d: F16,
    /// One integer per element.
    pub qs: [i8; 32],
}

/// `value = d * (q - 8)`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Scale.
    pub d: F16,
    /// Byte `j`: element `j` in the low half, element `j + 16` in the high half.
    pub qs: [u8; 16],
}

/// `value = d * q + m`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Scale.
    pub d: F16,
    /// Minimum.
    pub m: F16,
    /// Byte `j`: element `j` in the low half, element `j + 16` in the high half.
    pub qs: [u8; 16],
}

/// `value = d * (q - 16)`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Scale.
    pub d: F16,
    /// Bit `i` is the fifth bit of element `i`.
    pub qh: U32,
    /// Byte `j`: low four bits of element `j` in the low half, of element `j + 16` in the high half.
    pub qs: [u8; 16],
}

/// `value = d * q + m`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Scale.
    pub d: F16,
    /// Minimum.
    pub m: F16,
    /// Bit `i` is the fifth bit of element `i`.
    pub qh: U32,
    /// Byte `j`: low four bits of element `j` in the low half, of element `j + 16` in the high half.
    pub qs: [u8; 16],
}

assert_layout!(BlockQ8_0, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1);

impl Block for BlockQ8_0 {
    const TYPE: WeightType = WeightType::Q8_0;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (out, &q) in out.iter_mut().zip(&self.qs) {
            *out = d * f32::from(q);
        }
    }

    fn encode(x: &[f32]) -> Self {
        let d = finite_half(extreme(x).abs() / 127.0);
        let inv = reciprocal(d.to_f32());
        Self { d, qs: array::from_fn(|i| (x[i] * inv).round().clamp(-127.0, 127.0) as i8) }
    }
}

impl IntegerBlock for BlockQ8_0 {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = self.d.to_f32();
        for (w, &q) in out.w.iter_mut().zip(&self.qs) {
            *w = i16::from(q);
        }
    }
}

impl Block for BlockQ4_0 {
    const TYPE: WeightType = WeightType::Q4_0;

    fn decode(&self, out: &mut [f32]) {
        decode_centred(self.d, codes4(&self.qs), 8, out);
    }

    fn encode(x: &[f32]) -> Self {
        let (d, codes) = encode_centred(x, 8);
        Self { d, qs: pack4(&codes) }
    }
}

impl IntegerBlock for BlockQ4_0 {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = self.d.to_f32();
        unpack_codes(codes4(&self.qs), 8, out);
    }
}

impl Block for BlockQ4_1 {
    const TYPE: WeightType = WeightType::Q4_1;

    fn decode(&self, out: &mut [f32]) {
        decode_with_min(self.d, self.m, codes4(&self.qs), out);
    }

    fn encode(x: &[f32]) -> Self {
        let (d, m, codes) = encode_with_min(x, 15.0);
        Self { d, m, qs: pack4(&codes) }
    }
}

impl IntegerBlock for BlockQ4_1 {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = self.d.to_f32();
        out.min[0] = self.m.to_f32();
        unpack_codes(codes4(&self.qs), 0, out);
    }
}

impl Block for BlockQ5_0 {
    const TYPE: WeightType = WeightType::Q5_0;

    fn decode(&self, out: &mut [f32]) {
        decode_centred(self.d, codes5(&self.qs, self.qh), 16, out);
    }

    fn encode(x: &[f32]) -> Self {
        let (d, codes) = encode_centred(x, 16);
        Self { d, qh: pack_fifth(&codes), qs: pack4(&codes) }
    }
}

impl IntegerBlock for BlockQ5_0 {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = self.d.to_f32();
        unpack_codes(codes5(&self.qs, self.qh), 16, out);
    }
}

impl Block for BlockQ5_1 {
    const TYPE: WeightType = WeightType::Q5_1;

    fn decode(&self, out: &mut [f32]) {
        decode_with_min(self.d, self.m, codes5(&self.qs, self.qh), out);
    }

    fn encode(x: &[f32]) -> Self {
        let (d, m, codes) = encode_with_min(x, 31.0);
        Self { d, m, qh: pack_fifth(&codes), qs: pack4(&codes) }
    }
}

impl IntegerBlock for BlockQ5_1 {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = self.d.to_f32();
        out.min[0] = self.m.to_f32();
        unpack_codes(codes5(&self.qs, self.qh), 0, out);
    }
}

/// The 32 codes of 16 bytes: low halves first, then high halves.
pub(super) fn codes4(qs: &[u8; 16]) -> [u8; 32] {
    array::from_fn(|i| if i < 16 { lo(qs[i]) } else { hi(qs[i - 16]) })
}

/// The inverse of [`codes4`]; bits above the fourth are left out.
pub(super) fn pack4(codes: &[u8; 32]) -> [u8; 16] {
    array::from_fn(|j| lo(codes[j]) | lo(codes[j + 16]) << 4)
}

fn codes5(qs: &[u8; 16], qh: U32) -> [u8; 32] {
    let low = codes4(qs);
    array::from_fn(|i| low[i] | ((qh.get() >> i & 1) as u8) << 4)
}

fn pack_fifth(codes: &[u8; 32]) -> U32 {
    codes.iter().enumerate().map(|(i, &code)| u32::from(code >> 4 & 1) << i).sum::<u32>().into()
}

fn decode_centred(d: F16, codes: [u8; 32], zero: i16, out: &mut [f32]) {
    let d = d.to_f32();
    for (out, code) in out.iter_mut().zip(codes) {
        *out = d * f32::from(i16::from(code) - zero);
    }
}

fn decode_with_min(d: F16, m: F16, codes: [u8; 32], out: &mut [f32]) {
    let (d, m) = (d.to_f32(), m.to_f32());
    for (out, code) in out.iter_mut().zip(codes) {
        *out = d * f32::from(code) + m;
    }
}

fn unpack_codes(codes: [u8; 32], zero: i16, out: &mut Unpacked<'_>) {
    for (w, code) in out.w.iter_mut().zip(codes) {
        *w = i16::from(code) - zero;
    }
}

/// Codes `0 .. 2 * zero` around `zero`. The extreme value takes code 0, the end with the longer reach.
fn encode_centred(x: &[f32], zero: u8) -> (F16, [u8; 32]) {
    let zero = f32::from(zero);
    let d = finite_half(extreme(x) / -zero);
    let inv = reciprocal(d.to_f32());
    let codes = array::from_fn(|i| ((x[i] * inv).round() + zero).clamp(0.0, 2.0 * zero - 1.0) as u8);
    (d, codes)
}

/// Codes `0 ..= max_code` from the least value to the greatest.
fn encode_with_min(x: &[f32], max_code: f32) -> (F16, F16, [u8; 32]) {
    let min = x.iter().copied().fold(f32::INFINITY, f32::min);
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Divided before the subtraction, which could overflow.
    let d = finite_half(max / max_code - min / max_code);
    let m = finite_half(min);
    let (inv, m32) = (reciprocal(d.to_f32()), m.to_f32());
    let codes = array::from_fn(|i| ((x[i] - m32) * inv).round().clamp(0.0, max_code) as u8);
    (d, m, codes)
}
