use muser_quant::UNIT_LEN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::activations::NarrowUnit;
use super::super::format::Format;
use super::{Multiply, Sums, Unit, of_groups, steps};
use crate::arch::lanes::Lanes;
use crate::arch::quads::Quads;

/// Quads of a unit.
const QUADS: usize = UNIT_LEN / 4;

/// Codes of up to 7 bits, less an offset, with a scale and a minimum for each row.
///
/// `DEPTH` is how many quads can be added before the sums of a tier without wide ones could end outside of the range of 16
/// bits: `DEPTH * 2 * code * 127` is at most 32,767 for every code. If that is not all eight and there is an offset, the sums
/// start with it taken off: then they end within the range, as `16 * 16 * 127` is.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(crate) struct Plain<const MIN: bool, const OFFSET: i16, const DEPTH: usize>(pub PlainValues);

/// What a [`Plain`] unit holds.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(crate) struct PlainValues {
    /// The quads of eight rows, one after the other.
    pub codes: [[u8; 32]; QUADS],
    pub scale: [f32; 8],
    /// Of no meaning without `MIN`.
    pub min: [f32; 8],
}

impl<const MIN: bool, const OFFSET: i16, const DEPTH: usize> Multiply for Plain<MIN, OFFSET, DEPTH> {
    type X = NarrowUnit;

    const TOKENS: usize = 4;

    #[inline(always)]
    fn add<L: Lanes<G>, const FIRST: bool, const LOOP: bool, const G: usize, const R: usize, const T: usize>(
        s: L,
        w: &[[[&Self; G]; R]; T],
        x: &[&NarrowUnit; T],
        acc: &mut Sums<L, G, R, T>,
    ) {
        let is_taken_first = !L::WIDE_SUMS && OFFSET != 0 && DEPTH < QUADS;
        let depth = if L::WIDE_SUMS || is_taken_first { QUADS } else { DEPTH };
        let mut isum = [[s.splat_int(0); T]; R];
        for part in 0..QUADS / depth {
            let mut start = [s.no_products(); T];
            if is_taken_first {
                for t in 0..T {
                    start[t] = s.add_code(start[t], &x[t].pairs, -OFFSET);
                }
            }
            let mut sums = [start; R];
            for j in 0..steps::<LOOP>(depth) {
                let j = part * depth + j;
                for t in 0..T {
                    let quad = s.splat_quad(&x[t].q[j]);
                    for r in 0..R {
                        sums[r][t] = s.add_products(sums[r][t], s.load_quads(of_groups!(w[t][r], 0.codes[j])), quad);
                    }
                }
            }
            for r in 0..R {
                for t in 0..T {
                    let sums = s.row_sums(sums[r][t]);
                    isum[r][t] = if part == 0 { sums } else { s.add_int(isum[r][t], sums) };
                }
            }
        }
        for t in 0..T {
            let scale = s.splat(x[t].scale);
            let offset = s.dot(s.splat_int(0), s.splat_pair(&x[t].pairs), s.splat_i16(OFFSET));
            let sum = s.splat(x[t].sum);
            for r in 0..R {
                let isum = if OFFSET == 0 || is_taken_first { isum[r][t] } else { s.sub_int(isum[r][t], offset) };
                let scale = s.mul(s.load(of_groups!(w[t][r], 0.scale)), scale);
                acc[r][t] = s.fma(s.to_f32(isum), scale, acc[r][t]);
                if MIN && FIRST {
                    acc[r][t] = s.fma(s.load(of_groups!(w[t][r], 0.min)), sum, acc[r][t]);
                }
            }
        }
    }
}

impl<const MIN: bool, const OFFSET: i16, const DEPTH: usize> Unit for Plain<MIN, OFFSET, DEPTH> {
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
