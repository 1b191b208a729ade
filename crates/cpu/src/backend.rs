//! The CPU backend: every operation on the pool, at once.
//!
//! An operation is one hand-over to the pool where it can be. Products with quantised weights take activations that are
//! quantised once for all products of the operation; norms are taken row by row on the way there. Work on single values
//! runs on the calling thread until it is long enough to be worth a hand-over.

mod products;

use std::num::NonZero;

use muser_memory::Device;
use muser_ops::{
    Activation, Add, Append, Attention, Backend, Cap, Checked, Embed, Error, Gated, Gather, Heads, Norm, NormRows,
    Pairing, Product, Project,
};
use muser_quant::decode_row;

use crate::attention::{self, attention};
use crate::caps::Tier;
use crate::elementwise::{add, gelu_tanh_gate, scale, scale_and_cap, silu_gate};
use crate::norm::{add_rms_norm, rms_norm, rms_norm_in_place};
use crate::pool::Pool;
use crate::rope::{rope_adjacent, rope_half};
use products::Products;

/// Values in a task of work on single values. One thread does that in some microseconds, a few times what a hand-over costs.
const TASK_LEN: usize = 8192;

/// Computes on the CPU, with the kernels of one tier and a pool of threads.
///
/// Results have the same bits whatever the tier, the number of threads, and the cut of tokens into batches.
pub struct CpuBackend {
    device: Device,
    tier: Tier,
    pool: Pool,
    products: Products,
    attention: attention::Scratch,
}

impl CpuBackend {
    /// A backend for buffers of `device`, with `threads` threads including the caller's. Without a `tier`, the fastest one
    /// of this CPU.
    ///
    /// # Errors
    /// When the system refuses to start a thread.
    pub fn new(device: Device, threads: NonZero<usize>, tier: Option<Tier>) -> Result<Self, crate::Error> {
        let pool = Pool::new(threads)?;
        let products = Products::new(threads);
        let tier = tier.unwrap_or_else(Tier::detect);
        Ok(Self { device, tier, pool, products, attention: attention::Scratch::default() })
    }

    /// The tier whose kernels run.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Calls `task(index, row)` for each row of `values`, on the pool if there are enough of them.
    fn for_rows(&mut self, values: &mut [f32], width: usize, task: impl Fn(usize, &mut [f32]) + Sync) {
        let n_row = (TASK_LEN / width).max(1);
        self.pool.run_chunks(values, n_row * width, |index, rows| {
            for (row, values) in rows.chunks_exact_mut(width).enumerate() {
                task(index * n_row + row, values);
            }
        });
    }
}

/// The gains of a norm.
fn gains(norm: Norm<'_>) -> Option<&[f32]> {
    norm.weight.map(|weight| weight.values())
}

impl Backend for CpuBackend {
    fn describe(&self) -> String {
        let threads = self.threads();
        format!("cpu ({}, {threads} {})", self.tier.name(), if threads == 1 { "thread" } else { "threads" })
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn embed(&mut self, op: Checked<Embed<'_>>) -> Result<(), Error> {
        let Embed { tokens, table, scale: factor, norm, mut out } = op.into_inner();
        let tier = self.tier;
        self.for_rows(out.values_mut(), table.cols(), |index, row| {
            decode_row(table.ty(), table.row(tokens[index] as usize), row).expect("a matrix holds whole rows");
            #[expect(clippy::float_cmp, reason = "exactly one leaves the bits as they are")]
            if factor != 1.0 {
                scale(tier, row, factor);
            }
            if let Some(norm) = norm {
                rms_norm_in_place(tier, row, gains(norm), norm.eps);
            }
        });
        Ok(())
    }

    fn gather(&mut self, op: Checked<Gather<'_>>) -> Result<(), Error> {
        let Gather { x, rows, mut out } = op.into_inner();
        self.for_rows(out.values_mut(), x.width(), |index, row| row.copy_from_slice(x.row(rows[index])));
        Ok(())
    }

    fn norm(&mut self, op: Checked<NormRows<'_>>) -> Result<(), Error> {
        let NormRows { x, norm, mut out } = op.into_inner();
        let tier = self.tier;
        self.for_rows(out.values_mut(), x.width(), |index, row| {
            rms_norm(tier, x.row(index), gains(norm), norm.eps, row);
        });
        Ok(())
    }

    fn project(&mut self, op: Checked<Project<'_>>) -> Result<(), Error> {
        let Project { x, norm, products } = op.into_inner();
        let weights = products.iter().map(|Product { weight, .. }| *weight);
        self.products.prepare(self.tier, &mut self.pool, x, norm, weights);
        let outs = products.iter_mut().map(|Product { weight, out }| (*weight, out.values_mut()));
        self.products.project(self.tier, &mut self.pool, x, norm.is_some(), outs)
    }

    fn gated(&mut self, op: Checked<Gated<'_>>) -> Result<(), Error> {
        let Gated { x, norm, gate, up, activation, mut out } = op.into_inner();
        let activate = match activation {
            Activation::Silu => silu_gate,
            Activation::GeluTanh => gelu_tanh_gate,
        };
        self.products.prepare(self.tier, &mut self.pool, x, norm, [gate, up]);
        self.products.gated(self.tier, &mut self.pool, x, norm.is_some(), [gate, up], activate, out.values_mut())
    }

    fn heads(&mut self, op: Checked<Heads<'_>>) -> Result<(), Error> {
        let Heads { mut x, head_dim, norm, rope } = op.into_inner();
        let (tier, width) = (self.tier, x.width());
        self.for_rows(x.values_mut(), width, |index, row| {
            for head in row.chunks_exact_mut(head_dim) {
                if let Some(norm) = norm {
                    rms_norm_in_place(tier, head, gains(norm), norm.eps);
                }
                if let Some(rope) = rope {
                    let rotate = match rope.pairing {
                        Pairing::Adjacent => rope_adjacent,
                        Pairing::Half => rope_half,
                    };
                    rotate(tier, head, rope.cos.row(index), rope.sin.row(index));
                }
            }
        });
        Ok(())
    }

    fn append(&mut self, op: Checked<Append<'_>>) -> Result<(), Error> {
        let Append { plane, pos, k, v } = op.into_inner();
        Ok(plane.append(pos, k.values(), v.values())?)
    }

    fn attention(&mut self, op: Checked<Attention<'_>>) -> Result<(), Error> {
        attention(self.tier, &mut self.pool, &mut self.attention, op.into_inner());
        Ok(())
    }

    fn add(&mut self, op: Checked<Add<'_>>) -> Result<(), Error> {
        let Add { x, norm, mut residual } = op.into_inner();
        let (tier, width) = (self.tier, x.width());
        self.for_rows(residual.values_mut(), width, |index, row| match norm {
            Some(norm) => add_rms_norm(tier, x.row(index), gains(norm), norm.eps, row),
            None => add(tier, row, x.row(index)),
        });
        Ok(())
    }

    fn cap(&mut self, op: Checked<Cap<'_>>) -> Result<(), Error> {
        let Cap { mut x, scale: factor, cap } = op.into_inner();
        let tier = self.tier;
        // Values stand alone, so the cut need not follow the rows: often there is one row, and a long one.
        self.pool.run_chunks(x.values_mut(), TASK_LEN, |_, values| match cap {
            Some(cap) => scale_and_cap(tier, values, factor, cap),
            #[expect(clippy::float_cmp, reason = "exactly one leaves the bits as they are")]
            None if factor == 1.0 => (),
            None => scale(tier, values, factor),
        });
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
