use crate::{GROUP_LEN, QuantError, SUM_LEN};

/// Largest magnitude of a quantised activation.
///
/// The largest sum of a lane is `Q6_K`'s: 32 products of at most 4096 * 16383, which is 2,147,352,576 and still below
/// 2^31. One bit more would overflow; 8 bits would lose the accuracy that this width costs no extra multiply for.
pub const MAX_ACTIVATION: i16 = 16_383;

/// Least magnitude that gets a scale; below it, a group is all zeros. It keeps the scale and its inverse normal.
const TINY: f32 = 1e-30;

/// An activation row quantised for integer products. `x[e]` is about `q[e] * scale[e / 256]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Activations {
    q: Vec<i16>,
    scale: Vec<f32>,
    sums: Vec<f32>,
}

/// A borrowed [`Activations`], its parts' lengths checked against each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivationsView<'a> {
    q: &'a [i16],
    scale: &'a [f32],
    sums: &'a [f32],
}

/// Quantises a row in groups of 256 values; the last may be shorter.
///
/// Per group, `amax` is the greatest magnitude, compared by bits so that not-a-number wins.
/// - Not finite: `scale` is not a number and `q` is 0, so that every product with the group is not a number.
/// - Below 1e-30: `scale` and `q` are 0.
/// - Else `scale = amax / 16383` and `q = round_ties_even(x * (16383 / amax))`.
///
/// `sums` holds the exact sum of `q` for each 32 values; its magnitude is below 2^24, so an f32 holds it.
pub fn quantize_activations(x: &[f32]) -> Activations {
    let mut out = Activations {
        q: Vec::with_capacity(x.len()),
        scale: Vec::with_capacity(x.len().div_ceil(GROUP_LEN)),
        sums: Vec::with_capacity(x.len().div_ceil(SUM_LEN)),
    };
    for group in x.chunks(GROUP_LEN) {
        let (scale, inv) = group_scale(group);
        out.scale.push(scale);
        let max = f32::from(MAX_ACTIVATION);
        // An infinite or not-a-number value times a zero `inv` is not a number, which the cast takes to 0.
        out.q.extend(group.iter().map(|v| (v * inv).round_ties_even().clamp(-max, max) as i16));
    }
    out.sums.extend(out.q.chunks(SUM_LEN).map(|q| q.iter().map(|&q| i32::from(q)).sum::<i32>() as f32));
    out
}

/// The scale of a group and the factor that quantises it.
fn group_scale(group: &[f32]) -> (f32, f32) {
    let amax = f32::from_bits(group.iter().map(|v| v.to_bits() & 0x7fff_ffff).max().unwrap_or(0));
    let max = f32::from(MAX_ACTIVATION);
    if !amax.is_finite() {
        (f32::NAN, 0.0)
    } else if amax < TINY {
        (0.0, 0.0)
    } else {
        (amax / max, max / amax)
    }
}

impl Activations {
    /// Borrows the row.
    pub fn view(&self) -> ActivationsView<'_> {
        ActivationsView { q: &self.q, scale: &self.scale, sums: &self.sums }
    }
}

impl<'a> ActivationsView<'a> {
    /// Joins the parts of a row of `q.len()` elements that were quantised elsewhere.
    ///
    /// # Errors
    /// [`QuantError::ActivationLen`] unless `scale` has one entry per 256 elements and `sums` one per 32, both
    /// rounded up.
    pub fn new(q: &'a [i16], scale: &'a [f32], sums: &'a [f32]) -> Result<Self, QuantError> {
        let len = q.len();
        for (part, found, expected) in
            [("scale", scale.len(), len.div_ceil(GROUP_LEN)), ("sums", sums.len(), len.div_ceil(SUM_LEN))]
        {
            if found != expected {
                return Err(QuantError::ActivationLen { part, len, expected, found });
            }
        }
        Ok(Self { q, scale, sums })
    }

    /// Elements of the row.
    pub fn len(self) -> usize {
        self.q.len()
    }

    /// Whether the row has no elements.
    pub fn is_empty(self) -> bool {
        self.q.is_empty()
    }

    /// The integers, one per element.
    pub fn q(self) -> &'a [i16] {
        self.q
    }

    /// The scales, one per 256 elements.
    pub fn scale(self) -> &'a [f32] {
        self.scale
    }

    /// The sums of `q`, one per 32 elements.
    pub fn sums(self) -> &'a [f32] {
        self.sums
    }
}
