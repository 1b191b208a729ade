//! How the blocks of each weight type become units.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators of arrays of vectors are not unrolled"
)]

mod fp4;
mod iq4;
mod k;
mod legacy;

pub(crate) use fp4::{Mxfp4, Nvfp4};
pub(crate) use iq4::{Iq4Nl, Iq4Xs};
pub(crate) use k::{Q4K, Q5K, Q6K};
pub(crate) use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::unit::Unit;
use crate::arch::quads::Quads;

/// A weight type.
pub(crate) trait Format {
    /// What a row is made of.
    type Block: Stored;
    /// What thirty-two elements of eight rows become.
    type Unit: Unit;
    /// The units that are unpacked at once.
    type Chunk: FromZeros + AsRef<[Self::Unit]> + AsMut<[Self::Unit]>;
    /// What the chunks of a block share.
    type Head<S: Quads>;

    /// Chunks of a block.
    const CHUNKS: usize;

    /// Units of a block.
    const UNITS: usize = Self::CHUNKS * (size_of::<Self::Chunk>() / size_of::<Self::Unit>());

    /// What the chunks of a block of each of eight rows share.
    fn head<S: Quads>(s: S, blocks: [&Self::Block; 8]) -> Self::Head<S>;

    /// Unpacks chunk `c` of a block of each of eight rows. // `to`: as long as a chunk
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], head: &Self::Head<S>, c: usize, to: &mut [Self::Unit]);
}

/// Bytes of weights, at any address.
pub(crate) trait Stored: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy {}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned + Copy> Stored for T {}

/// One expression for the block of each row.
macro_rules! each {
    ($blocks:ident, $block:ident => $value:expr) => {{
        let [b0, b1, b2, b3, b4, b5, b6, b7] = $blocks;
        macro_rules! value {
            ($of:ident) => {{
                let $block = $of;
                $value
            }};
        }
        [value!(b0), value!(b1), value!(b2), value!(b3), value!(b4), value!(b5), value!(b6), value!(b7)]
    }};
}
use each;

/// The first four bytes of blocks: a scale, and what follows.
#[inline(always)]
fn heads<S: Quads, B: Stored>(s: S, blocks: [&B; 8]) -> S::B {
    s.quads_of(&each!(blocks, block => word(block)))
}

#[inline(always)]
fn word<B: Stored>(block: &B) -> u32 {
    let bytes = block.as_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Sixteen bytes of each row that hold two codes each: the codes in the low halves come first.
#[inline(always)]
fn codes4<S: Quads>(s: S, quads: [S::B; 4]) -> [S::B; 8] {
    let [a, b, c, d] = quads;
    [
        s.shr_and(a, 0, 15),
        s.shr_and(b, 0, 15),
        s.shr_and(c, 0, 15),
        s.shr_and(d, 0, 15),
        s.shr_and(a, 4, 15),
        s.shr_and(b, 4, 15),
        s.shr_and(c, 4, 15),
        s.shr_and(d, 4, 15),
    ]
}

#[inline(always)]
fn store<S: Quads>(s: S, codes: [S::B; 8], to: &mut [[u8; 32]; 8]) {
    for j in 0..8 {
        s.store_quads(codes[j], &mut to[j]);
    }
}
