//! Codes of 8 bits, with a scale for each row.

use muser_quant::UNIT_LEN;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::super::activations::WideUnit;
use super::super::format::Format;
use super::{Multiply, Sums, Unit, of_groups, steps};
use crate::arch::lanes::Lanes;
use crate::arch::quads::Quads;

/// The rows one after the other, as they are stored: multiplied along the row, and folded as integers.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(crate) struct Rows {
    pub codes: [[[i16; 16]; 2]; 8],
    pub scale: [f32; 8],
}

/// The pairs of eight rows, one after the other.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(32))]
pub(crate) struct Pairs {
    codes: [[i16; 16]; UNIT_LEN / 2],
    scale: [f32; 8],
}

impl Unit for Rows {
    type X = WideUnit;
    type Tile = Pairs;

    #[inline(always)]
    fn add_row<S: Quads, const FIRST: bool>(s: S, w: &Self, x: &WideUnit, acc: &mut S::F) {
        let mut halves = [s.splat_i16(0); 2];
        for (to, half) in halves.iter_mut().zip(x.q.as_flattened().as_chunks().0) {
            *to = s.load_i16(half);
        }
        let mut sums = [s.splat_int(0); 8];
        for (sum, codes) in sums.iter_mut().zip(&w.codes) {
            *sum = s.dot(s.dot(*sum, s.load_i16(&codes[0]), halves[0]), s.load_i16(&codes[1]), halves[1]);
        }
        *acc = s.fma(s.to_f32(s.fold_rows(sums)), s.mul(s.load(&w.scale), s.splat(x.scale)), *acc);
    }

    #[inline(always)]
    fn unpack_tile<S: Quads, F: Format<Unit = Self>>(
        s: S,
        blocks: [&F::Block; 8],
        head: &F::Head<S>,
        c: usize,
        to: &mut [Pairs],
    ) {
        let mut rows = F::Chunk::new_zeroed();
        F::unpack(s, blocks, head, c, rows.as_mut());
        for (from, to) in rows.as_ref().iter().zip(to) {
            to.scale = from.scale;
            for (half, to) in to.codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let mut rows = [s.splat_i16(0); 8];
                for (row, codes) in rows.iter_mut().zip(&from.codes) {
                    *row = s.load_i16(&codes[half]);
                }
                for (pairs, to) in s.transpose_pairs(rows).into_iter().zip(to) {
                    s.store_i16(pairs, to);
                }
            }
        }
    }
}

impl Multiply for Pairs {
    type X = WideUnit;

    const TOKENS: usize = 3;

    #[inline(always)]
    fn add<L: Lanes<G>, const FIRST: bool, const LOOP: bool, const G: usize, const R: usize, const T: usize>(
        s: L,
        w: &[[[&Self; G]; R]; T],
        x: &[&WideUnit; T],
        acc: &mut Sums<L, G, R, T>,
    ) {
        let mut isum = [[s.splat_int(0); T]; R];
        for j in 0..steps::<LOOP>(UNIT_LEN / 2) {
            for t in 0..T {
                let pair = s.splat_pair(&x[t].q[j]);
                for r in 0..R {
                    isum[r][t] = s.dot(isum[r][t], s.load_i16(of_groups!(w[t][r], codes[j])), pair);
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
