//! Where products go: some of the rows of an output, for some of its tokens.

use std::ops::Range;

use crate::pool::Disjoint;

/// The values of some rows and tokens in a token-major output that threads share. // `(n_token, stride)`
///
/// Row `r` of token `t` lies at `t * stride + r`. A band is the only one that touches its values.
pub struct Band<'a> {
    out: &'a Disjoint<'a, f32>,
    stride: usize,
    rows: Range<usize>,
    tokens: Range<usize>,
}

impl<'a> Band<'a> {
    /// The band of `rows` for `tokens`.
    ///
    /// # Panics
    /// When `rows` is not within `stride`.
    ///
    /// # Safety
    /// - While this band is in use, nothing else touches `rows` of `tokens`: no band that meets it and no slice of `out`.
    pub unsafe fn new(out: &'a Disjoint<'a, f32>, stride: usize, rows: Range<usize>, tokens: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= stride, "rows {rows:?} of {stride}");
        Self { out, stride, rows, tokens }
    }

    /// The tokens, as they are numbered in the output.
    pub fn tokens(&self) -> Range<usize> {
        self.tokens.clone()
    }

    /// Number of rows.
    pub fn n_row(&self) -> usize {
        self.rows.len()
    }

    /// The values of one token, as it is numbered in the output. // `(n_row)`
    ///
    /// # Panics
    /// When the token is not among the band's, or not in the output.
    #[inline]
    pub fn token(&mut self, token: usize) -> &mut [f32] {
        assert!(self.tokens.contains(&token), "token {token} of {:?}", self.tokens);
        let start = token * self.stride;
        // SAFETY: the rows of one token in different bands do not meet because the bands don't, those of different
        // tokens because `rows` is within the stride; `&mut self` keeps this band's own borrows apart.
        unsafe { self.out.slice(start + self.rows.start..start + self.rows.end) }
    }
}
