//! Types with a scale per 32 or 16 elements.

use muser_quant::blocks::{
    BlockIq4Nl, BlockMxfp4, BlockNvfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, E2M1_DOUBLED,
    IQ4_VALUES, e8m0_half,
};

use super::{Format, Head, Shared, parts};
use crate::arch::ints::Ints;
use crate::product::UNITS;

/// The bits of -0 as an IEEE half.
const MINUS_ZERO: u16 = 0x8000;

/// A half of each block of a group; -0 where there is no block.
macro_rules! halves {
    ($group:ident, $field:ident) => {
        if let Ok(blocks) = <&[_; UNITS]>::try_from($group) {
            let [b0, b1, b2, b3, b4, b5, b6, b7] = blocks;
            [b0, b1, b2, b3, b4, b5, b6, b7].map(|block| block.$field.0.get())
        } else {
            let mut bits = [MINUS_ZERO; UNITS];
            for (bits, block) in bits.iter_mut().zip($group) {
                *bits = block.$field.0.get();
            }
            bits
        }
    };
}

#[inline(always)]
fn codes4<S: Ints>(s: S, qs: &[u8; 16]) -> [S::H; 2] {
    let v = s.widen_u8(qs);
    [s.and_i16(v, s.splat_i16(15)), s.shr_i16(v, 4)]
}

#[inline(always)]
fn minus<S: Ints>(s: S, [a, b]: [S::H; 2], x: i16) -> [S::H; 2] {
    let x = s.splat_i16(x);
    [s.sub_i16(a, x), s.sub_i16(b, x)]
}

#[inline(always)]
fn lookup<S: Ints>(s: S, table: &[i8; 16], [a, b]: [S::H; 2]) -> [S::H; 2] {
    [s.lookup(table, a), s.lookup(table, b)]
}

pub(crate) struct Q8_0;

impl Format for Q8_0 {
    type Block = BlockQ8_0;
    const BLOCKS: usize = 8;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockQ8_0]) -> Head<S> {
        Head::unit_scales(s, s.load_f16(&halves!(group, d)), s.splat(0.0))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockQ8_0], _: &Head<S>, u: usize) -> [S::H; 2] {
        let qs = parts(&group[u].qs);
        [s.widen_i8(&qs[0]), s.widen_i8(&qs[1])]
    }
}

pub(crate) struct Q4_0;

impl Format for Q4_0 {
    type Block = BlockQ4_0;
    const BLOCKS: usize = 8;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockQ4_0]) -> Head<S> {
        Head::unit_scales(s, s.load_f16(&halves!(group, d)), s.splat(0.0))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockQ4_0], _: &Head<S>, u: usize) -> [S::H; 2] {
        minus(s, codes4(s, &group[u].qs), 8)
    }
}

pub(crate) struct Q4_1;

impl Format for Q4_1 {
    type Block = BlockQ4_1;
    const BLOCKS: usize = 8;
    type Form = Shared<32, true>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockQ4_1]) -> Head<S> {
        Head::unit_scales(s, s.load_f16(&halves!(group, d)), s.load_f16(&halves!(group, m)))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockQ4_1], _: &Head<S>, u: usize) -> [S::H; 2] {
        codes4(s, &group[u].qs)
    }
}

pub(crate) struct Q5_0;

impl Format for Q5_0 {
    type Block = BlockQ5_0;
    const BLOCKS: usize = 8;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockQ5_0]) -> Head<S> {
        Head::unit_scales(s, s.load_f16(&halves!(group, d)), s.splat(0.0))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockQ5_0], _: &Head<S>, u: usize) -> [S::H; 2] {
        let [a, b] = codes4(s, &group[u].qs);
        let qh = group[u].qh.get();
        // A clear fifth bit is 16 less, which in two's complement sets the bits above the code.
        let low = s.splat_i16(-16);
        let (set_a, set_b) = (s.mask_of_bits(qh as u16), s.mask_of_bits((qh >> 16) as u16));
        [s.or_i16(a, s.and_not_i16(set_a, low)), s.or_i16(b, s.and_not_i16(set_b, low))]
    }
}

pub(crate) struct Q5_1;

impl Format for Q5_1 {
    type Block = BlockQ5_1;
    const BLOCKS: usize = 8;
    type Form = Shared<32, true>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockQ5_1]) -> Head<S> {
        Head::unit_scales(s, s.load_f16(&halves!(group, d)), s.load_f16(&halves!(group, m)))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockQ5_1], _: &Head<S>, u: usize) -> [S::H; 2] {
        let [a, b] = codes4(s, &group[u].qs);
        let qh = group[u].qh.get();
        let fifth = s.splat_i16(16);
        let (set_a, set_b) = (s.mask_of_bits(qh as u16), s.mask_of_bits((qh >> 16) as u16));
        [s.or_i16(a, s.and_i16(set_a, fifth)), s.or_i16(b, s.and_i16(set_b, fifth))]
    }
}

pub(crate) struct Iq4Nl;

impl Format for Iq4Nl {
    type Block = BlockIq4Nl;
    const BLOCKS: usize = 8;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockIq4Nl]) -> Head<S> {
        Head::unit_scales(s, s.load_f16(&halves!(group, d)), s.splat(0.0))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockIq4Nl], _: &Head<S>, u: usize) -> [S::H; 2] {
        lookup(s, &IQ4_VALUES, codes4(s, &group[u].qs))
    }
}

pub(crate) struct Mxfp4;

impl Format for Mxfp4 {
    type Block = BlockMxfp4;
    const BLOCKS: usize = 8;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockMxfp4]) -> Head<S> {
        let mut scale = [0.0; 2 * UNITS];
        for (scale, block) in scale.iter_mut().zip(group) {
            *scale = e8m0_half(block.e);
        }
        Head::scales(s, scale)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockMxfp4], _: &Head<S>, u: usize) -> [S::H; 2] {
        lookup(s, &E2M1_DOUBLED, codes4(s, &group[u].qs))
    }
}

pub(crate) struct Nvfp4;

impl Format for Nvfp4 {
    type Block = BlockNvfp4;
    const BLOCKS: usize = 4;
    type Form = Shared<16, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &[BlockNvfp4]) -> Head<S> {
        let mut bits = [[0; 8]; 2];
        for (bits, block) in bits.as_flattened_mut().as_chunks_mut().0.iter_mut().zip(group) {
            *bits = block.d.map(e4m3_as_f16);
        }
        let mut scale = [0.0; 2 * UNITS];
        for (scale, bits) in scale.as_chunks_mut().0.iter_mut().zip(&bits) {
            s.store(s.mul(s.load_f16(bits), s.splat(128.0)), scale);
        }
        Head::scales(s, scale)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &[BlockNvfp4], _: &Head<S>, u: usize) -> [S::H; 2] {
        let qs = &group[u / 2].qs;
        lookup(s, &E2M1_DOUBLED, [s.nibbles(&qs[u % 2 * 2]), s.nibbles(&qs[u % 2 * 2 + 1])])
    }
}

/// The bits of the half that is an E4M3 scale times 2^-8: the fields line up, subnormals too.
#[inline(always)]
fn e4m3_as_f16(byte: u8) -> u16 {
    if byte == 0x7f { 0 } else { u16::from(byte & 0x7f) << 7 }
}
