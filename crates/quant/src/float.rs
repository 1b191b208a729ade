//! Products of float weights and f32 activations, and the fold that ends every product.
//!
//! ```text
//! acc[l] = fma(w[8i + l], x[8i + l], acc[l])   for i in order; a short tail is padded with zeros
//! y = fold(acc)
//! ```

use std::array;

use crate::blocks::{Bf16, F16, F32};
use crate::rows::{blocks_of, check_row};
use crate::{LANES, QuantError, WeightType};

/// The sum of eight lanes, halving three times: `((v0+v4)+(v2+v6)) + ((v1+v5)+(v3+v7))`.
pub fn fold(v: [f32; LANES]) -> f32 {
    let t: [f32; 4] = array::from_fn(|i| v[i] + v[i + 4]);
    (t[0] + t[2]) + (t[1] + t[3])
}

/// The product of one float weight row and `x`, in the order that every kernel keeps.
///
/// # Errors
/// [`QuantError::NoFloatProduct`] if `ty` is quantised, [`QuantError::RowBytes`] if `row` is not `x.len()` elements.
pub fn dot_float(ty: WeightType, row: &[u8], x: &[f32]) -> Result<f32, QuantError> {
    check_row(ty, row.len(), x.len())?;
    match ty {
        WeightType::F32 => Ok(dot(blocks_of::<F32>(row).iter().map(|w| w.0.get()), x)),
        WeightType::F16 => Ok(dot(blocks_of::<F16>(row).iter().map(|w| w.to_f32()), x)),
        WeightType::BF16 => Ok(dot(blocks_of::<Bf16>(row).iter().map(|w| w.to_f32()), x)),
        _ => Err(QuantError::NoFloatProduct { ty }),
    }
}

fn dot(mut w: impl Iterator<Item = f32>, x: &[f32]) -> f32 {
    let mut acc = [0.0; LANES];
    for x in x.chunks(LANES) {
        for (l, acc) in acc.iter_mut().enumerate() {
            *acc = w.next().unwrap_or(0.0).mul_add(x.get(l).copied().unwrap_or(0.0), *acc);
        }
    }
    fold(acc)
}
