//! Matrix products of stored weights and activations.
//!
//! Weights are used as they are stored. Quantised types are multiplied as integers with quantised [`Activations`], float
//! types with f32 activations. Every product has the bits of
//! [`muser_quant::dot_integer`] or [`muser_quant::dot_float`] of its weight row and its activation row, whatever the
//! tier, the number of tokens, and the cut into bands.
//!
//! Two shapes do the same arithmetic (`unit`). With one token, `stream` reads each weight byte once and is bound by
//! memory; with more, `tile` unpacks a few weight rows into the cache and multiplies them with all tokens, and is bound by
//! the multipliers.

mod activations;
mod band;
mod float;
mod format;
mod quantize;
mod stream;
mod tile;
mod unit;

use std::ops::Range;

use muser_quant::blocks::{Bf16, F16, F32};
use muser_quant::{QuantError, WeightType, integer_form};
use zerocopy::FromBytes;

pub use activations::{ActivationRows, Activations, Forms};
pub use band::Band;

use crate::caps::Tier;
use float::FloatFormat;
use format::Format;
use stream::Stream;
use tile::{Tile, Unpack};

#[cfg(target_endian = "big")]
compile_error!("weights are little-endian and are read in place");

/// Bytes of activations that pass by one tile after the other, and should stay in the second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;

/// Rows of a weight matrix as they are stored. // `(n_row, k)`
#[derive(Clone, Copy, Debug)]
pub struct WeightRows<'a> {
    ty: WeightType,
    bytes: &'a [u8],
    n_row: usize,
    k: usize,
    row_bytes: usize,
}

impl<'a> WeightRows<'a> {
    /// Takes `bytes` as `n_row` rows of `k` elements. No alignment is needed.
    ///
    /// # Errors
    /// When `k` is not a whole number of blocks, or `bytes` is not that many rows.
    pub fn new(ty: WeightType, bytes: &'a [u8], n_row: usize, k: usize) -> Result<Self, QuantError> {
        let row_bytes = ty.row_bytes(k)?;
        let expected = row_bytes.checked_mul(n_row).ok_or(QuantError::RowTooLong { ty, len: k })?;
        if bytes.len() != expected {
            return Err(QuantError::RowBytes { ty, len: n_row * k, expected, found: bytes.len() });
        }
        Ok(Self { ty, bytes, n_row, k, row_bytes })
    }

    /// Some of the rows.
    ///
    /// # Panics
    /// When `range` is not within the rows.
    #[must_use]
    pub fn rows(self, range: Range<usize>) -> Self {
        let bytes = &self.bytes[range.start * self.row_bytes..range.end * self.row_bytes];
        Self { bytes, n_row: range.len(), ..self }
    }

    /// The type of the elements.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// Number of rows.
    pub fn n_row(&self) -> usize {
        self.n_row
    }

    /// Elements in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Whether products with these rows take quantised activations rather than f32.
    pub fn is_integer(&self) -> bool {
        integer_form(self.ty).is_some()
    }

    fn blocks<B: FromBytes + zerocopy::Immutable + zerocopy::KnownLayout + zerocopy::Unaligned>(&self) -> &'a [B] {
        <[B]>::ref_from_bytes(self.bytes).expect("the bytes were found to be whole rows of whole blocks")
    }
}

/// What one thread needs beside its operands. Keep one for each thread: it only ever grows.
#[derive(Default)]
pub struct Scratch {
    tile: Vec<tile::Line>,
    vectors: Vec<float::TileVectors>,
    float_sums: Vec<float::TileSums>,
}

impl Scratch {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Multiplies quantised weight rows with the activation rows that are the tokens of `out`.
///
/// # Panics
/// When the weights are of a float type, `x` lacks the form that they take, or the operands' sizes do not fit together: row
/// `i` of `weights` is row `i` of `out`, and activation row `t` is token `t`.
pub fn product_integer(
    tier: Tier,
    weights: WeightRows<'_>,
    x: &Activations,
    out: &mut Band<'_>,
    scratch: &mut Scratch,
) {
    check(&weights, x.k(), x.n(), out);
    let (needs, has) = (Forms::of([weights.ty]), x.forms());
    assert!((has.narrow || !needs.narrow) && (has.wide || !needs.wide), "{} needs {needs:?} of {has:?}", weights.ty);
    match weights.ty {
        WeightType::F32 | WeightType::F16 | WeightType::BF16 => panic!("{} has no integer form", weights.ty),
        WeightType::Q8_0 => integer::<format::Q8_0>(tier, weights, x, out, scratch),
        WeightType::Q4_0 => integer::<format::Q4_0>(tier, weights, x, out, scratch),
        WeightType::Q4_1 => integer::<format::Q4_1>(tier, weights, x, out, scratch),
        WeightType::Q5_0 => integer::<format::Q5_0>(tier, weights, x, out, scratch),
        WeightType::Q5_1 => integer::<format::Q5_1>(tier, weights, x, out, scratch),
        WeightType::Q4_K => integer::<format::Q4K>(tier, weights, x, out, scratch),
        WeightType::Q5_K => integer::<format::Q5K>(tier, weights, x, out, scratch),
        WeightType::Q6_K => integer::<format::Q6K>(tier, weights, x, out, scratch),
        WeightType::IQ4_NL => integer::<format::Iq4Nl>(tier, weights, x, out, scratch),
        WeightType::IQ4_XS => integer::<format::Iq4Xs>(tier, weights, x, out, scratch),
        WeightType::MXFP4 => integer::<format::Mxfp4>(tier, weights, x, out, scratch),
        WeightType::NVFP4 => integer::<format::Nvfp4>(tier, weights, x, out, scratch),
    }
}

/// Multiplies float weight rows with the rows of `x` that are the tokens of `out`. // `x`: `(n_token, k)`
///
/// # Panics
/// When the weights are of a quantised type, or the operands' sizes do not fit together: row `i` of `weights` is row `i`
/// of `out`, and row `t` of `x` is token `t`.
pub fn product_float(tier: Tier, weights: WeightRows<'_>, x: &[f32], out: &mut Band<'_>, scratch: &mut Scratch) {
    check(&weights, weights.k, x.len().checked_div(weights.k).unwrap_or(0), out);
    match weights.ty {
        WeightType::F32 => float::<F32>(tier, weights, x, out, scratch),
        WeightType::F16 => float::<F16>(tier, weights, x, out, scratch),
        WeightType::BF16 => float::<Bf16>(tier, weights, x, out, scratch),
        ty => panic!("{ty} takes quantised activations"),
    }
}

fn check(weights: &WeightRows<'_>, k: usize, n_token: usize, out: &Band<'_>) {
    assert!(k == weights.k, "activation rows of {k} values for weight rows of {}", weights.k);
    assert!(out.n_row() == weights.n_row, "a band of {} rows for {} weight rows", out.n_row(), weights.n_row);
    assert!(out.tokens().end <= n_token, "tokens {:?} of {n_token} activation rows", out.tokens());
}

fn integer<F: Format>(tier: Tier, weights: WeightRows<'_>, x: &Activations, out: &mut Band<'_>, scratch: &mut Scratch) {
    let tokens = out.tokens();
    if weights.n_row == 0 || tokens.is_empty() {
        return;
    }
    let n_row = weights.n_row;
    let weights = weights.blocks::<F::Block>();
    match tokens.len() {
        1 => tier.run(Stream::<F> { weights, x, token: tokens.start, out }),
        _ => {
            for row in (0..n_row).step_by(tile::ROWS) {
                let groups = (n_row - row).div_ceil(tile::LANES).min(tile::GROUPS);
                let units = tile::units(&mut scratch.tile, groups * x.n_unit());
                tier.run(Unpack::<F> { weights, n_row, row, units });
                let (units, tokens) = (&*units, tokens.clone());
                if groups == tile::GROUPS {
                    tier.run(Tile::<_, { tile::GROUPS }> { units, row, x, tokens, out });
                } else {
                    tier.run(Tile::<_, 1> { units, row, x, tokens, out });
                }
            }
        }
    }
}

/// Cuts tokens so that the activations of a block, `row_bytes` for each token, stay in the cache.
fn token_blocks(tokens: Range<usize>, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let len = (BLOCK_BYTES / row_bytes.max(1)).clamp(32, 128) & !1;
    tokens.clone().step_by(len).map(move |start| start..tokens.end.min(start + len))
}

fn float<F: FloatFormat>(tier: Tier, weights: WeightRows<'_>, x: &[f32], out: &mut Band<'_>, scratch: &mut Scratch) {
    let (n_row, k, tokens) = (weights.n_row, weights.k, out.tokens());
    if n_row == 0 || tokens.is_empty() {
        return;
    }
    let weights = weights.blocks::<F::Element>();
    if tokens.len() <= float::TOKENS {
        for token in tokens {
            let x = &x[token * k..][..k];
            tier.run(float::Stream::<F> { weights, n_row, x, token, out });
        }
        return;
    }
    for tokens in token_blocks(tokens, 4 * k) {
        float_tiles::<F>(tier, weights, x, k, tokens, out, scratch);
    }
}

fn float_tiles<F: FloatFormat>(
    tier: Tier,
    weights: &[F::Element],
    x: &[f32],
    k: usize,
    tokens: Range<usize>,
    out: &mut Band<'_>,
    scratch: &mut Scratch,
) {
    scratch.vectors.resize(float::VECTORS, float::TileVectors::default());
    scratch.float_sums.resize(scratch.float_sums.len().max(tokens.len()), float::TileSums::default());
    let sums = &mut scratch.float_sums[..tokens.len()];
    let (n_row, n_vector) = (out.n_row(), k.div_ceil(8));
    for row in (0..n_row).step_by(float::ROWS) {
        // A tile at the end repeats the last row.
        let rows = std::array::from_fn(|r| &weights[(n_row.min(row + r + 1) - 1) * k..][..k]);
        for first in (0..n_vector).step_by(float::VECTORS) {
            let n = float::VECTORS.min(n_vector - first);
            let vectors = &mut scratch.vectors[..n];
            tier.run(float::Decode::<F> { rows, first, vectors });
            tier.run(float::Multiply {
                tile: &scratch.vectors[..n],
                first,
                last: first + n == n_vector,
                x,
                k,
                first_token: tokens.start,
                sums,
                out,
                row,
            });
        }
    }
}

#[cfg(test)]
mod tests;
