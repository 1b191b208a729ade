//! The integer form of quantised weights, and their product with quantised activations.
//!
//! A row is taken in units of 32 elements, in order. A unit's sums over integers, `isum`, are exact in 32 bits; every step in
//! f32 is one IEEE operation, `fma` among them. There is one sum for the row, and one for its second digits.
//!
//! ```text
//! acc = 0
//! for each unit u:
//!     for each sub-block s of the unit, of 32 or 16 elements:
//!         acc = fma(isum_s as f32, scale_s * x_scale_u, acc)
//!     with minimums:
//!         acc = fma(min_u, x_sum_u, acc)
//! second = 0
//! for each unit u that has a second digit:
//!     for each sub-block s of the unit:
//!         second = fma(isum2_s as f32, scale_s * x_scale2_u, second)
//! y = acc + second
//! ```
//!
//! Wide activations have no second digits: `second` stays zero. `isum` is at most 2^24 for narrow activations, which an f32
//! holds (`Q6_K` has the greatest: 32 products of 4,096 and 127), and rounds once for wide ones.

use crate::blocks::{IntegerBlock, Unpacked, with_integer_block};
use crate::rows::{blocks_of, check_row};
use crate::{Activations, GROUP_LEN, QuantError, UNIT_LEN, WeightType};

/// Units of a group.
const UNITS: usize = GROUP_LEN / UNIT_LEN;

/// How the elements of a type share scales and minimums, and what they are multiplied with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerForm {
    /// Elements that share a scale: 16 or 32.
    pub sub_block: usize,
    /// Whether each 32 elements have a minimum.
    pub has_min: bool,
    /// Whether activations are the wide ones, of 16 bits.
    pub wide: bool,
}

/// The integer form of `ty`, or `None` for F32, F16 and BF16.
pub fn integer_form(ty: WeightType) -> Option<IntegerForm> {
    let has_min = matches!(ty, WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K);
    // Their codes have 8 bits, and two products of such codes and 8-bit activations pass the range of 16 bits.
    let wide = matches!(ty, WeightType::Q8_0 | WeightType::IQ4_NL | WeightType::IQ4_XS);
    let sub_block = with_integer_block!(ty, sub_block_of(), return None);
    Some(IntegerForm { sub_block, has_min, wide })
}

fn sub_block_of<B: IntegerBlock>() -> usize {
    B::SUB_BLOCK
}

/// Up to 256 elements of a weight row in integer form: `value[e] = w[e] * scale[e / sub_block] + min[e / 32]`.
///
/// What lies past the elements of a short group, and `min` for a type without minimums, is zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Elements that the group has.
    pub len: usize,
    /// The integers.
    pub w: [i16; GROUP_LEN],
    /// One scale per sub-block.
    pub scale: [f32; GROUP_LEN / 16],
    /// One minimum per 32 elements.
    pub min: [f32; UNITS],
}

impl Default for Group {
    /// A group of no elements.
    fn default() -> Self {
        Self { len: 0, w: [0; GROUP_LEN], scale: [0.0; GROUP_LEN / 16], min: [0.0; UNITS] }
    }
}

/// Unpacks the blocks of one group, which `bytes` are: 1 to `256 / block_len` of them.
///
/// # Errors
/// [`QuantError::NoIntegerForm`] for a float type, [`QuantError::GroupBytes`] if `bytes` are not such a group.
pub fn unpack_group(ty: WeightType, bytes: &[u8], group: &mut Group) -> Result<(), QuantError> {
    let n_block = bytes.len() / ty.block_bytes();
    with_integer_block!(ty, sub_block_of(), return Err(QuantError::NoIntegerForm { ty }));
    if !bytes.len().is_multiple_of(ty.block_bytes()) || !(1..=GROUP_LEN / ty.block_len()).contains(&n_block) {
        return Err(QuantError::GroupBytes { ty, found: bytes.len() });
    }
    *group = Group { len: n_block * ty.block_len(), ..Group::default() };
    with_integer_block!(ty, unpack_blocks(bytes, group), unreachable!("float types were refused above"));
    Ok(())
}

fn unpack_blocks<B: IntegerBlock>(bytes: &[u8], group: &mut Group) {
    let parts = group
        .w
        .chunks_exact_mut(B::LEN)
        .zip(group.scale.chunks_exact_mut(B::LEN / B::SUB_BLOCK))
        .zip(group.min.chunks_exact_mut(B::LEN / UNIT_LEN));
    for (block, ((w, scale), min)) in blocks_of::<B>(bytes).iter().zip(parts) {
        block.unpack(&mut Unpacked { w, scale, min });
    }
}

/// The product of one quantised weight row and one quantised activation row, in the order that every kernel keeps.
///
/// # Errors
/// [`QuantError::NoIntegerForm`] for a float type, [`QuantError::RaggedRow`] or [`QuantError::RowBytes`] if `row` is
/// not `x.len()` elements.
pub fn dot_integer(ty: WeightType, row: &[u8], x: &Activations) -> Result<f32, QuantError> {
    let form = integer_form(ty).ok_or(QuantError::NoIntegerForm { ty })?;
    check_row(ty, row.len(), x.len())?;

    let group_bytes = GROUP_LEN / ty.block_len() * ty.block_bytes();
    let mut group = Group::default();
    let (mut acc, mut second) = (0.0, 0.0);
    let mut digits = x.second().iter().peekable();
    for (g, bytes) in row.chunks(group_bytes).enumerate() {
        unpack_group(ty, bytes, &mut group)?;
        for u in 0..group.len / UNIT_LEN {
            let weights = UnitOfGroup { form, group: &group, u };
            let unit = g * UNITS + u;
            if form.wide {
                let x = &x.wide()[unit];
                acc = weights.add(&x.q, x.scale, acc);
                continue;
            }
            let x = &x.narrow()[unit];
            acc = weights.add(&x.q, x.scale, acc);
            if form.has_min {
                acc = group.min[u].mul_add(x.sum, acc);
            }
            if let Some(digit) = digits.next_if(|digit| digit.unit == unit) {
                second = weights.add(&digit.q, digit.scale, second);
            }
        }
    }
    Ok(acc + second)
}

/// A unit of a group of weights.
struct UnitOfGroup<'a> {
    form: IntegerForm,
    group: &'a Group,
    u: usize,
}

impl UnitOfGroup<'_> {
    /// `acc` and the products with `q * x_scale`.
    fn add<Q: Copy + Into<i32>>(&self, q: &[Q; UNIT_LEN], x_scale: f32, acc: f32) -> f32 {
        let Self { form: IntegerForm { sub_block, .. }, group, u } = *self;
        let w = group.w[u * UNIT_LEN..][..UNIT_LEN].chunks_exact(sub_block);
        let scale = &group.scale[u * UNIT_LEN / sub_block..];
        w.zip(q.chunks_exact(sub_block)).zip(scale).fold(acc, |acc, ((w, q), scale)| {
            let isum: i32 = w.iter().zip(q).map(|(&w, &q)| i32::from(w) * q.into()).sum();
            (isum as f32).mul_add(scale * x_scale, acc)
        })
    }
}
