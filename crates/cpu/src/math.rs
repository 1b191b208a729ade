//! Functions of eight lanes. Each is one sequence of IEEE operations, so all tiers agree in every bit.
//!
//! They take several vectors at once, and do a step for all of them before the next one: a step waits for the one before
//! it, and a processor looks too few operations ahead to find the next vector by itself.

#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use std::f32::consts::LOG2_E;

use crate::arch::simd::Simd;

/// Below it the true value rounds to zero.
const EXP_MIN: f32 = -104.0;
/// Above it the true value is larger than any finite f32.
const EXP_MAX: f32 = 89.0;
/// Adding it to a small number rounds that number to an integer, which then stands in the lowest bits.
const ROUND: f32 = 12_582_912.0;
/// `ln 2` in two parts; products of the first with integers below 2^14 are exact.
const LN_2: [f32; 2] = [0.693_359_4, -0.000_212_194_44];
/// Minimax coefficients of `(e^r - 1 - r) / r^2` on `|r| <= ln(2)/2`, lowest first; relative error of `e^r` below 2^-28.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_2, 0.041_668_393, 0.008_368_781, 0.001_381_446_5];

/// `e^x` of each vector, within 1 ulp; 0 for `-inf`, `+inf` above the largest f32, NaN for NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd, const N: usize>(s: S, mut x: [S::F; N]) -> [S::F; N] {
    let (mut rounded, mut y) = (x, x);
    for i in 0..N {
        x[i] = s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x[i]));
        rounded[i] = s.fma(x[i], s.splat(LOG2_E), s.splat(ROUND));
    }
    for i in 0..N {
        let n = s.sub(rounded[i], s.splat(ROUND));
        x[i] = s.fma(n, s.splat(-LN_2[1]), s.fma(n, s.splat(-LN_2[0]), x[i]));
        y[i] = s.splat(EXP[4]);
    }
    for c in [EXP[3], EXP[2], EXP[1], EXP[0]] {
        for i in 0..N {
            y[i] = s.fma(y[i], x[i], s.splat(c));
        }
    }
    for i in 0..N {
        y[i] = s.add(s.fma(s.mul(x[i], x[i]), y[i], x[i]), s.splat(1.0));
    }
    for i in 0..N {
        // The power of two in two steps, so that both are normal numbers where the result is not.
        let n = s.sub_int(s.to_bits(rounded[i]), s.splat_int(ROUND.to_bits().cast_signed()));
        let half = s.sar::<1>(n);
        let rest = s.sub_int(n, half);
        y[i] = s.mul(s.mul(y[i], power_of_two(s, half)), power_of_two(s, rest));
    }
    y
}

/// `2^n` for `n` in -126 to 127.
#[inline(always)]
fn power_of_two<S: Simd>(s: S, n: S::I) -> S::F {
    s.of_bits(s.shl::<23>(s.add_int(n, s.splat_int(127))))
}

/// Minimax coefficients of `(2^r - 1) / r` on `|r| <= 1/2`, lowest first; relative error of `2^r` below 2^-23.
#[expect(clippy::approx_constant, reason = "fitted, and so not quite ln 2")]
const EXP2: [f32; 5] = [0.693_147, 0.240_222_47, 0.055_507_112, 0.009_671_294, 0.001_326_940_6];

/// `2^x` of each vector for `x` up to 0, within 2 ulp; what is below 2^-126.5, and `-inf`, gives 0, NaN gives NaN. The
/// weights of a softmax need no more, and it takes half of what [`exp`] does.
#[inline(always)]
pub(crate) fn exp2<S: Simd, const N: usize>(s: S, mut x: [S::F; N]) -> [S::F; N] {
    /// The exponent of zero, and what is added to an integer to make it one.
    const BIAS: f32 = 127.0;
    /// Leaves the rounded number in the lowest bits with the bias added, as an exponent.
    const ROUND_BIASED: f32 = ROUND + BIAS;

    let mut rounded = x;
    for i in 0..N {
        x[i] = s.max(s.splat(-BIAS), x[i]);
        rounded[i] = s.add(x[i], s.splat(ROUND_BIASED));
    }
    for i in 0..N {
        x[i] = s.sub(x[i], s.sub(rounded[i], s.splat(ROUND_BIASED)));
    }
    let mut p = [s.splat(EXP2[4]); N];
    for c in [EXP2[3], EXP2[2], EXP2[1], EXP2[0], 1.0] {
        for i in 0..N {
            p[i] = s.fma(p[i], x[i], s.splat(c));
        }
    }
    for i in 0..N {
        p[i] = s.mul(p[i], s.of_bits(s.shl::<23>(s.to_bits(rounded[i]))));
    }
    p
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    let mut y = one_plus_exp_neg(s, x);
    for i in 0..N {
        y[i] = s.div(s.splat(1.0), y[i]);
    }
    y
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    let mut y = one_plus_exp_neg(s, x);
    for i in 0..N {
        y[i] = s.div(x[i], y[i]);
    }
    y
}

/// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`, computed as `x * sigmoid(sqrt(8/pi) * (x + 0.044715 x^3))`.
#[inline(always)]
pub(crate) fn gelu_tanh<S: Simd, const N: usize>(s: S, x: [S::F; N]) -> [S::F; N] {
    const SQRT_8_OVER_PI: f32 = 1.595_769_2;
    const CUBIC: f32 = SQRT_8_OVER_PI * 0.044_715;
    let mut y = x;
    for i in 0..N {
        let factor = s.fma(s.mul(x[i], x[i]), s.splat(CUBIC), s.splat(SQRT_8_OVER_PI));
        y[i] = s.mul(x[i], factor);
    }
    y = one_plus_exp_neg(s, y);
    for i in 0..N {
        y[i] = s.div(x[i], y[i]);
    }
    y
}

#[inline(always)]
fn one_plus_exp_neg<S: Simd, const N: usize>(s: S, mut x: [S::F; N]) -> [S::F; N] {
    for i in 0..N {
        x[i] = s.sub(s.splat(0.0), x[i]);
    }
    x = exp(s, x);
    for i in 0..N {
        x[i] = s.add(s.splat(1.0), x[i]);
    }
    x
}

/// The hyperbolic tangent, within 4 ulp.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    /// Below it the exponential form loses digits, and the polynomial is used.
    const SMALL: f32 = 0.625;
    /// Minimax coefficients of `(tanh(x)/x - 1) / x^2` in `x^2`, lowest first.
    const TANH: [f32; 5] = [-0.333_332_8, 0.133_314_42, -0.053_739_71, 0.020_639_079, -0.005_704_978_5];

    let bits = s.to_bits(x);
    let magnitude = s.of_bits(s.and(bits, s.splat_int(i32::MAX)));
    let sign = s.and(bits, s.splat_int(i32::MIN));

    let square = s.mul(x, x);
    let mut p = s.splat(TANH[4]);
    for c in [TANH[3], TANH[2], TANH[1], TANH[0]] {
        p = s.fma(p, square, s.splat(c));
    }
    let small = s.fma(s.mul(x, square), p, x);

    let [e] = exp(s, [s.add(magnitude, magnitude)]);
    let large = s.sub(s.splat(1.0), s.div(s.splat(2.0), s.add(e, s.splat(1.0))));
    let y = s.select_lt(magnitude, s.splat(SMALL), small, large);
    s.of_bits(s.or(s.to_bits(y), sign))
}

#[cfg(test)]
mod tests;
