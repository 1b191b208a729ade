//! [`Ints`] on 256-bit registers; lanes lie in them in order.
#![allow(clippy::wildcard_imports, reason = "most of what is used here are intrinsics")]

use std::arch::x86_64::*;

use super::Ymm;
use crate::arch::ints::{Ints, Kernel};

/// Calls intrinsics whose only requirement is their instructions.
macro_rules! with_avx2 {
    ($token:ident, $value:expr) => {{
        let _: $crate::caps::Avx2 = $crate::arch::x86_64::avx2::Ymm::avx2($token);
        // SAFETY: the intrinsics need AVX2, FMA and F16C, and a token exists only where the CPU has them; those that
        // read or write memory are given references to arrays of the size they access, and need no alignment.
        unsafe { $value }
    }};
}

/// Spreads the bytes of one 128-bit half, which holds all sixteen in both halves, to the low bytes of i16 lanes.
const SPREAD: [i8; 32] = [
    0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, -1, 7, -1, 8, -1, 9, -1, 10, -1, 11, -1, 12, -1, 13, -1, 14, -1, 15,
    -1,
];

pub(in crate::arch::x86_64) use with_avx2;

impl<Y: Ymm> Ints for Y {
    type H = __m256i;

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        Ymm::enter(self, kernel)
    }

    #[inline(always)]
    fn prefetch<T>(self, start: &T, offset: usize) {
        with_avx2!(self, _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(start).cast::<i8>().wrapping_add(offset)));
    }

    #[inline(always)]
    fn load_i16(self, from: &[i16; 16]) -> __m256i {
        with_avx2!(self, _mm256_loadu_si256(from.as_ptr().cast()))
    }

    #[inline(always)]
    fn store_i16(self, v: __m256i, to: &mut [i16; 16]) {
        with_avx2!(self, _mm256_storeu_si256(to.as_mut_ptr().cast(), v));
    }

    #[inline(always)]
    fn load_u16(self, from: &[u16; 16]) -> __m256i {
        with_avx2!(self, _mm256_loadu_si256(from.as_ptr().cast()))
    }

    #[inline(always)]
    fn splat_i16(self, x: i16) -> __m256i {
        with_avx2!(self, _mm256_set1_epi16(x))
    }

    #[inline(always)]
    fn widen_u8(self, from: &[u8; 16]) -> __m256i {
        // A broadcast from memory costs a load only, so this is one operation where a widening move is two.
        with_avx2!(self, {
            let both = _mm256_broadcastsi128_si256(_mm_loadu_si128(from.as_ptr().cast()));
            _mm256_shuffle_epi8(both, _mm256_loadu_si256(SPREAD.as_ptr().cast()))
        })
    }

    #[inline(always)]
    fn widen_i8(self, from: &[i8; 16]) -> __m256i {
        with_avx2!(self, _mm256_cvtepi8_epi16(_mm_loadu_si128(from.as_ptr().cast())))
    }

    #[inline(always)]
    fn lookup_i16(self, table: &[i8; 16], index: __m256i) -> __m256i {
        with_avx2!(self, {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            let low = _mm256_shuffle_epi8(table, index);
            _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(low))
        })
    }

    #[inline(always)]
    fn and_i16(self, a: __m256i, b: __m256i) -> __m256i {
        with_avx2!(self, _mm256_and_si256(a, b))
    }

    #[inline(always)]
    fn shr_i16(self, a: __m256i, n: usize) -> __m256i {
        with_avx2!(self, _mm256_srl_epi16(a, _mm_cvtsi64_si128(n as i64)))
    }

    #[inline(always)]
    fn splat_pair(self, pair: &[i16; 2]) -> __m256i {
        with_avx2!(self, _mm256_set1_epi32(pair.as_ptr().cast::<i32>().read_unaligned()))
    }

    #[inline(always)]
    fn transpose_pairs(self, [a, b, c, d, e, f, g, h]: [__m256i; 8]) -> [__m256i; 8] {
        with_avx2!(self, {
            let ([a0, a1, a2, a3], [e0, e1, e2, e3]) = (transpose4([a, b, c, d]), transpose4([e, f, g, h]));
            let low = |a, e| _mm256_permute2x128_si256::<0x20>(a, e);
            let high = |a, e| _mm256_permute2x128_si256::<0x31>(a, e);
            [low(a0, e0), low(a1, e1), low(a2, e2), low(a3, e3), high(a0, e0), high(a1, e1), high(a2, e2), high(a3, e3)]
        })
    }

    #[inline(always)]
    fn dot(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        Ymm::dot(self, acc, a, b)
    }

    #[inline(always)]
    fn max_int(self, a: __m256i, b: __m256i) -> __m256i {
        with_avx2!(self, _mm256_max_epi32(a, b))
    }

    #[inline(always)]
    fn fold_max(self, a: __m256i) -> i32 {
        with_avx2!(self, {
            let four = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b0100_1110>(four));
            _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32::<0b1011_0001>(two)))
        })
    }

    #[inline(always)]
    fn pair_sums(self, [a, b, c, d]: [__m256i; 4]) -> [[i16; 2]; 2] {
        let mut sums = [[0; 2]; 2];
        with_avx2!(self, {
            let twos = _mm256_hadd_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
            let fours = _mm_add_epi32(_mm256_castsi256_si128(twos), _mm256_extracti128_si256::<1>(twos));
            _mm_storel_epi64(sums.as_mut_ptr().cast(), _mm_packs_epi32(fours, fours));
        });
        sums
    }

    #[inline(always)]
    fn fold_rows(self, [a, b, c, d, e, f, g, h]: [__m256i; 8]) -> __m256i {
        with_avx2!(self, {
            let pairs = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            let quarters = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            let (a, e) = (quarters(pairs(a, b), pairs(c, d)), quarters(pairs(e, f), pairs(g, h)));
            _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, e), _mm256_permute2x128_si256::<0x31>(a, e))
        })
    }

    #[inline(always)]
    fn narrow(self, low: __m256i, high: __m256i) -> __m256i {
        with_avx2!(self, _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packs_epi32(low, high)))
    }

    #[inline(always)]
    fn store_i8(self, [a, b, c, d]: [__m256i; 4], out: &mut [i8; 32]) {
        with_avx2!(self, {
            // Both packings go by halves of registers: four lanes of a, b, c and d, then the other four of each.
            let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_permutevar8x32_epi32(packed, order));
        });
    }

    #[inline(always)]
    fn to_f32(self, a: __m256i) -> __m256 {
        with_avx2!(self, _mm256_cvtepi32_ps(a))
    }

    #[inline(always)]
    fn load_bf16(self, bits: &[u16; 8]) -> __m256 {
        with_avx2!(self, {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(bits.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        })
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256i {
        with_avx2!(self, _mm256_cvtps_epi32(a))
    }

    #[inline(always)]
    fn fold4(self, [a, b, c, d]: [__m256; 4]) -> [f32; 4] {
        with_avx2!(self, {
            // t_i = v_i + v_{i+4} of a and c, then of b and d.
            let (ac, bd) = (add_halves(a, c), add_halves(b, d));
            // u_0 and u_1 of a, b, c, d: t_i + t_{i+2}.
            let u =
                _mm256_add_ps(_mm256_shuffle_ps::<0b01_00_01_00>(ac, bd), _mm256_shuffle_ps::<0b11_10_11_10>(ac, bd));
            // u_0 + u_1.
            let y = _mm256_add_ps(_mm256_shuffle_ps::<0b10_10_00_00>(u, u), _mm256_shuffle_ps::<0b11_11_01_01>(u, u));
            let (ab, cd) = (_mm256_castps256_ps128(y), _mm256_extractf128_ps::<1>(y));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), _mm_shuffle_ps::<0b10_00_10_00>(ab, cd));
            out
        })
    }
}

/// The sum of the halves of `a` in the low half, of `b` in the high half.
#[inline(always)]
unsafe fn add_halves(a: __m256, b: __m256) -> __m256 {
    // SAFETY: the caller promises AVX.
    unsafe { _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)) }
}

/// Transposes four by four words in each half.
#[inline(always)]
pub(super) unsafe fn transpose4([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the caller promises AVX2.
    unsafe {
        let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
        let (ab2, cd2) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ab2, cd2),
            _mm256_unpackhi_epi64(ab2, cd2),
        ]
    }
}
