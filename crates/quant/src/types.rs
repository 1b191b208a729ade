use std::fmt;

use crate::QuantError;

/// How the elements of a weight tensor are stored.
#[allow(non_camel_case_types, reason = "these are the names the types have in files and in the field")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WeightType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// Upper half of an IEEE single.
    BF16,
    /// 8-bit integers, a half scale per 32.
    Q8_0,
    /// 4-bit integers around zero, a half scale per 32.
    Q4_0,
    /// 4-bit integers, a half scale and minimum per 32.
    Q4_1,
    /// 5-bit integers around zero, a half scale per 32.
    Q5_0,
    /// 5-bit integers, a half scale and minimum per 32.
    Q5_1,
    /// 4-bit integers, 6-bit scales and minimums per 32, two halves per 256.
    Q4_K,
    /// 5-bit integers, 6-bit scales and minimums per 32, two halves per 256.
    Q5_K,
    /// 6-bit integers around zero, 8-bit scales per 16, a half per 256.
    Q6_K,
    /// 4-bit codes of a fixed 16-value codebook, a half scale per 32.
    IQ4_NL,
    /// 4-bit codes of the same codebook, 6-bit scales per 32, a half per 256.
    IQ4_XS,
    /// 4-bit floats (E2M1), a power of two (E8M0) per 32.
    MXFP4,
    /// 4-bit floats (E2M1), an unsigned 8-bit float (E4M3) per 16.
    NVFP4,
}

impl WeightType {
    /// Every type, in the order of declaration.
    pub const ALL: [Self; 15] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::MXFP4,
        Self::NVFP4,
    ];

    /// The type with this number in a GGUF tensor table, or `None` for every other number.
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|ty| ty.ggml_id() == id)
    }

    /// The number of the type in a GGUF tensor table.
    pub const fn ggml_id(self) -> u32 {
        self.row().id
    }

    /// The name of the type as files and people write it, e.g. `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements in one block: 1, 32, 64 or 256.
    pub const fn block_len(self) -> usize {
        self.row().block_len
    }

    /// Bytes in one block.
    pub const fn block_bytes(self) -> usize {
        self.row().block_bytes
    }

    /// Bytes that a row of `len` elements takes.
    ///
    /// # Errors
    /// [`QuantError::RaggedRow`] if `len` is not a whole number of blocks, [`QuantError::RowTooLong`] if the
    /// size does not fit in `usize`.
    pub const fn row_bytes(self, len: usize) -> Result<usize, QuantError> {
        if !len.is_multiple_of(self.block_len()) {
            return Err(QuantError::RaggedRow { ty: self, len });
        }
        match (len / self.block_len()).checked_mul(self.block_bytes()) {
            Some(size_bytes) => Ok(size_bytes),
            None => Err(QuantError::RowTooLong { ty: self, len }),
        }
    }

    const fn row(self) -> Row {
        match self {
            Self::F32 => Row::new("F32", 0, 1, 4),
            Self::F16 => Row::new("F16", 1, 1, 2),
            Self::BF16 => Row::new("BF16", 30, 1, 2),
            Self::Q8_0 => Row::new("Q8_0", 8, 32, 34),
            Self::Q4_0 => Row::new("Q4_0", 2, 32, 18),
            Self::Q4_1 => Row::new("Q4_1", 3, 32, 20),
            Self::Q5_0 => Row::new("Q5_0", 6, 32, 22),
            Self::Q5_1 => Row::new("Q5_1", 7, 32, 24),
            Self::Q4_K => Row::new("Q4_K", 12, 256, 144),
            Self::Q5_K => Row::new("Q5_K", 13, 256, 176),
            Self::Q6_K => Row::new("Q6_K", 14, 256, 210),
            Self::IQ4_NL => Row::new("IQ4_NL", 20, 32, 18),
            Self::IQ4_XS => Row::new("IQ4_XS", 23, 256, 136),
            Self::MXFP4 => Row::new("MXFP4", 39, 32, 17),
            Self::NVFP4 => Row::new("NVFP4", 40, 64, 36),
        }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One line of the type table.
struct Row {
    name: &'static str,
    id: u32,
    block_len: usize,
    block_bytes: usize,
}

impl Row {
    const fn new(name: &'static str, id: u32, block_len: usize, block_bytes: usize) -> Self {
        Self { name, id, block_len, block_bytes }
    }
}
