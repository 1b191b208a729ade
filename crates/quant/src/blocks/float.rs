use zerocopy::little_endian;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Block, assert_layout};
use crate::WeightType;

/// A little-endian IEEE single at any address.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct F32(pub little_endian::F32);

/// A little-endian IEEE half at any address: an element, or the scale of a block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct F16(pub little_endian::U16);

/// A little-endian bfloat16 at any address.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct Bf16(pub little_endian::U16);

assert_layout!(F32, F16, Bf16);

impl F16 {
    /// The value, exactly.
    pub fn to_f32(self) -> f32 {
        half::f16::from_bits(self.0.get()).to_f32()
    }

    /// The nearest half, ties to even; past the range it is infinite.
    pub fn from_f32(x: f32) -> Self {
        Self(half::f16::from_f32(x).to_bits().into())
    }
}

impl Bf16 {
    /// The value, exactly: the stored bits are the upper half of the f32's.
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0.get()) << 16)
    }

    /// The nearest bfloat16, ties to even; past the range it is infinite.
    pub fn from_f32(x: f32) -> Self {
        Self(half::bf16::from_f32(x).to_bits().into())
    }
}

impl Block for F32 {
    const TYPE: WeightType = WeightType::F32;

    fn decode(&self, out: &mut [f32]) {
        out[0] = self.0.get();
    }

    fn encode(x: &[f32]) -> Self {
        Self(x[0].into())
    }
}

impl Block for F16 {
    const TYPE: WeightType = WeightType::F16;

    fn decode(&self, out: &mut [f32]) {
        out[0] = self.to_f32();
    }

    fn encode(x: &[f32]) -> Self {
        Self::from_f32(x[0])
    }
}

impl Block for Bf16 {
    const TYPE: WeightType = WeightType::BF16;

    fn decode(&self, out: &mut [f32]) {
        out[0] = self.to_f32();
    }

    fn encode(x: &[f32]) -> Self {
        Self::from_f32(x[0])
    }
}
