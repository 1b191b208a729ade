use muser_quant::UNIT_LEN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::activations::NarrowUnit;
use super::super::format::Format;
use super::{Multiply, Sums, Unit, of_groups, steps};
use crate::arch::lanes::Lanes;
use crate::arch::quads::Quads;

/// Codes of up to 5 bits, less an offset, with a scale for each sixteen of a row.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(crate) struct Halves {
    /// The quads of eight rows, one after the other.
    pub codes: [[u8; 32]; UNIT_LEN / 4],
    pub scale: [[f32; 8]; 2],
}

impl Halves {
    /// What each code has too much.
    pub const OFFSET: i16 = 12;
}

/// Quads of a half.
const HALF: usize = UNIT_LEN / 2 / 4;

impl Multiply for Halves {
    type X = NarrowUnit;

    const TOKENS: usize = 3;

    #[inline(always)]
    fn add<L: Lanes<G>, const FIRST: bool, const LOOP: bool, const G: usize, const R: usize, const T: usize>(
        s: L,
        w: &[[[&Self; G]; R]; T],
        x: &[&NarrowUnit; T],
        acc: &mut Sums<L, G, R, T>,
    ) {
        for half in 0..2 {
            let mut start = [s.no_products(); T];
            for t in 0..T {
                start[t] = x[t].half_times(s, half, -Self::OFFSET);
            }
            let mut sums = [start; R];
            for j in 0..steps::<LOOP>(HALF) {
                let j = half * HALF + j;
                for t in 0..T {
                    let quad = s.splat_quad(&x[t].q[j]);
                    for r in 0..R {
                        sums[r][t] = s.add_products(sums[r][t], s.load_quads(of_groups!(w[t][r], codes[j])), quad);
                    }
                }
            }
            for t in 0..T {
                let scale = s.splat(x[t].scale);
                for r in 0..R {
                    let isum = s.row_sums(sums[r][t]);
                    let scale = s.mul(s.load(of_groups!(w[t][r], scale[half])), scale);
                    acc[r][t] = s.fma(s.to_f32(isum), scale, acc[r][t]);
                }
            }
        }
    }
}

impl Unit for Halves {
    type X = NarrowUnit;
    type Tile = Self;

    #[inline(always)]
    fn add_row<S: Quads, const FIRST: bool>(s: S, w: &Self, x: &NarrowUnit, acc: &mut S::F) {
        let mut sums = [[*acc]];
        Self::add::<S, FIRST, false, 1, 1, 1>(s, &[[[w]]], &[x], &mut sums);
        *acc = sums[0][0];
    }

    #[inline(always)]
    fn unpack_tile<S: Quads, F: Format<Unit = Self>>(
        s: S,
        blocks: [&F::Block; 8],
        head: &F::Head<S>,
        c: usize,
        to: &mut [Self],
    ) {
        F::unpack(s, blocks, head, c, to);
    }
}
