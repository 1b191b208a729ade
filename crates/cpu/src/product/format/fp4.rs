//! 4-bit floats: their codes in a table are from -12 to 12.

use muser_quant::blocks::{BlockMxfp4, BlockNvfp4, E2M1_DOUBLED, e8m0_half};

use super::{Format, codes4, each, store};
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

#[inline(always)]
fn lookup<S: Quads>(s: S, mut codes: [S::B; 8]) -> [S::B; 8] {
    for j in 0..8 {
        codes[j] = s.lookup(&TABLE, codes[j]);
    }
    codes
}

pub(crate) struct Mxfp4;

impl Format for Mxfp4 {
    type Block = BlockMxfp4;
    type Unit = Plain<false, OFFSET, 4>;
    type Chunk = [Self::Unit; 1];
    type Head<S: Quads> = ();

    const CHUNKS: usize = 1;

    #[inline(always)]
    fn head<S: Quads>(_: S, _: [&Self::Block; 8]) {}

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], (): &(), _: usize, to: &mut [Self::Unit]) {
        let Plain(to) = &mut to[0];
        to.scale = each!(blocks, block => e8m0_half(block.e));
        let quads = s.transpose(each!(blocks, block => &block.qs));
        store(s, lookup(s, codes4(s, quads)), &mut to.codes);
    }
}

pub(crate) struct Nvfp4;

impl Format for Nvfp4 {
    type Block = BlockNvfp4;
    type Unit = Halves;
    type Chunk = [Halves; 1];
    /// The scales of the block's four sub-blocks, with what stands for not a number gone.
    type Head<S: Quads> = [u32; 8];

    const CHUNKS: usize = 2;

    #[inline(always)]
    fn head<S: Quads>(_: S, blocks: [&Self::Block; 8]) -> [u32; 8] {
        each!(blocks, block => zero_where_nan(u32::from_le_bytes(block.d)))
    }

    #[inline(always)]
    fn unpack<S: Quads>(s: S, blocks: [&Self::Block; 8], scales: &[u32; 8], c: usize, to: &mut [Halves]) {
        let to = &mut to[0];
        for (half, to) in to.scale.iter_mut().enumerate() {
            // The seven bits are those of the half that is 2^-8 times the scale: the fields line up, subnormals too.
            let halves = scales.map(|scales| (scales >> (16 * c + 8 * half) & 0x7f) as u16).map(|bits| bits << 7);
            s.store(s.mul(s.load_f16(&halves), s.splat(256.0 / 2.0)), to);
        }
        // Eight bytes hold a half of a unit, its first eight codes low.
        let quads = s.transpose(each!(blocks, block => unit_of(&block.qs, c)));
        let [a0, b0, c0, d0, a1, b1, c1, d1] = codes4(s, quads);
        store(s, lookup(s, [a0, b0, a1, b1, c0, d0, c1, d1]), &mut to.codes);
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
