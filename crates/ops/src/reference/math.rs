//! Norms and activations.

use crate::Norm;

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
