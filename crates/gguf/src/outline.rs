//! A file before its tensors' bytes.

use std::io::{self, Write};

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

/// Metadata and a tensor table, to be written as a file of version 3 with the tensors' bytes as they come: never more of
/// them in memory than the writer of each tensor holds.
///
/// [`Writer`](crate::Writer) is the same with all bytes at hand. The alignment is the metadata key `general.alignment`, as
/// for a reader.
#[derive(Debug, Clone, Default)]
pub struct Outline<'a> {
    metadata: Vec<(&'a str, Value<'a>)>,
    /// Their offsets are of no meaning.
    tensors: Vec<TensorInfo<'a>>,
}

impl<'a> Outline<'a> {
    /// A file without metadata and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry after those that are there.
    pub fn metadata(&mut self, key: &'a str, value: impl Into<Value<'a>>) -> &mut Self {
        self.metadata.push((key, value.into()));
        self
    }

    /// Adds a tensor after those that are there; `dims` has its row length first.
    ///
    /// # Errors
    /// The dimensions are not 1 to 4, one is 0, rows aren't whole blocks, or the size overflows.
    pub fn tensor(&mut self, name: &'a str, dims: &[u64], tensor_type: TensorType) -> Result<&mut Self> {
        self.push(TensorInfo::new(name, dims, tensor_type)?);
        Ok(self)
    }

    pub(crate) fn push(&mut self, tensor: TensorInfo<'a>) {
        self.tensors.push(tensor);
    }

    /// The tensors, in the order in which they will lie in the file. Their offsets are of no meaning.
    pub fn tensors(&self) -> &[TensorInfo<'a>] {
        &self.tensors
    }

    /// Writes the file and returns its length. Every tensor is padded to the alignment, the last too.
    ///
    /// `data` is called once for each tensor, in order, to write its bytes; it returns how many it wrote. Nothing is
    /// written unless [`Gguf::parse`] accepts what would be.
    ///
    /// # Errors
    /// The parser would refuse the file, for example for a key that is there twice. After that, with part of the file
    /// written: `out` or `data` fails, or `data` wrote another number of bytes than the tensor has.
    pub fn write_to<W: Write, E: From<Error>>(
        &self,
        out: &mut W,
        mut data: impl FnMut(&TensorInfo<'a>, &mut W) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let alignment = self.alignment()?;
        let (head, data_len) = self.head(alignment);
        let file_len = head.len() as u64 + data_len;
        Gguf::parse(&head, file_len)?;

        let io = |error: io::Error| Error::Io(error);
        out.write_all(&head).map_err(io)?;
        let padding = vec![0; alignment as usize];
        for tensor in &self.tensors {
            let (found_bytes, expected_bytes) = (data(tensor, out)?, tensor.size_bytes());
            if found_bytes != expected_bytes {
                return Err(Error::WrongDataLen { tensor: shown(tensor.name()), found_bytes, expected_bytes }.into());
            }
            let padded_bytes = layout::aligned(expected_bytes, alignment);
            out.write_all(&padding[..(padded_bytes - expected_bytes) as usize]).map_err(io)?;
        }
        Ok(file_len)
    }

    /// What the starts of the data and of every tensor are multiples of, in bytes.
    pub(crate) fn alignment(&self) -> Result<u32> {
        let value = self.metadata.iter().find(|(key, _)| *key == layout::ALIGNMENT_KEY);
        layout::alignment(value.map(|(_, value)| value))
    }

    /// Bytes of everything before the tensor table.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.until_table().len() as u64
    }

    /// Everything before the data, padded, and the length of the data, padded.
    fn head(&self, alignment: u32) -> (Vec<u8>, u64) {
        let mut head = self.until_table();
        let mut data_len = 0;
        for tensor in &self.tensors {
            tensor.clone().at(data_len).write(&mut head);
            data_len += layout::aligned(tensor.size_bytes(), alignment);
        }
        head.resize(layout::aligned(head.len() as u64, alignment) as usize, 0);
        (head, data_len)
    }

    /// Everything before the tensor table.
    fn until_table(&self) -> Vec<u8> {
        let mut head = Vec::new();
        let (n_tensors, n_metadata) = (self.tensors.len() as u64, self.metadata.len() as u64);
        Header { version: caps::VERSION_MAX, n_tensors, n_metadata }.write(&mut head);
        for (key, value) in &self.metadata {
            write_str(key, &mut head);
            value.write(&mut head);
        }
        head
    }
}
