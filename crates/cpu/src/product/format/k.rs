//! Types in blocks of 256 whose scales are themselves quantised.

use muser_quant::blocks::{BlockQ4K, BlockQ5K, BlockQ6K};

use zerocopy::transmute_ref;

use super::{Format, Stored, each};
use crate::arch::quads::Quads;
use crate::product::unit::{Factors, Plain, PlainValues};

/// What the units of `Q4_K` and `Q5_K` share. The scales and the minimums of four units are a row's quad.
pub(crate) struct Scales<S: Quads> {
    d: S::F,
    minus_dmin: S::F,
    sc: [S::B; 2],
    mn: [S::B; 2],
}

impl<S: Quads> Scales<S> {
    /// From the first sixteen bytes of blocks; see [`muser_quant::blocks::scales_and_mins`].
    #[inline(always)]
    fn new<B: Stored>(s: S, blocks: [&B; 8]) -> Self {
        let [halves, scales, mins, both] = s.transpose(each!(blocks, block => first16(block)));
        let (d, dmin) = s.both_halves(halves);
        // The last four of each: four bits of their own, and two above the first four.
        let upper = |low, first| s.or_quads(low, s.shl_and(s.shr_and(first, 6, 3), 4, 0x30));
        Self {
            d,
            minus_dmin: s.sub(s.splat(-0.0), dmin),
            sc: [s.shr_and(scales, 0, 63), upper(s.shr_and(both, 0, 15), scales)],
            mn: [s.shr_and(mins, 0, 63), upper(s.shr_and(both, 4, 15), mins)],
        }
    }

    /// Writes the scales and the minimums of unit `u`.
    #[inline(always)]
    fn store(&self, s: S, u: usize, to: &mut PlainValues) {
        s.store(s.mul(self.d, s.byte_to_f32(self.sc[u / 4], u % 4)), &mut to.scale);
        s.store(s.mul(self.minus_dmin, s.byte_to_f32(self.mn[u / 4], u % 4)), &mut to.min);
    }
}

#[inline(always)]
fn first16<B: Stored>(block: &B) -> &[u8; 16] {
    &block.as_bytes().as_chunks().0[0]
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
    type Chunk = [Self::Unit; 2];
    type Head<S: Quads> = Scales<S>;

    const CHUNKS: usize = 4;

    #[inline(always)]
    fn head<S: Quads>(s: S, blocks: [&Self::Block; 8]) -> Scales<S> {
        Scales::new(s, blocks)
    }

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], scales: &Scales<S>, c: usize, to: &mut [Self::Unit]) {
        let quads = quads32(s, each!(blocks, block => &block.qs[c]));
        for (h, Plain(to)) in to.iter_mut().enumerate() {
            scales.store(s, 2 * c + h, to);
            for j in 0..8 {
                s.store_quads(s.shr_and(quads[j], 4 * h, 15), &mut to.codes[j]);
            }
        }
    }
}

pub(crate) struct Q5K;

impl Format for Q5K {
    type Block = BlockQ5K;
    type Unit = Plain<true, 0, 4>;
    type Chunk = [Self::Unit; 8];
    type Head<S: Quads> = Scales<S>;

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(s: S, blocks: [&Self::Block; 8]) -> Scales<S> {
        Scales::new(s, blocks)
    }

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], scales: &Scales<S>, _: usize, to: &mut [Self::Unit]) {
        let high = quads32(s, each!(blocks, block => &block.qh));
        let [a, b, c, d, e, f, g, h] = to else { return };
        let quads = quads32(s, each!(blocks, block => &block.qs[0]));
        codes5::<S, 0>(s, quads, high, scales, a);
        codes5::<S, 1>(s, quads, high, scales, b);
        let quads = quads32(s, each!(blocks, block => &block.qs[1]));
        codes5::<S, 2>(s, quads, high, scales, c);
        codes5::<S, 3>(s, quads, high, scales, d);
        let quads = quads32(s, each!(blocks, block => &block.qs[2]));
        codes5::<S, 4>(s, quads, high, scales, e);
        codes5::<S, 5>(s, quads, high, scales, f);
        let quads = quads32(s, each!(blocks, block => &block.qs[3]));
        codes5::<S, 6>(s, quads, high, scales, g);
        codes5::<S, 7>(s, quads, high, scales, h);
    }
}

/// Unit `U` of a block. Its number is a constant because shifts by constants are quicker.
#[inline(always)]
fn codes5<S: Quads, const U: usize>(
    s: S,
    quads: [S::B; 8],
    high: [S::B; 8],
    scales: &Scales<S>,
    Plain(to): &mut Plain<true, 0, 4>,
) {
    scales.store(s, U, to);
    for j in 0..8 {
        let low = s.shr_and(quads[j], U % 2 * 4, 15);
        // Bit `U` is the fifth bit.
        let fifth = if U < 4 { s.shl_and(high[j], 4 - U % 4, 16) } else { s.shr_and(high[j], U % 4, 16) };
        s.store_quads(s.or_quads(low, fifth), &mut to.codes[j]);
    }
}

pub(crate) struct Q6K;

impl Format for Q6K {
    type Block = BlockQ6K;
    type Unit = Factors;
    type Chunk = [Factors; 4];
    /// The scale of the block, and of each sixteen elements in four quads.
    type Head<S: Quads> = (S::F, [S::B; 4]);

    const CHUNKS: usize = 2;

    #[inline(always)]
    fn head<S: Quads>(s: S, blocks: [&Self::Block; 8]) -> Self::Head<S> {
        let d = s.low_halves(s.quads_of(&each!(blocks, block => block.d.0.get().into())));
        (d, s.transpose(each!(blocks, block => transmute_ref!(&block.scales))))
    }

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], head: &Self::Head<S>, c: usize, to: &mut [Factors]) {
        let (d, scales) = head;
        let [first, second, third, fourth] = to else { return };
        let high = quads32(s, each!(blocks, block => &block.qh[c]));
        let low = quads32(s, each!(blocks, block => &block.ql[c].as_chunks().0[0]));
        codes6::<S, 0>(s, low, high, *d, scales[2 * c], first);
        codes6::<S, 2>(s, low, high, *d, scales[2 * c + 1], third);
        let low = quads32(s, each!(blocks, block => &block.ql[c].as_chunks().0[1]));
        codes6::<S, 1>(s, low, high, *d, scales[2 * c], second);
        codes6::<S, 3>(s, low, high, *d, scales[2 * c + 1], fourth);
    }
}

/// Unit `Q` of half a block; `scales` are those of units 0 and 1 or of 2 and 3.
#[inline(always)]
fn codes6<S: Quads, const Q: usize>(s: S, low: [S::B; 8], high: [S::B; 8], d: S::F, scales: S::B, to: &mut Factors) {
    let i = Q % 2 * 2;
    s.store(d, &mut to.scale);
    s.store_i16(s.signed_pairs(scales, i, i), &mut to.factor[0]);
    s.store_i16(s.signed_pairs(scales, i + 1, i + 1), &mut to.factor[1]);
    for j in 0..8 {
        let low = s.shr_and(low[j], Q / 2 * 4, 15);
        // Two bits, to the fifth and sixth place.
        let high = if Q < 2 { s.shl_and(high[j], 4 - Q % 2 * 2, 0x30) } else { s.shr_and(high[j], Q % 2 * 2, 0x30) };
        s.store_quads(s.or_quads(low, high), &mut to.codes[j]);
    }
}
