//! Types with a scale per 32 or 16 elements.

use muser_quant::blocks::{
    BlockIq4Nl, BlockMxfp4, BlockNvfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0, E2M1_DOUBLED,
    IQ4_VALUES, e8m0_half,
};

use zerocopy::little_endian::U32;

use super::{Format, HalfUnitScales, Shared, Stored, UnitScales, parts};
use crate::arch::ints::Ints;
use crate::product::UNITS;

/// The first four bytes of each block: its scale, and what follows.
#[inline(always)]
fn words<B: Stored>(group: &[B; UNITS]) -> [u32; UNITS] {
    let [b0, b1, b2, b3, b4, b5, b6, b7] = group;
    [word(b0), word(b1), word(b2), word(b3), word(b4), word(b5), word(b6), word(b7)]
}

#[inline(always)]
fn word<B: Stored>(block: &B) -> u32 {
    let bytes = block.as_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The head of blocks that start with a scale.
#[inline(always)]
fn scales<S: Ints, B: Stored>(s: S, group: &[B; UNITS]) -> UnitScales<S> {
    let mut scale = [0.0; UNITS];
    s.store(s.low_halves(&words(group)), &mut scale);
    UnitScales { scale, min: s.splat(0.0) }
}

/// The head of blocks that start with a scale and a minimum.
#[inline(always)]
fn scales_and_mins<S: Ints, B: Stored>(s: S, group: &[B; UNITS]) -> UnitScales<S> {
    let (scales, min) = s.both_halves(&words(group));
    let mut scale = [0.0; UNITS];
    s.store(scales, &mut scale);
    UnitScales { scale, min }
}

#[inline(always)]
fn codes4<S: Ints>(s: S, qs: &[u8; 16]) -> [S::H; 2] {
    let v = s.widen_u8(qs);
    [s.and_i16(v, s.splat_i16(15)), s.shr_i16(v, 4)]
}

/// Masks of the elements whose fifth bit is set.
#[inline(always)]
fn fifth_bits<S: Ints>(s: S, qh: U32) -> [S::H; 2] {
    let [b0, b1, b2, b3] = qh.to_bytes();
    [s.mask_of_bits([b0, b1]), s.mask_of_bits([b2, b3])]
}

#[inline(always)]
fn lookup<S: Ints>(s: S, table: &[i8; 16], [a, b]: [S::H; 2]) -> [S::H; 2] {
    [s.lookup(table, a), s.lookup(table, b)]
}

pub(crate) struct Q8_0;

impl Format for Q8_0 {
    type Block = BlockQ8_0;
    type Group = [BlockQ8_0; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        scales(s, group)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        let qs = parts(&group[u].qs);
        [s.widen_i8(&qs[0]), s.widen_i8(&qs[1])]
    }
}

pub(crate) struct Q4_0;

impl Format for Q4_0 {
    type Block = BlockQ4_0;
    type Group = [BlockQ4_0; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        scales(s, group)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        let [a, b] = codes4(s, &group[u].qs);
        let eight = s.splat_i16(8);
        [s.sub_i16(a, eight), s.sub_i16(b, eight)]
    }
}

pub(crate) struct Q4_1;

impl Format for Q4_1 {
    type Block = BlockQ4_1;
    type Group = [BlockQ4_1; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, true>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        scales_and_mins(s, group)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        codes4(s, &group[u].qs)
    }
}

pub(crate) struct Q5_0;

impl Format for Q5_0 {
    type Block = BlockQ5_0;
    type Group = [BlockQ5_0; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        scales(s, group)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        let [a, b] = codes4(s, &group[u].qs);
        let [set_a, set_b] = fifth_bits(s, group[u].qh);
        // A clear fifth bit is 16 less, which in two's complement sets the bits above the code.
        let low = s.splat_i16(-16);
        [s.or_i16(a, s.and_not_i16(set_a, low)), s.or_i16(b, s.and_not_i16(set_b, low))]
    }
}

pub(crate) struct Q5_1;

impl Format for Q5_1 {
    type Block = BlockQ5_1;
    type Group = [BlockQ5_1; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, true>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        scales_and_mins(s, group)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        let [a, b] = codes4(s, &group[u].qs);
        let [set_a, set_b] = fifth_bits(s, group[u].qh);
        let fifth = s.splat_i16(16);
        [s.or_i16(a, s.and_i16(set_a, fifth)), s.or_i16(b, s.and_i16(set_b, fifth))]
    }
}

pub(crate) struct Iq4Nl;

impl Format for Iq4Nl {
    type Block = BlockIq4Nl;
    type Group = [BlockIq4Nl; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        scales(s, group)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        lookup(s, &IQ4_VALUES, codes4(s, &group[u].qs))
    }
}

pub(crate) struct Mxfp4;

impl Format for Mxfp4 {
    type Block = BlockMxfp4;
    type Group = [BlockMxfp4; UNITS];
    type Head<S: Ints> = UnitScales<S>;
    type Form = Shared<32, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> UnitScales<S> {
        UnitScales { scale: group.map(|block| e8m0_half(block.e)), min: s.splat(0.0) }
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &UnitScales<S>, u: usize) -> [S::H; 2] {
        lookup(s, &E2M1_DOUBLED, codes4(s, &group[u].qs))
    }
}

pub(crate) struct Nvfp4;

impl Format for Nvfp4 {
    type Block = BlockNvfp4;
    type Group = [BlockNvfp4; UNITS / 2];
    type Head<S: Ints> = HalfUnitScales<S>;
    type Form = Shared<16, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> HalfUnitScales<S> {
        // The seven bits are those of the half that is 2^-8 times the scale: the fields line up, subnormals too.
        let [b0, b1, b2, b3] = group.map(|block| u32::from_le_bytes(block.d));
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let bytes = s.widen_words(zero_where_nan(join(b0, b1)), zero_where_nan(join(b2, b3)));
        let mut halves = [0; 2 * UNITS];
        s.store_i16(s.shl_i16(s.and_i16(bytes, s.splat_i16(0x7f)), 7), &mut halves);
        let mut scale = [0.0; 2 * UNITS];
        for (scale, halves) in scale.as_chunks_mut().0.iter_mut().zip(halves.as_chunks().0) {
            s.store(s.mul(s.load_f16(&halves.map(i16::cast_unsigned)), s.splat(256.0 / 2.0)), scale);
        }
        HalfUnitScales { scale, none: s.splat(0.0) }
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, _: &HalfUnitScales<S>, u: usize) -> [S::H; 2] {
        let qs = &group[u / 2].qs;
        lookup(s, &E2M1_DOUBLED, [s.nibbles(qs[u % 2 * 2]), s.nibbles(qs[u % 2 * 2 + 1])])
    }
}

/// Replaces the byte 0x7f, not a number in E4M3, by zero, which is what it stands for here.
#[inline(always)]
fn zero_where_nan(bytes: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Of the low seven bits plus one, only 0x7f + 1 has the high bit, and no byte carries into the next.
    let nan = ((bytes & (0x7f * ONES)) + ONES) & !bytes & (0x80 * ONES);
    bytes & !((nan >> 7) * 0xff)
}
