//! Lanes as one 256-bit register.

use std::arch::x86_64::{
    __m256, __m256i, _CMP_LT_OQ, _mm_loadu_si128, _mm256_add_epi32, _mm256_add_ps, _mm256_and_si256, _mm256_blendv_ps,
    _mm256_castps_si256, _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_div_ps, _mm256_fmadd_ps,
    _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_slli_epi32, _mm256_srai_epi32, _mm256_storeu_ps, _mm256_sub_epi32, _mm256_sub_ps,
};

use super::Ymm;
use crate::arch::simd::Simd;

impl<Y: Ymm> Simd for Y {
    type F = __m256;
    type I = __m256i;

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> __m256 {
        // SAFETY: `self` proves AVX; the array is 32 readable bytes.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, x: __m256, out: &mut [f32; 8]) {
        // SAFETY: `self` proves AVX; the array is 32 writable bytes.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 8]) -> __m256 {
        // SAFETY: `self` proves F16C; the array is 16 readable bytes.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())) }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` proves FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_min_ps(a, b) }
    }

    #[inline(always)]
    fn select_lt(self, a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) }
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> __m256i {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_set1_epi32(x) }
    }

    #[inline(always)]
    fn to_bits(self, x: __m256) -> __m256i {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_castps_si256(x) }
    }

    #[inline(always)]
    fn of_bits(self, x: __m256i) -> __m256 {
        // SAFETY: `self` proves AVX.
        unsafe { _mm256_castsi256_ps(x) }
    }

    #[inline(always)]
    fn add_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    fn sub_int(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    fn and(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_slli_epi32::<N>(x) }
    }

    #[inline(always)]
    fn sar<const N: i32>(self, x: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_srai_epi32::<N>(x) }
    }
}
