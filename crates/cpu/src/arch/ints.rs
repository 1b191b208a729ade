//! Sixteen i16 lanes and their pair products, beside the f32 lanes of [`Simd`]: what products and quantisation need.
//!
//! Everything between [`Ints::enter`] and an operation has to be inlined, or the operations would become calls: mark
//! generic kernel code `#[inline(always)]`, and keep vectors out of closures.

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
    /// All lanes `x`.
    fn splat_i16(self, x: i16) -> Self::H;
    /// Sixteen unsigned bytes.
    fn widen_u8(self, x: &[u8; 16]) -> Self::H;
    /// Sixteen signed bytes.
    fn widen_i8(self, x: &[i8; 16]) -> Self::H;
    /// The low halves of eight bytes in lanes 0 to 7, their high halves in lanes 8 to 15.
    fn nibbles(self, x: [u8; 8]) -> Self::H;
    /// Sixteen unsigned bytes, eight from each word, the lowest first.
    fn widen_words(self, low: u64, high: u64) -> Self::H;
    /// All ones in lane `i` where bit `i` is set, the low byte first, otherwise zero.
    fn mask_of_bits(self, bits: [u8; 2]) -> Self::H;
    /// `table[index]` in each lane; indices are 0 to 15.
    fn lookup(self, table: &[i8; 16], index: Self::H) -> Self::H;
    /// `a & b`.
    fn and_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// `!a & b`.
    fn and_not_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// `a | b`.
    fn or_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// `x >> n`, zeros coming in; `n` is below 16.
    fn shr_i16(self, x: Self::H, n: usize) -> Self::H;
    /// `x << n`; `n` is below 16.
    fn shl_i16(self, x: Self::H, n: usize) -> Self::H;
    /// `a - b`, wrapping.
    fn sub_i16(self, a: Self::H, b: Self::H) -> Self::H;
    /// `a * b`, the low half.
    fn mul_i16(self, a: Self::H, b: Self::H) -> Self::H;

    /// `acc[l] + a[2l] * b[2l] + a[2l + 1] * b[2l + 1]`, wrapping.
    fn dot(self, acc: Self::I, a: Self::H, b: Self::H) -> Self::I;
    /// The larger of each two signed lanes.
    fn max_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// The largest lane.
    fn fold_max(self, x: Self::I) -> i32;
    /// The sum of the lanes, wrapping.
    fn fold_add(self, x: Self::I) -> i32;
    /// Lanes 0 to 7 from `low` and 8 to 15 from `high`, whose values are in the range of i16.
    fn narrow(self, low: Self::I, high: Self::I) -> Self::H;
    /// The nearest f32, ties to even.
    fn to_f32(self, x: Self::I) -> Self::F;
    /// The nearest integer, ties to even, of values in the range of i32.
    fn round(self, x: Self::F) -> Self::I;
    /// The f32 values of eight bfloat16; exact.
    fn load_bf16(self, x: &[u16; 8]) -> Self::F;
    /// The f32 values of eight unsigned bytes, the lowest first.
    fn bytes_to_f32(self, bytes: u64) -> Self::F;
    /// The f32 value of a half; exact.
    fn half(self, bits: u16) -> f32;
    /// The f32 values of the halves in the low 16 bits of each word; exact.
    fn low_halves(self, words: &[u32; 8]) -> Self::F;
    /// The f32 values of the halves in the low and in the high 16 bits of each word; exact.
    fn both_halves(self, words: &[u32; 8]) -> (Self::F, Self::F);
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
    fn run<S: Ints>(self, s: S) -> Self::Output;
}

impl Tier {
    /// Runs a kernel with this tier's instructions.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Self::Scalar(token) => token.enter(kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => token.enter(kernel),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(token) => token.enter(kernel),
        }
    }
}
