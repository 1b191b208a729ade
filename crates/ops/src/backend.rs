//! The operations of a forward pass, and the trait of what computes them.
//!
//! An operation is a struct of operands with public fields. A backend takes it as [`Checked`], which only exists after
//! every shape has been compared, so a backend checks nothing and can't be handed operands that do not fit.
//!
//! One call stands for one operation on all rows of a batch. A CPU backend runs it at once; a GPU backend may record it
//! and run it at [`Backend::synchronize`]. Fused operations (several products of one normed input, gate and up) are
//! operations of their own: what they mean is what [`Reference`](crate::Reference) computes.

use muser_memory::{Device, KvPlane};

use crate::error::expect;
use crate::{Error, Matrix, Norm, Rows, RowsMut};

/// Computes operations.
pub trait Backend: Send {
    /// What engaged, in words, for example `cpu (avx2, 2 threads)`.
    fn describe(&self) -> String;

    /// The device whose buffers this backend reads and writes.
    fn device(&self) -> &Device;

    /// Looks up embedding rows.
    ///
    /// # Errors
    /// When the device fails.
    fn embed(&mut self, op: Checked<Embed<'_>>) -> Result<(), Error>;

    /// Copies chosen rows.
    ///
    /// # Errors
    /// When the device fails.
    fn gather(&mut self, op: Checked<Gather<'_>>) -> Result<(), Error>;

    /// Norms rows.
    ///
    /// # Errors
    /// When the device fails.
    fn norm(&mut self, op: Checked<NormRows<'_>>) -> Result<(), Error>;

    /// Multiplies rows, normed first if asked, with one or several matrices.
    ///
    /// # Errors
    /// When the device fails.
    fn project(&mut self, op: Checked<Project<'_>>) -> Result<(), Error>;

    /// Computes the hidden values of a gated feed-forward block.
    ///
    /// # Errors
    /// When the device fails.
    fn gated(&mut self, op: Checked<Gated<'_>>) -> Result<(), Error>;

    /// Norms and rotates the heads of queries or keys, in place.
    ///
    /// # Errors
    /// When the device fails.
    fn heads(&mut self, op: Checked<Heads<'_>>) -> Result<(), Error>;

    /// Appends keys and values to a plane, rounded as it holds them.
    ///
    /// # Errors
    /// When the position does not follow the plane's last one, or the device fails.
    fn append(&mut self, op: Checked<Append<'_>>) -> Result<(), Error>;

    /// Attends to the rows that planes hold.
    ///
    /// # Errors
    /// When the device fails.
    fn attention(&mut self, op: Checked<Attention<'_>>) -> Result<(), Error>;

    /// Adds rows, normed first if asked, to the residual stream.
    ///
    /// # Errors
    /// When the device fails.
    fn add(&mut self, op: Checked<Add<'_>>) -> Result<(), Error>;

    /// Scales and caps logits, in place.
    ///
    /// # Errors
    /// When the device fails.
    fn cap(&mut self, op: Checked<Cap<'_>>) -> Result<(), Error>;

    /// Returns when all results are visible to the CPU.
    ///
    /// # Errors
    /// When the device fails.
    fn synchronize(&mut self) -> Result<(), Error>;
}

/// Operands of one operation that can be compared with each other.
pub trait Operands {
    /// Compares the operands' shapes.
    ///
    /// # Errors
    /// Names the first one that does not fit, with both numbers.
    fn check(&self) -> Result<(), Error>;
}

/// Operands that have been found to fit together.
pub struct Checked<T>(T);

impl<T: Operands> Checked<T> {
    /// Checks the operands.
    ///
    /// # Errors
    /// As [`Operands::check`].
    pub fn new(operands: T) -> Result<Self, Error> {
        operands.check()?;
        Ok(Self(operands))
    }

    /// The operands.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// `out[i] = norm(table[tokens[i]] * scale)`.
pub struct Embed<'a> {
    /// Token ids, each below the table's rows. `(n)`
    pub tokens: &'a [u32],
    /// One row for each token of the vocabulary. `(n_vocab, n_embd)`
    pub table: Matrix<'a>,
    /// Factor on every value; 1 leaves the bits as they are.
    pub scale: f32,
    /// Norm applied after the scale.
    pub norm: Option<Norm<'a>>,
    /// Shape: `(n, n_embd)`.
    pub out: RowsMut<'a>,
}

impl Operands for Embed<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "embed";
        expect(OP, "number of output rows", self.out.n(), self.tokens.len())?;
        expect(OP, "width of the output", self.out.width(), self.table.cols())?;
        if let Some(&token) = self.tokens.iter().find(|&&token| token as usize >= self.table.rows()) {
            let (found, range) = (token as usize, "below the vocabulary's size");
            return Err(Error::Range { op: OP, what: "token id", found, range });
        }
        self.norm.map_or(Ok(()), |norm| norm.check(OP, self.table.cols()))
    }
}

/// `out[i] = x[rows[i]]`.
pub struct Gather<'a> {
    /// Shape: `(n, width)`.
    pub x: Rows<'a>,
    /// Indices of rows of `x`. `(m)`
    pub rows: &'a [usize],
    /// Shape: `(m, width)`.
    pub out: RowsMut<'a>,
}

impl Operands for Gather<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "gather";
        expect(OP, "number of output rows", self.out.n(), self.rows.len())?;
        expect(OP, "width of the output", self.out.width(), self.x.width())?;
        match self.rows.iter().find(|&&row| row >= self.x.n()) {
            Some(&found) => Err(Error::Range { op: OP, what: "row", found, range: "below the number of input rows" }),
            None => Ok(()),
        }
    }
}

/// `out = norm(x)`, row by row.
pub struct NormRows<'a> {
    /// Shape: `(n, width)`.
    pub x: Rows<'a>,
    /// The norm.
    pub norm: Norm<'a>,
    /// Shape: `(n, width)`.
    pub out: RowsMut<'a>,
}

impl Operands for NormRows<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "norm";
        expect(OP, "number of output rows", self.out.n(), self.x.n())?;
        expect(OP, "width of the output", self.out.width(), self.x.width())?;
        self.norm.check(OP, self.x.width())
    }
}

/// One product of [`Project`]: `out = weight · input`.
pub struct Product<'a> {
    /// Shape: `(rows, cols)`.
    pub weight: Matrix<'a>,
    /// Shape: `(n, rows)`.
    pub out: RowsMut<'a>,
}

/// `out[p] = weight[p] · norm(x)` for each product `p`; all read the same normed input.
pub struct Project<'a> {
    /// Shape: `(n, cols)`.
    pub x: Rows<'a>,
    /// Norm applied to `x` before the products.
    pub norm: Option<Norm<'a>>,
    /// The products.
    pub products: &'a mut [Product<'a>],
}

impl Operands for Project<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "project";
        for Product { weight, out } in self.products.iter() {
            expect(OP, "columns of the weight", weight.cols(), self.x.width())?;
            expect(OP, "width of the output", out.width(), weight.rows())?;
            expect(OP, "number of output rows", out.n(), self.x.n())?;
        }
        self.norm.map_or(Ok(()), |norm| norm.check(OP, self.x.width()))
    }
}

/// The activation of a gated feed-forward block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.
    GeluTanh,
}

/// `out = activation(gate · norm(x)) * (up · norm(x))`.
pub struct Gated<'a> {
    /// Shape: `(n, n_embd)`.
    pub x: Rows<'a>,
    /// Norm applied to `x` before both products.
    pub norm: Option<Norm<'a>>,
    /// Shape: `(n_ff, n_embd)`.
    pub gate: Matrix<'a>,
    /// Shape: `(n_ff, n_embd)`.
    pub up: Matrix<'a>,
    /// Applied to the gate.
    pub activation: Activation,
    /// Shape: `(n, n_ff)`.
    pub out: RowsMut<'a>,
}

impl Operands for Gated<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "gated";
        expect(OP, "columns of the gate", self.gate.cols(), self.x.width())?;
        expect(OP, "columns of the up projection", self.up.cols(), self.x.width())?;
        expect(OP, "rows of the up projection", self.up.rows(), self.gate.rows())?;
        expect(OP, "width of the output", self.out.width(), self.gate.rows())?;
        expect(OP, "number of output rows", self.out.n(), self.x.n())?;
        self.norm.map_or(Ok(()), |norm| norm.check(OP, self.x.width()))
    }
}

/// Which two values of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Values `2i` and `2i + 1`.
    Adjacent,
    /// Values `i` and `i + n_rot/2`.
    Half,
}

/// Angles of a rotary position embedding, one row for each row of the batch.
#[derive(Clone, Copy)]
pub struct Rope<'a> {
    /// Cosines, with any magnitude scale multiplied in. `(n, n_rot/2)`
    pub cos: Rows<'a>,
    /// Sines, likewise. `(n, n_rot/2)`
    pub sin: Rows<'a>,
    /// Which values form a pair.
    pub pairing: Pairing,
}

/// Each head of each row is normed, then its first `n_rot` values are rotated: with a pair `(a, b)`,
/// `a' = a cos - b sin`, `b' = a sin + b cos`.
pub struct Heads<'a> {
    /// Queries or keys, changed in place. `(n, n_head * head_dim)`
    pub x: RowsMut<'a>,
    /// Values in a head.
    pub head_dim: usize,
    /// Norm of each head, its weight shared by all of them. Weight: `(head_dim)`
    pub norm: Option<Norm<'a>>,
    /// Rotation.
    pub rope: Option<Rope<'a>>,
}

impl Operands for Heads<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "heads";
        if self.head_dim == 0 {
            return Err(Error::Range { op: OP, what: "head_dim", found: 0, range: "at least 1" });
        }
        expect(OP, "remainder of the width by head_dim", self.x.width() % self.head_dim, 0)?;
        if let Some(Rope { cos, sin, .. }) = self.rope {
            for (what, rows) in [("number of cosine rows", cos.n()), ("number of sine rows", sin.n())] {
                expect(OP, what, rows, self.x.n())?;
            }
            expect(OP, "width of the sines", sin.width(), cos.width())?;
            if cos.width() * 2 > self.head_dim {
                return Err(Error::Range { op: OP, what: "n_rot", found: cos.width() * 2, range: "at most head_dim" });
            }
        }
        self.norm.map_or(Ok(()), |norm| norm.check(OP, self.head_dim))
    }
}

/// Appends the rows of positions `pos`, `pos + 1`, … to a plane.
pub struct Append<'a> {
    /// The plane.
    pub plane: &'a mut KvPlane,
    /// Position of the first row; equals the plane's end.
    pub pos: usize,
    /// Shape: `(n, n_head_kv * head_dim)`.
    pub k: Rows<'a>,
    /// Shape: `(n, n_head_kv * head_dim)`.
    pub v: Rows<'a>,
}

impl Operands for Append<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "append";
        let width = self.plane.geometry().n_head_kv * self.plane.geometry().head_dim;
        expect(OP, "width of the keys", self.k.width(), width)?;
        expect(OP, "width of the values", self.v.width(), width)?;
        expect(OP, "number of value rows", self.v.n(), self.k.n())?;
        expect(OP, "position", self.pos, self.plane.end())
    }
}

/// A run of batch rows that belong to one sequence, and the plane that holds its keys and values.
#[derive(Clone, Copy)]
pub struct AttentionSpan<'a> {
    /// Number of batch rows, at least one.
    pub n: usize,
    /// Position of the first of them.
    pub pos: usize,
    /// Holds every position that these rows see, themselves included.
    pub plane: &'a KvPlane,
}

/// Softmax attention. Query head `h` reads KV head `h / (n_head / n_head_kv)`.
///
/// Position `j` is visible to a query at position `i` when `j <= i` and, with a window `w`, `i - j < w`.
pub struct Attention<'a> {
    /// Queries. `(n, n_head * head_dim)`
    pub q: Rows<'a>,
    /// The sequences of the batch, in the order of their rows; together they cover all `n` rows.
    pub spans: &'a [AttentionSpan<'a>],
    /// Number of query heads.
    pub n_head: usize,
    /// Number of positions a query sees, its own included; `None` sees all.
    pub window: Option<usize>,
    /// Factor on the scores.
    pub scale: f32,
    /// Scores `s` become `cap * tanh(s / cap)`.
    pub soft_cap: Option<f32>,
    /// The result is multiplied by the sigmoid of these values. `(n, n_head * head_dim)`
    pub gate: Option<Rows<'a>>,
    /// Shape: `(n, n_head * head_dim)`.
    pub out: RowsMut<'a>,
}

impl Operands for Attention<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "attention";
        let covered = self.spans.iter().fold(0, |sum: usize, span| sum.saturating_add(span.n));
        expect(OP, "rows covered by the spans", covered, self.q.n())?;
        expect(OP, "number of output rows", self.out.n(), self.q.n())?;
        expect(OP, "width of the output", self.out.width(), self.q.width())?;
        if let Some(gate) = self.gate {
            expect(OP, "number of gate rows", gate.n(), self.q.n())?;
            expect(OP, "width of the gate", gate.width(), self.q.width())?;
        }
        if self.window == Some(0) {
            return Err(Error::Range { op: OP, what: "window", found: 0, range: "at least 1" });
        }
        for &AttentionSpan { n, pos, plane } in self.spans {
            if n == 0 {
                return Err(Error::Range { op: OP, what: "number of rows of a span", found: n, range: "at least 1" });
            }
            let q_width = self.n_head.saturating_mul(plane.geometry().head_dim);
            expect(OP, "width of the queries", self.q.width(), q_width)?;
            if self.n_head == 0 || !self.n_head.is_multiple_of(plane.geometry().n_head_kv) {
                let range = "a multiple of the number of KV heads";
                return Err(Error::Range { op: OP, what: "n_head", found: self.n_head, range });
            }
            expect(OP, "end of the span", pos.saturating_add(n), plane.end())?;
            let first_visible = self.window.map_or(0, |window| (pos + 1).saturating_sub(window));
            if plane.origin_logical() > first_visible {
                let (found, range) = (plane.origin_logical(), "at most the first visible position");
                return Err(Error::Range { op: OP, what: "first position held by the plane", found, range });
            }
        }
        Ok(())
    }
}

/// `residual += norm(x)`, row by row.
pub struct Add<'a> {
    /// Shape: `(n, width)`.
    pub x: Rows<'a>,
    /// Norm applied to `x` first.
    pub norm: Option<Norm<'a>>,
    /// Shape: `(n, width)`.
    pub residual: RowsMut<'a>,
}

impl Operands for Add<'_> {
    fn check(&self) -> Result<(), Error> {
        const OP: &str = "add";
        expect(OP, "number of residual rows", self.residual.n(), self.x.n())?;
        expect(OP, "width of the residual", self.residual.width(), self.x.width())?;
        self.norm.map_or(Ok(()), |norm| norm.check(OP, self.x.width()))
    }
}

/// `x = x * scale`, then, with a cap, `x = cap * tanh(x / cap)`.
pub struct Cap<'a> {
    /// Shape: `(n, width)`.
    pub x: RowsMut<'a>,
    /// Factor on every value; 1 leaves the bits as they are.
    pub scale: f32,
    /// Bound on the magnitude.
    pub cap: Option<f32>,
}

impl Operands for Cap<'_> {
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}
