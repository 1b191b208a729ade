//! Rotary position embedding of one head.

use crate::arch::simd::Simd;
use crate::dispatch::kernel;

kernel! {
    /// Rotates the pairs `(x[2i], x[2i+1])`. `cos, sin (n_rot/2); x (head_dim)`
    ///
    /// # Panics
    /// When `x` has fewer values than the angles have pairs, or `cos` and `sin` differ in length.
    pub fn rope_adjacent(x: &mut [f32], cos: &[f32], sin: &[f32]) = adjacent;
}

kernel! {
    /// Rotates the pairs `(x[i], x[i + n_rot/2])`. `cos, sin (n_rot/2); x (head_dim)`
    ///
    /// # Panics
    /// When `x` has fewer values than the angles have pairs, or `cos` and `sin` differ in length.
    pub fn rope_half(x: &mut [f32], cos: &[f32], sin: &[f32]) = half;
}

#[inline(always)]
fn adjacent<S: Simd>(_: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert_eq!(cos.len(), sin.len(), "number of sines");
    let (pairs, _) = x[..2 * cos.len()].as_chunks_mut();
    for ((pair, &cos), &sin) in pairs.iter_mut().zip(cos).zip(sin) {
        *pair = rotate(*pair, cos, sin);
    }
}

#[inline(always)]
fn half<S: Simd>(_: S, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert_eq!(cos.len(), sin.len(), "number of sines");
    let (first, second) = x[..2 * cos.len()].split_at_mut(cos.len());
    for (((a, b), &cos), &sin) in first.iter_mut().zip(second).zip(cos).zip(sin) {
        [*a, *b] = rotate([*a, *b], cos, sin);
    }
}

#[inline(always)]
fn rotate([a, b]: [f32; 2], cos: f32, sin: f32) -> [f32; 2] {
    [a.mul_add(cos, -(b * sin)), a.mul_add(sin, b * cos)]
}

#[cfg(test)]
mod tests;
