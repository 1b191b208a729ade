//! The types with a half scale, some with a half minimum, per 32 elements.

use muser_quant::blocks::{BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};
use zerocopy::little_endian::U32;

use super::{Format, codes4, each, heads, store};
use crate::arch::quads::Quads;
use crate::product::unit::{Plain, Rows};

pub(crate) struct Q8_0;

impl Format for Q8_0 {
    type Block = BlockQ8_0;
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
    type Chunk = [Self::Unit; 1];
    type Head<S: Quads> = ();

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(_: S, _: [&Self::Block; 8]) {}

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], (): &(), _: usize, to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        s.store(s.low_halves(heads(s, blocks)), &mut to.scale);
        let quads = s.transpose(each!(blocks, block => &block.qs));
        store(s, codes4(s, quads), &mut to.codes);
    }
}

pub(crate) struct Q4_1;

impl Format for Q4_1 {
    type Block = BlockQ4_1;
    type Unit = Plain<true, 0, 8>;
    type Chunk = [Self::Unit; 1];
    type Head<S: Quads> = ();

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(_: S, _: [&Self::Block; 8]) {}

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], (): &(), _: usize, to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        let (scale, min) = s.both_halves(heads(s, blocks));
        s.store(scale, &mut to.scale);
        s.store(min, &mut to.min);
        let quads = s.transpose(each!(blocks, block => &block.qs));
        store(s, codes4(s, quads), &mut to.codes);
    }
}

/// Codes whose fifth bits are apart.
#[inline(always)]
fn codes5<S: Quads>(s: S, qh: [U32; 8], qs: [&[u8; 16]; 8], to: &mut [[u8; 32]; 8]) {
    let words = s.quads_of(&qh.map(U32::get));
    let codes = codes4(s, s.transpose(qs));
    for i in 0..8 {
        s.store_quads(s.or_quads(codes[i], s.fifth_bits(words, i)), &mut to[i]);
    }
}

pub(crate) struct Q5_0;

impl Format for Q5_0 {
    type Block = BlockQ5_0;
    type Unit = Plain<false, 16, 4>;
    type Chunk = [Self::Unit; 1];
    type Head<S: Quads> = ();

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(_: S, _: [&Self::Block; 8]) {}

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], (): &(), _: usize, to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        s.store(s.low_halves(heads(s, blocks)), &mut to.scale);
        codes5(s, each!(blocks, block => block.qh), each!(blocks, block => &block.qs), &mut to.codes);
    }
}

pub(crate) struct Q5_1;

impl Format for Q5_1 {
    type Block = BlockQ5_1;
    type Unit = Plain<true, 0, 4>;
    type Chunk = [Self::Unit; 1];
    type Head<S: Quads> = ();

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(_: S, _: [&Self::Block; 8]) {}

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], (): &(), _: usize, to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        let (scale, min) = s.both_halves(heads(s, blocks));
        s.store(scale, &mut to.scale);
        s.store(min, &mut to.min);
        codes5(s, each!(blocks, block => block.qh), each!(blocks, block => &block.qs), &mut to.codes);
    }
}
