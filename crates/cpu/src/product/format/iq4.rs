//! Codes of an uneven codebook of 8-bit values.

use muser_quant::blocks::{BlockIq4Nl, BlockIq4Xs, IQ4_VALUES};

use super::{Format, each, heads};
use crate::arch::quads::Quads;
use crate::product::unit::Rows;

/// The values of sixteen bytes' codes, those in the low halves first.
#[inline(always)]
fn values<S: Quads>(s: S, qs: &[u8; 16], to: &mut [[i16; 16]; 2]) {
    let codes = s.widen_u8(qs);
    s.store_i16(s.lookup_i16(&IQ4_VALUES, s.and_i16(codes, s.splat_i16(15))), &mut to[0]);
    s.store_i16(s.lookup_i16(&IQ4_VALUES, s.shr_i16(codes, 4)), &mut to[1]);
}

pub(crate) struct Iq4Nl;

impl Format for Iq4Nl {
    type Block = BlockIq4Nl;
    type Unit = Rows;
    type Chunk = [Self::Unit; 1];
    type Head<S: Quads> = ();

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(_: S, _: [&Self::Block; 8]) {}

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], (): &(), _: usize, to: &mut [Rows]) {
        let to = &mut to[0];
        s.store(s.low_halves(heads(s, blocks)), &mut to.scale);
        for (block, to) in blocks.into_iter().zip(&mut to.codes) {
            values(s, &block.qs, to);
        }
    }
}

pub(crate) struct Iq4Xs;

impl Format for Iq4Xs {
    type Block = BlockIq4Xs;
    type Unit = Rows;
    type Chunk = [Rows; 1];
    /// The scales of the block, and of each unit in two quads.
    type Head<S: Quads> = (S::F, [S::B; 2]);

    const CHUNKS: usize = 8;

    #[inline(always)]
    fn head<S: Quads>(s: S, blocks: [&Self::Block; 8]) -> Self::Head<S> {
        let scales = each!(blocks, block => scales(block));
        let (low, high) = (scales.map(|scales| scales as u32), scales.map(|scales| (scales >> 32) as u32));
        (s.low_halves(heads(s, blocks)), [s.quads_of(&low), s.quads_of(&high)])
    }

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], head: &Self::Head<S>, c: usize, to: &mut [Rows]) {
        let to = &mut to[0];
        // From 0 to 63, and 32 less is what they stand for.
        let scale = s.sub(s.byte_to_f32(head.1[c / 4], c % 4), s.splat(32.0));
        s.store(s.mul(head.0, scale), &mut to.scale);
        for (block, to) in blocks.into_iter().zip(&mut to.codes) {
            values(s, &block.qs[c], to);
        }
    }
}

/// The scale of each unit in a byte, the first lowest: four bits of each, and two, spread.
#[inline(always)]
fn scales(block: &BlockIq4Xs) -> u64 {
    let low = u64::from(u32::from_le_bytes(block.scales_l));
    let low = (low | low << 16) & 0x0000_ffff_0000_ffff;
    let low = (low | low << 8) & 0x00ff_00ff_00ff_00ff;
    let low = (low | low << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let high = u64::from(block.scales_h.get());
    let high = (high | high << 24) & 0x0000_00ff_0000_00ff;
    let high = (high | high << 12) & 0x000f_000f_000f_000f;
    let high = (high | high << 6) & 0x0303_0303_0303_0303;
    low | high << 4
}
