//! [`Ints`] on pairs of 128-bit registers. Sixteen i16 lie in them as the even lanes and the odd lanes, so that the
//! products of a pair meet in one lane without a pairwise addition.
#![allow(clippy::wildcard_imports, reason = "most of what is used here are intrinsics")]

use std::arch::aarch64::*;

use super::VectorPair;
use crate::arch::ints::{Ints, Kernel};

/// Calls intrinsics whose only requirement is their instructions.
macro_rules! with_neon {
    ($token:ident, $value:expr) => {{
        let _: $crate::caps::Neon = $token.neon();
        // SAFETY: the intrinsics need NEON, and a token exists only where the CPU has it; those that read or write
        // memory are given references to arrays of the size they access, and need no more than an element's alignment.
        unsafe { $value }
    }};
}

/// The operation on the even and on the odd lanes.
macro_rules! halves {
    ($op:ident($($x:expr),+)) => { int16x8x2_t($op($($x.0),+), $op($($x.1),+)) };
}

pub(in crate::arch::aarch64) use with_neon;

impl<V: VectorPair> Ints for V {
    type H = int16x8x2_t;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        VectorPair::enter(self, kernel)
    }

    #[inline(always)]
    fn prefetch<T>(self, start: &T, offset: usize) {
        let at = std::ptr::from_ref(start).cast::<u8>().wrapping_add(offset);
        // SAFETY: `prfm` never faults and changes nothing but the cache.
        unsafe {
            std::arch::asm!("prfm pldl1strm, [{at}]", at = in(reg) at, options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn load_i16(self, x: &[i16; 16]) -> int16x8x2_t {
        with_neon!(self, vld2q_s16(x.as_ptr()))
    }

    #[inline(always)]
    fn store_i16(self, x: int16x8x2_t, out: &mut [i16; 16]) {
        with_neon!(self, vst2q_s16(out.as_mut_ptr(), x));
    }

    #[inline(always)]
    fn load_u16(self, x: &[u16; 16]) -> int16x8x2_t {
        with_neon!(self, {
            let uint16x8x2_t(even, odd) = vld2q_u16(x.as_ptr());
            int16x8x2_t(vreinterpretq_s16_u16(even), vreinterpretq_s16_u16(odd))
        })
    }

    #[inline(always)]
    fn splat_i16(self, x: i16) -> int16x8x2_t {
        with_neon!(self, int16x8x2_t(vdupq_n_s16(x), vdupq_n_s16(x)))
    }

    #[inline(always)]
    fn widen_u8(self, x: &[u8; 16]) -> int16x8x2_t {
        with_neon!(self, even_and_odd(vreinterpretq_u16_u8(vld1q_u8(x.as_ptr()))))
    }

    #[inline(always)]
    fn widen_i8(self, x: &[i8; 16]) -> int16x8x2_t {
        with_neon!(self, {
            let pairs = vreinterpretq_s16_s8(vld1q_s8(x.as_ptr()));
            int16x8x2_t(vshrq_n_s16::<8>(vshlq_n_s16::<8>(pairs)), vshrq_n_s16::<8>(pairs))
        })
    }

    #[inline(always)]
    fn lookup_i16(self, table: &[i8; 16], index: int16x8x2_t) -> int16x8x2_t {
        with_neon!(self, {
            // Even indices in the low bytes, odd ones in the high bytes: one lookup serves both.
            let both = vorrq_s16(index.0, vshlq_n_s16::<8>(index.1));
            let found = vqtbl1q_s8(vld1q_s8(table.as_ptr()), vreinterpretq_u8_s16(both));
            let pairs = vreinterpretq_s16_s8(found);
            int16x8x2_t(vshrq_n_s16::<8>(vshlq_n_s16::<8>(pairs)), vshrq_n_s16::<8>(pairs))
        })
    }

    #[inline(always)]
    fn and_i16(self, a: int16x8x2_t, b: int16x8x2_t) -> int16x8x2_t {
        with_neon!(self, halves!(vandq_s16(a, b)))
    }

    #[inline(always)]
    fn shr_i16(self, x: int16x8x2_t, n: usize) -> int16x8x2_t {
        with_neon!(self, {
            let n = vdupq_n_s16(-(n as i16));
            let shift = |x| vreinterpretq_s16_u16(vshlq_u16(vreinterpretq_u16_s16(x), n));
            int16x8x2_t(shift(x.0), shift(x.1))
        })
    }

    #[inline(always)]
    fn splat_pair(self, pair: &[i16; 2]) -> int16x8x2_t {
        with_neon!(self, int16x8x2_t(vdupq_n_s16(pair[0]), vdupq_n_s16(pair[1])))
    }

    #[inline(always)]
    fn dot(self, acc: [int32x4_t; 2], a: int16x8x2_t, b: int16x8x2_t) -> [int32x4_t; 2] {
        with_neon!(self, {
            let low = vmlal_s16(acc[0], vget_low_s16(a.0), vget_low_s16(b.0));
            let high = vmlal_high_s16(acc[1], a.0, b.0);
            [vmlal_s16(low, vget_low_s16(a.1), vget_low_s16(b.1)), vmlal_high_s16(high, a.1, b.1)]
        })
    }

    #[inline(always)]
    fn max_int(self, a: [int32x4_t; 2], b: [int32x4_t; 2]) -> [int32x4_t; 2] {
        with_neon!(self, [vmaxq_s32(a[0], b[0]), vmaxq_s32(a[1], b[1])])
    }

    #[inline(always)]
    fn fold_max(self, x: [int32x4_t; 2]) -> i32 {
        with_neon!(self, vmaxvq_s32(vmaxq_s32(x[0], x[1])))
    }

    #[inline(always)]
    fn pair_sums(self, [a, b, c, d]: [[int32x4_t; 2]; 4]) -> [[i16; 2]; 2] {
        let mut sums = [[0; 2]; 2];
        with_neon!(self, {
            let four = |a: [int32x4_t; 2], b: [int32x4_t; 2]| vaddq_s32(vaddq_s32(a[0], a[1]), vaddq_s32(b[0], b[1]));
            vst1_s16(sums.as_flattened_mut().as_mut_ptr(), vmovn_s32(vpaddq_s32(four(a, b), four(c, d))));
        });
        sums
    }

    #[inline(always)]
    fn fold_rows(self, [a, b, c, d, e, f, g, h]: [[int32x4_t; 2]; 8]) -> [int32x4_t; 2] {
        with_neon!(self, {
            let four = |x: [int32x4_t; 2]| vaddq_s32(x[0], x[1]);
            let quarters = |a, b, c, d| vpaddq_s32(vpaddq_s32(four(a), four(b)), vpaddq_s32(four(c), four(d)));
            [quarters(a, b, c, d), quarters(e, f, g, h)]
        })
    }

    #[inline(always)]
    fn narrow(self, low: [int32x4_t; 2], high: [int32x4_t; 2]) -> int16x8x2_t {
        with_neon!(self, {
            let low = vcombine_s16(vmovn_s32(low[0]), vmovn_s32(low[1]));
            let high = vcombine_s16(vmovn_s32(high[0]), vmovn_s32(high[1]));
            vuzpq_s16(low, high)
        })
    }

    #[inline(always)]
    fn store_i8(self, x: [[int32x4_t; 2]; 4], out: &mut [i8; 32]) {
        with_neon!(self, {
            let eight = |x: [int32x4_t; 2]| vmovn_s16(vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1])));
            vst1q_s8(out.as_mut_ptr(), vcombine_s8(eight(x[0]), eight(x[1])));
            vst1q_s8(out[16..].as_mut_ptr(), vcombine_s8(eight(x[2]), eight(x[3])));
        });
    }

    #[inline(always)]
    fn to_f32(self, x: [int32x4_t; 2]) -> [float32x4_t; 2] {
        with_neon!(self, [vcvtq_f32_s32(x[0]), vcvtq_f32_s32(x[1])])
    }

    #[inline(always)]
    fn round(self, x: [float32x4_t; 2]) -> [int32x4_t; 2] {
        with_neon!(self, [vcvtnq_s32_f32(x[0]), vcvtnq_s32_f32(x[1])])
    }

    #[inline(always)]
    fn load_bf16(self, x: &[u16; 8]) -> [float32x4_t; 2] {
        with_neon!(self, {
            let x = vld1q_u16(x.as_ptr());
            let (low, high) = (vmovl_u16(vget_low_u16(x)), vmovl_high_u16(x));
            [vreinterpretq_f32_u32(vshlq_n_u32::<16>(low)), vreinterpretq_f32_u32(vshlq_n_u32::<16>(high))]
        })
    }
}

/// The low and the high bytes of pairs.
#[inline(always)]
unsafe fn even_and_odd(pairs: uint16x8_t) -> int16x8x2_t {
    // SAFETY: the caller promises NEON.
    unsafe {
        let even = vandq_u16(pairs, vdupq_n_u16(0xff));
        int16x8x2_t(vreinterpretq_s16_u16(even), vreinterpretq_s16_u16(vshrq_n_u16::<8>(pairs)))
    }
}
