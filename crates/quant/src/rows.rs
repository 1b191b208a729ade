use zerocopy::FromBytes;

use crate::blocks::{Block, with_block};
use crate::{QuantError, WeightType};

/// Decodes a row: `out.len()` elements of type `ty` from `bytes`, bit for bit what the format says.
///
/// # Errors
/// [`QuantError::RaggedRow`] or [`QuantError::RowBytes`] if the lengths don't belong together.
pub fn decode_row(ty: WeightType, bytes: &[u8], out: &mut [f32]) -> Result<(), QuantError> {
    check_row(ty, bytes.len(), out.len())?;
    with_block!(ty, decode_blocks(bytes, out));
    Ok(())
}

/// Encodes a row: `x.len()` elements to type `ty` into `out`, each block from its own values.
///
/// The encoders round to nearest and search nothing, so the same values always give the same bytes and the error
/// of an element is about half a step. A scale past the range of its field saturates.
///
/// # Errors
/// [`QuantError::RaggedRow`] or [`QuantError::RowBytes`] if the lengths don't belong together,
/// [`QuantError::NotFinite`] if `ty` is quantised and `x` holds a value that is infinite or not a number.
pub fn encode_row(ty: WeightType, x: &[f32], out: &mut [u8]) -> Result<(), QuantError> {
    check_row(ty, out.len(), x.len())?;
    if !matches!(ty, WeightType::F32 | WeightType::F16 | WeightType::BF16)
        && let Some(index) = x.iter().position(|v| !v.is_finite())
    {
        return Err(QuantError::NotFinite { ty, index });
    }
    with_block!(ty, encode_blocks(x, out));
    Ok(())
}

/// Checks that `size_bytes` is what `len` elements of `ty` take.
pub(crate) fn check_row(ty: WeightType, size_bytes: usize, len: usize) -> Result<(), QuantError> {
    let expected = ty.row_bytes(len)?;
    if size_bytes == expected { Ok(()) } else { Err(QuantError::RowBytes { ty, len, expected, found: size_bytes }) }
}

/// The blocks of checked bytes. Blocks take any address, so only a length that was not checked could fail.
pub(crate) fn blocks_of<B: Block>(bytes: &[u8]) -> &[B] {
    <[B]>::ref_from_bytes(bytes).expect("the bytes were checked to be whole blocks")
}

fn decode_blocks<B: Block>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks_of::<B>(bytes).iter().zip(out.chunks_exact_mut(B::LEN)) {
        block.decode(out);
    }
}

fn encode_blocks<B: Block>(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks_exact(B::LEN).zip(out.chunks_exact_mut(B::TYPE.block_bytes())) {
        out.copy_from_slice(B::encode(x).as_bytes());
    }
}
