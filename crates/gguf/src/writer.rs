//! Writes files that the parser accepts.

use std::io::Write;

use crate::{
    error::{Error, Result, shown},
    outline::Outline,
    tensor::TensorInfo,
    tensor_type::TensorType,
    value::Value,
};

/// Collects metadata and tensors, then writes them as one file of version 3.
///
/// Nothing is copied but small metadata: tensors are slices until they are written. The alignment is the metadata key
/// `general.alignment`, as for a reader.
#[derive(Debug, Clone, Default)]
pub struct Writer<'a> {
    outline: Outline<'a>,
    /// The bytes of each of the outline's tensors.
    data: Vec<&'a [u8]>,
}

impl<'a> Writer<'a> {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry after those that are there.
    pub fn metadata(&mut self, key: &'a str, value: impl Into<Value<'a>>) -> &mut Self {
        self.outline.metadata(key, value);
        self
    }

    /// Adds a tensor after those that are there; `dims` has its row length first, `data` its bytes.
    ///
    /// # Errors
    /// The dimensions are not 1 to 4, one is 0, rows aren't whole blocks, the size overflows, or `data` has another
    /// size.
    pub fn tensor(
        &mut self,
        name: &'a str,
        dims: &[u64],
        tensor_type: TensorType,
        data: &'a [u8],
    ) -> Result<&mut Self> {
        let tensor = TensorInfo::new(name, dims, tensor_type)?;
        let (found_bytes, expected_bytes) = (data.len() as u64, tensor.size_bytes());
        if found_bytes != expected_bytes {
            return Err(Error::WrongDataLen { tensor: shown(name), found_bytes, expected_bytes });
        }
        self.outline.push(tensor);
        self.data.push(data);
        Ok(self)
    }

    /// Writes the file and returns its length. Every tensor is padded to the alignment, the last too.
    ///
    /// Nothing is written unless [`Gguf::parse`](crate::Gguf::parse) accepts what would be.
    ///
    /// # Errors
    /// The parser would refuse the file, for example for a key that is there twice; or `out` fails, in which case part
    /// of the file may be written.
    pub fn write_to(&self, out: &mut impl Write) -> Result<u64> {
        let mut data = self.data.iter();
        self.outline.write_to(out, |_, out| {
            let data = data.next().copied().unwrap_or_default();
            out.write_all(data)?;
            Ok::<_, Error>(data.len() as u64)
        })
    }
}
