//! Rows of quantised activations: see [`muser_quant::activations`] for their meaning.

use muser_quant::activations::n_second;
use muser_quant::{UNIT_LEN, WeightType, integer_form};

use super::quantize::{QuantizeNarrow, QuantizeWide};
use crate::arch::lanes::Lanes;
use crate::caps::Tier;
use crate::grow::grow;
use crate::pool::Disjoint;

/// Thirty-two activations of 8 bits, or their second digit.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct NarrowUnit {
    pub q: [[i8; 4]; 8],
    pub scale: f32,
    /// What the minimum of 32 weights is multiplied with.
    pub sum: f32,
    /// The sum of the first two integers of all quads, and of the other two.
    pub pairs: [i16; 2],
    /// The same of the last four quads.
    pub last_pairs: [i16; 2],
}

impl NarrowUnit {
    pub(super) const ZERO: Self = Self { q: [[0; 4]; 8], scale: 0.0, sum: 0.0, pairs: [0; 2], last_pairs: [0; 2] };

    /// The products of `code` with the first or with the last four quads.
    #[inline(always)]
    pub(super) fn half_times<const G: usize, L: Lanes<G>>(&self, s: L, half: usize, code: i16) -> L::S {
        if half == 0 {
            s.add_code(s.add_code(s.no_products(), &self.pairs, code), &self.last_pairs, -code)
        } else {
            s.add_code(s.no_products(), &self.last_pairs, code)
        }
    }
}

/// Thirty-two activations of 16 bits.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct WideUnit {
    pub q: [[i16; 2]; 16],
    pub scale: f32,
}

impl WideUnit {
    pub(super) const ZERO: Self = Self { q: [[0; 2]; 16], scale: 0.0 };
}

/// Which of the two forms of activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// 8 bits, some units with a second digit.
    pub narrow: bool,
    /// 16 bits.
    pub wide: bool,
}

impl Forms {
    /// Both.
    pub const BOTH: Self = Self { narrow: true, wide: true };

    /// What products with weights of these types need. Float types need neither.
    pub fn of(types: impl IntoIterator<Item = WeightType>) -> Self {
        types.into_iter().filter_map(integer_form).fold(Self::default(), |forms, form| Self {
            narrow: forms.narrow || !form.wide,
            wide: forms.wide || form.wide,
        })
    }

    /// Whether there is any.
    pub fn any(self) -> bool {
        self.narrow || self.wide
    }
}

/// Rows of quantised activations. Keep one and reuse it: it only ever grows.
#[derive(Default)]
pub struct Activations {
    n: usize,
    k: usize,
    forms: Forms,
    narrow: Vec<NarrowUnit>, // (n, n_unit)
    second: Vec<NarrowUnit>, // (n, n_second)
    /// Which unit of its row each second digit belongs to.
    places: Vec<u32>, // (n, n_second)
    wide: Vec<WideUnit>,     // (n, n_unit)
    /// The bits of each unit's greatest magnitude.
    greatest: Vec<u32>, // (n, n_unit)
}

impl Activations {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Quantises `x`, rows of `k` values, in place of what was here. // `(n, k)`
    ///
    /// # Panics
    /// When `k` is no multiple of 32, or `x` no whole number of rows.
    pub fn quantize(&mut self, tier: Tier, x: &[f32], k: usize, forms: Forms) {
        assert!(k > 0 && x.len().is_multiple_of(k), "{} values are no rows of {k}", x.len());
        let rows = self.resize(x.len() / k, k, forms);
        for (row, x) in x.chunks_exact(k).enumerate() {
            // SAFETY: no other call is running.
            unsafe { rows.quantize(tier, row, x) };
        }
    }

    /// Makes room for `n` rows of `k` values, to be quantised by several threads. Until they are, their values are
    /// unspecified.
    ///
    /// # Panics
    /// When `k` is no multiple of 32.
    pub fn resize(&mut self, n: usize, k: usize, forms: Forms) -> ActivationRows<'_> {
        assert!(k.is_multiple_of(UNIT_LEN), "rows of {k} values are no whole number of units of {UNIT_LEN}");
        (self.n, self.k, self.forms) = (n, k, forms);
        let n_unit = k / UNIT_LEN;
        if forms.narrow {
            grow(&mut self.narrow, n * n_unit, NarrowUnit::ZERO);
            grow(&mut self.second, n * n_second(n_unit), NarrowUnit::ZERO);
            grow(&mut self.places, n * n_second(n_unit), 0);
            grow(&mut self.greatest, n * n_unit, 0);
        }
        if forms.wide {
            grow(&mut self.wide, n * n_unit, WideUnit::ZERO);
        }
        ActivationRows {
            n,
            k,
            forms,
            narrow: Disjoint::new(&mut self.narrow),
            second: Disjoint::new(&mut self.second),
            places: Disjoint::new(&mut self.places),
            wide: Disjoint::new(&mut self.wide),
            greatest: Disjoint::new(&mut self.greatest),
        }
    }

    /// Number of rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Values in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The forms that the rows were quantised to.
    pub fn forms(&self) -> Forms {
        self.forms
    }

    /// Units in a row.
    pub(crate) fn n_unit(&self) -> usize {
        self.k / UNIT_LEN
    }
}

/// A form of activations as the kernels read it.
pub(crate) trait ActivationUnit: Sized {
    /// The units of a row. // `(n_unit)`
    fn row(x: &Activations, row: usize) -> &[Self];

    /// The second digits of a row and the units that they belong to, ascending; none for a form without them. // `(n_second)`
    fn second(x: &Activations, row: usize) -> (&[u32], &[Self]);
}

impl ActivationUnit for NarrowUnit {
    #[inline(always)]
    fn row(x: &Activations, row: usize) -> &[Self] {
        &x.narrow[row * x.n_unit()..][..x.n_unit()]
    }

    #[inline(always)]
    fn second(x: &Activations, row: usize) -> (&[u32], &[Self]) {
        let n = n_second(x.n_unit());
        (&x.places[row * n..][..n], &x.second[row * n..][..n])
    }
}

impl ActivationUnit for WideUnit {
    #[inline(always)]
    fn row(x: &Activations, row: usize) -> &[Self] {
        &x.wide[row * x.n_unit()..][..x.n_unit()]
    }

    #[inline(always)]
    fn second(_: &Activations, _: usize) -> (&[u32], &[Self]) {
        (&[], &[])
    }
}

/// Room for rows of quantised activations, filled row by row.
pub struct ActivationRows<'a> {
    n: usize,
    k: usize,
    forms: Forms,
    narrow: Disjoint<'a, NarrowUnit>,
    second: Disjoint<'a, NarrowUnit>,
    places: Disjoint<'a, u32>,
    wide: Disjoint<'a, WideUnit>,
    greatest: Disjoint<'a, u32>,
}

impl ActivationRows<'_> {
    /// Quantises one row. // `(k)`
    ///
    /// # Panics
    /// When `row` is not below the number of rows, or `x` has another length than a row.
    ///
    /// # Safety
    /// - No other call for the same `row` is running.
    pub unsafe fn quantize(&self, tier: Tier, row: usize, x: &[f32]) {
        assert!(row < self.n, "row {row} of {}", self.n);
        assert!(x.len() == self.k, "{} values for a row of {}", x.len(), self.k);
        let x = x.as_chunks::<UNIT_LEN>().0;
        let of_row = |n: usize| row * n..(row + 1) * n;
        let (units, seconds) = (of_row(x.len()), of_row(n_second(x.len())));
        if self.forms.narrow {
            // SAFETY: the ranges of different rows do not meet, and the caller promises that this row is not in use.
            let narrow = unsafe { self.narrow.slice(units.clone()) };
            // SAFETY: as above.
            let second = unsafe { self.second.slice(seconds.clone()) };
            // SAFETY: as above.
            let places = unsafe { self.places.slice(seconds) };
            // SAFETY: as above.
            let greatest = unsafe { self.greatest.slice(units.clone()) };
            tier.run(QuantizeNarrow { x, narrow, second, places, greatest });
        }
        if self.forms.wide {
            // SAFETY: as above.
            let wide = unsafe { self.wide.slice(units) };
            tier.run(QuantizeWide { x, wide });
        }
    }
}
