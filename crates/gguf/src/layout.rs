//! Where tensors may lie: aligned, inside the file, apart from each other, and without holes between them.

use crate::{
    caps,
    error::{Error, Result, shown},
    tensor::TensorInfo,
    value::Value,
};

/// The key of a file's alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// The alignment that the value of [`ALIGNMENT_KEY`] stands for.
pub(crate) fn alignment(value: Option<&Value<'_>>) -> Result<u32> {
    match value {
        None => Ok(caps::ALIGNMENT_DEFAULT),
        Some(&Value::U32(alignment))
            if alignment.is_multiple_of(caps::ALIGNMENT_UNIT) && (1..=caps::ALIGNMENT_MAX).contains(&alignment) =>
        {
            Ok(alignment)
        }
        Some(value) => Err(Error::BadAlignment { found: value.described() }),
    }
}

/// The first multiple of `alignment` at or after `offset`, which is an offset in a file.
pub(crate) fn aligned(offset: u64, alignment: u32) -> u64 {
    offset.next_multiple_of(alignment.into())
}

/// Turns offsets in the data into offsets in the file, and refuses tensors that can't lie where they claim.
///
/// Returns the end of the last tensor, or `data_offset` if there is none.
pub(crate) fn place(
    tensors: Vec<TensorInfo<'_>>,
    data_offset: u64,
    alignment: u32,
    file_len: u64,
) -> Result<(Vec<TensorInfo<'_>>, u64)> {
    let mut placed = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        placed.push(place_one(tensor, data_offset, alignment, file_len)?);
    }
    // Of all that are cut off, the furthest says how long the file should be.
    if let Some(last) = placed.iter().max_by_key(|tensor| tensor.byte_range().end)
        && last.byte_range().end > file_len
    {
        return Err(past_end(last, last.offset(), file_len));
    }

    // Writers keep the table's order, but nothing asks them to.
    let mut by_offset: Vec<&TensorInfo<'_>> = placed.iter().collect();
    by_offset.sort_by_key(|tensor| tensor.offset());
    let (mut end, mut first) = (data_offset, "");
    for tensor in by_offset {
        let start = tensor.offset();
        let Some(hole_bytes) = start.checked_sub(end) else {
            return Err(Error::Overlap { first: shown(first), second: shown(tensor.name()), end, start });
        };
        if hole_bytes > alignment.into() {
            return Err(Error::Hole { tensor: shown(tensor.name()), offset: start, hole_bytes, alignment });
        }
        (end, first) = (tensor.byte_range().end, tensor.name());
    }
    // Everything would be read from another place if a tensor were left out or the alignment halved, and only the end of
    // the file tells.
    let trailing_bytes = file_len.saturating_sub(end);
    if trailing_bytes >= alignment.into() {
        return Err(Error::TrailingBytes { end, trailing_bytes, alignment });
    }
    Ok((placed, end))
}

fn place_one(tensor: TensorInfo<'_>, data_offset: u64, alignment: u32, file_len: u64) -> Result<TensorInfo<'_>> {
    let (name, in_data, size_bytes) = (tensor.name(), tensor.offset(), tensor.size_bytes());
    if !in_data.is_multiple_of(alignment.into()) {
        return Err(Error::Misaligned { tensor: shown(name), offset: in_data, alignment });
    }
    let offset = data_offset.checked_add(in_data);
    match offset.filter(|offset| offset.checked_add(size_bytes).is_some()) {
        Some(offset) => Ok(tensor.at(offset)),
        None => Err(past_end(&tensor, offset.unwrap_or(u64::MAX), file_len)),
    }
}

fn past_end(tensor: &TensorInfo<'_>, offset: u64, file_len: u64) -> Error {
    let size_bytes = tensor.size_bytes();
    Error::PastEnd { tensor: shown(tensor.name()), offset, size_bytes, present_bytes: file_len }
}
