//! A whole file, parsed and checked.

use crate::{
    caps,
    cursor::{Cursor, What},
    error::{Error, Result, shown},
    header::Header,
    layout,
    metadata::Metadata,
    names::NameIndex,
    shard::Shard,
    tensor::TensorInfo,
};

/// What a GGUF file says, borrowed from its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf<'a> {
    version: u32,
    alignment: u32,
    data_offset: u64,
    data_end: u64,
    file_len: u64,
    metadata: Metadata<'a>,
    tensors: Vec<TensorInfo<'a>>,
    by_name: NameIndex,
}

impl<'a> Gguf<'a> {
    /// Parses and checks a file.
    ///
    /// `head` is the file from its start: all of it, or as much as holds the metadata and the tensor table. The tensors'
    /// own bytes aren't looked at. `file_len` is the real length of the file in bytes, which tensors are held against.
    ///
    /// # Errors
    /// [`Error::HeadTooShort`] if the metadata and the table go on after `head` (with more of the file the answer may be
    /// another); any other error if the file breaks a rule of the format.
    pub fn parse(head: &'a [u8], file_len: u64) -> Result<Self> {
        let mut cursor = Cursor::new(head, file_len)?;
        let header = Header::read(&mut cursor, file_len)?;
        let metadata = Metadata::read(&mut cursor, header.n_metadata)?;
        let alignment = layout::alignment(metadata.value(layout::ALIGNMENT_KEY))?;

        cursor.reads(What::AllTensors { len: header.n_tensors });
        let mut tensors = Vec::with_capacity(cursor.room_for(header.n_tensors, caps::TENSOR_ENTRY_MIN_BYTES)?);
        for index in 0..header.n_tensors {
            tensors.push(TensorInfo::read(&mut cursor, index)?);
        }
        let by_name = NameIndex::new(tensors.len(), |at| tensors[at].name())
            .map_err(|name| Error::DuplicateTensor { tensor: shown(name) })?;

        let data_offset = layout::aligned(cursor.pos(), alignment);
        let (tensors, data_end) = layout::place(tensors, data_offset, alignment, file_len)?;
        Ok(Self { version: header.version, alignment, data_offset, data_end, file_len, metadata, tensors, by_name })
    }

    /// The format's version: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the starts of the data and of every tensor are multiples of, in bytes.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Start of the data, from the start of the file. May lie past the end of a file without tensors.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }

    /// Bytes of padding after the last tensor, or after the padded tensor table if there is no tensor; less than one
    /// alignment unit.
    pub fn trailing_bytes(&self) -> u64 {
        self.file_len.saturating_sub(self.data_end)
    }

    /// Length of the file in bytes.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    /// `general.architecture`: which kind of model this is.
    ///
    /// # Errors
    /// The key is missing or no string.
    pub fn architecture(&self) -> Result<&'a str> {
        self.metadata.str("general.architecture")
    }

    /// Which shard of a set this is; `None` for a file of its own.
    ///
    /// # Errors
    /// Some of the `split.*` keys are there but not all, or contradict each other or the tensor table.
    pub fn shard(&self) -> Result<Option<Shard>> {
        Shard::read(&self.metadata, self.tensors.len() as u64)
    }

    /// The tensors, in the table's order.
    pub fn tensors(&self) -> &[TensorInfo<'a>] {
        &self.tensors
    }

    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo<'a>> {
        let at = self.by_name.find(name, |at| self.tensors[at].name())?;
        Some(&self.tensors[at])
    }
}
