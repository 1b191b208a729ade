//! Lanes as two 128-bit registers, the lower four first.

use std::arch::aarch64::{
    float32x4_t, int32x4_t, vaddq_f32, vaddq_s32, vandq_s32, vbslq_f32, vcgtq_f32, vcltq_f32, vcvt_f32_f16, vdivq_f32,
    vdupq_n_f32, vdupq_n_s32, vfmaq_f32, vld1_u16, vld1q_f32, vmulq_f32, vorrq_s32, vreinterpret_f16_u16,
    vreinterpretq_f32_s32, vreinterpretq_s32_f32, vshlq_n_s32, vshrq_n_s32, vst1q_f32, vsubq_f32, vsubq_s32,
};

use super::VectorPair;
use crate::arch::simd::Simd;

type F = [float32x4_t; 2];
type I = [int32x4_t; 2];

impl<V: VectorPair> Simd for V {
    type F = F;
    type I = I;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: `self` proves NEON.
        let x = unsafe { vdupq_n_f32(x) };
        [x, x]
    }

    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> F {
        // SAFETY: `self` proves NEON; the array is two times four readable values.
        unsafe { [vld1q_f32(x.as_ptr()), vld1q_f32(x[4..].as_ptr())] }
    }

    #[inline(always)]
    fn store(self, [low, high]: F, out: &mut [f32; 8]) {
        // SAFETY: `self` proves NEON; the array is two times four writable values.
        unsafe {
            vst1q_f32(out.as_mut_ptr(), low);
            vst1q_f32(out[4..].as_mut_ptr(), high);
        }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 8]) -> F {
        // SAFETY: `self` proves NEON; the array is two times four readable values.
        unsafe {
            [
                vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x.as_ptr()))),
                vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x[4..].as_ptr()))),
            ]
        }
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
    }

    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vsubq_f32(a[0], b[0]), vsubq_f32(a[1], b[1])] }
    }

    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
    }

    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vdivq_f32(a[0], b[0]), vdivq_f32(a[1], b[1])] }
    }

    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
    }

    // The instructions for the larger and the smaller value treat NaN and signed zeros otherwise.
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vbslq_f32(vcgtq_f32(a[0], b[0]), a[0], b[0]), vbslq_f32(vcgtq_f32(a[1], b[1]), a[1], b[1])] }
    }

    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        self.select_lt(a, b, a, b)
    }

    #[inline(always)]
    fn select_lt(self, a: F, b: F, x: F, y: F) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vbslq_f32(vcltq_f32(a[0], b[0]), x[0], y[0]), vbslq_f32(vcltq_f32(a[1], b[1]), x[1], y[1])] }
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> I {
        // SAFETY: `self` proves NEON.
        let x = unsafe { vdupq_n_s32(x) };
        [x, x]
    }

    #[inline(always)]
    fn to_bits(self, x: F) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vreinterpretq_s32_f32(x[0]), vreinterpretq_s32_f32(x[1])] }
    }

    #[inline(always)]
    fn of_bits(self, x: I) -> F {
        // SAFETY: `self` proves NEON.
        unsafe { [vreinterpretq_f32_s32(x[0]), vreinterpretq_f32_s32(x[1])] }
    }

    #[inline(always)]
    fn add_int(self, a: I, b: I) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vaddq_s32(a[0], b[0]), vaddq_s32(a[1], b[1])] }
    }

    #[inline(always)]
    fn sub_int(self, a: I, b: I) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vsubq_s32(a[0], b[0]), vsubq_s32(a[1], b[1])] }
    }

    #[inline(always)]
    fn and(self, a: I, b: I) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vandq_s32(a[0], b[0]), vandq_s32(a[1], b[1])] }
    }

    #[inline(always)]
    fn or(self, a: I, b: I) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vorrq_s32(a[0], b[0]), vorrq_s32(a[1], b[1])] }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: I) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vshlq_n_s32::<N>(x[0]), vshlq_n_s32::<N>(x[1])] }
    }

    #[inline(always)]
    fn sar<const N: i32>(self, x: I) -> I {
        // SAFETY: `self` proves NEON.
        unsafe { [vshrq_n_s32::<N>(x[0]), vshrq_n_s32::<N>(x[1])] }
    }
}
