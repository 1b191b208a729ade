//! Writes files that the parser accepts.

use std::io::Write;

use crate::{
    caps,
    error::{Error, Result, shown},
    file::Gguf,
    header::Header,
    layout,
    tensor::TensorInfo,
    tensor_type::TensorType,
    value::{Value, write_str},
};

/// Collects metadata and tensors, then writes them as one file of version 3.
///
/// Nothing is copied but small metadata: tensors are slices until they are written. The alignment is the metadata key
/// `general.alignment`, as for a reader.
#[derive(Debug, Clone, Default)]
pub struct Writer<'a> {
    metadata: Vec<(&'a str, Value<'a>)>,
    /// Offsets count from the start of the data, and are set when the file is written.
    tensors: Vec<(TensorInfo<'a>, &'a [u8])>,
}

impl<'a> Writer<'a> {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry after those that are there.
    pub fn metadata(&mut self, key: &'a str, value: impl Into<Value<'a>>) -> &mut Self {
        self.metadata.push((key, value.into()));
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
        self.tensors.push((tensor, data));
        Ok(self)
    }

    /// Writes the file and returns its length. Every tensor is padded to the alignment, the last too.
    ///
    /// Nothing is written unless [`Gguf::parse`] accepts what would be.
    ///
    /// # Errors
    /// The parser would refuse the file, for example for a key that is there twice; or `out` fails, in which case part
    /// of the file may be written.
    pub fn write_to(&self, out: &mut impl Write) -> Result<u64> {
        let alignment_value = self.metadata.iter().find(|(key, _)| *key == layout::ALIGNMENT_KEY);
        let alignment = layout::alignment(alignment_value.map(|(_, value)| value))?;
        let (head, data_len) = self.head(alignment);
        let file_len = head.len() as u64 + data_len;
        Gguf::parse(&head, file_len)?;

        out.write_all(&head)?;
        let padding = vec![0; alignment as usize];
        for (_, data) in &self.tensors {
            out.write_all(data)?;
            let data_len = data.len() as u64;
            out.write_all(&padding[..(layout::aligned(data_len, alignment) - data_len) as usize])?;
        }
        Ok(file_len)
    }

    /// Everything before the data, padded, and the length of the data, padded.
    fn head(&self, alignment: u32) -> (Vec<u8>, u64) {
        let mut head = Vec::new();
        let (n_tensors, n_metadata) = (self.tensors.len() as u64, self.metadata.len() as u64);
        Header { version: caps::VERSION_MAX, n_tensors, n_metadata }.write(&mut head);
        for (key, value) in &self.metadata {
            write_str(key, &mut head);
            value.write(&mut head);
        }
        let mut data_len = 0;
        for (tensor, data) in &self.tensors {
            tensor.clone().at(data_len).write(&mut head);
            data_len += layout::aligned(data.len() as u64, alignment);
        }
        head.resize(layout::aligned(head.len() as u64, alignment) as usize, 0);
        (head, data_len)
    }
}
