//! Files put together byte by byte, so that any of them can be wrong.

#![allow(dead_code, reason = "each test file takes what it needs")]

use muser_gguf::{Error, Gguf};

/// Ids of value types, as the format numbers them.
pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const BOOL: u32 = 7;
pub const STR: u32 = 8;
pub const ARRAY: u32 = 9;
pub const U64: u32 = 10;
pub const F64: u32 = 12;

/// A file in the making. Counts are those of what was added, unless set.
#[derive(Clone)]
pub struct Raw {
    pub magic: [u8; 4],
    pub version: u32,
    pub n_tensors: Option<u64>,
    pub n_metadata: Option<u64>,
    pub alignment: usize,
    pub metadata: Vec<Vec<u8>>,
    pub tensors: Vec<Vec<u8>>,
    pub data: Vec<u8>,
}

impl Raw {
    pub fn new() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            n_tensors: None,
            n_metadata: None,
            alignment: 32,
            metadata: Vec::new(),
            tensors: Vec::new(),
            data: Vec::new(),
        }
    }

    /// An entry whose value is these bytes.
    pub fn entry(mut self, key: &str, ty: u32, value: &[u8]) -> Self {
        self.metadata.push([str(key), ty.to_le_bytes().to_vec(), value.to_vec()].concat());
        self
    }

    /// Metadata bytes that follow no rule, counted as one entry.
    pub fn entry_bytes(mut self, bytes: &[u8]) -> Self {
        self.metadata.push(bytes.to_vec());
        self
    }

    /// An entry of the tensor table; `offset` counts from the start of the data.
    pub fn tensor(mut self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        let mut bytes = str(name);
        bytes.extend((dims.len() as u32).to_le_bytes());
        bytes.extend(dims.iter().flat_map(|dim| dim.to_le_bytes()));
        bytes.extend(ty.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        self.tensors.push(bytes);
        self
    }

    /// Length of the data after the padding.
    pub fn data(mut self, len: usize) -> Self {
        self.data = vec![0; len];
        self
    }

    /// The file up to the end of the tensor table.
    pub fn head(&self) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.n_tensors.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.n_metadata.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        out.extend(self.metadata.concat());
        out.extend(self.tensors.concat());
        out
    }

    /// The whole file; without tensors it ends with the head.
    pub fn file(&self) -> Vec<u8> {
        let mut out = self.head();
        if self.tensors.is_empty() {
            return out;
        }
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out.extend(&self.data);
        out
    }
}

pub fn str(str: &str) -> Vec<u8> {
    [&(str.len() as u64).to_le_bytes(), str.as_bytes()].concat()
}

pub fn array(elem_type: u32, len: u64, elems: &[u8]) -> Vec<u8> {
    [&elem_type.to_le_bytes()[..], &len.to_le_bytes(), elems].concat()
}

pub fn parse(file: &[u8]) -> Result<Gguf<'_>, Error> {
    Gguf::parse(file, file.len() as u64)
}

/// The message that refuses the file.
pub fn refusal(raw: &Raw) -> String {
    match parse(&raw.file()) {
        Ok(gguf) => panic!("accepted: {gguf:?}"),
        Err(error) => error.to_string(),
    }
}

/// Asserts that the file is refused with a message that has all of `parts`.
#[track_caller]
pub fn assert_refused(raw: &Raw, parts: &[&str]) {
    let message = refusal(raw);
    for part in parts {
        assert!(message.contains(part), "{message:?} doesn't say {part:?}");
    }
}
