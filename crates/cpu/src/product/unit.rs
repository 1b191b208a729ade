//! Units of 32 elements of eight weight rows in integer form, and their products: see [`muser_quant::integer`] for the order.
//!
//! Lane `r` of every sum belongs to row `r`, so the sum of a row is one chain of additions and the same whatever rows stand
//! beside it.

mod factors;
mod halves;
mod plain;
mod wide;

pub(crate) use factors::Factors;
pub(crate) use halves::Halves;
pub(crate) use plain::{Plain, PlainValues};
pub(crate) use wide::Rows;

use std::hint::black_box;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::activations::ActivationUnit;
use super::format::Format;
use crate::arch::lanes::Lanes;
use crate::arch::quads::Quads;

/// Lane sums of `R` registers of `G` times eight weight rows, and `T` activation rows.
pub(crate) type Sums<L, const G: usize, const R: usize, const T: usize> = [[<L as Lanes<G>>::F; T]; R];

/// A unit that can be multiplied. It is plain values, so that a tile's memory can hold any kind.
pub(crate) trait Multiply: FromBytes + IntoBytes + Immutable + KnownLayout + FromZeros + Clone {
    /// The activations that it takes.
    type X: ActivationUnit;

    /// Activation rows that are best multiplied at once with tiles, up to four: as many as registers hold the sums of, if they do
    /// not hold those of eight.
    const TOKENS: usize;

    /// Adds the products of units `w[t][r]` and `x[t]` to `acc[r][t]`; with the minimums, where there are any, if `x` is the
    /// `FIRST` digit.
    ///
    /// `LOOP` says that there are many sums. Then steps must not be unrolled: the compiler would reorder the additions of
    /// integers, which it may, until the sums no longer fit in registers.
    fn add<L: Lanes<G>, const FIRST: bool, const LOOP: bool, const G: usize, const R: usize, const T: usize>(
        s: L,
        w: &[[[&Self; G]; R]; T],
        x: &[&Self::X; T],
        acc: &mut Sums<L, G, R, T>,
    );
}

/// A unit as it is unpacked from blocks.
pub(crate) trait Unit: FromZeros + Clone {
    /// The activations that it takes.
    type X: ActivationUnit;
    /// The unit as tiles hold it.
    type Tile: Multiply<X = Self::X>;

    /// Adds the products of the unit and `x` to `acc`, as [`Multiply::add`].
    fn add_row<S: Quads, const FIRST: bool>(s: S, w: &Self, x: &Self::X, acc: &mut S::F);

    /// As [`Format::unpack`], for a tile.
    fn unpack_tile<S: Quads, F: Format<Unit = Self>>(
        s: S,
        blocks: [&F::Block; 8],
        head: &F::Head<S>,
        c: usize,
        to: &mut [Self::Tile],
    );
}

/// `n` steps, in a way that keeps a loop of them a loop if `LOOP`.
#[inline(always)]
fn steps<const LOOP: bool>(n: usize) -> usize {
    if LOOP { black_box(n).min(n) } else { n }
}

/// A field of the `G` units of a register.
macro_rules! of_groups {
    ($units:expr, $($field:tt)+) => {{
        let mut fields = [&$units[0].$($field)+; G];
        for g in 1..G {
            fields[g] = &$units[g].$($field)+;
        }
        fields
    }};
}
use of_groups;
