use muser_quant::UNIT_LEN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::activations::NarrowUnit;
use super::super::format::Format;
use super::{Multiply, Sums, Unit, of_groups, steps};
use crate::arch::lanes::Lanes;
use crate::arch::quads::Quads;

/// Codes of 6 bits, less 32, with an integer factor for each sixteen of a row, and a scale.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(crate) struct Factors {
    /// The quads of eight rows, one after the other.
    pub codes: [[u8; 32]; UNIT_LEN / 4],
    /// Each row's factor twice, of the first half and of the second.
    pub factor: [[i16; 16]; 2],
    pub scale: [f32; 8],
}

impl Factors {
    /// What each code has too much. Eight products of 32 and 127, as many as a sum of 16 bits gets from a half, are 32,512.
    pub const OFFSET: i16 = 32;
}

/// Quads of a half.
const HALF: usize = UNIT_LEN / 2 / 4;

impl Multiply for Factors {
    type X = NarrowUnit;

    const TOKENS: usize = 4;

    #[inline(always)]
    fn add<L: Lanes<G>, const FIRST: bool, const LOOP: bool, const G: usize, const R: usize, const T: usize>(
        s: L,
        w: &[[[&Self; G]; R]; T],
        x: &[&NarrowUnit; T],
        acc: &mut Sums<L, G, R, T>,
    ) {
        let mut isum = [[s.splat_int(0); T]; R];
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
                for r in 0..R {
                    isum[r][t] = s.add_scaled(isum[r][t], sums[r][t], s.load_i16(of_groups!(w[t][r], factor[half])));
                }
            }
        }
        for t in 0..T {
            let scale = s.splat(x[t].scale);
            for r in 0..R {
                acc[r][t] = s.fma(s.to_f32(isum[r][t]), s.mul(s.load(of_groups!(w[t][r], scale)), scale), acc[r][t]);
            }
        }
    }
}

impl Unit for Factors {
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
