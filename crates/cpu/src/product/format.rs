//! The integer form of each weight type, unpacked in registers.

mod k;
mod small;

pub(crate) use k::{Iq4Xs, Q4K, Q5K, Q6K};
pub(crate) use small::{Iq4Nl, Mxfp4, Nvfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::UNITS;
use crate::arch::ints::Ints;

/// How the elements of a type share scales and minimums: [`muser_quant::IntegerForm`] as a type.
pub(crate) trait Form {
    /// Elements that share a scale: 16, 32 or 256.
    const SUB_BLOCK: usize;
    /// Whether each unit has a minimum.
    const HAS_MIN: bool;
}

/// The form with these constants.
pub(crate) struct Shared<const SUB_BLOCK: usize, const HAS_MIN: bool>;

impl<const SUB_BLOCK: usize, const HAS_MIN: bool> Form for Shared<SUB_BLOCK, HAS_MIN> {
    const SUB_BLOCK: usize = SUB_BLOCK;
    const HAS_MIN: bool = HAS_MIN;
}

/// How to unpack a weight type. Rows are taken in groups of 256 elements, the last of which may be shorter, and a group
/// in units of 32.
pub(crate) trait Format {
    /// What a row is made of.
    type Block: FromBytes + Immutable + KnownLayout + Unaligned;
    /// Blocks of a whole group.
    const BLOCKS: usize;
    /// How elements share scales and minimums.
    type Form: Form;

    /// What the units of a group share.
    fn head<S: Ints>(s: S, group: &[Self::Block]) -> Head<S>;

    /// The integers of unit `u`, in order.
    fn unit<S: Ints>(s: S, group: &[Self::Block], head: &Head<S>, u: usize) -> [S::H; 2];
}

/// The scales and minimums of one group.
#[derive(Clone, Copy)]
pub(crate) struct Head<S: Ints> {
    /// One per sub-block.
    pub scale: [f32; 2 * UNITS],
    /// Integer factors, one per sixteen elements; only for types that have them.
    pub factor: [i16; 2 * UNITS],
    /// Lane `u` is the minimum of unit `u`; for a unit that the group lacks it is -0, which changes no sum.
    pub min: S::F,
}

impl<S: Ints> Head<S> {
    /// Nothing.
    #[inline(always)]
    pub(crate) fn new(s: S) -> Self {
        Self::scales(s, [0.0; 2 * UNITS])
    }

    /// Of a type without minimums and factors.
    #[inline(always)]
    fn scales(s: S, scale: [f32; 2 * UNITS]) -> Self {
        Self { scale, factor: [0; 2 * UNITS], min: s.splat(0.0) }
    }

    /// Of a type with one scale per unit.
    #[inline(always)]
    fn unit_scales(s: S, scale: S::F, min: S::F) -> Self {
        let mut scales = [0.0; 2 * UNITS];
        if let Some(first) = scales.first_chunk_mut() {
            s.store(scale, first);
        }
        Self { scale: scales, factor: [0; 2 * UNITS], min }
    }
}

/// An array's sixteen-element parts.
#[inline(always)]
fn parts<T, const N: usize>(x: &[T; N]) -> &[[T; 16]] {
    x.as_chunks().0
}
