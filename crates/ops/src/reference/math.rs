//! The arithmetic of the reference backend.

use crate::Norm;

/// Values summed in f32 before the sum is joined in f64.
const RUN: usize = 64;

/// `sum(a[i] * b[i])`. Short runs in f32 are what a compiler vectorises; joining them in f64 keeps the error of one run.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sum = 0.0f64;
    for (a, b) in a.chunks(RUN).zip(b.chunks(RUN)) {
        let mut lanes = [0.0f32; LANES];
        let (a_lanes, a_tail) = a.as_chunks::<LANES>();
        let (b_lanes, b_tail) = b.as_chunks::<LANES>();
        for (a, b) in a_lanes.iter().zip(b_lanes) {
            for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
                *lane += a * b;
            }
        }
        for ((lane, a), b) in lanes.iter_mut().zip(a_tail).zip(b_tail) {
            *lane += a * b;
        }
        sum += f64::from(lanes.iter().sum::<f32>());
    }
    sum as f32
}

/// Norms one row in place.
pub(super) fn norm_row(row: &mut [f32], norm: Norm<'_>) {
    let squares: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let factor = (1.0 / (squares / row.len() as f64 + f64::from(norm.eps)).sqrt()) as f32;
    match norm.weight {
        Some(weight) => row.iter_mut().zip(weight.values()).for_each(|(x, w)| *x = *x * factor * w),
        None => row.iter_mut().for_each(|x| *x *= factor),
    }
}

pub(super) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.
pub(super) fn gelu_tanh(x: f32) -> f32 {
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}
