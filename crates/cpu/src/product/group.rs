//! The arithmetic of one group, which every shape of product shares: see [`muser_quant::integer`] for its order.
#![expect(
    clippy::needless_range_loop,
    reason = "indices run over several arrays, and iterators would put vectors into closures"
)]

use super::activations::ActivationGroup;
use super::format::Form;
use crate::arch::ints::Ints;

/// One group of one weight row, in integer form.
pub(crate) trait WeightGroup<S: Ints>: Copy {
    /// How its elements share scales and minimums.
    type Form: Form;

    /// Whether groups of one block are worth eight copies of the code of a unit, because where a unit's bits lie in the
    /// block depends on its index, and constant shifts are cheaper.
    const UNROLLED: bool;

    /// The integers of unit `u`.
    fn unit(self, s: S, u: usize) -> [S::H; 2];
    /// The scale of sub-block `i`.
    fn scale(self, i: usize) -> f32;
    /// The minimums of the units; +0 for a unit that is not there.
    fn min(self, s: S) -> S::F;
}

/// Eight copies of an expression, each with its own constant.
macro_rules! unrolled {
    ($u:ident => $body:expr) => {
        unrolled!($u => $body; 0 1 2 3 4 5 6 7)
    };
    ($u:ident => $body:expr; $($value:literal)+) => {{
        $({ let $u = $value; $body; })+
    }};
}
/// Adds the products of `R` weight rows and `T` activation rows over one group of `n_unit` units.
#[inline(always)]
pub(crate) fn add_group<S: Ints, W: WeightGroup<S>, const R: usize, const T: usize>(
    s: S,
    w: [W; R],
    x: [&ActivationGroup; T],
    n_unit: usize,
    sums: &mut Sums<S, R, T>,
) {
    if W::Form::SUB_BLOCK == 256 {
        let mut isum = [[s.splat_int(0); T]; R];
        if W::UNROLLED {
            unrolled!(u => add_isum(s, w, &x, u, &mut isum));
        } else {
            for u in 0..n_unit {
                add_isum(s, w, &x, u, &mut isum);
            }
        }
        for r in 0..R {
            for t in 0..T {
                let scale = s.splat(w[r].scale(0) * x[t].scale);
                sums.acc[r][t] = s.fma(s.to_f32(isum[r][t]), scale, sums.acc[r][t]);
            }
        }
    } else {
        let mut inner = [[s.splat(0.0); T]; R];
        for u in 0..n_unit {
            let x = load_units(s, &x, u);
            for r in 0..R {
                let unit = w[r].unit(s, u);
                for t in 0..T {
                    let first = s.dot(s.splat_int(0), unit[0], x[t][0]);
                    if W::Form::SUB_BLOCK == 32 {
                        let isum = s.dot(first, unit[1], x[t][1]);
                        inner[r][t] = s.fma(s.to_f32(isum), s.splat(w[r].scale(u)), inner[r][t]);
                    } else {
                        let second = s.dot(s.splat_int(0), unit[1], x[t][1]);
                        inner[r][t] = s.fma(s.to_f32(first), s.splat(w[r].scale(2 * u)), inner[r][t]);
                        inner[r][t] = s.fma(s.to_f32(second), s.splat(w[r].scale(2 * u + 1)), inner[r][t]);
                    }
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                sums.acc[r][t] = s.fma(inner[r][t], s.splat(x[t].scale), sums.acc[r][t]);
            }
        }
    }
    if W::Form::HAS_MIN {
        for r in 0..R {
            let min = w[r].min(s);
            for t in 0..T {
                let product = s.mul(min, s.load(&x[t].sums));
                sums.min[r][t] = s.fma(product, s.splat(x[t].scale), sums.min[r][t]);
            }
        }
    }
}

/// Adds the products of unit `u`.
#[inline(always)]
fn add_isum<S: Ints, W: WeightGroup<S>, const R: usize, const T: usize>(
    s: S,
    w: [W; R],
    x: &[&ActivationGroup; T],
    u: usize,
    isum: &mut [[S::I; T]; R],
) {
    let x = load_units(s, x, u);
    for r in 0..R {
        let w = w[r].unit(s, u);
        for t in 0..T {
            isum[r][t] = s.dot(s.dot(isum[r][t], w[0], x[t][0]), w[1], x[t][1]);
        }
    }
}

#[inline(always)]
fn load_units<S: Ints, const T: usize>(s: S, x: &[&ActivationGroup; T], u: usize) -> [[S::H; 2]; T] {
    let mut units = [[s.splat_i16(0); 2]; T];
    for t in 0..T {
        let unit = &x[t].units[u];
        units[t] = [s.load_i16(&unit[0]), s.load_i16(&unit[1])];
    }
    units
}

/// The lane sums of `R` weight rows and `T` activation rows.
#[derive(Clone, Copy)]
pub(crate) struct Sums<S: Ints, const R: usize, const T: usize> {
    pub acc: [[S::F; T]; R],
    pub min: [[S::F; T]; R],
}

impl<S: Ints, const R: usize, const T: usize> Sums<S, R, T> {
    #[inline(always)]
    pub(crate) fn new(s: S) -> Self {
        Self { acc: [[s.splat(0.0); T]; R], min: [[s.splat(0.0); T]; R] }
    }

    /// Writes the products with activation row `t`, as many as `out` has room for. `R` is at most four.
    #[inline(always)]
    pub(crate) fn finish<F: Form>(&self, s: S, t: usize, out: &mut [f32]) {
        let mut lanes = [s.splat(0.0); 4];
        for r in 0..R {
            lanes[r] = if F::HAS_MIN { s.add(self.acc[r][t], self.min[r][t]) } else { self.acc[r][t] };
        }
        let y = s.fold4(lanes);
        if let Some(out) = out.first_chunk_mut::<R>() {
            out.copy_from_slice(&y[..R]);
        } else {
            for (out, y) in out.iter_mut().zip(y) {
                *out = y;
            }
        }
    }
}
