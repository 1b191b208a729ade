//! What can be wrong with a file, and with what is asked of it.

use crate::caps;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file was refused, or a value not given, or a file not written.
///
/// Names are shown quoted and escaped, and cut after 120 characters: they come from the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shorter than the fixed header.
    #[error("too short for a GGUF file: {present_bytes} bytes, and the header alone has {needed_bytes}")]
    TooShort {
        /// Length of the file.
        present_bytes: u64,
        /// Length of the header.
        needed_bytes: u64,
    },

    /// Another kind of file.
    #[error("not a GGUF file: it starts with \"{}\", expected \"GGUF\"", magic.escape_ascii())]
    NotGguf {
        /// The first four bytes.
        magic: [u8; 4],
    },

    /// The version, or the magic, reads right in the other byte order only.
    #[error(
        "a big-endian GGUF file (version bytes {version_bytes:02x?}); only little-endian files can be read: convert it"
    )]
    BigEndian {
        /// The version field as it lies in the file.
        version_bytes: [u8; 4],
    },

    /// A version this reader doesn't know, or no longer reads.
    #[error(
        "GGUF version {version} can't be read, expected {} to {}: convert the model again",
        caps::VERSION_MIN,
        caps::VERSION_MAX
    )]
    UnsupportedVersion {
        /// The version the file claims.
        version: u32,
    },

    /// The caller gave more bytes than it said the file has.
    #[error("{head_bytes} bytes were given of a file that is said to have {file_bytes}")]
    HeadLongerThanFile {
        /// Bytes given.
        head_bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },

    /// The caller gave the first bytes of the file, and the metadata and the tensor table need more of them.
    #[error(
        "{what} needs the first {needed_bytes} bytes of the file, but only {head_bytes} were read of the {file_bytes} it has"
    )]
    HeadTooShort {
        /// What was being read.
        what: String,
        /// Bytes needed, from the start of the file; more may turn out to be.
        needed_bytes: u64,
        /// Bytes given.
        head_bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },

    /// The file ends inside its metadata or its tensor table, or claims more there than it has bytes for.
    #[error("{what} needs {needed_bytes} bytes at offset {offset}, but the file has {present_bytes} left there")]
    Truncated {
        /// What was being read.
        what: String,
        /// Where, from the start of the file.
        offset: u64,
        /// Bytes it needs, at least.
        needed_bytes: u64,
        /// Bytes from there to the end of the file.
        present_bytes: u64,
    },

    /// Over one of [`caps`].
    #[error("{what}: {found}, expected at most {cap}")]
    OverCap {
        /// What is counted.
        what: String,
        /// What the file claims.
        found: u64,
        /// The most that is accepted.
        cap: u64,
    },

    /// A key or a tensor name without a character.
    #[error("{what} is empty")]
    EmptyName {
        /// Which.
        what: String,
    },

    /// A string that isn't UTF-8.
    #[error("{what} is not UTF-8: bad byte at {valid_bytes} of {len_bytes}")]
    NotUtf8 {
        /// Which string.
        what: String,
        /// Bytes that are valid, before the first that isn't.
        valid_bytes: u64,
        /// Length of the string.
        len_bytes: u64,
    },

    /// A key that is there twice.
    #[error("metadata key {key:?} is there twice")]
    DuplicateKey {
        /// The key.
        key: String,
    },

    /// A value type id out of the format's thirteen.
    #[error("{what} has value type {id}, expected 0 to 12")]
    UnknownValueType {
        /// Whose value.
        what: String,
        /// The id.
        id: u32,
    },

    /// A truth value that is neither 0 nor 1.
    #[error("{what} has a bool of {found}, expected 0 or 1")]
    BadBool {
        /// Whose value.
        what: String,
        /// The byte.
        found: u8,
    },

    /// A NaN or an infinity in the metadata.
    #[error("{what} is {found} at index {index}, expected a finite number")]
    NotFinite {
        /// Whose value.
        what: String,
        /// Index in the array; 0 for a single number.
        index: u64,
        /// The number.
        found: f64,
    },

    /// `general.alignment` that can't be one.
    #[error(
        "general.alignment is {found}, expected a u32, a multiple of {} from {} to {}",
        caps::ALIGNMENT_UNIT,
        caps::ALIGNMENT_UNIT,
        caps::ALIGNMENT_MAX
    )]
    BadAlignment {
        /// Type and value.
        found: String,
    },

    /// A key that isn't there.
    #[error("metadata key {key:?} is missing, expected {expected}")]
    MissingKey {
        /// The key.
        key: String,
        /// The type asked for.
        expected: &'static str,
    },

    /// A value of another type than asked for.
    #[error("metadata key {key:?} is {found}, expected {expected}")]
    WrongType {
        /// The key.
        key: String,
        /// Type and value, or type and length.
        found: String,
        /// The type asked for.
        expected: &'static str,
    },

    /// A number that the type asked for can't hold.
    #[error("metadata key {key:?} has {found} at index {index}, out of the range of {expected}")]
    OutOfRange {
        /// The key.
        key: String,
        /// Index in the array; 0 for a single number.
        index: u64,
        /// The number.
        found: String,
        /// The type asked for.
        expected: &'static str,
    },

    /// An array of another length than asked for.
    #[error("metadata key {key:?} is an array of {found}, expected {expected} entries")]
    WrongLen {
        /// The key.
        key: String,
        /// Its length.
        found: u64,
        /// The length asked for.
        expected: u64,
    },

    /// A tensor name that is there twice in one file.
    #[error("tensor {tensor:?} is there twice")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },

    /// A tensor without dimensions, or with too many.
    #[error("tensor {tensor:?} has {n_dims} dimensions, expected 1 to {}", caps::N_DIMS)]
    BadDimCount {
        /// The tensor.
        tensor: String,
        /// Dimensions it claims.
        n_dims: u32,
    },

    /// A dimension of 0.
    #[error("tensor {tensor:?} has dimension {dim} of 0 in {dims:?}")]
    ZeroDim {
        /// The tensor.
        tensor: String,
        /// Index of the first dimension that is 0.
        dim: usize,
        /// All its dimensions.
        dims: Vec<u64>,
    },

    /// A type id that is in no table.
    #[error("tensor {tensor:?} has type {id}{}", retired(*id))]
    UnknownTensorType {
        /// The tensor.
        tensor: String,
        /// The id.
        id: u32,
    },

    /// Rows that end inside a block.
    #[error("tensor {tensor:?} has rows of {row_len} elements, expected a multiple of {block_len} for {ty}")]
    PartialBlock {
        /// The tensor.
        tensor: String,
        /// Its first dimension.
        row_len: u64,
        /// Elements of a block.
        block_len: u64,
        /// Name of its type.
        ty: &'static str,
    },

    /// Dimensions whose product, in elements or bytes, passes 64 bits.
    #[error("tensor {tensor:?} of {dims:?} has a size that overflows 64 bits")]
    SizeOverflow {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },

    /// A tensor that doesn't start on the alignment.
    #[error("tensor {tensor:?} starts at data offset {offset}, expected a multiple of {alignment}")]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Its offset in the data.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },

    /// Data past the end of the file.
    #[error(
        "tensor {tensor:?} has {size_bytes} bytes at offset {offset} and needs a file of {} bytes, but it has \
         {present_bytes}: the file is cut short, fetch it again",
        u128::from(*offset) + u128::from(*size_bytes)
    )]
    PastEnd {
        /// The tensor.
        tensor: String,
        /// Where it starts, from the start of the file.
        offset: u64,
        /// Its size.
        size_bytes: u64,
        /// Length of the file.
        present_bytes: u64,
    },

    /// Two tensors that share bytes.
    #[error("tensors {first:?} and {second:?} overlap: the first ends at {end}, the second starts at {start}")]
    Overlap {
        /// The tensor that starts first.
        first: String,
        /// The other.
        second: String,
        /// End of the first, from the start of the file.
        end: u64,
        /// Start of the second.
        start: u64,
    },

    /// Unused bytes before a tensor, more than alignment explains.
    #[error("{hole_bytes} unused bytes before tensor {tensor:?} at offset {offset}, expected at most {alignment}")]
    Hole {
        /// The tensor after the hole.
        tensor: String,
        /// Where it starts, from the start of the file.
        offset: u64,
        /// Size of the hole.
        hole_bytes: u64,
        /// The file's alignment.
        alignment: u32,
    },

    /// Bytes after the last tensor, more than alignment explains: a tensor that the table leaves out, a wrong alignment,
    /// or another file appended.
    #[error(
        "{trailing_bytes} bytes after the end of the last tensor at {end}, expected less than one alignment unit of \
         {alignment}"
    )]
    TrailingBytes {
        /// End of the last tensor, or of the padded tensor table, from the start of the file.
        end: u64,
        /// Bytes from there to the end of the file.
        trailing_bytes: u64,
        /// The file's alignment.
        alignment: u32,
    },

    /// A part of a sharded set was needed and the file says nothing about one.
    #[error("shard {} of the set has no split.* keys: it is a file of its own", index + 1)]
    NotAShard {
        /// Place in the set, from 0.
        index: usize,
    },

    /// A split number that the split count leaves no room for.
    #[error("split.no is {index} (counted from 0) of {count} shards")]
    ShardOutOfRange {
        /// `split.no`.
        index: u64,
        /// `split.count`.
        count: u64,
    },

    /// A shard at another's place.
    #[error("shard {} of the set says it is shard {} (split.no {found})", index + 1, found + 1)]
    ShardOutOfPlace {
        /// Place in the set, from 0.
        index: usize,
        /// `split.no` of the file there.
        found: u64,
    },

    /// Shards of two sets, or a set with one missing.
    #[error("shard {} of the set has {key} {found}, expected {expected}", index + 1)]
    ShardsDisagree {
        /// Place in the set, from 0.
        index: usize,
        /// Which key.
        key: &'static str,
        /// Its value.
        found: u64,
        /// What the set, or the first shard, has.
        expected: u64,
    },

    /// A later shard with metadata that the first one lacks, or has another value for.
    #[error("shard {} of the set has metadata key {key:?} as {found}, where the first shard has {expected}", index + 1)]
    ShardMetadata {
        /// Place in the set, from 0.
        index: usize,
        /// The key.
        key: String,
        /// Its type and value there.
        found: String,
        /// Its type and value in the first shard.
        expected: String,
    },

    /// A tensor that two shards have.
    #[error("tensor {tensor:?} is there twice: in shard {} and in shard {} of the set", first + 1, second + 1)]
    TensorInTwoShards {
        /// The tensor.
        tensor: String,
        /// Place of the first of them in the set, from 0.
        first: usize,
        /// Place of the other.
        second: usize,
    },

    /// Tensors of a set that are not as many as it says.
    #[error("the shards hold {found} tensors, expected {expected} (split.tensors.count)")]
    WrongTensorTotal {
        /// Tensors found.
        found: u64,
        /// `split.tensors.count`.
        expected: u64,
    },

    /// A part of a model that no shard of the asked size has room for.
    #[error("a file with {what} needs {needed_bytes} bytes, and a shard may have at most {max_bytes}")]
    ShardTooLarge {
        /// The part.
        what: String,
        /// Bytes of the smallest file that holds it.
        needed_bytes: u64,
        /// The most that a shard may have.
        max_bytes: u64,
    },

    /// The writer was given another number of bytes than a tensor has.
    #[error("tensor {tensor:?} was given {found_bytes} bytes, its type and dimensions make {expected_bytes}")]
    WrongDataLen {
        /// The tensor.
        tensor: String,
        /// Bytes given.
        found_bytes: u64,
        /// Bytes it has.
        expected_bytes: u64,
    },

    /// The writer's output failed.
    #[error("writing the GGUF file failed")]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Which file of a set is to blame, from 0, where one is.
    pub fn shard(&self) -> Option<usize> {
        match *self {
            Self::NotAShard { index }
            | Self::ShardOutOfPlace { index, .. }
            | Self::ShardsDisagree { index, .. }
            | Self::ShardMetadata { index, .. } => Some(index),
            Self::TensorInTwoShards { second, .. } => Some(second),
            _ => None,
        }
    }
}

/// A name from a file, in a length fit for a message.
pub(crate) fn shown(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

fn retired(id: u32) -> &'static str {
    match id {
        4 | 5 => ", which was withdrawn in 2023 (Q4_2, Q4_3): convert the model again",
        31..=33 => ", which was withdrawn in 2024 (Q4_0 repacked for one CPU): fetch the Q4_0 file",
        36..=38 => ", which was withdrawn in 2024 (IQ4_NL repacked for one CPU): fetch the IQ4_NL file",
        _ => ", which is not a known type",
    }
}
