use crate::WeightType;

/// What was wrong with a row or a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// The number of elements is not a whole number of blocks.
    #[error("a {ty} row of {len} elements is not a whole number of blocks of {} elements", ty.block_len())]
    RaggedRow {
        /// Type of the row.
        ty: WeightType,
        /// Elements asked for.
        len: usize,
    },
    /// The size of the row in bytes does not fit in `usize`.
    #[error("a {ty} row of {len} elements is larger than the address space")]
    RowTooLong {
        /// Type of the row.
        ty: WeightType,
        /// Elements asked for.
        len: usize,
    },
    /// The bytes given for a row are not the size its elements need.
    #[error("a {ty} row of {len} elements takes {expected} bytes, but {found} were given")]
    RowBytes {
        /// Type of the row.
        ty: WeightType,
        /// Elements of the row.
        len: usize,
        /// Bytes that many elements take.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The bytes given are not a whole number of blocks.
    #[error("{found} bytes are not a whole number of {ty} blocks of {} bytes", ty.block_bytes())]
    TornBlock {
        /// Type of the blocks.
        ty: WeightType,
        /// Bytes given.
        found: usize,
    },
    /// The bytes given for a group are not 1 to 256 elements in whole blocks.
    #[error(
        "a {ty} group is 1 to {} blocks of {} bytes, but {found} bytes were given",
        crate::GROUP_LEN / ty.block_len(),
        ty.block_bytes()
    )]
    GroupBytes {
        /// Type of the group.
        ty: WeightType,
        /// Bytes given.
        found: usize,
    },
    /// The type has no integer form, so no integer product.
    #[error("{ty} has no integer form; its product is the float one")]
    NoIntegerForm {
        /// The type.
        ty: WeightType,
    },
    /// The type is quantised, so its product is the integer one.
    #[error("{ty} has no float product; its product is the integer one")]
    NoFloatProduct {
        /// The type.
        ty: WeightType,
    },
    /// A value that the quantised type cannot express.
    #[error("element {index} is not finite, which {ty} cannot express")]
    NotFinite {
        /// Type encoded to.
        ty: WeightType,
        /// Position of the value in the row.
        index: usize,
    },
}
