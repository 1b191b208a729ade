//! The fixed 24 bytes at the start.

use crate::{
    caps,
    cursor::{Cursor, What},
    error::{Error, Result},
};

/// A header of a version that can be read, with counts below their caps that the file has bytes for.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) n_tensors: u64,
    pub(crate) n_metadata: u64,
}

const MAGIC: [u8; 4] = *b"GGUF";
/// The magic as a writer leaves it that puts down the number, not the letters, in big-endian order.
const MAGIC_SWAPPED: [u8; 4] = *b"FUGG";

impl Header {
    pub(crate) fn read(cursor: &mut Cursor<'_>, file_len: u64) -> Result<Self> {
        if file_len < caps::HEADER_BYTES {
            return Err(Error::TooShort { present_bytes: file_len, needed_bytes: caps::HEADER_BYTES });
        }
        let magic: [u8; 4] = cursor.array()?;
        let version_bytes: [u8; 4] = cursor.array()?;
        if magic != MAGIC && magic != MAGIC_SWAPPED {
            return Err(Error::NotGguf { magic });
        }
        let version = u32::from_le_bytes(version_bytes);
        // Versions are small: one with nothing in its lower half is a small one in the other order.
        if magic == MAGIC_SWAPPED || (version != 0 && version.trailing_zeros() >= 16) {
            return Err(Error::BigEndian { version_bytes });
        }
        if !(caps::VERSION_MIN..=caps::VERSION_MAX).contains(&version) {
            return Err(Error::UnsupportedVersion { version });
        }
        let (n_tensors, n_metadata) = (cursor.u64()?, cursor.u64()?);

        cursor.reads(What::AllMetadata { len: n_metadata });
        cursor.room_for(n_metadata, caps::METADATA_ENTRY_MIN_BYTES)?;
        cursor.reads(What::AllTensors { len: n_tensors });
        cursor.room_for(n_tensors, caps::TENSOR_ENTRY_MIN_BYTES)?;
        for (what, found, cap) in
            [("metadata keys", n_metadata, caps::N_METADATA), ("tensors", n_tensors, caps::N_TENSORS)]
        {
            if found > cap {
                return Err(Error::OverCap { what: what.to_owned(), found, cap });
            }
        }
        Ok(Self { version, n_tensors, n_metadata })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.n_tensors.to_le_bytes());
        out.extend_from_slice(&self.n_metadata.to_le_bytes());
    }
}
