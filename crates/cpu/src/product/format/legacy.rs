//! The types with a half scale, some with a half minimum, per 32 elements.

use muser_quant::blocks::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};
use zerocopy::little_endian::U32;

use super::{Format, codes4, each, word};
use crate::arch::quads::Quads;
use crate::product::unit::{Plain, Rows};

pub(crate) struct Q8_0;

impl Format for Q8_0 {
    type Block = BlockQ8_0;
    type Unit = Rows;

    const UNITS: usize = 1;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Rows]) {
        let to = &mut to[0];
        s.store(s.low_halves(&each!(blocks, block => word(block))), &mut to.scale);
        for (block, to) in blocks.into_iter().zip(&mut to.codes) {
            for (half, to) in block.qs.as_chunks().0.iter().zip(to) {
                s.store_i16(s.widen_i8(half), to);
            }
        }
    }
}

pub(crate) struct Q4_0;

impl Format for Q4_0 {
    type Block = BlockQ4_0;
    type Unit = Plain<false, 8, 8>;

    const UNITS: usize = 1;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        s.store(s.low_halves(&each!(blocks, block => word(block))), &mut to.scale);
        let quads = s.transpose(each!(blocks, block => &block.qs));
        for (codes, to) in codes4(s, quads).into_iter().zip(&mut to.codes) {
            s.store_quads(codes, to);
        }
    }
}

pub(crate) struct Q4_1;

impl Format for Q4_1 {
    type Block = BlockQ4_1;
    type Unit = Plain<true, 0, 8>;

    const UNITS: usize = 1;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        let (scale, min) = s.both_halves(&each!(blocks, block => word(block)));
        s.store(scale, &mut to.scale);
        s.store(min, &mut to.min);
        let quads = s.transpose(each!(blocks, block => &block.qs));
        for (codes, to) in codes4(s, quads).into_iter().zip(&mut to.codes) {
            s.store_quads(codes, to);
        }
    }
}

/// Codes whose fifth bits are apart.
#[inline(always)]
fn codes5<S: Quads>(s: S, qh: [U32; 8], qs: [&[u8; 16]; 8], to: &mut [[u8; 32]; 8]) {
    let words = s.quads_of(&qh.map(U32::get));
    for (i, (codes, to)) in codes4(s, s.transpose(qs)).into_iter().zip(to).enumerate() {
        s.store_quads(s.or_quads(codes, s.fifth_bits(words, i)), to);
    }
}

pub(crate) struct Q5_0;

impl Format for Q5_0 {
    type Block = BlockQ5_0;
    type Unit = Plain<false, 16, 4>;

    const UNITS: usize = 1;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        s.store(s.low_halves(&each!(blocks, block => word(block))), &mut to.scale);
        codes5(s, each!(blocks, block => block.qh), each!(blocks, block => &block.qs), &mut to.codes);
    }
}

pub(crate) struct Q5_1;

impl Format for Q5_1 {
    type Block = BlockQ5_1;
    type Unit = Plain<true, 0, 4>;

    const UNITS: usize = 1;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        let (scale, min) = s.both_halves(&each!(blocks, block => word(block)));
        s.store(scale, &mut to.scale);
        s.store(min, &mut to.min);
        codes5(s, each!(blocks, block => block.qh), each!(blocks, block => &block.qs), &mut to.codes);
    }
}
