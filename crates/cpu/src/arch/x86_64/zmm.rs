//! Two groups of eight weight rows in one register of 512 bits.

use std::arch::x86_64::{
    __m512, __m512i, _mm256_castps_pd, _mm256_loadu_ps, _mm256_loadu_si256, _mm512_add_epi32, _mm512_add_ps,
    _mm512_castpd_ps, _mm512_castps_pd, _mm512_castps256_ps512, _mm512_castsi256_si512, _mm512_cvtepi32_ps,
    _mm512_dpbusd_epi32, _mm512_dpwssd_epi32, _mm512_fmadd_ps, _mm512_insertf64x4, _mm512_inserti64x4, _mm512_mul_ps,
    _mm512_mullo_epi32, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_si512, _mm512_srai_epi32,
    _mm512_storeu_ps, _mm512_sub_epi32,
};

use crate::arch::lanes::Lanes;
use crate::caps::Avx512Vnni;

/// Calls intrinsics whose only requirement is their instructions.
macro_rules! with_avx512 {
    ($token:ident, $value:expr) => {{
        let _: Avx512Vnni = $token;
        // SAFETY: the intrinsics need AVX-512 F, BW and VNNI, and a token exists only where the CPU has them; those that
        // read or write memory are given references to arrays of the size they access, and need no alignment.
        unsafe { $value }
    }};
}

impl Lanes<2> for Avx512Vnni {
    type F = __m512;
    type I = __m512i;
    type H = __m512i;
    type B = __m512i;
    type S = __m512i;

    const WIDE_SUMS: bool = true;
    const IS_FUSED: bool = true;
    const HOLDS_EIGHT: bool = true;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        with_avx512!(self, _mm512_set1_ps(x))
    }

    #[inline(always)]
    fn load(self, [low, high]: [&[f32; 8]; 2]) -> __m512 {
        with_avx512!(self, {
            let low = _mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(low.as_ptr())));
            let high = _mm256_castps_pd(_mm256_loadu_ps(high.as_ptr()));
            _mm512_castpd_ps(_mm512_insertf64x4::<1>(low, high))
        })
    }

    #[inline(always)]
    fn store(self, x: __m512, out: &mut [[f32; 8]; 2]) {
        with_avx512!(self, _mm512_storeu_ps(out.as_flattened_mut().as_mut_ptr(), x));
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        with_avx512!(self, _mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        with_avx512!(self, _mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        with_avx512!(self, _mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn to_f32(self, x: __m512i) -> __m512 {
        with_avx512!(self, _mm512_cvtepi32_ps(x))
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> __m512i {
        with_avx512!(self, _mm512_set1_epi32(x))
    }

    #[inline(always)]
    fn add_int(self, a: __m512i, b: __m512i) -> __m512i {
        with_avx512!(self, _mm512_add_epi32(a, b))
    }

    #[inline(always)]
    fn sub_int(self, a: __m512i, b: __m512i) -> __m512i {
        with_avx512!(self, _mm512_sub_epi32(a, b))
    }

    #[inline(always)]
    fn splat_i16(self, x: i16) -> __m512i {
        with_avx512!(self, _mm512_set1_epi16(x))
    }

    #[inline(always)]
    fn splat_pair(self, pair: &[i16; 2]) -> __m512i {
        with_avx512!(self, _mm512_set1_epi32(pair.as_ptr().cast::<i32>().read_unaligned()))
    }

    #[inline(always)]
    fn load_i16(self, [low, high]: [&[i16; 16]; 2]) -> __m512i {
        with_avx512!(self, {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.as_ptr().cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.as_ptr().cast()))
        })
    }

    #[inline(always)]
    fn dot(self, acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
        with_avx512!(self, _mm512_dpwssd_epi32(acc, a, b))
    }

    #[inline(always)]
    fn splat_quad(self, quad: &[i8; 4]) -> __m512i {
        with_avx512!(self, _mm512_set1_epi32(quad.as_ptr().cast::<i32>().read_unaligned()))
    }

    #[inline(always)]
    fn load_quads(self, [low, high]: [&[u8; 32]; 2]) -> __m512i {
        with_avx512!(self, {
            let low = _mm512_castsi256_si512(_mm256_loadu_si256(low.as_ptr().cast()));
            _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(high.as_ptr().cast()))
        })
    }

    #[inline(always)]
    fn no_products(self) -> __m512i {
        with_avx512!(self, _mm512_setzero_si512())
    }

    #[inline(always)]
    fn add_code(self, sums: __m512i, pairs: &[i16; 2], code: i16) -> __m512i {
        with_avx512!(self, {
            let pairs = _mm512_set1_epi32(pairs.as_ptr().cast::<i32>().read_unaligned());
            _mm512_dpwssd_epi32(sums, pairs, _mm512_set1_epi16(code))
        })
    }

    #[inline(always)]
    fn add_products(self, sums: __m512i, codes: __m512i, x: __m512i) -> __m512i {
        with_avx512!(self, _mm512_dpbusd_epi32(sums, codes, x))
    }

    #[inline(always)]
    fn row_sums(self, sums: __m512i) -> __m512i {
        sums
    }

    #[inline(always)]
    fn add_scaled(self, acc: __m512i, sums: __m512i, factors: __m512i) -> __m512i {
        with_avx512!(self, {
            // Both halves of a word are the factor; the upper one, shifted down, is the whole word.
            _mm512_add_epi32(acc, _mm512_mullo_epi32(sums, _mm512_srai_epi32::<16>(factors)))
        })
    }
}
