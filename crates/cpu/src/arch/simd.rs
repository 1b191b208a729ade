//! Eight f32 lanes, the unit that every tier computes in.
//!
//! A kernel is written once, generic over a tier's token, and compiled once for each tier. The tokens are proofs that the
//! CPU has the instructions, so the operations are safe. Each operation is one IEEE operation on each lane, with the same
//! bits in every tier; what a kernel sums in which order is thereby fixed by its text.

/// A tier's lane operations.
///
/// Everything here is inlined into a function that enables the tier's features (see `crate::dispatch`).
/// Kernels must not put these calls into closures that may stay out of line.
pub(crate) trait Simd: Copy {
    /// Eight f32.
    type F: Copy;
    /// Eight i32.
    type I: Copy;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F;
    /// Lane `i` from `x[i]`.
    fn load(self, x: &[f32; 8]) -> Self::F;
    /// Lane `i` to `out[i]`.
    fn store(self, x: Self::F, out: &mut [f32; 8]);
    /// The f32 values of eight halves; exact.
    fn load_f16(self, x: &[u16; 8]) -> Self::F;

    /// `a + b`.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c` with one rounding.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`: `b` when either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`: `b` when either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { x } else { y }`.
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;

    /// All lanes `x`.
    fn splat_int(self, x: i32) -> Self::I;
    /// The bits of the lanes.
    fn to_bits(self, x: Self::F) -> Self::I;
    /// The lanes with these bits.
    fn of_bits(self, x: Self::I) -> Self::F;
    /// `a + b`, wrapping.
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a & b`.
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    /// `a | b`.
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// `x << N`.
    fn shl<const N: i32>(self, x: Self::I) -> Self::I;
    /// `x >> N`, keeping the sign.
    fn sar<const N: i32>(self, x: Self::I) -> Self::I;

    /// The sum of the lanes in the order that all reductions end with:
    /// `((v0+v4)+(v2+v6)) + ((v1+v5)+(v3+v7))`.
    #[inline(always)]
    fn fold(self, v: Self::F) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(v, &mut lanes);
        let [v0, v1, v2, v3, v4, v5, v6, v7] = lanes;
        ((v0 + v4) + (v2 + v6)) + ((v1 + v5) + (v3 + v7))
    }

    /// The largest lane; what it is with a NaN among them is left open.
    #[inline(always)]
    fn largest(self, v: Self::F) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(v, &mut lanes);
        let larger = |a: f32, b: f32| if a > b { a } else { b };
        lanes.into_iter().fold(f32::NEG_INFINITY, larger)
    }
}

#[cfg(test)]
mod tests;
