//! [`Quads`] on pairs of 128-bit registers, a row's quad in each lane of 32 bits.
#![allow(clippy::wildcard_imports, reason = "most of what is used here are intrinsics")]

use std::arch::aarch64::*;

use super::VectorPair;
use super::ints::with_neon;
use crate::arch::quads::Quads;
use crate::arch::simd::Simd;

impl<V: VectorPair> Quads for V {
    type B = [uint8x16_t; 2];
    type S = [int32x4_t; 2];

    const WIDE_SUMS: bool = true;

    #[inline(always)]
    fn load_quads(self, quads: &[u8; 32]) -> [uint8x16_t; 2] {
        with_neon!(self, [vld1q_u8(quads.as_ptr()), vld1q_u8(quads[16..].as_ptr())])
    }

    #[inline(always)]
    fn store_quads(self, quads: [uint8x16_t; 2], out: &mut [u8; 32]) {
        with_neon!(self, {
            vst1q_u8(out.as_mut_ptr(), quads[0]);
            vst1q_u8(out[16..].as_mut_ptr(), quads[1]);
        });
    }

    #[inline(always)]
    fn quads_of(self, words: &[u32; 8]) -> [uint8x16_t; 2] {
        with_neon!(self, {
            let four = |words: &[u32]| vreinterpretq_u8_u32(vld1q_u32(words.as_ptr()));
            [four(&words[..4]), four(&words[4..])]
        })
    }

    #[inline(always)]
    fn splat_quad(self, quad: &[i8; 4]) -> [uint8x16_t; 2] {
        with_neon!(self, {
            let quad = vreinterpretq_u8_u32(vdupq_n_u32(u32::from_le_bytes(quad.map(i8::cast_unsigned))));
            [quad, quad]
        })
    }

    #[inline(always)]
    fn transpose(self, [a, b, c, d, e, f, g, h]: [&[u8; 16]; 8]) -> [[uint8x16_t; 2]; 4] {
        with_neon!(self, {
            let ([a0, a1, a2, a3], [e0, e1, e2, e3]) = (transpose4([a, b, c, d]), transpose4([e, f, g, h]));
            [[a0, e0], [a1, e1], [a2, e2], [a3, e3]]
        })
    }

    #[inline(always)]
    fn shr_and(self, x: [uint8x16_t; 2], n: usize, mask: u8) -> [uint8x16_t; 2] {
        with_neon!(self, {
            let (n, mask) = (vdupq_n_s8(-(n as i8)), vdupq_n_u8(mask));
            [vandq_u8(vshlq_u8(x[0], n), mask), vandq_u8(vshlq_u8(x[1], n), mask)]
        })
    }

    #[inline(always)]
    fn shl_and(self, x: [uint8x16_t; 2], n: usize, mask: u8) -> [uint8x16_t; 2] {
        with_neon!(self, {
            let (n, mask) = (vdupq_n_s8(n as i8), vdupq_n_u8(mask));
            [vandq_u8(vshlq_u8(x[0], n), mask), vandq_u8(vshlq_u8(x[1], n), mask)]
        })
    }

    #[inline(always)]
    fn or_quads(self, a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        with_neon!(self, [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])])
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
        with_neon!(self, {
            let table = vld1q_u8(table.as_ptr());
            [vqtbl1q_u8(table, index[0]), vqtbl1q_u8(table, index[1])]
        })
    }

    #[inline(always)]
    fn fifth_bits(self, words: [uint8x16_t; 2], i: usize) -> [uint8x16_t; 2] {
        const LANES: [u8; 16] = [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12];
        with_neon!(self, {
            let byte = vaddq_u8(vld1q_u8(LANES.as_ptr()), vdupq_n_u8((i / 2) as u8));
            let bits: u32 = if i % 2 == 0 { 0x0804_0201 } else { 0x8040_2010 };
            let bits = vreinterpretq_u8_u32(vdupq_n_u32(bits));
            let spread = |words| vandq_u8(vtstq_u8(vqtbl1q_u8(words, byte), bits), vdupq_n_u8(16));
            [spread(words[0]), spread(words[1])]
        })
    }

    #[inline(always)]
    fn byte_to_f32(self, quads: [uint8x16_t; 2], i: usize) -> [float32x4_t; 2] {
        with_neon!(self, {
            let n = vdupq_n_s32(-(8 * i as i32));
            let convert =
                |quads| vcvtq_f32_u32(vandq_u32(vshlq_u32(vreinterpretq_u32_u8(quads), n), vdupq_n_u32(0xff)));
            [convert(quads[0]), convert(quads[1])]
        })
    }

    #[inline(always)]
    fn signed_pairs(self, quads: [uint8x16_t; 2], i: usize, j: usize) -> int16x8x2_t {
        with_neon!(self, {
            let lanes = |i: usize| {
                let first = vcreate_s8(0x1c18_1410_0c08_0400);
                let index = vreinterpret_u8_s8(vadd_s8(first, vdup_n_s8(i as i8)));
                vmovl_s8(vreinterpret_s8_u8(vqtbl2_u8(uint8x16x2_t(quads[0], quads[1]), index)))
            };
            int16x8x2_t(lanes(i), lanes(j))
        })
    }

    #[inline(always)]
    fn low_halves(self, quads: [uint8x16_t; 2]) -> [float32x4_t; 2] {
        self.both_halves(quads).0
    }

    #[inline(always)]
    fn both_halves(self, quads: [uint8x16_t; 2]) -> ([float32x4_t; 2], [float32x4_t; 2]) {
        let (mut low, mut high) = ([0; 8], [0; 8]);
        with_neon!(self, {
            let (first, second) = (vreinterpretq_u16_u8(quads[0]), vreinterpretq_u16_u8(quads[1]));
            vst1q_u16(low.as_mut_ptr(), vuzp1q_u16(first, second));
            vst1q_u16(high.as_mut_ptr(), vuzp2q_u16(first, second));
        });
        (self.load_f16(&low), self.load_f16(&high))
    }

    #[inline(always)]
    fn no_products(self) -> [int32x4_t; 2] {
        with_neon!(self, [vdupq_n_s32(0), vdupq_n_s32(0)])
    }

    #[inline(always)]
    fn add_code(self, sums: [int32x4_t; 2], pairs: &[i16; 2], code: i16) -> [int32x4_t; 2] {
        with_neon!(self, {
            let product = vdupq_n_s32(i32::from(code) * (i32::from(pairs[0]) + i32::from(pairs[1])));
            [vaddq_s32(sums[0], product), vaddq_s32(sums[1], product)]
        })
    }

    #[inline(always)]
    fn add_products(self, sums: [int32x4_t; 2], codes: [uint8x16_t; 2], x: [uint8x16_t; 2]) -> [int32x4_t; 2] {
        let [low, high] = sums;
        [VectorPair::add_products(self, low, codes[0], x[0]), VectorPair::add_products(self, high, codes[1], x[1])]
    }

    #[inline(always)]
    fn row_sums(self, sums: [int32x4_t; 2]) -> [int32x4_t; 2] {
        sums
    }

    #[inline(always)]
    fn add_scaled(self, acc: [int32x4_t; 2], sums: [int32x4_t; 2], factors: int16x8x2_t) -> [int32x4_t; 2] {
        with_neon!(self, {
            let (low, high) = (vmovl_s16(vget_low_s16(factors.0)), vmovl_high_s16(factors.0));
            [vmlaq_s32(acc[0], sums[0], low), vmlaq_s32(acc[1], sums[1], high)]
        })
    }
}

/// Transposes four by four words.
#[inline(always)]
unsafe fn transpose4([a, b, c, d]: [&[u8; 16]; 4]) -> [uint8x16_t; 4] {
    // SAFETY: the caller promises NEON; the arrays are as long as what is loaded.
    unsafe {
        let load = |row: &[u8; 16]| vreinterpretq_u32_u8(vld1q_u8(row.as_ptr()));
        let (a, b, c, d) = (load(a), load(b), load(c), load(d));
        let pair = |a, b| vreinterpretq_u64_u32(vzip1q_u32(a, b));
        let pair2 = |a, b| vreinterpretq_u64_u32(vzip2q_u32(a, b));
        let (ab, cd, ab2, cd2) = (pair(a, b), pair(c, d), pair2(a, b), pair2(c, d));
        [
            vreinterpretq_u8_u64(vzip1q_u64(ab, cd)),
            vreinterpretq_u8_u64(vzip2q_u64(ab, cd)),
            vreinterpretq_u8_u64(vzip1q_u64(ab2, cd2)),
            vreinterpretq_u8_u64(vzip2q_u64(ab2, cd2)),
        ]
    }
}
