//! Lanes as arrays.

use half::f16;

use crate::arch::simd::Simd;
use crate::caps::Scalar;

#[inline(always)]
fn map<T: Copy, U>(a: [T; 8], f: impl Fn(T) -> U) -> [U; 8] {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip<T: Copy, U>(a: [T; 8], b: [T; 8], f: impl Fn(T, T) -> U) -> [U; 8] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Scalar {
    type F = [f32; 8];
    type I = [i32; 8];

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> [f32; 8] {
        *x
    }

    #[inline(always)]
    fn store(self, x: [f32; 8], out: &mut [f32; 8]) {
        *out = x;
    }

    #[inline(always)]
    fn load_f16(self, x: &[u16; 8]) -> [f32; 8] {
        map(*x, |bits| f16::from_bits(bits).to_f32())
    }

    #[inline(always)]
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn max(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn select_lt(self, a: [f32; 8], b: [f32; 8], x: [f32; 8], y: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if a[i] < b[i] { x[i] } else { y[i] })
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> [i32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn to_bits(self, x: [f32; 8]) -> [i32; 8] {
        map(x, |x| x.to_bits().cast_signed())
    }

    #[inline(always)]
    fn of_bits(self, x: [i32; 8]) -> [f32; 8] {
        map(x, |x| f32::from_bits(x.cast_unsigned()))
    }

    #[inline(always)]
    fn add_int(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        zip(a, b, i32::wrapping_add)
    }

    #[inline(always)]
    fn sub_int(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        zip(a, b, i32::wrapping_sub)
    }

    #[inline(always)]
    fn and(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        zip(a, b, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, a: [i32; 8], b: [i32; 8]) -> [i32; 8] {
        zip(a, b, |a, b| a | b)
    }

    #[inline(always)]
    fn shl<const N: i32>(self, x: [i32; 8]) -> [i32; 8] {
        map(x, |x| x << N)
    }

    #[inline(always)]
    fn sar<const N: i32>(self, x: [i32; 8]) -> [i32; 8] {
        map(x, |x| x >> N)
    }
}
