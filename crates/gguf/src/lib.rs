//! GGUF model files: parse, validate, write.
//!
//! A GGUF file is one header, a list of typed metadata, a table of tensors and their bytes, little-endian throughout:
//!
//! ```text
//! offset  field
//! 0       magic            4 bytes, "GGUF"
//! 4       version          u32, 2 or 3 (same layout; 3 says that big-endian files may exist)
//! 8       n_tensors        u64
//! 16      n_metadata       u64
//! 24      metadata         n_metadata × { key: str, type: u32, value }
//!         tensor table     n_tensors  × { name: str, n_dims: u32, dims: n_dims × u64, type: u32, offset: u64 }
//!         padding          to the next multiple of the alignment
//!         data             tensors, each at data start + offset, each start a multiple of the alignment
//!
//! str     len: u64, len bytes of UTF-8, no terminator
//! array   type: u32, len: u64, len values without a type of their own
//! ```
//!
//! The alignment is the metadata key `general.alignment` (u32, default 32). `dims[0]` is the row length, the contiguous
//! dimension; a row is a whole number of its [`TensorType`]'s blocks.
//!
//! [`Gguf::parse`] is the one way in. What it returns is checked: every key and tensor name is unique, every value has
//! a known type, every float in the metadata is finite, every tensor has 1 to 4 dimensions, none of them 0, a size that
//! doesn't overflow and a place inside the file, and no two tensors overlap or leave a hole of more than one alignment
//! unit between them. Less than one alignment unit may follow the last tensor (writers pad there) and is counted in
//! [`Gguf::trailing_bytes`].
//!
//! The parser borrows: strings are slices of the input, arrays of numbers stay bytes until they are asked for. Counts in
//! the file are claims: each is held against the bytes that are left, and against [`caps`], before anything is reserved
//! for it.
//!
//! ```
//! use muser_gguf::{Gguf, TensorType, Writer};
//!
//! let mut writer = Writer::new();
//! writer.metadata("general.architecture", "llama");
//! writer.metadata("llama.block_count", 30_u32);
//! writer.tensor("output_norm.weight", &[2], TensorType::F32, &[0; 8])?;
//! let mut file = Vec::new();
//! writer.write_to(&mut file)?;
//!
//! let gguf = Gguf::parse(&file, file.len() as u64)?;
//! assert_eq!(gguf.architecture()?, "llama");
//! assert_eq!(gguf.metadata().u32("llama.block_count")?, 30);
//! assert_eq!(gguf.tensor("output_norm.weight").unwrap().size_bytes(), 8);
//! # Ok::<(), muser_gguf::Error>(())
//! ```
#![forbid(unsafe_code)]

mod array;
pub mod caps;
mod cursor;
mod error;
mod file;
mod header;
mod layout;
mod metadata;
mod names;
mod outline;
mod set;
pub mod shard;
mod split;
mod tensor;
mod tensor_type;
mod value;
mod writer;

pub use array::Array;
pub use error::{Error, Result};
pub use file::Gguf;
pub use metadata::{Int, Metadata};
pub use outline::Outline;
pub use set::GgufSet;
pub use shard::Shard;
pub use split::{ShardLimit, split};
pub use tensor::TensorInfo;
pub use tensor_type::TensorType;
pub use value::{Value, ValueType};
pub use writer::Writer;
