//! The search for blocks whose values are not finite, by their scales alone.
//!
//! A good block costs a load and three integer operations for each scale. Blocks are taken in chunks, and only a chunk that
//! gives cause is looked at one by one.

use std::fmt;
use std::ops::BitOr;

use crate::blocks::{
    Bf16, Block, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockNvfp4, BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1,
    BlockQ5K, BlockQ6K, BlockQ8_0, F16, F32, with_block,
};
use crate::rows::blocks_of;
use crate::{QuantError, WeightType};

/// Blocks that are judged together.
const CHUNK: usize = 256;

/// A block with a value that is not finite.
#[derive(Debug, Clone, Copy)]
pub struct NotFinite {
    /// The block's place among those searched, from 0. Of a float type, the element's.
    pub block: usize,
    /// The scale, minimum or element found there: infinite or not a number.
    pub value: f32,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in block {}", self.value, self.block)
    }
}

/// Finds the first block of type `ty` in `bytes` with a value that is infinite or not a number.
///
/// That is every block of which [`decode_row`](crate::decode_row) makes such a value, and one more kind: an NVFP4 block with
/// a scale that E4M3 reads as not a number, and which decodes to zeros.
///
/// # Errors
/// [`QuantError::TornBlock`] if `bytes` are not a whole number of blocks.
pub fn first_not_finite(ty: WeightType, bytes: &[u8]) -> Result<Option<NotFinite>, QuantError> {
    if !bytes.len().is_multiple_of(ty.block_bytes()) {
        return Err(QuantError::TornBlock { ty, found: bytes.len() });
    }
    Ok(with_block!(ty, search(bytes)))
}

fn search<B: Scan>(bytes: &[u8]) -> Option<NotFinite> {
    let good = B::Marks::default();
    blocks_of::<B>(bytes).chunks(CHUNK).enumerate().find_map(|(i, chunk)| {
        if chunk.iter().fold(good, |marks, block| marks | block.marks()) == good {
            return None;
        }
        let found = chunk.iter().enumerate().find_map(|(k, block)| Some((k, block.not_finite()?)));
        found.map(|(k, value)| NotFinite { block: i * CHUNK + k, value })
    })
}

/// A block that says cheaply that it is finite.
pub(crate) trait Scan: Block {
    /// As wide as what is looked at, so that chunks of it fill whole registers.
    type Marks: Copy + Default + PartialEq + BitOr<Output = Self::Marks>;

    /// Zero only if the block is finite.
    fn marks(&self) -> Self::Marks;

    /// The first value that is not finite, if there is one.
    fn not_finite(&self) -> Option<f32>;
}

/// Adding one to an exponent of ones, and to no other, carries into the place of the sign.
impl Scan for F32 {
    type Marks = u32;

    fn marks(&self) -> u32 {
        ((u32::from_le_bytes(self.0.to_bytes()) & 0x7f80_0000) + 0x0080_0000) & 0x8000_0000
    }

    fn not_finite(&self) -> Option<f32> {
        Some(self.0.get()).filter(|value| !value.is_finite())
    }
}

impl Scan for F16 {
    type Marks = u16;

    fn marks(&self) -> u16 {
        ((self.0.get() & 0x7c00) + 0x0400) & 0x8000
    }

    fn not_finite(&self) -> Option<f32> {
        Some(self.to_f32()).filter(|value| !value.is_finite())
    }
}

impl Scan for Bf16 {
    type Marks = u16;

    fn marks(&self) -> u16 {
        ((self.0.get() & 0x7f80) + 0x0080) & 0x8000
    }

    fn not_finite(&self) -> Option<f32> {
        Some(self.to_f32()).filter(|value| !value.is_finite())
    }
}

/// Blocks that are finite if some halves are: products of a half with the small integers of a block stay in range.
macro_rules! finite_by_halves {
    ($($block:ty: $first:ident $(, $second:ident)?;)+) => { $(
        impl Scan for $block {
            type Marks = u16;

            fn marks(&self) -> u16 {
                self.$first.marks() $(| self.$second.marks())?
            }

            fn not_finite(&self) -> Option<f32> {
                self.$first.not_finite() $(.or_else(|| self.$second.not_finite()))?
            }
        }
    )+ };
}

finite_by_halves! {
    BlockQ8_0: d;
    BlockQ4_0: d;
    BlockQ4_1: d, m;
    BlockQ5_0: d;
    BlockQ5_1: d, m;
    BlockQ4K: d, dmin;
    BlockQ5K: d, dmin;
    BlockQ6K: d;
    BlockIq4Nl: d;
    BlockIq4Xs: d;
}

impl Scan for BlockMxfp4 {
    type Marks = u8;

    /// From this exponent on, the greatest codes pass the range of an f32.
    fn marks(&self) -> u8 {
        u8::from(self.e >= 0xfd)
    }

    fn not_finite(&self) -> Option<f32> {
        if self.e == 0xff {
            return Some(f32::NAN);
        }
        let mut values = [0.0; Self::LEN];
        self.decode(&mut values);
        values.into_iter().find(|value| !value.is_finite())
    }
}

impl Scan for BlockNvfp4 {
    type Marks = u32;

    /// As for the halves, four bytes at once.
    fn marks(&self) -> u32 {
        ((u32::from_le_bytes(self.d) & 0x7f7f_7f7f) + 0x0101_0101) & 0x8080_8080
    }

    fn not_finite(&self) -> Option<f32> {
        self.d.iter().any(|d| d & 0x7f == 0x7f).then_some(f32::NAN)
    }
}
