//! Operations on each value of a row by itself.

use crate::arch::simd::Simd;
use crate::dispatch::kernel;
use crate::math::{gelu_tanh, sigmoid, silu, tanh};

kernel! {
    /// `gate = silu(gate) * up`. `gate, up (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn silu_gate(gate: &mut [f32], up: &[f32]) = silu_gate_lanes;
}

kernel! {
    /// `gate = gelu_tanh(gate) * up`. `gate, up (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn gelu_tanh_gate(gate: &mut [f32], up: &[f32]) = gelu_tanh_gate_lanes;
}

kernel! {
    /// `x = x * sigmoid(gate)`. `x, gate (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn sigmoid_gate(x: &mut [f32], gate: &[f32]) = sigmoid_gate_lanes;
}

kernel! {
    /// `x = cap * tanh(x * scale / cap)`. `x (n)`
    pub fn scale_and_cap(x: &mut [f32], scale: f32, cap: f32) = scale_and_cap_lanes;
}

kernel! {
    /// `x = x * scale`. `x (n)`
    pub fn scale(x: &mut [f32], factor: f32) = scale_lanes;
}

kernel! {
    /// `sum = sum + x`. `sum, x (n)`
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn add(sum: &mut [f32], x: &[f32]) = add_lanes;
}

/// Up to eight values, followed by zeros.
#[inline(always)]
pub(crate) fn padded(x: &[f32]) -> [f32; 8] {
    let mut lanes = [0.0; 8];
    lanes[..x.len()].copy_from_slice(x);
    lanes
}

/// Vectors that a function of two values is applied to at once.
const ABREAST: usize = 4;

/// A function of two values.
trait Binary {
    fn apply<S: Simd, const N: usize>(s: S, a: [S::F; N], b: [S::F; N]) -> [S::F; N];
}

/// `x = f(x, y)`.
#[inline(always)]
fn zip<S: Simd, B: Binary>(s: S, x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "length of the second operand");
    let (x_chunks, x_tail) = x.as_chunks_mut::<8>();
    let (y_chunks, y_tail) = y.as_chunks::<8>();
    let (x_groups, x_rest) = x_chunks.as_chunks_mut::<ABREAST>();
    let (y_groups, y_rest) = y_chunks.as_chunks::<ABREAST>();
    for (x, y) in x_groups.iter_mut().zip(y_groups) {
        zip_vectors::<S, B, ABREAST>(s, x, y);
    }
    for (x, y) in x_rest.iter_mut().zip(y_rest) {
        zip_vectors::<S, B, 1>(s, std::array::from_mut(x), std::array::from_ref(y));
    }
    if !x_tail.is_empty() {
        let mut lanes = padded(x_tail);
        zip_vectors::<S, B, 1>(s, std::array::from_mut(&mut lanes), &[padded(y_tail)]);
        x_tail.copy_from_slice(&lanes[..x_tail.len()]);
    }
}

#[inline(always)]
fn zip_vectors<S: Simd, B: Binary, const N: usize>(s: S, x: &mut [[f32; 8]; N], y: &[[f32; 8]; N]) {
    let (mut a, mut b) = ([s.splat(0.0); N], [s.splat(0.0); N]);
    for i in 0..N {
        a[i] = s.load(&x[i]);
        b[i] = s.load(&y[i]);
    }
    let out = B::apply(s, a, b);
    for i in 0..N {
        s.store(out[i], &mut x[i]);
    }
}

/// `a * b`.
#[inline(always)]
fn product<S: Simd, const N: usize>(s: S, mut a: [S::F; N], b: [S::F; N]) -> [S::F; N] {
    for i in 0..N {
        a[i] = s.mul(a[i], b[i]);
    }
    a
}

struct SiluGate;
impl Binary for SiluGate {
    #[inline(always)]
    fn apply<S: Simd, const N: usize>(s: S, gate: [S::F; N], up: [S::F; N]) -> [S::F; N] {
        product(s, silu(s, gate), up)
    }
}

struct GeluTanhGate;
impl Binary for GeluTanhGate {
    #[inline(always)]
    fn apply<S: Simd, const N: usize>(s: S, gate: [S::F; N], up: [S::F; N]) -> [S::F; N] {
        product(s, gelu_tanh(s, gate), up)
    }
}

struct SigmoidGate;
impl Binary for SigmoidGate {
    #[inline(always)]
    fn apply<S: Simd, const N: usize>(s: S, x: [S::F; N], gate: [S::F; N]) -> [S::F; N] {
        product(s, x, sigmoid(s, gate))
    }
}

#[inline(always)]
fn silu_gate_lanes<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    zip::<S, SiluGate>(s, gate, up);
}

#[inline(always)]
fn gelu_tanh_gate_lanes<S: Simd>(s: S, gate: &mut [f32], up: &[f32]) {
    zip::<S, GeluTanhGate>(s, gate, up);
}

#[inline(always)]
fn sigmoid_gate_lanes<S: Simd>(s: S, x: &mut [f32], gate: &[f32]) {
    zip::<S, SigmoidGate>(s, x, gate);
}

#[inline(always)]
fn scale_and_cap_lanes<S: Simd>(s: S, x: &mut [f32], scale: f32, cap: f32) {
    let (chunks, tail) = x.as_chunks_mut();
    for chunk in chunks {
        s.store(soft_cap(s, s.mul(s.load(chunk), s.splat(scale)), cap), chunk);
    }
    if !tail.is_empty() {
        let mut lanes = padded(tail);
        s.store(soft_cap(s, s.mul(s.load(&lanes), s.splat(scale)), cap), &mut lanes);
        tail.copy_from_slice(&lanes[..tail.len()]);
    }
}

/// `cap * tanh(x / cap)`.
#[inline(always)]
pub(crate) fn soft_cap<S: Simd>(s: S, x: S::F, cap: f32) -> S::F {
    s.mul(s.splat(cap), tanh(s, s.div(x, s.splat(cap))))
}

// Plain loops from here on: every value is one operation, and the compiler chooses the width.

#[inline(always)]
fn scale_lanes<S: Simd>(_: S, x: &mut [f32], factor: f32) {
    for x in x {
        *x *= factor;
    }
}

#[inline(always)]
fn add_lanes<S: Simd>(_: S, sum: &mut [f32], x: &[f32]) {
    assert_eq!(sum.len(), x.len(), "length of the summand");
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += x;
    }
}

#[cfg(test)]
mod tests;
