//! AVX2 with FMA and F16C, and what it shares with the tiers that multiply integers faster on the same registers.

mod ints;
mod quads;
mod simd;

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_add_epi32, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mullo_epi16,
    _mm256_set1_epi16,
};

use crate::arch::ints::Kernel;
use crate::arch::lanes::PairKernel;
use crate::caps::Avx2;
pub(super) use ints::with_avx2;

/// A tier on 256-bit registers: what is its own, beside the lanes that all of them share.
pub(crate) trait Ymm: Copy {
    /// As [`Quads::WIDE_SUMS`](crate::arch::quads::Quads::WIDE_SUMS).
    const WIDE_SUMS: bool;

    /// The proof that the CPU has AVX2, FMA and F16C.
    fn avx2(self) -> Avx2;
    /// As [`Ints::enter`](crate::arch::ints::Ints::enter).
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;
    /// As [`Quads::run_pair`](crate::arch::quads::Quads::run_pair).
    fn run_pair<K: PairKernel>(self, kernel: K);
    /// As [`Ints::dot`](crate::arch::ints::Ints::dot).
    fn dot(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
    /// As [`Quads::add_code`](crate::arch::quads::Quads::add_code).
    fn add_code(self, sums: __m256i, pairs: __m256i, code: __m256i) -> __m256i;
    /// As [`Quads::add_products`](crate::arch::quads::Quads::add_products).
    fn add_products(self, sums: __m256i, codes: __m256i, x: __m256i) -> __m256i;
    /// As [`Quads::row_sums`](crate::arch::quads::Quads::row_sums).
    fn row_sums(self, sums: __m256i) -> __m256i;
    /// As [`Quads::add_scaled`](crate::arch::quads::Quads::add_scaled).
    fn add_scaled(self, acc: __m256i, sums: __m256i, factors: __m256i) -> __m256i;
}

/// Sums of products are sixteen i16: a row's products of bytes 0 and 1, and of bytes 2 and 3.
impl Ymm for Avx2 {
    const WIDE_SUMS: bool = false;

    #[inline(always)]
    fn avx2(self) -> Avx2 {
        self
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline(never)]
        fn run<K: Kernel>(token: Avx2, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: the features are there, or there would be no token.
        unsafe { run(self, kernel) }
    }

    #[inline(always)]
    fn run_pair<K: PairKernel>(self, kernel: K) {
        kernel.apart(self);
    }

    #[inline(always)]
    fn dot(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        with_avx2!(self, _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)))
    }

    #[inline(always)]
    fn add_code(self, sums: __m256i, pairs: __m256i, code: __m256i) -> __m256i {
        with_avx2!(self, _mm256_add_epi16(sums, _mm256_mullo_epi16(pairs, code)))
    }

    #[inline(always)]
    fn add_products(self, sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        with_avx2!(self, _mm256_add_epi16(sums, _mm256_maddubs_epi16(codes, x)))
    }

    #[inline(always)]
    fn row_sums(self, sums: __m256i) -> __m256i {
        with_avx2!(self, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)))
    }

    #[inline(always)]
    fn add_scaled(self, acc: __m256i, sums: __m256i, factors: __m256i) -> __m256i {
        with_avx2!(self, _mm256_add_epi32(acc, _mm256_madd_epi16(sums, factors)))
    }
}
