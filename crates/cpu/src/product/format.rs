//! The integer form of each weight type, unpacked in registers.

mod k;
mod small;

pub(crate) use k::{Iq4Xs, Q4K, Q5K, Q6K};
pub(crate) use small::{Iq4Nl, Mxfp4, Nvfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

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
    type Block: Stored;
    /// The blocks of 256 elements.
    type Group: Stored;
    /// The scales and minimums of a group.
    type Head<S: Ints>: Head<S>;
    /// How elements share scales and minimums.
    type Form: Form;

    /// Blocks of a whole group.
    const BLOCKS: usize = size_of::<Self::Group>() / size_of::<Self::Block>();

    /// The group that `blocks` start with, if they are that many.
    fn group(blocks: &[Self::Block]) -> Option<&Self::Group> {
        Self::Group::ref_from_prefix(blocks.as_bytes()).ok().map(|(group, _)| group)
    }

    /// What the units of a group share. Blocks of zeros have minimums of +0.
    fn head<S: Ints>(s: S, group: &Self::Group) -> Self::Head<S>;

    /// The integers of unit `u`, in order.
    fn unit<S: Ints>(s: S, group: &Self::Group, head: &Self::Head<S>, u: usize) -> [S::H; 2];
}

/// Bytes of weights, at any address.
pub(crate) trait Stored: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy> Stored for T {}

/// The scales and minimums of a group.
pub(crate) trait Head<S: Ints>: Copy {
    /// The scale of sub-block `i`.
    fn scale(&self, i: usize) -> f32;

    /// Lane `u` is the minimum of unit `u`; of no meaning for a type without minimums.
    fn min(&self) -> S::F;

    /// The head of a group that has only `n_unit` units: the minimums of the others are +0.
    #[must_use]
    #[inline(always)]
    fn shortened(self, _: S, _n_unit: usize) -> Self {
        self
    }
}

/// From index `8 - n` on, `n` masks of all ones and zeros after them.
static KEPT: [f32; 2 * UNITS] = {
    let mut masks = [0.0; 2 * UNITS];
    let mut i = 0;
    while i < UNITS {
        masks[i] = f32::from_bits(u32::MAX);
        i += 1;
    }
    masks
};

/// One scale per unit.
#[derive(Clone, Copy)]
pub(crate) struct UnitScales<S: Ints> {
    scale: [f32; UNITS],
    min: S::F,
}

impl<S: Ints> Head<S> for UnitScales<S> {
    #[inline(always)]
    fn scale(&self, i: usize) -> f32 {
        self.scale[i]
    }

    #[inline(always)]
    fn min(&self) -> S::F {
        self.min
    }

    #[inline(always)]
    fn shortened(self, s: S, n_unit: usize) -> Self {
        let mut min = self.min;
        if let Some(kept) = KEPT.get(UNITS - n_unit..).and_then(|kept| kept.first_chunk()) {
            min = s.of_bits(s.and(s.to_bits(min), s.to_bits(s.load(kept))));
        }
        Self { min, ..self }
    }
}

/// One scale per half unit, and no minimums.
#[derive(Clone, Copy)]
pub(crate) struct HalfUnitScales<S: Ints> {
    scale: [f32; 2 * UNITS],
    none: S::F,
}

impl<S: Ints> Head<S> for HalfUnitScales<S> {
    #[inline(always)]
    fn scale(&self, i: usize) -> f32 {
        self.scale[i]
    }

    #[inline(always)]
    fn min(&self) -> S::F {
        self.none
    }
}

/// One scale for all, and integer factors.
#[derive(Clone, Copy)]
pub(crate) struct Factors<S: Ints> {
    scale: f32,
    /// One per unit, or one per half unit.
    factor: [i16; 2 * UNITS],
    min: S::F,
}

impl<S: Ints> Head<S> for Factors<S> {
    #[inline(always)]
    fn scale(&self, _: usize) -> f32 {
        self.scale
    }

    #[inline(always)]
    fn min(&self) -> S::F {
        self.min
    }
}

/// An array's sixteen-element parts.
#[inline(always)]
fn parts<T, const N: usize>(x: &[T; N]) -> &[[T; 16]] {
    x.as_chunks().0
}
