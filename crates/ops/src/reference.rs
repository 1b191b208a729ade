//! The f32 reference backend: every operation as its definition reads.
//!
//! Weights are decoded to f32, activations stay f32; sums are taken in f32 over short runs and joined in f64, so that the
//! result is nearer to the true value than any backend it judges.

mod attention;
mod math;
mod product;

use std::num::NonZero;

use muser_memory::Device;
use muser_quant::decode_row;

use crate::{
    Activation, Add, Append, Attention, Backend, Cap, Checked, Embed, Error, Gated, Gather, Heads, NormRows, Pairing,
    Product, Project,
};
use math::{norm_row, sigmoid};
use product::product;

/// Computes with f32 activations, as each operation is defined.
pub struct Reference {
    device: Device,
    threads: NonZero<usize>,
    normed: Vec<f32>,
    products: [Vec<f32>; 2],
}

impl Reference {
    /// A reference backend that splits products over `threads` threads. The results do not depend on their number.
    pub fn new(threads: NonZero<usize>) -> Self {
        Self { device: Device::host(), threads, normed: Vec::new(), products: [Vec::new(), Vec::new()] }
    }
}

/// The values of `x`, normed into `scratch` when there is a norm.
fn normed<'a>(scratch: &'a mut Vec<f32>, x: crate::Rows<'a>, norm: Option<crate::Norm<'_>>) -> &'a [f32] {
    let Some(norm) = norm else { return x.values() };
    scratch.clear();
    scratch.extend_from_slice(x.values());
    scratch.chunks_exact_mut(x.width()).for_each(|row| norm_row(row, norm));
    scratch
}

impl Backend for Reference {
    fn describe(&self) -> String {
        format!("reference (f32 activations, {} threads)", self.threads)
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&mut self, op: Checked<Embed<'_>>) -> Result<(), Error> {
        let Embed { tokens, table, scale, norm, mut out } = op.into_inner();
        for (&token, row) in tokens.iter().zip(out.values_mut().chunks_exact_mut(table.cols())) {
            decode_row(table.ty(), table.row(token as usize), row)?;
            let scale = scale * table.scale();
            row.iter_mut().for_each(|value| *value *= scale);
            if let Some(norm) = norm {
                norm_row(row, norm);
            }
        }
        Ok(())
    }

    fn gather(&mut self, op: Checked<Gather<'_>>) -> Result<(), Error> {
        let Gather { x, rows, mut out } = op.into_inner();
        for (&row, out) in rows.iter().zip(out.values_mut().chunks_exact_mut(x.width())) {
            out.copy_from_slice(x.row(row));
        }
        Ok(())
    }

    fn norm(&mut self, op: Checked<NormRows<'_>>) -> Result<(), Error> {
        let NormRows { x, norm, mut out } = op.into_inner();
        out.values_mut().copy_from_slice(x.values());
        out.values_mut().chunks_exact_mut(x.width()).for_each(|row| norm_row(row, norm));
        Ok(())
    }

    fn project(&mut self, op: Checked<Project<'_>>) -> Result<(), Error> {
        let Project { x, norm, products } = op.into_inner();
        let mut scratch = std::mem::take(&mut self.normed);
        let x = normed(&mut scratch, x, norm);
        for Product { weight, out } in products {
            product(*weight, x, self.threads.get(), out.values_mut())?;
        }
        self.normed = scratch;
        Ok(())
    }

    fn gated(&mut self, op: Checked<Gated<'_>>) -> Result<(), Error> {
        let Gated { x, norm, gate, up, activation, mut out } = op.into_inner();
        let mut scratch = std::mem::take(&mut self.normed);
        let [mut gates, mut ups] = std::mem::take(&mut self.products);
        let x = normed(&mut scratch, x, norm);
        for (weight, values) in [(gate, &mut gates), (up, &mut ups)] {
            values.resize(out.values().len(), 0.0);
            product(weight, x, self.threads.get(), values)?;
        }
        for ((out, &gate), &up) in out.values_mut().iter_mut().zip(&gates).zip(&ups) {
            *out = up
                * match activation {
                    Activation::Silu => gate * sigmoid(gate),
                    Activation::GeluTanh => math::gelu_tanh(gate),
                };
        }
        self.normed = scratch;
        self.products = [gates, ups];
        Ok(())
    }

    fn heads(&mut self, op: Checked<Heads<'_>>) -> Result<(), Error> {
        let Heads { mut x, head_dim, norm, rope } = op.into_inner();
        let width = x.width();
        for (index, row) in x.values_mut().chunks_exact_mut(width).enumerate() {
            for head in row.chunks_exact_mut(head_dim) {
                if let Some(norm) = norm {
                    norm_row(head, norm);
                }
                let Some(rope) = rope else { continue };
                let n_pair = rope.cos.width();
                for (pair, (&cos, &sin)) in rope.cos.row(index).iter().zip(rope.sin.row(index)).enumerate() {
                    let (i, j) = match rope.pairing {
                        Pairing::Adjacent => (2 * pair, 2 * pair + 1),
                        Pairing::Half => (pair, pair + n_pair),
                    };
                    let (a, b) = (head[i], head[j]);
                    head[i] = a * cos - b * sin;
                    head[j] = a * sin + b * cos;
                }
            }
        }
        Ok(())
    }

    fn append(&mut self, op: Checked<Append<'_>>) -> Result<(), Error> {
        let Append { plane, pos, k, v } = op.into_inner();
        Ok(plane.append(pos, k.values(), v.values())?)
    }

    fn attention(&mut self, op: Checked<Attention<'_>>) -> Result<(), Error> {
        let Attention { q, spans, n_head, window, scale, soft_cap, gate, mut out } = op.into_inner();
        let shape = attention::Shape { n_head, window, scale, soft_cap };
        attention::run(shape, spans, q, self.threads.get(), out.values_mut());
        if let Some(gate) = gate {
            for (out, &gate) in out.values_mut().iter_mut().zip(gate.values()) {
                *out *= sigmoid(gate);
            }
        }
        Ok(())
    }

    fn add(&mut self, op: Checked<Add<'_>>) -> Result<(), Error> {
        let Add { x, norm, mut residual } = op.into_inner();
        let x = normed(&mut self.normed, x, norm);
        for (sum, &x) in residual.values_mut().iter_mut().zip(x) {
            *sum += x;
        }
        Ok(())
    }

    fn cap(&mut self, op: Checked<Cap<'_>>) -> Result<(), Error> {
        let Cap { mut x, scale, cap } = op.into_inner();
        for value in x.values_mut() {
            *value *= scale;
            if let Some(cap) = cap {
                *value = cap * (*value / cap).tanh();
            }
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
