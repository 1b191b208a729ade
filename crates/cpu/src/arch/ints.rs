//! Sixteen i16 lanes and their pair products, beside the f32 lanes of [`Simd`]: what products and quantisation need.
//!
//! Everything between [`Ints::enter`] and an operation has to be inlined, or the operations would become calls: mark
//! generic kernel code `#[inline(always)]`, and keep vectors out of closures.

use crate::arch::quads::Quads;
use crate::arch::simd::Simd;
use crate::caps::Tier;

/// A tier's integer lanes.
///
/// How a tier lays lanes out in registers is its own affair: lane `i` is what a load takes from index `i`.
pub(crate) trait Ints: Simd {
    /// Sixteen i16.
    type H: Copy;

    /// Runs a kernel compiled with the tier's instructions.
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;

    /// Asks for the cache line `offset` bytes after `start`, in it or not. Has no other effect.
    fn prefetch<T>(self, start: &T, offset: usize);

    /// Lane `i` from `x[i]`.
    fn load_i16(self, x: &[i16; 16]) -> Self::H;
    /// Lane `i` to `out[i]`.
    fn store_i16(self, x: Self::H, out: &mut [i16; 16]);
    /// Lane `i` has the bits of `x[i]`.
    fn load_u16(self, x: &[u16; 16]) -> Self::H;
    /// All lanes `x`.
    fn splat_i16(self, x: i16) -> Self::H;
    /// Sixteen unsigned bytes.
    fn widen_u8(self, x: &[u8; 16]) -> Self::H;
    /// Sixteen signed bytes.
    fn widen_i8(self, x: &[i8; 16]) -> Self::H;
    /// `table[index]` in each lane; indices are 0 to 15.
    fn lookup_i16(self, table: &[i8; 16], index: Self::H) -> Self::H;
    /// `a & b`.
    fn and_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// `x >> n`, zeros coming in; `n` is below 16.
    fn shr_i16(self, x: Self::H, n: usize) -> Self::H;
    /// Lanes `2l` and `2l + 1` are `pair`.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "a broadcast takes it from memory")]
    fn splat_pair(self, pair: &[i16; 2]) -> Self::H;
    /// Lanes `2r` and `2r + 1` of result `j` are lanes `2j` and `2j + 1` of `rows[r]`.
    #[inline(always)]
    fn transpose_pairs(self, rows: [Self::H; 8]) -> [Self::H; 8] {
        let mut from = [[0; 16]; 8];
        for r in 0..8 {
            self.store_i16(rows[r], &mut from[r]);
        }
        let mut to = [self.splat_i16(0); 8];
        for j in 0..8 {
            let mut pairs = [0; 16];
            for r in 0..8 {
                pairs[2 * r..][..2].copy_from_slice(&from[r][2 * j..][..2]);
            }
            to[j] = self.load_i16(&pairs);
        }
        to
    }

    /// `acc[l] + a[2l] * b[2l] + a[2l + 1] * b[2l + 1]`, wrapping.
    fn dot(self, acc: Self::I, a: Self::H, b: Self::H) -> Self::I;
    /// The larger of each two signed lanes.
    fn max_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// The largest lane.
    fn fold_max(self, x: Self::I) -> i32;
    /// Of the lanes of the first two vectors, and of the last two: the sum of the first two in every four, and of the other two.
    /// Sums are in the range of i16.
    fn pair_sums(self, x: [Self::I; 4]) -> [[i16; 2]; 2];
    /// Lane `r` is the sum of the lanes of `rows[r]`, wrapping.
    fn fold_rows(self, rows: [Self::I; 8]) -> Self::I;
    /// Lanes 0 to 7 from `low` and 8 to 15 from `high`, whose values are in the range of i16.
    fn narrow(self, low: Self::I, high: Self::I) -> Self::H;
    /// The lanes of four vectors in order, whose values are in the range of i8.
    fn store_i8(self, x: [Self::I; 4], out: &mut [i8; 32]);
    /// The nearest f32, ties to even.
    fn to_f32(self, x: Self::I) -> Self::F;
    /// The nearest integer, ties to even, of values in the range of i32.
    fn round(self, x: Self::F) -> Self::I;
    /// The f32 values of eight bfloat16; exact.
    fn load_bf16(self, x: &[u16; 8]) -> Self::F;
    /// [`fold`](Simd::fold) of four vectors at once.
    #[inline(always)]
    fn fold4(self, v: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = v;
        [self.fold(a), self.fold(b), self.fold(c), self.fold(d)]
    }
}

/// Work that is compiled once for each tier.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;

    /// The work; implementations are `#[inline(always)]`.
    fn run<S: Quads>(self, s: S) -> Self::Output;
}

impl Tier {
    /// Runs a kernel with this tier's instructions.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Scalar(token) => token.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => token.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(token) => token.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(token) => token.enter(kernel),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(token) => token.enter(kernel),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(token) => token.enter(kernel),
        }
    }
}
