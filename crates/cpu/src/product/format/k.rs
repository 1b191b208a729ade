//! Types in blocks of 256 whose scales are themselves quantised.

use muser_quant::blocks::{BlockQ4K, BlockQ5K, BlockQ6K, F16};

use super::{Format, each, word};
use crate::arch::quads::Quads;
use crate::product::unit::{Factors, Plain, PlainValues};

/// As [`muser_quant::blocks::scales_and_mins`], in the bytes of two words, the first lowest.
#[inline(always)]
fn scales_and_mins(packed: &[u8; 12]) -> (u64, u64) {
    const LOW_6: u32 = 0x3f3f_3f3f;
    const LOW_4: u32 = 0x0f0f_0f0f;
    const LOW_2: u32 = 0x0303_0303;
    let word = |i: usize| u32::from_le_bytes([packed[i], packed[i + 1], packed[i + 2], packed[i + 3]]);
    let (scales, mins, both) = (word(0), word(4), word(8));
    let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let scales_of_all = join(scales & LOW_6, both & LOW_4 | (scales >> 6 & LOW_2) << 4);
    let mins_of_all = join(mins & LOW_6, both >> 4 & LOW_4 | (mins >> 6 & LOW_2) << 4);
    (scales_of_all, mins_of_all)
}

/// What the units of `Q4_K` and `Q5_K` share.
struct Head<S: Quads> {
    d: S::F,
    minus_dmin: S::F,
    /// The scales of each unit, row by row from the lowest byte.
    scales: [u64; 8],
    mins: [u64; 8],
}

impl<S: Quads> Head<S> {
    #[inline(always)]
    fn new(s: S, words: [u32; 8], packed: [&[u8; 12]; 8]) -> Self {
        let (d, dmin) = s.both_halves(&words);
        let (mut scales, mut mins) = ([0; 8], [0; 8]);
        for (packed, (scales, mins)) in packed.into_iter().zip(scales.iter_mut().zip(&mut mins)) {
            (*scales, *mins) = scales_and_mins(packed);
        }
        let minus_dmin = s.sub(s.splat(-0.0), dmin);
        Self { d, minus_dmin, scales: s.transpose_bytes(scales), mins: s.transpose_bytes(mins) }
    }

    /// The scales and the minimums of unit `u`.
    #[inline(always)]
    fn of_unit(&self, s: S, u: usize, to: &mut PlainValues) {
        s.store(s.mul(self.d, s.bytes_to_f32(self.scales[u])), &mut to.scale);
        s.store(s.mul(self.minus_dmin, s.bytes_to_f32(self.mins[u])), &mut to.min);
    }
}

/// Thirty-two bytes of each row.
#[inline(always)]
fn quads32<S: Quads>(s: S, bytes: [&[u8; 32]; 8]) -> [S::B; 8] {
    let [a, b, c, d] = s.transpose(each!(bytes, bytes => &bytes.as_chunks().0[0]));
    let [e, f, g, h] = s.transpose(each!(bytes, bytes => &bytes.as_chunks().0[1]));
    [a, b, c, d, e, f, g, h]
}

pub(crate) struct Q4K;

impl Format for Q4K {
    type Block = BlockQ4K;
    type Unit = Plain<true, 0, 8>;

    const UNITS: usize = 8;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let head = Head::new(s, each!(blocks, block => word(block)), each!(blocks, block => &block.scales));
        for (p, pair) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let quads = quads32(s, each!(blocks, block => &block.qs[p]));
            for (u, Plain(to)) in pair.iter_mut().enumerate() {
                head.of_unit(s, 2 * p + u, to);
                for (quads, to) in quads.into_iter().zip(&mut to.codes) {
                    s.store_quads(s.shr_and(quads, 4 * u, 15), to);
                }
            }
        }
    }
}

pub(crate) struct Q5K;

impl Format for Q5K {
    type Block = BlockQ5K;
    type Unit = Plain<true, 0, 4>;

    const UNITS: usize = 8;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let head = Head::new(s, each!(blocks, block => word(block)), each!(blocks, block => &block.scales));
        let high = quads32(s, each!(blocks, block => &block.qh));
        for (p, pair) in to.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let quads = quads32(s, each!(blocks, block => &block.qs[p]));
            for (h, Plain(to)) in pair.iter_mut().enumerate() {
                let u = 2 * p + h;
                head.of_unit(s, u, to);
                for ((quads, high), to) in quads.into_iter().zip(high).zip(&mut to.codes) {
                    // Bit `u` is the fifth bit.
                    let fifth = if u < 4 { s.shl_and(high, 4 - u, 16) } else { s.shr_and(high, u - 4, 16) };
                    s.store_quads(s.or_quads(s.shr_and(quads, 4 * h, 15), fifth), to);
                }
            }
        }
    }
}

pub(crate) struct Q6K;

impl Format for Q6K {
    type Block = BlockQ6K;
    type Unit = Factors;

    const UNITS: usize = 8;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Factors]) {
        let halves = each!(blocks, block => half_word(block.d));
        let d = s.low_halves(&halves);
        let scales = [
            s.transpose_bytes(each!(blocks, block => scales(&block.scales, 0))),
            s.transpose_bytes(each!(blocks, block => scales(&block.scales, 1))),
        ];
        for (h, quarters) in to.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let high = quads32(s, each!(blocks, block => &block.qh[h]));
            let low = [
                quads32(s, each!(blocks, block => &block.ql[h].as_chunks().0[0])),
                quads32(s, each!(blocks, block => &block.ql[h].as_chunks().0[1])),
            ];
            for (quarter, to) in quarters.iter_mut().enumerate() {
                let (first, second) = (scales[h][2 * quarter], scales[h][2 * quarter + 1]);
                s.store_i16(s.interleave(first, first), &mut to.factors[0]);
                s.store_i16(s.interleave(second, second), &mut to.factors[1]);
                let offsets = s.mul_i16(s.interleave(first, second), s.splat_i16(-Factors::OFFSET));
                s.store_i16(offsets, &mut to.offsets);
                s.store(d, &mut to.scale);
                for ((low, high), to) in low[quarter % 2].into_iter().zip(high).zip(&mut to.codes) {
                    let low = s.shr_and(low, 4 * (quarter / 2), 15);
                    // Two bits, to the fifth and sixth place.
                    let high = if quarter < 2 {
                        s.shl_and(high, 4 - 2 * quarter, 0x30)
                    } else {
                        s.shr_and(high, 2 * quarter - 4, 0x30)
                    };
                    s.store_quads(s.or_quads(low, high), to);
                }
            }
        }
    }
}

#[inline(always)]
fn half_word(half: F16) -> u32 {
    half.0.get().into()
}

/// The scales of half a block, the first lowest.
#[inline(always)]
fn scales(scales: &[i8; 16], h: usize) -> u64 {
    u64::from_le_bytes(scales.as_chunks().0[h].map(i8::cast_unsigned))
}
