//! Operands: weights as views into the arena, activations as rows of a buffer.
//!
//! An operand that exists is valid: its constructor has checked that the bytes behind it are there. What remains to be
//! checked, that the operands of one operation fit together, is done by [`Checked`](crate::Checked).

use muser_memory::{GpuBuffer, GpuByteView};
use muser_quant::WeightType;
use zerocopy::FromBytes;

use crate::Error;
use crate::error::expect;

/// A weight matrix in its stored blocks. `(rows, cols)`, row-major; a row is a whole number of blocks.
///
/// A product with it maps `cols` inputs to `rows` outputs. Every output is multiplied by [`scale`](Self::scale) at its end.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    view: GpuByteView<'a>,
    ty: WeightType,
    rows: usize,
    cols: usize,
    row_bytes: usize,
    scale: f32,
}

impl<'a> Matrix<'a> {
    /// Takes `view` as `rows` rows of `cols` values of type `ty`.
    ///
    /// # Errors
    /// When a dimension is zero, `cols` is not a whole number of blocks, or `view` has another size than the shape needs.
    pub fn new(view: GpuByteView<'a>, ty: WeightType, rows: usize, cols: usize) -> Result<Self, Error> {
        for (what, found) in [("rows", rows), ("cols", cols)] {
            if found == 0 {
                return Err(Error::Range { op: "matrix", what, found, range: "at least 1" });
            }
        }
        let row_bytes = ty.row_bytes(cols)?;
        let size = row_bytes.checked_mul(rows).ok_or(Error::Range {
            op: "matrix",
            what: "rows",
            found: rows,
            range: "a size that fits the address space",
        })?;
        expect("matrix", "size in bytes", view.len(), size)?;
        Ok(Self { view, ty, rows, cols, row_bytes, scale: 1.0 })
    }

    /// The same matrix with a factor on every decoded value, as NVFP4 files carry beside a tensor.
    #[must_use]
    pub fn with_scale(self, scale: f32) -> Self {
        Self { scale, ..self }
    }

    /// The factor on every decoded value; 1 in most files, and then the bits of a product are left as they are.
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// The type of the stored blocks.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// Number of outputs of a product with this matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs of a product with this matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Size of one stored row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// The view, for a backend that binds it.
    pub fn view(&self) -> GpuByteView<'a> {
        self.view
    }

    /// All stored bytes. `(rows, row_bytes)`
    pub fn bytes(&self) -> &'a [u8] {
        self.view.as_slice()
    }

    /// The stored bytes of one row.
    ///
    /// # Panics
    /// When `row` is not below [`rows`](Self::rows).
    pub fn row(&self, row: usize) -> &'a [u8] {
        &self.bytes()[row * self.row_bytes..][..self.row_bytes]
    }
}

/// A vector of f32 weights, such as the gains of a norm. `(len)`
#[derive(Clone, Copy)]
pub struct Vector<'a> {
    view: GpuByteView<'a>,
    values: &'a [f32],
}

impl<'a> Vector<'a> {
    /// Takes `view` as `len` f32 values.
    ///
    /// # Errors
    /// When `view` has another size, or does not start at a multiple of four bytes.
    pub fn new(view: GpuByteView<'a>, len: usize) -> Result<Self, Error> {
        expect("vector", "size in bytes", view.len(), len.saturating_mul(4))?;
        let values = <[f32]>::ref_from_bytes(view.as_slice()).map_err(|_| Error::Unaligned { len })?;
        Ok(Self { view, values })
    }

    /// The view, for a backend that binds it.
    pub fn view(&self) -> GpuByteView<'a> {
        self.view
    }

    /// The values.
    pub fn values(&self) -> &'a [f32] {
        self.values
    }
}

/// A root-mean-square norm: `x / sqrt(mean(x*x) + eps) * weight`, without the last factor when there is no weight.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    /// Gains, one for each value of a row.
    pub weight: Option<Vector<'a>>,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl Norm<'_> {
    pub(crate) fn check(&self, op: &'static str, width: usize) -> Result<(), Error> {
        self.weight.map_or(Ok(()), |weight| expect(op, "length of the norm's weight", weight.values().len(), width))
    }
}

/// Rows of activations, read; at least one. `(n, width)`, row-major
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    buffer: &'a GpuBuffer,
    first: usize,
    n: usize,
    width: usize,
}

impl<'a> Rows<'a> {
    /// The first `n` rows of `width` values in `buffer`.
    ///
    /// # Errors
    /// When `n` or `width` is zero, or the buffer is shorter.
    pub fn new(buffer: &'a GpuBuffer, n: usize, width: usize) -> Result<Self, Error> {
        check_rows(buffer.len(), n, width)?;
        Ok(Self { buffer, first: 0, n, width })
    }

    /// `n` of these rows, from row `first` on.
    ///
    /// # Errors
    /// When `n` is zero or there are not that many.
    pub fn slice(self, first: usize, n: usize) -> Result<Self, Error> {
        check_slice(first, n, self.n)?;
        Ok(Self { first: self.first + first, n, ..self })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The buffer and the index of the first value in it, for a backend that binds them.
    pub fn buffer(&self) -> (&'a GpuBuffer, usize) {
        (self.buffer, self.first * self.width)
    }

    /// All values. `(n, width)`
    pub fn values(&self) -> &'a [f32] {
        &self.buffer.as_slice()[self.first * self.width..][..self.n * self.width]
    }

    /// The values of one row.
    ///
    /// # Panics
    /// When `row` is not below [`n`](Self::n).
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.values()[row * self.width..][..self.width]
    }
}

/// Rows of activations, written; at least one. `(n, width)`, row-major
pub struct RowsMut<'a> {
    buffer: &'a mut GpuBuffer,
    first: usize,
    n: usize,
    width: usize,
}

impl<'a> RowsMut<'a> {
    /// The first `n` rows of `width` values in `buffer`.
    ///
    /// # Errors
    /// When `n` or `width` is zero, or the buffer is shorter.
    pub fn new(buffer: &'a mut GpuBuffer, n: usize, width: usize) -> Result<Self, Error> {
        check_rows(buffer.len(), n, width)?;
        Ok(Self { buffer, first: 0, n, width })
    }

    /// `n` of these rows, from row `first` on.
    ///
    /// # Errors
    /// When `n` is zero or there are not that many.
    pub fn slice(self, first: usize, n: usize) -> Result<Self, Error> {
        check_slice(first, n, self.n)?;
        Ok(Self { first: self.first + first, n, ..self })
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The buffer and the index of the first value in it, for a backend that binds them.
    pub fn buffer(&self) -> (&GpuBuffer, usize) {
        (self.buffer, self.first * self.width)
    }

    /// All values. `(n, width)`
    pub fn values(&self) -> &[f32] {
        &self.buffer.as_slice()[self.first * self.width..][..self.n * self.width]
    }

    /// All values. `(n, width)`
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.buffer.as_mut_slice()[self.first * self.width..][..self.n * self.width]
    }
}

fn check_slice(first: usize, n: usize, rows: usize) -> Result<(), Error> {
    at_least_one("number of rows", n)?;
    match first.checked_add(n) {
        Some(end) if end <= rows => Ok(()),
        _ => Err(Error::Shape { op: "rows", what: "end of a slice", found: first.saturating_add(n), expected: rows }),
    }
}

fn check_rows(buffer_len: usize, n: usize, width: usize) -> Result<(), Error> {
    at_least_one("number of rows", n)?;
    at_least_one("width", width)?;
    match n.checked_mul(width) {
        Some(len) if len <= buffer_len => Ok(()),
        _ => Err(Error::Shape {
            op: "rows",
            what: "length of the buffer",
            found: buffer_len,
            expected: n.saturating_mul(width),
        }),
    }
}

fn at_least_one(what: &'static str, found: usize) -> Result<(), Error> {
    if found > 0 { Ok(()) } else { Err(Error::Range { op: "rows", what, found, range: "at least 1" }) }
}
