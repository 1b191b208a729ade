//! Root-mean-square norms of one row.
//!
//! The squares are summed in eight lanes with fused multiply-adds, the row padded with zeros, and folded;
//! `r = 1 / sqrt(sum / n + eps)`, and a value becomes `(x * r) * w`.

use crate::arch::simd::Simd;
use crate::dispatch::kernel;
use crate::elementwise::padded;

kernel! {
    /// Writes the normed `x` to `out`. `x, weight, out (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) = norm_to;
}

kernel! {
    /// Norms `x` in place. `x, weight (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn rms_norm_in_place(x: &mut [f32], weight: Option<&[f32]>, eps: f32) = norm_in_place;
}

kernel! {
    /// Adds the normed `x` to `sum`. `x, weight, sum (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add_rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32, sum: &mut [f32]) = add_norm;
}

#[inline(always)]
fn norm_to<S: Simd>(s: S, x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    assert_eq!(out.len(), x.len(), "length of the output");
    let r = factor(s, x, eps);
    out.copy_from_slice(x);
    apply(s, out, weight, r);
}

#[inline(always)]
fn norm_in_place<S: Simd>(s: S, x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    let r = factor(s, x, eps);
    apply(s, x, weight, r);
}

#[inline(always)]
fn add_norm<S: Simd>(s: S, x: &[f32], weight: Option<&[f32]>, eps: f32, sum: &mut [f32]) {
    assert_eq!(sum.len(), x.len(), "length of the sum");
    let r = factor(s, x, eps);
    match weight {
        Some(weight) => {
            assert_eq!(weight.len(), x.len(), "length of the weight");
            for ((sum, x), w) in sum.iter_mut().zip(x).zip(weight) {
                *sum += (x * r) * w;
            }
        }
        None => {
            for (sum, x) in sum.iter_mut().zip(x) {
                *sum += x * r;
            }
        }
    }
}

/// `1 / sqrt(mean of squares + eps)`.
#[inline(always)]
fn factor<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    let (chunks, tail) = x.as_chunks();
    let mut sum = s.splat(0.0);
    for chunk in chunks {
        let x = s.load(chunk);
        sum = s.fma(x, x, sum);
    }
    if !tail.is_empty() {
        let x = s.load(&padded(tail));
        sum = s.fma(x, x, sum);
    }
    1.0 / (s.fold(sum) / x.len() as f32 + eps).sqrt()
}

/// Multiplies `x` by `r` and the weight. Every value stands alone, so the compiler may choose the width.
#[inline(always)]
fn apply<S: Simd>(_: S, x: &mut [f32], weight: Option<&[f32]>, r: f32) {
    match weight {
        Some(weight) => {
            assert_eq!(weight.len(), x.len(), "length of the weight");
            for (x, w) in x.iter_mut().zip(weight) {
                *x = (*x * r) * w;
            }
        }
        None => {
            for x in x {
                *x *= r;
            }
        }
    }
}

#[cfg(test)]
mod tests;
