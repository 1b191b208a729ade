//! One block of each type: its layout, its meaning in f32, its integer form, and an encoder.

mod float;
mod fp4;
mod iq4;
mod k;
mod legacy;

pub use float::{Bf16, F16, F32};
pub use fp4::{BlockMxfp4, BlockNvfp4, E2M1_DOUBLED, e4m3_half, e8m0_half};
pub use iq4::{BlockIq4Nl, BlockIq4Xs, IQ4_VALUES};
pub use k::{BlockQ4K, BlockQ5K, BlockQ6K, scales_and_mins};
pub use legacy::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::WeightType;

/// A block that rows are made of. Any bytes of the right size are a block.
pub(crate) trait Block: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy {
    const TYPE: WeightType;
    const LEN: usize = Self::TYPE.block_len();

    /// Writes the `LEN` values of the block.
    fn decode(&self, out: &mut [f32]);

    /// The block nearest to `LEN` values, finite unless the type is a float type.
    fn encode(x: &[f32]) -> Self;
}

/// A block with an integer form: `value = w * scale + min`.
pub(crate) trait IntegerBlock: Block {
    /// Elements that share a scale.
    const SUB_BLOCK: usize;

    fn unpack(&self, out: &mut Unpacked<'_>);
}

/// Where one block of a group goes.
pub(crate) struct Unpacked<'a> {
    pub w: &'a mut [i16],     // (LEN)
    pub scale: &'a mut [f32], // (LEN / SUB_BLOCK)
    pub min: &'a mut [f32],   // (LEN / 32)
}

/// Checks a layout against the type table: what the file holds is what the struct says.
macro_rules! assert_layout {
    ($($block:ty),+ $(,)?) => { $(const _: () = {
        let ty = <$block as $crate::blocks::Block>::TYPE;
        assert!(size_of::<$block>() == ty.block_bytes() && align_of::<$block>() == 1);
        assert!($crate::GROUP_LEN.is_multiple_of(ty.block_len()));
    };)+ };
}
pub(crate) use assert_layout;

/// Calls `f::<B>(args)` with the block type of `ty`.
macro_rules! with_block {
    ($ty:expr, $f:ident($($arg:expr),*)) => { match $ty {
        $crate::WeightType::F32 => $f::<$crate::blocks::F32>($($arg),*),
        $crate::WeightType::F16 => $f::<$crate::blocks::F16>($($arg),*),
        $crate::WeightType::BF16 => $f::<$crate::blocks::Bf16>($($arg),*),
        _ => $crate::blocks::with_integer_block!($ty, $f($($arg),*), unreachable!("the float types are matched above")),
    } };
}
pub(crate) use with_block;

/// Calls `f::<B>(args)` with the block type of `ty`, or evaluates `otherwise` for a type without integer form.
macro_rules! with_integer_block {
    ($ty:expr, $f:ident($($arg:expr),*), $otherwise:expr) => { match $ty {
        $crate::WeightType::F32 | $crate::WeightType::F16 | $crate::WeightType::BF16 => $otherwise,
        $crate::WeightType::Q8_0 => $f::<$crate::blocks::BlockQ8_0>($($arg),*),
        $crate::WeightType::Q4_0 => $f::<$crate::blocks::BlockQ4_0>($($arg),*),
        $crate::WeightType::Q4_1 => $f::<$crate::blocks::BlockQ4_1>($($arg),*),
        $crate::WeightType::Q5_0 => $f::<$crate::blocks::BlockQ5_0>($($arg),*),
        $crate::WeightType::Q5_1 => $f::<$crate::blocks::BlockQ5_1>($($arg),*),
        $crate::WeightType::Q4_K => $f::<$crate::blocks::BlockQ4K>($($arg),*),
        $crate::WeightType::Q5_K => $f::<$crate::blocks::BlockQ5K>($($arg),*),
        $crate::WeightType::Q6_K => $f::<$crate::blocks::BlockQ6K>($($arg),*),
        $crate::WeightType::IQ4_NL => $f::<$crate::blocks::BlockIq4Nl>($($arg),*),
        $crate::WeightType::IQ4_XS => $f::<$crate::blocks::BlockIq4Xs>($($arg),*),
        $crate::WeightType::MXFP4 => $f::<$crate::blocks::BlockMxfp4>($($arg),*),
        $crate::WeightType::NVFP4 => $f::<$crate::blocks::BlockNvfp4>($($arg),*),
    } };
}
pub(crate) use with_integer_block;

const fn lo(byte: u8) -> u8 {
    byte & 15
}

const fn hi(byte: u8) -> u8 {
    byte >> 4
}

/// The finite half nearest to `x`: a scale past the range of a half saturates, so that the block stays finite.
fn finite_half(x: f32) -> F16 {
    let max = half::f16::MAX.to_f32();
    F16::from_f32(x.clamp(-max, max))
}

/// `1 / x`, or 0 where there is no scale to divide by.
fn reciprocal(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { x.recip() }
}

/// The value of largest magnitude, with its sign; the first of equals.
fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |best, &v| if v.abs() > f32::abs(best) { v } else { best })
}

/// The index in `values` (ascending) nearest to `x`; the lower of two equally near.
fn nearest<T: Copy + Into<f32>>(values: &[T], x: f32) -> u8 {
    let above = values.partition_point(|&v| v.into() < x).clamp(1, values.len() - 1);
    let below = above - 1;
    let nearer_above = values[above].into() - x < x - values[below].into();
    (if nearer_above { above } else { below }) as u8
}
