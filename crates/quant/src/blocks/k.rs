//! The 256-element blocks whose sub-block scales are themselves quantised.

use std::array;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Block, F16, IntegerBlock, Unpacked, assert_layout, extreme, finite_half, hi, lo, reciprocal};
use crate::WeightType;

/// `value = d * sc * q - dmin * mn`, one `sc` and `mn` per 32 elements.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ4K {
    /// Scale of the scales.
    pub d: F16,
    /// Scale of the minimums.
    pub dmin: F16,
    /// Eight pairs of 6 bits; see [`scales_and_mins`].
    pub scales: [u8; 12],
    /// Row `p`, byte `l`: element `l` of sub-block `2p` in the low half, of sub-block `2p + 1` in the high half.
    pub qs: [[u8; 32]; 4],
}

/// `value = d * sc * q - dmin * mn`, one `sc` and `mn` per 32 elements.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ5K {
    /// Scale of the scales.
    pub d: F16,
    /// Scale of the minimums.
    pub dmin: F16,
    /// Eight pairs of 6 bits; see [`scales_and_mins`].
    pub scales: [u8; 12],
    /// Bit `j` of byte `l` is the fifth bit of element `l` of sub-block `j`.
    pub qh: [u8; 32],
    /// The low four bits, as [`BlockQ4K::qs`].
    pub qs: [[u8; 32]; 4],
}

/// `value = d * scales[e / 16] * (q - 32)`.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockQ6K {
    /// Low four bits. Byte `l` of row `h`, 0 to 63: element `128h + l` in the low half, `128h + 64 + l` in the high half.
    pub ql: [[u8; 64]; 2],
    /// Two high bits. Byte `l` of row `h`, 0 to 31: elements `128h + l + {0, 32, 64, 96}`, the first lowest.
    pub qh: [[u8; 32]; 2],
    /// One signed scale per 16 elements.
    pub scales: [i8; 16],
    /// Scale of the scales.
    pub d: F16,
}

assert_layout!(BlockQ4K, BlockQ5K, BlockQ6K);

/// The eight 6-bit scales and the eight 6-bit minimums of a `Q4_K` or `Q5_K` block.
///
/// Pairs 0 to 3 lie in the low six bits of bytes 0 to 3 (scales) and 4 to 7 (minimums); their two free high bits
/// hold the high bits of pairs 4 to 7, whose low four bits share bytes 8 to 11.
pub fn scales_and_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let scale = |j: usize| match j {
        0..4 => packed[j] & 63,
        _ => lo(packed[j + 4]) | packed[j - 4] >> 6 << 4,
    };
    let min = |j: usize| match j {
        0..4 => packed[j + 4] & 63,
        _ => hi(packed[j + 4]) | packed[j] >> 6 << 4,
    };
    (array::from_fn(scale), array::from_fn(min))
}

fn pack_scales_and_mins(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
    array::from_fn(|i| match i {
        0..4 => scales[i] | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] | mins[i] >> 4 << 6,
        _ => lo(scales[i - 4]) | lo(mins[i - 4]) << 4,
    })
}

impl Block for BlockQ4K {
    const TYPE: WeightType = WeightType::Q4_K;

    fn decode(&self, out: &mut [f32]) {
        decode_with_mins(self.d, self.dmin, &self.scales, &self.codes(), out);
    }

    fn encode(x: &[f32]) -> Self {
        let WithMins { d, dmin, scales, codes } = encode_with_mins(x, 15.0);
        Self { d, dmin, scales, qs: pack_low(&codes) }
    }
}

impl BlockQ4K {
    fn codes(&self) -> [u8; 256] {
        low_codes(&self.qs)
    }
}

impl IntegerBlock for BlockQ4K {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        unpack_with_mins(self.d, self.dmin, &self.scales, &self.codes(), out);
    }
}

impl Block for BlockQ5K {
    const TYPE: WeightType = WeightType::Q5_K;

    fn decode(&self, out: &mut [f32]) {
        decode_with_mins(self.d, self.dmin, &self.scales, &self.codes(), out);
    }

    fn encode(x: &[f32]) -> Self {
        let WithMins { d, dmin, scales, codes } = encode_with_mins(x, 31.0);
        let qh = array::from_fn(|l| (0..8).map(|j| (codes[32 * j + l] >> 4) << j).sum());
        Self { d, dmin, scales, qh, qs: pack_low(&codes) }
    }
}

impl BlockQ5K {
    fn codes(&self) -> [u8; 256] {
        let low = low_codes(&self.qs);
        array::from_fn(|e| low[e] | (self.qh[e % 32] >> (e / 32) & 1) << 4)
    }
}

impl IntegerBlock for BlockQ5K {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        unpack_with_mins(self.d, self.dmin, &self.scales, &self.codes(), out);
    }
}

impl Block for BlockQ6K {
    const TYPE: WeightType = WeightType::Q6_K;

    fn decode(&self, out: &mut [f32]) {
        let d = self.d.to_f32();
        for (e, (out, code)) in out.iter_mut().zip(self.codes()).enumerate() {
            *out = d * f32::from(self.scales[e / 16]) * f32::from(i16::from(code) - 32);
        }
    }

    fn encode(x: &[f32]) -> Self {
        let want: [f32; 16] = array::from_fn(|s| extreme(&x[16 * s..][..16]) / -32.0);
        let d = finite_half(extreme(&want) / -128.0);
        let inv = reciprocal(d.to_f32());
        let scales = want.map(|s| (s * inv).round().clamp(-128.0, 127.0) as i8);
        let inv = scales.map(|s| reciprocal(d.to_f32() * f32::from(s)));
        let codes: [u8; 256] = array::from_fn(|e| ((x[e] * inv[e / 16]).round() + 32.0).clamp(0.0, 63.0) as u8);
        Self {
            ql: array::from_fn(|h| array::from_fn(|l| lo(codes[128 * h + l]) | lo(codes[128 * h + 64 + l]) << 4)),
            qh: array::from_fn(|h| {
                array::from_fn(|l| (0..4).map(|k| codes[128 * h + 32 * k + l] >> 4 << (2 * k)).sum())
            }),
            scales,
            d,
        }
    }
}

impl BlockQ6K {
    fn codes(&self) -> [u8; 256] {
        array::from_fn(|e| {
            let (h, quarter, l) = (e / 128, e / 32 % 4, e % 32);
            let byte = self.ql[h][32 * (quarter % 2) + l];
            let low = if quarter < 2 { lo(byte) } else { hi(byte) };
            low | (self.qh[h][l] >> (2 * quarter) & 3) << 4
        })
    }
}

impl IntegerBlock for BlockQ6K {
    const SUB_BLOCK: usize = 32;

    fn unpack(&self, out: &mut Unpacked<'_>) {
        out.scale.fill(self.d.to_f32());
        for (e, (w, code)) in out.w.iter_mut().zip(self.codes()).enumerate() {
            *w = i16::from(self.scales[e / 16]) * (i16::from(code) - 32);
        }
    }
}

fn low_codes(qs: &[[u8; 32]; 4]) -> [u8; 256] {
    array::from_fn(|e| {
        let byte = qs[e / 64][e % 32];
        if e / 32 % 2 == 0 { lo(byte) } else { hi(byte) }
    })
}

fn pack_low(codes: &[u8; 256]) -> [[u8; 32]; 4] {
    array::from_fn(|p| array::from_fn(|l| lo(codes[64 * p + l]) | lo(codes[64 * p + 32 + l]) << 4))
}

fn decode_with_mins(d: F16, dmin: F16, scales: &[u8; 12], codes: &[u8; 256], out: &mut [f32]) {
    let (d, dmin) = (d.to_f32(), dmin.to_f32());
    let (sc, mn) = scales_and_mins(scales);
    for (e, (out, &code)) in out.iter_mut().zip(codes).enumerate() {
        *out = d * f32::from(sc[e / 32]) * f32::from(code) - dmin * f32::from(mn[e / 32]);
    }
}

fn unpack_with_mins(d: F16, dmin: F16, scales: &[u8; 12], codes: &[u8; 256], out: &mut Unpacked<'_>) {
    let (d, dmin) = (d.to_f32(), dmin.to_f32());
    let (sc, mn) = scales_and_mins(scales);
    for ((scale, min), (sc, mn)) in out.scale.iter_mut().zip(&mut *out.min).zip(sc.into_iter().zip(mn)) {
        (*scale, *min) = (d * f32::from(sc), -(dmin * f32::from(mn)));
    }
    for (w, &code) in out.w.iter_mut().zip(codes) {
        *w = i16::from(code);
    }
}

struct WithMins {
    d: F16,
    dmin: F16,
    scales: [u8; 12],
    codes: [u8; 256],
}

/// Codes `0 ..= max_code` from each sub-block's least value, or from zero where all values are above it.
fn encode_with_mins(x: &[f32], max_code: f32) -> WithMins {
    let depth: [f32; 8] = array::from_fn(|j| -x[32 * j..][..32].iter().copied().fold(0.0, f32::min));
    let want: [f32; 8] = array::from_fn(|j| {
        let max = x[32 * j..][..32].iter().copied().fold(-depth[j], f32::max);
        // Divided before the addition, which could overflow.
        max / max_code + depth[j] / max_code
    });
    let (d, sc) = quantize6(&want);
    let (dmin, mn) = quantize6(&depth);
    let codes = array::from_fn(|e| {
        let inv = reciprocal(d.to_f32() * f32::from(sc[e / 32]));
        let above = x[e] + dmin.to_f32() * f32::from(mn[e / 32]);
        (above * inv).round().clamp(0.0, max_code) as u8
    });
    WithMins { d, dmin, scales: pack_scales_and_mins(sc, mn), codes }
}

/// Eight values from zero up, as 6-bit multiples of a half.
fn quantize6(x: &[f32; 8]) -> (F16, [u8; 8]) {
    let d = finite_half(extreme(x) / 63.0);
    let inv = reciprocal(d.to_f32());
    (d, x.map(|v| (v * inv).round().clamp(0.0, 63.0) as u8))
}
