//! Types with integer scales in blocks of 256.

use muser_quant::blocks::{BlockIq4Xs, BlockQ4K, BlockQ5K, BlockQ6K, F16, IQ4_VALUES};

use super::{Factors, Format, Shared, parts};
use crate::arch::ints::Ints;
use crate::product::UNITS;

/// The integers of half units times their factors.
#[inline(always)]
fn scaled<S: Ints>(s: S, [a, b]: [S::H; 2], factor: [i16; 2]) -> [S::H; 2] {
    [s.mul_i16(a, s.splat_i16(factor[0])), s.mul_i16(b, s.splat_i16(factor[1]))]
}

/// Factors as they are stored.
#[inline(always)]
fn factors<S: Ints>(s: S, d: F16, factor: S::H, min: S::F) -> Factors<S> {
    let mut factors = [0; 2 * UNITS];
    s.store_i16(factor, &mut factors);
    Factors { scale: s.half(d.0.get()), factor: factors, min }
}

/// As [`muser_quant::blocks::scales_and_mins`], four at a time. The factors are one per unit.
#[inline(always)]
fn head_with_mins<S: Ints>(s: S, d: F16, dmin: F16, packed: &[u8; 12]) -> Factors<S> {
    const LOW_6: u32 = 0x3f3f_3f3f;
    const LOW_4: u32 = 0x0f0f_0f0f;
    const LOW_2: u32 = 0x0303_0303;
    let word = |i: usize| u32::from_le_bytes([packed[i], packed[i + 1], packed[i + 2], packed[i + 3]]);
    let (scales, mins, both) = (word(0), word(4), word(8));
    let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let sc = join(scales & LOW_6, both & LOW_4 | (scales >> 6 & LOW_2) << 4);
    let mn = join(mins & LOW_6, both >> 4 & LOW_4 | (mins >> 6 & LOW_2) << 4);
    let min = s.mul(s.splat(-s.half(dmin.0.get())), s.bytes_to_f32(mn));
    factors(s, d, s.widen_words(sc, 0), min)
}

/// The low four bits of a unit of `Q4_K` or `Q5_K`.
#[inline(always)]
fn codes4<S: Ints>(s: S, qs: &[[u8; 32]; 4], u: usize) -> [S::H; 2] {
    let qs = parts(&qs[u / 2]);
    [code4(s, &qs[0], u % 2), code4(s, &qs[1], u % 2)]
}

/// The low halves of bytes, or the high ones.
#[inline(always)]
fn code4<S: Ints>(s: S, qs: &[u8; 16], high: usize) -> S::H {
    s.and_i16(s.shr_i16(s.widen_u8(qs), 4 * high), s.splat_i16(15))
}

pub(crate) struct Q4K;

impl Format for Q4K {
    type Block = BlockQ4K;
    type Group = BlockQ4K;
    type Head<S: Ints> = Factors<S>;
    type Form = Shared<256, true>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> Factors<S> {
        head_with_mins(s, group.d, group.dmin, &group.scales)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, head: &Factors<S>, u: usize) -> [S::H; 2] {
        scaled(s, codes4(s, &group.qs, u), [head.factor[u]; 2])
    }
}

pub(crate) struct Q5K;

impl Format for Q5K {
    type Block = BlockQ5K;
    type Group = BlockQ5K;
    type Head<S: Ints> = Factors<S>;
    type Form = Shared<256, true>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> Factors<S> {
        head_with_mins(s, group.d, group.dmin, &group.scales)
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, head: &Factors<S>, u: usize) -> [S::H; 2] {
        let [a, b] = codes4(s, &group.qs, u);
        let qh = parts(&group.qh);
        let (high_a, high_b) = (fifth_bit(s, &qh[0], u), fifth_bit(s, &qh[1], u));
        scaled(s, [s.or_i16(a, high_a), s.or_i16(b, high_b)], [head.factor[u]; 2])
    }
}

#[inline(always)]
fn fifth_bit<S: Ints>(s: S, qh: &[u8; 16], u: usize) -> S::H {
    s.and_i16(s.shr_i16(s.shl_i16(s.widen_u8(qh), 4), u), s.splat_i16(16))
}

pub(crate) struct Q6K;

impl Format for Q6K {
    type Block = BlockQ6K;
    type Group = BlockQ6K;
    type Head<S: Ints> = Factors<S>;
    type Form = Shared<256, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> Factors<S> {
        factors(s, group.d, s.widen_i8(&group.scales), s.splat(0.0))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, head: &Factors<S>, u: usize) -> [S::H; 2] {
        let (h, quarter) = (u / 4, u % 4);
        let (ql, qh) = (parts(&group.ql[h]), parts(&group.qh[h]));
        let ql = &ql[quarter % 2 * 2..][..2];
        scaled(
            s,
            [code6(s, &ql[0], &qh[0], quarter), code6(s, &ql[1], &qh[1], quarter)],
            [head.factor[2 * u], head.factor[2 * u + 1]],
        )
    }
}

#[inline(always)]
fn code6<S: Ints>(s: S, ql: &[u8; 16], qh: &[u8; 16], quarter: usize) -> S::H {
    let low = code4(s, ql, quarter / 2);
    let high = s.and_i16(s.shr_i16(s.shl_i16(s.widen_u8(qh), 4), 2 * quarter), s.splat_i16(0x30));
    s.sub_i16(s.or_i16(low, high), s.splat_i16(32))
}

pub(crate) struct Iq4Xs;

impl Format for Iq4Xs {
    type Block = BlockIq4Xs;
    type Group = BlockIq4Xs;
    type Head<S: Ints> = Factors<S>;
    type Form = Shared<256, false>;

    #[inline(always)]
    fn head<S: Ints>(s: S, group: &Self::Group) -> Factors<S> {
        // Four bits of each scale, then two, spread to a byte each.
        let low = u64::from(u32::from_le_bytes(group.scales_l));
        let low = (low | low << 16) & 0x0000_ffff_0000_ffff;
        let low = (low | low << 8) & 0x00ff_00ff_00ff_00ff;
        let low = (low | low << 4) & 0x0f0f_0f0f_0f0f_0f0f;
        let high = u64::from(group.scales_h.get());
        let high = (high | high << 24) & 0x0000_00ff_0000_00ff;
        let high = (high | high << 12) & 0x000f_000f_000f_000f;
        let high = (high | high << 6) & 0x0303_0303_0303_0303;
        let scales = s.sub_i16(s.widen_words(low | high << 4, 0), s.splat_i16(32));
        factors(s, group.d, scales, s.splat(0.0))
    }

    #[inline(always)]
    fn unit<S: Ints>(s: S, group: &Self::Group, head: &Factors<S>, u: usize) -> [S::H; 2] {
        let codes = s.widen_u8(&group.qs[u]);
        let (a, b) = (s.and_i16(codes, s.splat_i16(15)), s.shr_i16(codes, 4));
        scaled(s, [s.lookup(&IQ4_VALUES, a), s.lookup(&IQ4_VALUES, b)], [head.factor[u]; 2])
    }
}
