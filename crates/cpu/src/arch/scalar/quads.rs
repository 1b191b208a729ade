//! [`Quads`] on arrays.

use super::ints::lanes;
use crate::arch::quads::Quads;
use crate::arch::simd::Simd;
use crate::caps::Scalar;

impl Quads for Scalar {
    type B = [u8; 32];
    type S = [i32; 8];

    const WIDE_SUMS: bool = true;

    #[inline(always)]
    fn load_quads(self, quads: &[u8; 32]) -> [u8; 32] {
        *quads
    }

    #[inline(always)]
    fn store_quads(self, quads: [u8; 32], out: &mut [u8; 32]) {
        *out = quads;
    }

    #[inline(always)]
    fn quads_of(self, words: &[u32; 8]) -> [u8; 32] {
        lanes!(i => words[i / 4].to_le_bytes()[i % 4])
    }

    #[inline(always)]
    fn splat_quad(self, quad: &[i8; 4]) -> [u8; 32] {
        lanes!(i => quad[i % 4].cast_unsigned())
    }

    #[inline(always)]
    fn transpose(self, rows: [&[u8; 16]; 8]) -> [[u8; 32]; 4] {
        lanes!(j => lanes!(i => rows[i / 4][4 * j + i % 4]))
    }

    #[inline(always)]
    fn shr_and(self, x: [u8; 32], n: usize, mask: u8) -> [u8; 32] {
        lanes!(i => x[i] >> n & mask)
    }

    #[inline(always)]
    fn shl_and(self, x: [u8; 32], n: usize, mask: u8) -> [u8; 32] {
        lanes!(i => x[i] << n & mask)
    }

    #[inline(always)]
    fn or_quads(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        lanes!(i => a[i] | b[i])
    }

    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: [u8; 32]) -> [u8; 32] {
        lanes!(i => table[usize::from(index[i] & 15)])
    }

    #[inline(always)]
    fn fifth_bits(self, words: [u8; 32], i: usize) -> [u8; 32] {
        lanes!(at => (words[at / 4 * 4 + i / 2] >> (i % 2 * 4 + at % 4) & 1) << 4)
    }

    #[inline(always)]
    fn byte_to_f32(self, quads: [u8; 32], i: usize) -> [f32; 8] {
        lanes!(r => quads[4 * r + i].into())
    }

    #[inline(always)]
    fn signed_pairs(self, quads: [u8; 32], i: usize, j: usize) -> [i16; 16] {
        lanes!(l => quads[l / 2 * 4 + [i, j][l % 2]].cast_signed().into())
    }

    #[inline(always)]
    fn low_halves(self, quads: [u8; 32]) -> [f32; 8] {
        self.load_f16(&lanes!(r => u16::from_le_bytes([quads[4 * r], quads[4 * r + 1]])))
    }

    #[inline(always)]
    fn both_halves(self, quads: [u8; 32]) -> ([f32; 8], [f32; 8]) {
        let high = lanes!(r => u16::from_le_bytes([quads[4 * r + 2], quads[4 * r + 3]]));
        (self.low_halves(quads), self.load_f16(&high))
    }

    #[inline(always)]
    fn no_products(self) -> [i32; 8] {
        [0; 8]
    }

    #[inline(always)]
    fn add_code(self, sums: [i32; 8], pairs: &[i16; 2], code: i16) -> [i32; 8] {
        sums.map(|sum| sum + i32::from(code) * (i32::from(pairs[0]) + i32::from(pairs[1])))
    }

    #[inline(always)]
    fn add_products(self, sums: [i32; 8], codes: [u8; 32], x: [u8; 32]) -> [i32; 8] {
        let product = |i: usize| i32::from(codes[i]) * i32::from(x[i].cast_signed());
        lanes!(r => sums[r] + product(4 * r) + product(4 * r + 1) + product(4 * r + 2) + product(4 * r + 3))
    }

    #[inline(always)]
    fn row_sums(self, sums: [i32; 8]) -> [i32; 8] {
        sums
    }

    #[inline(always)]
    fn add_scaled(self, acc: [i32; 8], sums: [i32; 8], factors: [i16; 16]) -> [i32; 8] {
        lanes!(r => acc[r] + sums[r] * i32::from(factors[2 * r]))
    }
}
