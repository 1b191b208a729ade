//! The integer form of quantised weights, and their product with quantised activations.
//!
//! A row is taken in groups of 256 elements, the last of which may be shorter. Element `e` of a group belongs to lane
//! `(e % 16) / 2`, which is where a pairwise multiply of sixteen 16-bit integers puts it. The sums over integers,
//! `isum`, are exact in 32 bits; every step in f32 is one IEEE operation, `fma` among them.
//!
//! ```text
//! acc = [0; 8]; accm = [0; 8]
//! for each group g:
//!     16 or 32 elements per scale:
//!         inner = [0; 8]
//!         for each sub-block s in order: inner[l] = fma(isum_s[l] as f32, scale_s, inner[l])
//!         acc[l] = fma(inner[l], act_scale_g, acc[l])
//!     256 elements per scale:
//!         acc[l] = fma(isum_g[l] as f32, scale_g * act_scale_g, acc[l])
//!     with minimums, for each 32 elements b that the group has:
//!         accm[b] = fma(min_b * sum_b, act_scale_g, accm[b])
//! y = fold(acc), or with minimums fold(acc + accm)
//! ```

use crate::blocks::{IntegerBlock, Unpacked, with_integer_block};
use crate::rows::{blocks_of, check_row};
use crate::{ActivationsView, GROUP_LEN, LANES, QuantError, SUM_LEN, WeightType, fold};

/// How the elements of a type share scales and minimums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerForm {
    /// Elements that share a scale: 16, 32 or 256.
    pub sub_block: usize,
    /// Whether each 32 elements have a minimum.
    pub has_min: bool,
}

/// The integer form of `ty`, or `None` for F32, F16 and BF16.
pub fn integer_form(ty: WeightType) -> Option<IntegerForm> {
    let has_min = matches!(ty, WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K);
    let sub_block = with_integer_block!(ty, sub_block_of(), return None);
    Some(IntegerForm { sub_block, has_min })
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
    pub min: [f32; GROUP_LEN / SUM_LEN],
}

impl Default for Group {
    /// A group of no elements.
    fn default() -> Self {
        Self { len: 0, w: [0; GROUP_LEN], scale: [0.0; GROUP_LEN / 16], min: [0.0; GROUP_LEN / SUM_LEN] }
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
        .zip(group.min.chunks_exact_mut(B::LEN / SUM_LEN));
    for (block, ((w, scale), min)) in blocks_of::<B>(bytes).iter().zip(parts) {
        block.unpack(&mut Unpacked { w, scale, min });
    }
}

/// The product of one quantised weight row and one quantised activation row, in the order that every kernel keeps.
///
/// # Errors
/// [`QuantError::NoIntegerForm`] for a float type, [`QuantError::RaggedRow`] or [`QuantError::RowBytes`] if `row` is
/// not `acts.len()` elements.
pub fn dot_integer(ty: WeightType, row: &[u8], acts: ActivationsView<'_>) -> Result<f32, QuantError> {
    let form = integer_form(ty).ok_or(QuantError::NoIntegerForm { ty })?;
    check_row(ty, row.len(), acts.len())?;

    let group_bytes = GROUP_LEN / ty.block_len() * ty.block_bytes();
    let acts = acts.q().chunks(GROUP_LEN).zip(acts.scale()).zip(acts.sums().chunks(GROUP_LEN / SUM_LEN));
    let mut group = Group::default();
    let mut acc = [0.0; LANES];
    let mut acc_min = [0.0; LANES];
    for (bytes, ((q, &act_scale), sums)) in row.chunks(group_bytes).zip(acts) {
        unpack_group(ty, bytes, &mut group)?;
        add_group(form, &group, q, act_scale, &mut acc);
        if form.has_min {
            for ((acc, min), sum) in acc_min.iter_mut().zip(group.min).zip(sums) {
                *acc = (min * sum).mul_add(act_scale, *acc);
            }
        }
    }
    if form.has_min {
        for (acc, acc_min) in acc.iter_mut().zip(acc_min) {
            *acc += acc_min;
        }
    }
    Ok(fold(acc))
}

fn add_group(form: IntegerForm, group: &Group, q: &[i16], act_scale: f32, acc: &mut [f32; LANES]) {
    if form.sub_block == GROUP_LEN {
        let scale = group.scale[0] * act_scale;
        for (acc, isum) in acc.iter_mut().zip(lane_sums(&group.w[..group.len], q)) {
            *acc = (isum as f32).mul_add(scale, *acc);
        }
        return;
    }
    let mut inner = [0.0; LANES];
    let sub_blocks = group.w[..group.len].chunks_exact(form.sub_block).zip(q.chunks_exact(form.sub_block));
    for ((w, q), scale) in sub_blocks.zip(group.scale) {
        for (inner, isum) in inner.iter_mut().zip(lane_sums(w, q)) {
            *inner = (isum as f32).mul_add(scale, *inner);
        }
    }
    for (acc, inner) in acc.iter_mut().zip(inner) {
        *acc = inner.mul_add(act_scale, *acc);
    }
}

/// The exact sum of `w * q` for each lane; it fits by the choice of [`crate::MAX_ACTIVATION`].
fn lane_sums(w: &[i16], q: &[i16]) -> [i32; LANES] {
    let mut sums = [0; LANES];
    for (e, (&w, &q)) in w.iter().zip(q).enumerate() {
        sums[e % 16 / 2] += i32::from(w) * i32::from(q);
    }
    sums
}
