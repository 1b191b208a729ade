//! What can be wrong with an operation.

/// Why an operation was refused or failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two operands do not fit together, or an operand does not fit its buffer.
    #[error("{op}: {what} is {found}, expected {expected}")]
    Shape {
        /// The operation or operand.
        op: &'static str,
        /// The quantity that is wrong.
        what: &'static str,
        /// Its value.
        found: usize,
        /// What it has to be.
        expected: usize,
    },
    /// A count or size is outside its range.
    #[error("{op}: {what} is {found}, which is out of range ({range})")]
    Range {
        /// The operation or operand.
        op: &'static str,
        /// The quantity that is wrong.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The values it may take.
        range: &'static str,
    },
    /// The bytes of a vector of f32 do not start at a multiple of four.
    #[error("the bytes of a vector of {len} f32 values are not aligned to 4 bytes")]
    Unaligned {
        /// Number of values.
        len: usize,
    },
    /// The memory substrate refused, for example a gap in KV positions.
    #[error(transparent)]
    Memory(#[from] muser_memory::Error),
    /// The quantised blocks do not fit the shape.
    #[error(transparent)]
    Quant(#[from] muser_quant::QuantError),
}

/// Fails with [`Error::Shape`] unless `found` equals `expected`.
pub(crate) fn expect(op: &'static str, what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Shape { op, what, found, expected }) }
}
