//! Matrix products of stored weights and activations.
//!
//! Weights are used as they are stored. Quantised types are multiplied as integers with [`Activations`], which are
//! quantised to 16 bits; float types with f32 activations. Every product has the bits of
//! [`muser_quant::dot_integer`] or [`muser_quant::dot_float`] of its weight row and its activation row, whatever the
//! tier, the number of tokens, and the cut into bands.
//!
//! Two shapes do the same arithmetic (`group`). With few tokens, `stream` reads each weight byte once and is bound by
//! memory; with many, `tile` unpacks a few weight rows into the cache and multiplies them with all tokens, and is bound by
//! the multipliers.

mod activations;
mod band;
mod float;
mod format;
mod group;
mod stream;
mod tile;

use std::marker::PhantomData;
use std::ops::Range;

use muser_quant::blocks::{Bf16, F16, F32};
use muser_quant::{QuantError, WeightType, integer_form};
use zerocopy::FromBytes;

pub use activations::{ActivationRows, Activations};
pub use band::Band;

use crate::caps::Tier;
use float::FloatFormat;
use format::{Form, Format};
use stream::Stream;

#[cfg(target_endian = "big")]
compile_error!("weights are little-endian and are read in place");

/// Units of 32 elements in a group of 256.
const UNITS: usize = 8;

/// At most this many tokens are multiplied with weights as they are stored; with more, unpacking to a tile pays.
const MAX_STREAM: usize = 8;

/// As [`MAX_STREAM`], for types with a scale per 256 elements.
const MAX_STREAM_256: usize = 2;

/// Weight rows that are multiplied with some tokens before the next ones, so that they stay in the cache.
const STREAM_ROWS: usize = 32;

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
    tile3: Tile<3>,
    tile4: Tile<4>,
    vectors: Vec<float::TileVectors>,
    float_sums: Vec<float::TileSums>,
}

/// A tile of `R` rows.
#[derive(Default)]
struct Tile<const R: usize> {
    groups: Vec<tile::TileGroup<R>>,
    sums: Vec<tile::TileSums<R>>,
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
/// When the weights are of a float type, or the operands' sizes do not fit together: row `i` of `weights` is row `i` of
/// `out`, and activation row `t` is token `t`.
pub fn product_integer(
    tier: Tier,
    weights: WeightRows<'_>,
    x: &Activations,
    out: &mut Band<'_>,
    scratch: &mut Scratch,
) {
    check(&weights, x.k(), x.n(), out);
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
    // Types with a scale per 256 are the quicker ones in tiles, with four rows for their eight sums and all that a unit
    // needs; the others need a register more, and have six sums.
    if F::Form::SUB_BLOCK == 256 {
        if tokens.len() <= MAX_STREAM_256 {
            stream_tokens::<F>(tier, weights, 0..n_row, n_row, x, out);
            return;
        }
        for tokens in token_blocks(tokens, 2 * x.k()) {
            integer_tiles::<F, 4>(tier, weights, n_row, x, tokens, out, &mut scratch.tile4);
        }
    } else {
        if tokens.len() <= MAX_STREAM {
            // With more tokens than one pass has, the weights of the next pass come from the cache.
            for start in (0..n_row).step_by(STREAM_ROWS) {
                stream_tokens::<F>(tier, weights, start..n_row.min(start + STREAM_ROWS), n_row, x, out);
            }
            return;
        }
        for tokens in token_blocks(tokens, 2 * x.k()) {
            integer_tiles::<F, 3>(tier, weights, n_row, x, tokens, out, &mut scratch.tile3);
        }
    }
}

/// Multiplies weight rows as they are stored with all tokens of `out`, a few at a time.
fn stream_tokens<F: Format>(
    tier: Tier,
    weights: &[F::Block],
    rows: Range<usize>,
    n_row: usize,
    x: &Activations,
    out: &mut Band<'_>,
) {
    let n_block = weights.len() / n_row;
    let Range { start: mut t, end } = out.tokens();
    while t < end {
        let rows = rows.clone();
        match end - t {
            1 => tier.run(Stream::<F, 1> { weights, n_block, rows, x, tokens: [t], out }),
            2 => tier.run(Stream::<F, 2> { weights, n_block, rows, x, tokens: [t, t + 1], out }),
            n if F::Form::SUB_BLOCK != 256 => {
                let tokens = [t, t + 1, t + 2, t + n.min(4) - 1];
                tier.run(Stream::<F, 4> { weights, n_block, rows, x, tokens, out });
            }
            _ => tier.run(Stream::<F, 2> { weights, n_block, rows, x, tokens: [t, t + 1], out }),
        }
        t += if F::Form::SUB_BLOCK == 256 { 2 } else { 4 };
    }
}

/// Cuts tokens so that the activations of a block, `row_bytes` for each token, stay in the cache.
fn token_blocks(tokens: Range<usize>, row_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let len = (BLOCK_BYTES / row_bytes.max(1)).clamp(32, 128) & !1;
    tokens.clone().step_by(len).map(move |start| start..tokens.end.min(start + len))
}

fn integer_tiles<F: Format, const R: usize>(
    tier: Tier,
    weights: &[F::Block],
    n_row: usize,
    x: &Activations,
    tokens: Range<usize>,
    out: &mut Band<'_>,
    tile: &mut Tile<R>,
) {
    tile.groups.resize(tile::GROUPS, tile::TileGroup::EMPTY);
    tile.sums.resize(tile.sums.len().max(tokens.len()), tile::TileSums::ZERO);
    let sums = &mut tile.sums[..tokens.len()];
    let n_block = weights.len() / n_row;
    for row in (0..n_row).step_by(R) {
        for first_group in (0..x.n_group()).step_by(tile::GROUPS) {
            let n_group = tile::GROUPS.min(x.n_group() - first_group);
            let blocks = first_group * F::BLOCKS..n_block.min((first_group + n_group) * F::BLOCKS);
            // A tile at the end repeats the last row.
            let rows = std::array::from_fn(|r| {
                let row = n_row.min(row + r + 1) - 1;
                &weights[row * n_block..][blocks.clone()]
            });
            tier.run(tile::Unpack::<F, R> { rows, groups: &mut tile.groups[..n_group] });
            tier.run(tile::Multiply::<F::Form, R> {
                tile: &tile.groups[..n_group],
                first_group,
                x,
                first_token: tokens.start,
                sums,
                out,
                row,
                form: PhantomData,
            });
        }
    }
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
