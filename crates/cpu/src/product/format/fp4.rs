//! 4-bit floats: their codes in a table are from -12 to 12.

use muser_quant::blocks::{BlockMxfp4, BlockNvfp4, E2M1_DOUBLED, e8m0_half};

use super::{Format, codes4, each};
use crate::arch::quads::Quads;
use crate::product::unit::{Halves, Plain};

/// What each code of [`TABLE`] has too much.
const OFFSET: i16 = Halves::OFFSET;

/// The codes' values from zero up.
const TABLE: [u8; 16] = {
    let mut table = [0; 16];
    let mut code = 0;
    while code < 16 {
        table[code] = (E2M1_DOUBLED[code] + OFFSET as i8) as u8;
        code += 1;
    }
    table
};

pub(crate) struct Mxfp4;

impl Format for Mxfp4 {
    type Block = BlockMxfp4;
    type Unit = Plain<false, OFFSET, 4>;

    const UNITS: usize = 1;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        to.scale = each!(blocks, block => e8m0_half(block.e));
        let quads = s.transpose(each!(blocks, block => &block.qs));
        for (codes, to) in codes4(s, quads).into_iter().zip(&mut to.codes) {
            s.store_quads(s.lookup(&TABLE, codes), to);
        }
    }
}

pub(crate) struct Nvfp4;

impl Format for Nvfp4 {
    type Block = BlockNvfp4;
    type Unit = Halves;

    const UNITS: usize = 2;

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], to: &mut [Self::Unit]) {
        // The seven bits are those of the half that is 2^-8 times the scale: the fields line up, subnormals too.
        let scales = each!(blocks, block => zero_where_nan(u32::from_le_bytes(block.d)));
        for (u, to) in to.iter_mut().enumerate() {
            for (half, to) in to.scale.iter_mut().enumerate() {
                let halves = scales.map(|scales| (scales >> (16 * u + 8 * half) & 0x7f) as u16).map(|bits| bits << 7);
                s.store(s.mul(s.load_f16(&halves), s.splat(256.0 / 2.0)), to);
            }
            // Eight bytes hold a half of a unit, its first eight codes low.
            let [a, b, c, d] = s.transpose(each!(blocks, block => unit_of(&block.qs, u)));
            let [a0, b0, c0, d0, a1, b1, c1, d1] = codes4(s, [a, b, c, d]);
            for (codes, to) in [a0, b0, a1, b1, c0, d0, c1, d1].into_iter().zip(&mut to.codes) {
                s.store_quads(s.lookup(&TABLE, codes), to);
            }
        }
    }
}

/// The bytes of unit `u`, 0 or 1.
#[inline(always)]
fn unit_of(qs: &[[u8; 8]; 4], u: usize) -> &[u8; 16] {
    &qs.as_flattened().as_chunks().0[u]
}

/// Replaces the byte 0x7f, not a number in E4M3, by zero, which is what it stands for here.
#[inline(always)]
fn zero_where_nan(bytes: u32) -> u32 {
    const ONES: u32 = 0x0101_0101;
    // Of the low seven bits plus one, only 0x7f + 1 has the high bit, and no byte carries into the next.
    let nan = ((bytes & (0x7f * ONES)) + ONES) & !bytes & (0x80 * ONES);
    bytes & !((nan >> 7) * 0xff)
}
