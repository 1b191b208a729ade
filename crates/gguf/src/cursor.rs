//! Reads forward through the file's head; the one place that compares a length with the bytes there are.

use std::fmt;

use crate::{
    caps,
    error::{Error, Result, shown},
};

/// Position in the head of a file.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    /// The file's first bytes; no more than `file_len`.
    head: &'a [u8],
    pos: usize,
    file_len: u64,
    /// What is being read, for messages.
    what: What<'a>,
    n_strings: u64,
    n_arrays: u64,
}

/// What is being read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What<'a> {
    Header,
    AllMetadata { len: u64 },
    AllTensors { len: u64 },
    Key { index: u64 },
    Value { key: &'a str },
    TensorName { index: u64 },
    Tensor { name: &'a str },
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(head: &'a [u8], file_len: u64) -> Result<Self> {
        if head.len() as u64 > file_len {
            return Err(Error::HeadLongerThanFile { head_bytes: head.len() as u64, file_bytes: file_len });
        }
        Ok(Self { head, pos: 0, file_len, what: What::Header, n_strings: 0, n_arrays: 0 })
    }

    /// Says what is read from here on.
    pub(crate) fn reads(&mut self, what: What<'a>) {
        self.what = what;
    }

    /// What is being read, as a message begins.
    pub(crate) fn what(&self) -> String {
        self.what.to_string()
    }

    pub(crate) fn pos(&self) -> u64 {
        self.pos as u64
    }

    /// Checks that `len` items of at least `min_bytes` each can follow, and says how many that is in memory's terms.
    ///
    /// What this returns may be reserved: the bytes for it are there.
    pub(crate) fn room_for(&self, len: u64, min_bytes: u64) -> Result<usize> {
        self.need(len.saturating_mul(min_bytes))?;
        // The head is a slice, and it has no fewer bytes than items.
        Ok(len as usize)
    }

    /// Counts strings of an array, for which the file has bytes: each costs more than these.
    pub(crate) fn count_strings(&mut self, len: u64) -> Result<()> {
        self.n_strings += len;
        self.below_cap("strings in arrays", self.n_strings, caps::STRINGS_IN_ARRAYS)
    }

    /// As [`count_strings`](Self::count_strings), for arrays of an array.
    pub(crate) fn count_arrays(&mut self, len: u64) -> Result<()> {
        self.n_arrays += len;
        self.below_cap("arrays in arrays", self.n_arrays, caps::ARRAYS_IN_ARRAYS)
    }

    fn below_cap(&self, what: &str, found: u64, cap: u64) -> Result<()> {
        if found <= cap {
            return Ok(());
        }
        Err(Error::OverCap { what: format!("{what} up to {}", self.what), found, cap })
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Result<&'a [u8]> {
        self.need(len)?;
        let bytes = &self.head[self.pos..self.pos + len as usize];
        self.pos += bytes.len();
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N as u64)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string of any length the file has bytes for.
    pub(crate) fn str(&mut self) -> Result<&'a str> {
        let len = self.u64()?;
        self.utf8(len)
    }

    /// A name: a string of at least one byte and at most `cap_bytes`.
    pub(crate) fn name(&mut self, cap_bytes: u64) -> Result<&'a str> {
        let len = self.u64()?;
        // A length the file can't hold is the more telling fault.
        self.need(len)?;
        match len {
            0 => Err(Error::EmptyName { what: self.what() }),
            _ if len > cap_bytes => {
                Err(Error::OverCap { what: format!("bytes of {}", self.what), found: len, cap: cap_bytes })
            }
            _ => self.utf8(len),
        }
    }

    fn utf8(&mut self, len: u64) -> Result<&'a str> {
        let bytes = self.bytes(len)?;
        std::str::from_utf8(bytes).map_err(|error| self.not_utf8(error.valid_up_to(), len))
    }

    fn need(&self, needed_bytes: u64) -> Result<()> {
        if needed_bytes <= (self.head.len() - self.pos) as u64 { Ok(()) } else { Err(self.lacking(needed_bytes)) }
    }

    // Errors are made apart, so that reading a vocabulary is a tight loop.

    #[cold]
    fn lacking(&self, needed_bytes: u64) -> Error {
        let (what, offset, head_bytes, file_bytes) = (self.what(), self.pos(), self.head.len() as u64, self.file_len);
        let present_bytes = file_bytes - offset;
        if needed_bytes <= present_bytes {
            Error::HeadTooShort { what, needed_bytes: offset + needed_bytes, head_bytes, file_bytes }
        } else {
            Error::Truncated { what, offset, needed_bytes, present_bytes }
        }
    }

    #[cold]
    fn not_utf8(&self, valid_len: usize, len_bytes: u64) -> Error {
        Error::NotUtf8 { what: self.what(), valid_bytes: valid_len as u64, len_bytes }
    }
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Header => f.write_str("the header"),
            Self::AllMetadata { len } => write!(f, "metadata of {len} keys"),
            Self::AllTensors { len } => write!(f, "a table of {len} tensors"),
            Self::Key { index } => write!(f, "metadata key {index}"),
            Self::Value { key } => write!(f, "the value of metadata key {:?}", shown(key)),
            Self::TensorName { index } => write!(f, "the name of tensor {index}"),
            Self::Tensor { name } => write!(f, "the table entry of tensor {:?}", shown(name)),
        }
    }
}
