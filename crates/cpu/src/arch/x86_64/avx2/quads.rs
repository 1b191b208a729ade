//! [`Quads`] on 256-bit registers, a row's quad in each lane of 32 bits.
#![allow(clippy::wildcard_imports, reason = "most of what is used here are intrinsics")]

use std::arch::x86_64::*;

use super::Ymm;
use super::ints::{transpose4, with_avx2};
use crate::arch::ints::Ints;
use crate::arch::lanes::PairKernel;
use crate::arch::quads::Quads;

/// The low halves of four words, then the high ones.
const HALVES: [u8; 16] = [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15];

impl<Y: Ymm> Quads for Y {
    type B = __m256i;
    type S = __m256i;

    const WIDE_SUMS: bool = Y::WIDE_SUMS;

    #[inline(always)]
    fn run_pair<K: PairKernel>(self, kernel: K) {
        Ymm::run_pair(self, kernel);
    }

    #[inline(always)]
    fn load_quads(self, quads: &[u8; 32]) -> __m256i {
        with_avx2!(self, _mm256_loadu_si256(quads.as_ptr().cast()))
    }

    #[inline(always)]
    fn store_quads(self, quads: __m256i, out: &mut [u8; 32]) {
        with_avx2!(self, _mm256_storeu_si256(out.as_mut_ptr().cast(), quads));
    }

    #[inline(always)]
    fn quads_of(self, words: &[u32; 8]) -> __m256i {
        let [a, b, c, d, e, f, g, h] = words.map(u32::cast_signed);
        with_avx2!(self, _mm256_setr_epi32(a, b, c, d, e, f, g, h))
    }

    #[inline(always)]
    fn splat_quad(self, quad: &[i8; 4]) -> __m256i {
        with_avx2!(self, _mm256_set1_epi32(quad.as_ptr().cast::<i32>().read_unaligned()))
    }

    #[inline(always)]
    fn transpose(self, [a, b, c, d, e, f, g, h]: [&[u8; 16]; 8]) -> [__m256i; 4] {
        with_avx2!(self, {
            let load = |row: &[u8; 16]| _mm_loadu_si128(row.as_ptr().cast());
            let both = |low, high| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(load(low)), load(high));
            transpose4([both(a, e), both(b, f), both(c, g), both(d, h)])
        })
    }

    #[inline(always)]
    fn shr_and(self, x: __m256i, n: usize, mask: u8) -> __m256i {
        with_avx2!(self, {
            let shifted = if n == 0 { x } else { _mm256_srl_epi16(x, _mm_cvtsi64_si128(n as i64)) };
            _mm256_and_si256(shifted, _mm256_set1_epi8(mask.cast_signed()))
        })
    }

    #[inline(always)]
    fn shl_and(self, x: __m256i, n: usize, mask: u8) -> __m256i {
        with_avx2!(self, {
            let shifted = if n == 0 { x } else { _mm256_sll_epi16(x, _mm_cvtsi64_si128(n as i64)) };
            _mm256_and_si256(shifted, _mm256_set1_epi8(mask.cast_signed()))
        })
    }

    #[inline(always)]
    fn or_quads(self, a: __m256i, b: __m256i) -> __m256i {
        with_avx2!(self, _mm256_or_si256(a, b))
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: __m256i) -> __m256i {
        with_avx2!(self, {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index)
        })
    }

    #[inline(always)]
    fn fifth_bits(self, words: __m256i, i: usize) -> __m256i {
        with_avx2!(self, {
            // The four bits to the upper half of a byte, that byte to all of its lane, and of each byte one bit.
            let upper = if i.is_multiple_of(2) { _mm256_slli_epi32::<4>(words) } else { words };
            let byte = (i / 2) as i32 * 0x0101_0101;
            let lanes =
                _mm256_setr_epi32(0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c, 0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c);
            let spread = _mm256_shuffle_epi8(upper, _mm256_add_epi32(lanes, _mm256_set1_epi32(byte)));
            let bits = _mm256_and_si256(spread, _mm256_set1_epi32(0x8040_2010_u32.cast_signed()));
            _mm256_min_epu8(bits, _mm256_set1_epi8(16))
        })
    }

    #[inline(always)]
    fn byte_to_f32(self, quads: __m256i, i: usize) -> __m256 {
        with_avx2!(self, {
            let shifted = _mm256_srl_epi32(quads, _mm_cvtsi64_si128(8 * i as i64));
            _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(0xff)))
        })
    }

    #[inline(always)]
    fn signed_pairs(self, quads: __m256i, i: usize, j: usize) -> __m256i {
        with_avx2!(self, {
            // To the upper bytes of the lanes, and down again with the sign.
            let bytes = (i << 8 | j << 24) as i32;
            let lanes =
                _mm256_setr_epi32(0, 0x0400_0400, 0x0800_0800, 0x0c00_0c00, 0, 0x0400_0400, 0x0800_0800, 0x0c00_0c00);
            let order = _mm256_or_si256(_mm256_set1_epi32(0x0080_0080 | bytes), lanes);
            _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(quads, order))
        })
    }

    #[inline(always)]
    fn low_halves(self, quads: __m256i) -> __m256 {
        self.both_halves(quads).0
    }

    #[inline(always)]
    fn both_halves(self, quads: __m256i) -> (__m256, __m256) {
        with_avx2!(self, {
            let order = _mm256_broadcastsi128_si256(_mm_loadu_si128(HALVES.as_ptr().cast()));
            let halves = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_shuffle_epi8(quads, order));
            (_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves)))
        })
    }

    #[inline(always)]
    fn no_products(self) -> __m256i {
        with_avx2!(self, _mm256_setzero_si256())
    }

    #[inline(always)]
    fn add_code(self, sums: __m256i, pairs: &[i16; 2], code: i16) -> __m256i {
        Ymm::add_code(self, sums, self.splat_pair(pairs), self.splat_i16(code))
    }

    #[inline(always)]
    fn add_products(self, sums: __m256i, codes: __m256i, x: __m256i) -> __m256i {
        Ymm::add_products(self, sums, codes, x)
    }

    #[inline(always)]
    fn row_sums(self, sums: __m256i) -> __m256i {
        Ymm::row_sums(self, sums)
    }

    #[inline(always)]
    fn add_scaled(self, acc: __m256i, sums: __m256i, factors: __m256i) -> __m256i {
        Ymm::add_scaled(self, acc, sums, factors)
    }
}
