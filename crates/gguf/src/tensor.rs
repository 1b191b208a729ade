//! One entry of the tensor table.

use std::ops::Range;

use crate::{
    caps,
    cursor::{Cursor, What},
    error::{Error, Result, shown},
    tensor_type::TensorType,
    value::write_str,
};

/// Where a tensor lies in the file, and what it is.
///
/// One that [`Gguf::parse`](crate::Gguf::parse) gave is checked: its bytes are in the file and no other tensor's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo<'a> {
    name: &'a str,
    /// The first `n_dims` count, the rest are 1.
    dims: [u64; caps::N_DIMS as usize],
    n_dims: usize,
    tensor_type: TensorType,
    offset: u64,
    size_bytes: u64,
}

impl<'a> TensorInfo<'a> {
    /// The tensor's name, for example `blk.0.attn_q.weight`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// 1 to 4 dimensions in elements, none of them 0; the first is the row length, contiguous in memory.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.n_dims]
    }

    /// How its elements are stored.
    pub fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }

    /// Number of elements: the product of its dimensions.
    pub fn n_elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Elements of a row: the first dimension.
    pub fn row_len(&self) -> u64 {
        self.dims[0]
    }

    /// Number of rows: the product of the other dimensions.
    pub fn n_rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    /// Its first byte, from the start of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Its bytes, from the start of the file.
    pub fn byte_range(&self) -> Range<u64> {
        self.offset..self.offset + self.size_bytes
    }

    /// A tensor of checked dimensions, at offset 0.
    pub(crate) fn new(name: &'a str, dims: &[u64], tensor_type: TensorType) -> Result<Self> {
        let n_dims = dims.len();
        if n_dims == 0 || n_dims > caps::N_DIMS as usize {
            let n_dims = u32::try_from(n_dims).unwrap_or(u32::MAX);
            return Err(Error::BadDimCount { tensor: shown(name), n_dims });
        }
        let size_bytes = checked_size_bytes(name, dims, tensor_type)?;
        let mut padded = [1; caps::N_DIMS as usize];
        padded[..n_dims].copy_from_slice(dims);
        Ok(Self { name, dims: padded, n_dims, tensor_type, offset: 0, size_bytes })
    }

    /// The same tensor at another place, unchecked: the layout's check follows.
    pub(crate) fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// Reads the entry of tensor `index`; its offset counts from the start of the data.
    pub(crate) fn read(cursor: &mut Cursor<'a>, index: u64) -> Result<Self> {
        cursor.reads(What::TensorName { index });
        let name = cursor.name(caps::TENSOR_NAME_BYTES)?;
        cursor.reads(What::Tensor { name });
        let n_dims = cursor.u32()?;
        if n_dims > caps::N_DIMS {
            return Err(Error::BadDimCount { tensor: shown(name), n_dims });
        }
        let mut dims = [0; caps::N_DIMS as usize];
        for dim in &mut dims[..n_dims as usize] {
            *dim = cursor.u64()?;
        }
        let id = cursor.u32()?;
        let tensor_type =
            TensorType::from_id(id).ok_or_else(|| Error::UnknownTensorType { tensor: shown(name), id })?;
        Ok(Self::new(name, &dims[..n_dims as usize], tensor_type)?.at(cursor.u64()?))
    }

    /// Bytes of its entry in the table.
    pub(crate) fn entry_bytes(&self) -> u64 {
        8 + self.name.len() as u64 + 4 + 8 * self.n_dims as u64 + 4 + 8
    }

    /// Writes the entry of a tensor whose offset counts from the start of the data.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        write_str(self.name, out);
        out.extend_from_slice(&(self.n_dims as u32).to_le_bytes());
        for dim in self.dims() {
            out.extend_from_slice(&dim.to_le_bytes());
        }
        out.extend_from_slice(&self.tensor_type.id().to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
    }
}

/// Size of a tensor, if its rows are whole blocks and neither its elements nor its bytes overflow.
fn checked_size_bytes(name: &str, dims: &[u64], ty: TensorType) -> Result<u64> {
    if let Some(dim) = dims.iter().position(|&len| len == 0) {
        return Err(Error::ZeroDim { tensor: shown(name), dim, dims: dims.to_vec() });
    }
    let row_len = dims[0];
    if !row_len.is_multiple_of(ty.block_len()) {
        let (block_len, ty) = (ty.block_len(), ty.name());
        return Err(Error::PartialBlock { tensor: shown(name), row_len, block_len, ty });
    }
    let size_bytes = || {
        let n_rows = dims[1..].iter().try_fold(1_u64, |rows, &len| rows.checked_mul(len))?;
        row_len.checked_mul(n_rows)?;
        (row_len / ty.block_len()).checked_mul(ty.block_bytes())?.checked_mul(n_rows)
    };
    size_bytes().ok_or_else(|| Error::SizeOverflow { tensor: shown(name), dims: dims.to_vec() })
}
