//! Products of 7-bit codes with 8-bit activations, of eight rows at once.
//!
//! Four bytes of each row, a quad, are multiplied with one quad of activations that all rows share. A sum thereby belongs to one
//! row, and no fold follows.

use crate::arch::ints::Ints;
use crate::arch::lanes::PairKernel;

/// A tier's quads of bytes.
pub(crate) trait Quads: Ints {
    /// A quad of each of eight rows: byte `4r + i` is byte `i` of row `r`.
    type B: Copy;
    /// Running sums of products of quads, one or several for each row.
    type S: Copy;

    /// Whether [`S`](Self::S) holds the sum of any unit. Otherwise it holds two sums for each row in 16 bits, to which each quad
    /// adds two products. They wrap, and it is for the kernel to take them out where they are within the range, whatever they
    /// were on the way there.
    const WIDE_SUMS: bool;

    /// Runs a kernel of two groups on registers that hold both, where the tier has such.
    #[inline(always)]
    fn run_pair<K: PairKernel>(self, kernel: K) {
        kernel.apart(self);
    }

    /// Quads as they are stored.
    fn load_quads(self, quads: &[u8; 32]) -> Self::B;
    /// To where [`load_quads`](Self::load_quads) takes them from.
    fn store_quads(self, quads: Self::B, out: &mut [u8; 32]);
    /// Row `r`'s quad is `words[r]`, its lowest byte first.
    fn quads_of(self, words: &[u32; 8]) -> Self::B;
    /// The same quad for each row.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "a broadcast takes it from memory")]
    fn splat_quad(self, quad: &[i8; 4]) -> Self::B;
    /// The quads of sixteen bytes of each row, in order.
    fn transpose(self, rows: [&[u8; 16]; 8]) -> [Self::B; 4];
    /// Bytes shifted right by `n`, below 8, of which `mask` is kept. It keeps nothing that came from a neighbour.
    fn shr_and(self, x: Self::B, n: usize, mask: u8) -> Self::B;
    /// Bytes shifted left by `n`, below 8, of which `mask` is kept. It keeps nothing that came from a neighbour.
    fn shl_and(self, x: Self::B, n: usize, mask: u8) -> Self::B;
    /// `a | b`.
    fn or_quads(self, a: Self::B, b: Self::B) -> Self::B;
    /// `table[index]` for each byte; indices are 0 to 15.
    fn lookup(self, table: &[u8; 16], index: Self::B) -> Self::B;
    /// Byte `k` is 16 where bit `4 * i + k` of the row's word is set, otherwise zero; `i` is below 8.
    fn fifth_bits(self, words: Self::B, i: usize) -> Self::B;
    /// Byte `i` of each row's quad as f32.
    fn byte_to_f32(self, quads: Self::B, i: usize) -> Self::F;
    /// Lanes `2r` and `2r + 1` are the signed bytes `i` and `j` of row `r`'s quad.
    fn signed_pairs(self, quads: Self::B, i: usize, j: usize) -> Self::H;
    /// The f32 values of the halves that each row's quad starts with; exact.
    fn low_halves(self, quads: Self::B) -> Self::F;
    /// The f32 values of the two halves that each row's quad is; exact.
    fn both_halves(self, quads: Self::B) -> (Self::F, Self::F);

    /// No products.
    fn no_products(self) -> Self::S;
    /// Adds the products of `code` with activations of which `pairs` are the sums: of bytes 0 and 1 of their quads, and of bytes
    /// 2 and 3.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "a broadcast takes it from memory")]
    fn add_code(self, sums: Self::S, pairs: &[i16; 2], code: i16) -> Self::S;
    /// Adds the products of each row's codes, 0 to 127, with the signed bytes of `x`.
    fn add_products(self, sums: Self::S, codes: Self::B, x: Self::B) -> Self::S;
    /// The sum of each row.
    fn row_sums(self, sums: Self::S) -> Self::I;
    /// `acc` and the sum of each row times its factor, which lanes `2r` and `2r + 1` of `factors` both are.
    fn add_scaled(self, acc: Self::I, sums: Self::S, factors: Self::H) -> Self::I;
}
