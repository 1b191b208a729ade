//! The element types a tensor can be stored in.

use std::fmt;

/// How a tensor's elements are stored: in blocks of `block_len` elements and `block_bytes` bytes, back to back.
///
/// The table holds every type that files are known to have, whether or not Muser can compute with it, so that sizes can
/// be checked and a refusal can name the type.
#[allow(missing_docs, non_camel_case_types, reason = "the names are the format's own")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    F32,
    F16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q8_1,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_K,
    IQ2_XXS,
    IQ2_XS,
    IQ3_XXS,
    IQ1_S,
    IQ4_NL,
    IQ3_S,
    IQ2_S,
    IQ4_XS,
    I8,
    I16,
    I32,
    I64,
    F64,
    IQ1_M,
    BF16,
    TQ1_0,
    TQ2_0,
    MXFP4,
    NVFP4,
    Q1_0,
    Q2_0,
}

struct Row {
    ty: TensorType,
    id: u32,
    name: &'static str,
    block_len: u64,
    block_bytes: u64,
}

const fn row(ty: TensorType, id: u32, name: &'static str, block_len: u64, block_bytes: u64) -> Row {
    Row { ty, id, name, block_len, block_bytes }
}

/// In the order of the enum, which is the order of the ids.
#[rustfmt::skip]
const TABLE: [Row; 35] = [
    row(TensorType::F32,      0, "F32",       1,   4),
    row(TensorType::F16,      1, "F16",       1,   2),
    row(TensorType::Q4_0,     2, "Q4_0",     32,  18),
    row(TensorType::Q4_1,     3, "Q4_1",     32,  20),
    row(TensorType::Q5_0,     6, "Q5_0",     32,  22),
    row(TensorType::Q5_1,     7, "Q5_1",     32,  24),
    row(TensorType::Q8_0,     8, "Q8_0",     32,  34),
    row(TensorType::Q8_1,     9, "Q8_1",     32,  36),
    row(TensorType::Q2_K,    10, "Q2_K",    256,  84),
    row(TensorType::Q3_K,    11, "Q3_K",    256, 110),
    row(TensorType::Q4_K,    12, "Q4_K",    256, 144),
    row(TensorType::Q5_K,    13, "Q5_K",    256, 176),
    row(TensorType::Q6_K,    14, "Q6_K",    256, 210),
    row(TensorType::Q8_K,    15, "Q8_K",    256, 292),
    row(TensorType::IQ2_XXS, 16, "IQ2_XXS", 256,  66),
    row(TensorType::IQ2_XS,  17, "IQ2_XS",  256,  74),
    row(TensorType::IQ3_XXS, 18, "IQ3_XXS", 256,  98),
    row(TensorType::IQ1_S,   19, "IQ1_S",   256,  50),
    row(TensorType::IQ4_NL,  20, "IQ4_NL",   32,  18),
    row(TensorType::IQ3_S,   21, "IQ3_S",   256, 110),
    row(TensorType::IQ2_S,   22, "IQ2_S",   256,  82),
    row(TensorType::IQ4_XS,  23, "IQ4_XS",  256, 136),
    row(TensorType::I8,      24, "I8",        1,   1),
    row(TensorType::I16,     25, "I16",       1,   2),
    row(TensorType::I32,     26, "I32",       1,   4),
    row(TensorType::I64,     27, "I64",       1,   8),
    row(TensorType::F64,     28, "F64",       1,   8),
    row(TensorType::IQ1_M,   29, "IQ1_M",   256,  56),
    row(TensorType::BF16,    30, "BF16",      1,   2),
    row(TensorType::TQ1_0,   34, "TQ1_0",   256,  54),
    row(TensorType::TQ2_0,   35, "TQ2_0",   256,  66),
    row(TensorType::MXFP4,   39, "MXFP4",    32,  17),
    row(TensorType::NVFP4,   40, "NVFP4",    64,  36),
    row(TensorType::Q1_0,    41, "Q1_0",    128,  18),
    row(TensorType::Q2_0,    42, "Q2_0",     64,  18),
];

const _: () = {
    let mut at = 0;
    while at < TABLE.len() {
        assert!(TABLE[at].ty as usize == at);
        assert!(at == 0 || TABLE[at - 1].id < TABLE[at].id);
        at += 1;
    }
};

impl TensorType {
    /// The type with this id in a file's tensor table.
    pub fn from_id(id: u32) -> Option<Self> {
        let at = TABLE.binary_search_by_key(&id, |row| row.id).ok()?;
        Some(TABLE[at].ty)
    }

    /// Every type of the table, by id.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.ty)
    }

    /// Its id in a file's tensor table.
    pub fn id(self) -> u32 {
        self.row().id
    }

    /// The format's own name, for example `Q4_K`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Elements of one block; 1 for plain numbers.
    pub fn block_len(self) -> u64 {
        self.row().block_len
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> u64 {
        self.row().block_bytes
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
