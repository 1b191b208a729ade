//! The dot-product instructions, in both their encodings: four products of bytes, or two of 16 bits, added to 32 bits at once.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_dpbusd_avx_epi32, _mm256_dpbusd_epi32, _mm256_dpwssd_avx_epi32,
    _mm256_dpwssd_epi32, _mm256_mullo_epi32, _mm256_srai_epi32,
};

use super::avx2::{Ymm, with_avx2};
use crate::arch::ints::Kernel;
use crate::arch::lanes::PairKernel;
use crate::caps::{Avx2, Avx512Vnni, AvxVnni};

/// Implements [`Ymm`] for a token. Sums of products are eight i32, one for each row.
macro_rules! vnni {
    ($token:ident, $features:literal, $dpbusd:ident, $dpwssd:ident, $pair:ident) => {
        impl Ymm for $token {
            const WIDE_SUMS: bool = true;

            #[inline(always)]
            fn avx2(self) -> Avx2 {
                self.avx2()
            }

            #[inline(always)]
            fn enter<K: Kernel>(self, kernel: K) -> K::Output {
                #[target_feature(enable = $features)]
                #[inline(never)]
                fn run<K: Kernel>(token: $token, kernel: K) -> K::Output {
                    kernel.run(token)
                }
                // SAFETY: the features are there, or there would be no token.
                unsafe { run(self, kernel) }
            }

            #[inline(always)]
            fn run_pair<K: PairKernel>(self, kernel: K) {
                kernel.$pair(self);
            }

            #[inline(always)]
            fn dot(self, acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the token proves the instruction.
                unsafe { $dpwssd(acc, a, b) }
            }

            #[inline(always)]
            fn add_code(self, sums: __m256i, pairs: __m256i, code: __m256i) -> __m256i {
                self.dot(sums, pairs, code)
            }

            #[inline(always)]
            fn add_products(self, sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
                // SAFETY: the token proves the instruction.
                unsafe { $dpbusd(sums, codes, x) }
            }

            #[inline(always)]
            fn row_sums(self, sums: __m256i) -> __m256i {
                sums
            }

            #[inline(always)]
            fn add_scaled(self, acc: __m256i, sums: __m256i, factors: __m256i) -> __m256i {
                with_avx2!(self, {
                    // Both halves of a word are the factor; the upper one, shifted down, is the whole word.
                    _mm256_add_epi32(acc, _mm256_mullo_epi32(sums, _mm256_srai_epi32::<16>(factors)))
                })
            }
        }
    };
}

vnni!(AvxVnni, "avx2,fma,f16c,avxvnni", _mm256_dpbusd_avx_epi32, _mm256_dpwssd_avx_epi32, apart);
// With AVX-512 there are twice as many registers, for the sums of larger tiles.
vnni!(
    Avx512Vnni,
    "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni",
    _mm256_dpbusd_epi32,
    _mm256_dpwssd_epi32,
    together
);
