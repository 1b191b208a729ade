//! What a backend computes, and the f32 reference backend.
//!
//! - [`Matrix`], [`Vector`], [`Rows`], [`RowsMut`]: operands, valid by construction.
//! - [`Backend`]: the operations, each a struct of operands that [`Checked`] has compared.
//! - [`Reference`]: the meaning of every operation, with f32 activations. Slow, and tested against nothing but arithmetic;
//!   every other backend is tested against it.
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("weights are little-endian and used in place; a big-endian machine can't run them");

mod backend;
mod error;
mod operand;
mod reference;

pub use backend::{
    Activation, Add, Append, Attention, AttentionSpan, Backend, Cap, Checked, Embed, Gated, Gather, Heads, NormRows,
    Operands, Pairing, Product, Project, Rope,
};
pub use error::Error;
pub use operand::{Matrix, Norm, Rows, RowsMut, Vector};
pub use reference::Reference;
