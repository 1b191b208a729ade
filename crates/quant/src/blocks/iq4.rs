//! 4-bit codes of one fixed, uneven codebook.

use std::array;

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::legacy::{codes4, pack4};
use super::{Block, F16, IntegerBlock, Unpacked, assert_layout, extreme, finite_half, nearest, reciprocal};
use crate::WeightType;

/// The codebook, ascending.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// `value = d * IQ4_VALUES[code]`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockIq4Nl {
    /// Scale.
    pub d: F16,
    /// Byte `j`: element `j` in the low half, element `j + 16` in the high half.
    pub qs: [u8; 16],
}

/// `value = d * (s - 32) * IQ4_VALUES[code]`, one 6-bit `s` per 32 elements.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockIq4Xs {
    /// Scale of the scales.
    pub d: F16,
    /// Two high bits of each `s`, the first lowest.
    pub scales_h: U16,
    /// Four low bits of each `s`, two in a byte, the first lowest.
    pub scales_l: [u8; 4],
    /// Sub-block by sub-block, each packed as [`BlockIq4Nl::qs`].
    pub qs: [[u8; 16]; 8],
}

assert_layout!(BlockIq4Nl, BlockIq4Xs);

impl Block for BlockIq4Nl {
    const TYPE: WeightType = WeightType::IQ4_NL;

    fn decode(&self, out: &mut [f32]) {
        decode_codes(self.d.to_f32(), &self.qs, out);
    }

    fn encode(x: &[f32]) -> Self {
        let d = finite_half(extreme(x) / f32::from(IQ4_VALUES[0]));
        Self { d, qs: encode_codes(reciprocal(d.to_f32()), x) }
    }
}

impl IntegerBlock for BlockIq4Nl {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale[0] = self.d.to_f32();
        for (w, code) in out.w.iter_mut().zip(codes4(&self.qs)) {
            *w = value(code);
        }
    }
}

impl BlockIq4Xs {
    /// The signed scale of each sub-block, -32 to 31.
    pub fn scales(&self) -> [i8; 8] {
        array::from_fn(|j| {
            let low = self.scales_l[j / 2] >> (4 * (j % 2)) & 15;
            let high = (self.scales_h.get() >> (2 * j) & 3) as u8;
            (low | high << 4) as i8 - 32
        })
    }
}

impl Block for BlockIq4Xs {
    const TYPE: WeightType = WeightType::IQ4_XS;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for ((out, qs), scale) in out.chunks_exact_mut(32).zip(&self.qs).zip(self.scales()) {
            decode_codes(d * f32::from(scale), qs, out);
        }
    }

    fn encode(x: &[f32]) -> Self {
        let want: [f32; 8] = array::from_fn(|j| extreme(&x[32 * j..][..32]) / f32::from(IQ4_VALUES[0]));
        let d = finite_half(extreme(&want) / -32.0);
        let inv = reciprocal(d.to_f32());
        let scales = want.map(|s| (s * inv).round().clamp(-32.0, 31.0));
        let stored = scales.map(|s| (s + 32.0) as u8);
        Self {
            d,
            scales_h: (0..8).map(|j| u16::from(stored[j] >> 4) << (2 * j)).sum::<u16>().into(),
            scales_l: array::from_fn(|i| stored[2 * i] & 15 | (stored[2 * i + 1] & 15) << 4),
            qs: array::from_fn(|j| encode_codes(reciprocal(d.to_f32() * scales[j]), &x[32 * j..][..32])),
        }
    }
}

impl IntegerBlock for BlockIq4Xs {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        for (scale, s) in out.scale.iter_mut().zip(self.scales()) {
            *scale = self.d.to_f32() * f32::from(s);
        }
        for (w, qs) in out.w.chunks_exact_mut(32).zip(&self.qs) {
            for (w, code) in w.iter_mut().zip(codes4(qs)) {
                *w = value(code);
            }
        }
    }
}

fn value(code: u8) -> i16 {
    i16::from(IQ4_VALUES[usize::from(code)])
}

fn decode_codes(d: f32, qs: &[u8; 16], out: &mut [f32]) {
    for (out, code) in out.iter_mut().zip(codes4(qs)) {
        *out = d * f32::from(value(code));
    }
}

fn encode_codes(inv: f32, x: &[f32]) -> [u8; 16] {
    pack4(&array::from_fn(|i| nearest(&IQ4_VALUES, x[i] * inv)))
}
