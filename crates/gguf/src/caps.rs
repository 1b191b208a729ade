//! Every limit the parser holds a file to, with its reason.
//!
//! A count below its cap is still held against the bytes that are left in the file: a file can't make the parser
//! reserve more than a small multiple of its own size.

/// Bytes of the fixed header; a shorter file can't be GGUF.
pub const HEADER_BYTES: u64 = 24;

/// Oldest version read. Version 1 has 32-bit counts and disappeared within weeks of its publication in 2023.
pub const VERSION_MIN: u32 = 2;

/// Newest version read, and the one written.
pub const VERSION_MAX: u32 = 3;

/// Bytes of a metadata key: the format's own limit.
pub const KEY_BYTES: u64 = 65_535;

/// Bytes of a tensor name. The format says 64; writers of image models go to 128, and no reader here depends on less.
pub const TENSOR_NAME_BYTES: u64 = 255;

/// Metadata entries. Large models have about 60; a thousand times that is no model's metadata.
pub const N_METADATA: u64 = 65_536;

/// Tensors in one file, and in one set of files. The largest known, mixtures of experts stored one tensor per expert, have
/// about 50,000. An entry takes 33 bytes of the file or more, and costs several times that until a model is bound.
pub const N_TENSORS: u64 = 131_072;

/// Shards of a set that is written: what the 16-bit key of their number can count.
pub const N_SHARDS: u64 = 65_535;

/// Dimensions of a tensor: the format's own limit.
pub const N_DIMS: u32 = 4;

/// Levels of arrays in arrays. No known key nests; reading is recursive, so the limit is also the stack's.
pub const ARRAY_DEPTH: u32 = 4;

/// Strings in all arrays of a file together. Each costs a 16-byte slice, and takes 8 bytes of the file or more; the largest
/// vocabularies have 262,144 tokens and merge lists half a million entries, so this is near 3 times what is known and bounds
/// the slices at 32 MiB.
pub const STRINGS_IN_ARRAYS: u64 = 2_097_152;

/// Arrays in arrays of a file, together. No known key nests, and each costs more memory than the 12 bytes it may take in
/// the file.
pub const ARRAYS_IN_ARRAYS: u64 = 65_536;

/// The alignment of a file that doesn't say: the format's own default.
pub const ALIGNMENT_DEFAULT: u32 = 32;

/// Every alignment is a multiple of this: the format's own rule, and the widest element (f64, i64).
pub const ALIGNMENT_UNIT: u32 = 8;

/// Largest alignment. 2 MiB is the largest page any system maps files with; more than that only makes holes.
pub const ALIGNMENT_MAX: u32 = 2_097_152;

/// Fewest bytes a metadata entry takes: key length, type, and a one-byte value (the key's own bytes not counted).
pub(crate) const METADATA_ENTRY_MIN_BYTES: u64 = 8 + 4 + 1;

/// Fewest bytes a tensor takes in the table: name length, number of dimensions, one dimension, type, offset.
pub(crate) const TENSOR_ENTRY_MIN_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// Fewest bytes a string takes: its length.
pub(crate) const STR_MIN_BYTES: u64 = 8;

/// Fewest bytes an array in an array takes: its element type and its length.
pub(crate) const ARRAY_MIN_BYTES: u64 = 4 + 8;
