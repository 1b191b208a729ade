//! Quantised block layouts and their scalar meaning: the oracle for every kernel.
//!
//! # Rows
//! A weight row of `len` elements is `len / block_len` consecutive blocks without padding, every field little-endian
//! ([`blocks`]). [`decode_row`] gives the f32 values that a row stands for, bit for bit; [`encode_row`] makes rows.
//!
//! # Products
//! A row times an activation row is reduced in one fixed order, given in [`integer`] for quantised types and in
//! [`float`] for F32, F16 and BF16. Every kernel in every instruction set returns the bits that [`dot_integer`]
//! and [`dot_float`] return.
//!
//! | type | elements per scale | `w` | `scale` | `min`, per 32 | activations |
//! | --- | --- | --- | --- | --- | --- |
//! | `Q8_0` | 32 | `q` | `d` | | wide |
//! | `Q4_0` | 32 | `q - 8` | `d` | | narrow |
//! | `Q4_1` | 32 | `q` | `d` | `m` | narrow |
//! | `Q5_0` | 32 | `q - 16` | `d` | | narrow |
//! | `Q5_1` | 32 | `q` | `d` | `m` | narrow |
//! | `IQ4_NL` | 32 | `IQ4_VALUES[code]` | `d` | | wide |
//! | MXFP4 | 32 | `E2M1_DOUBLED[code]` | `2^(e - 128)` | | narrow |
//! | NVFP4 | 16 | `E2M1_DOUBLED[code]` | `e4m3(d) / 2` | | narrow |
//! | `Q4_K`, `Q5_K` | 32 | `q` | `d * sc` | `-(dmin * mn)` | narrow |
//! | `Q6_K` | 32 | `sc * (q - 32)` | `d` | | narrow |
//! | `IQ4_XS` | 32 | `IQ4_VALUES[code]` | `d * (s - 32)` | | wide |
//!
//! `scale` and `w * scale` are exact in f32 for each of them, and `w * scale + min`, rounded once, is the
//! decoded value (a zero may differ in sign).
#![forbid(unsafe_code)]

pub mod activations;
pub mod blocks;
mod error;
pub mod float;
pub mod integer;
mod rows;
mod scan;
mod types;

pub use activations::{Activations, quantize_activations};
pub use error::QuantError;
pub use float::{dot_float, fold};
pub use integer::{Group, IntegerForm, dot_integer, integer_form, unpack_group};
pub use rows::{decode_row, encode_row};
pub use scan::{NotFinite, first_not_finite};
pub use types::WeightType;

/// Elements of a group: the longest block, of which all others are a part.
pub const GROUP_LEN: usize = 256;

/// Elements of a unit: they share an activation scale, and a minimum of the weights.
pub const UNIT_LEN: usize = 32;

/// Lanes of the sums of float products.
pub const LANES: usize = 8;
