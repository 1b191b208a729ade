use std::ops::Range;

use muser_quant::activations::n_second;
use muser_quant::{UNIT_LEN, WeightType, dot_float, dot_integer, quantize_activations};

use super::activations::{ActivationUnit, NarrowUnit, WideUnit};
use super::{Activations, Band, Forms, Scratch, WeightRows, product_float, product_integer};
use crate::caps::Tier;
use crate::pool::Disjoint;
use crate::testing::Random;

/// Row lengths: one unit, fewer units than have a second digit among them, whole blocks of every type; for float types tails.
const LENGTHS: [usize; 10] = [32, 64, 224, 256, 288, 576, 640, 1024, 1536, 2208];
const FLOAT_LENGTHS: [usize; 10] = [1, 7, 8, 9, 33, 64, 576, 1024, 1031, 2050];
const TOKENS: [usize; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33, 131];

/// One product: `n_row` weight rows and `n_token` activation rows.
struct Case {
    ty: WeightType,
    k: usize,
    n_row: usize,
    n_token: usize,
    bytes: Vec<u8>,
    x: Vec<f32>,
}

impl Case {
    fn new(random: &mut Random, ty: WeightType, k: usize, n_row: usize, n_token: usize) -> Self {
        let bytes = weight_bytes(random, ty, n_row * k);
        Self { ty, k, n_row, n_token, bytes, x: random.normal(n_token * k) }
    }

    fn is_integer(&self) -> bool {
        muser_quant::integer_form(self.ty).is_some()
    }

    /// What the oracle says. // `(n_token, n_row)`
    fn expected(&self) -> Vec<f32> {
        let row_bytes = self.ty.row_bytes(self.k).unwrap();
        let mut y = Vec::new();
        for x in self.x.chunks_exact(self.k) {
            let acts = quantize_activations(x);
            y.extend(self.bytes.chunks_exact(row_bytes).map(|row| {
                let y = if self.is_integer() { dot_integer(self.ty, row, &acts) } else { dot_float(self.ty, row, x) };
                y.unwrap()
            }));
        }
        y
    }

    /// What a tier says when the work is cut into these bands. // `(n_token, n_row)`
    fn computed(&self, tier: Tier, bands: &[(Range<usize>, Range<usize>)]) -> Vec<f32> {
        let weights = WeightRows::new(self.ty, &self.bytes, self.n_row, self.k).unwrap();
        let mut acts = Activations::new();
        if self.is_integer() {
            acts.quantize(tier, &self.x, self.k, Forms::of([self.ty]));
        }
        // Rows of an output may be further apart than there are rows.
        let stride = self.n_row + 3;
        let mut y = vec![f32::MIN; self.n_token * stride];
        let out = Disjoint::new(&mut y);
        let mut scratch = Scratch::new();
        for (rows, tokens) in bands {
            // SAFETY: there is one band at a time.
            let mut band = unsafe { Band::new(&out, stride, rows.clone(), tokens.clone()) };
            let weights = weights.rows(rows.clone());
            if self.is_integer() {
                product_integer(tier, weights, &acts, &mut band, &mut scratch);
            } else {
                product_float(tier, weights, &self.x, &mut band, &mut scratch);
            }
        }
        let (y, untouched): (Vec<_>, Vec<_>) =
            y.chunks_exact(stride).map(|y| (y[..self.n_row].to_vec(), y[self.n_row..].to_vec())).unzip();
        assert!(
            untouched.concat().iter().all(|y| y.to_bits() == f32::MIN.to_bits()),
            "values outside of the rows were written"
        );
        y.concat()
    }

    #[track_caller]
    fn assert_equal(&self, tier: Tier, found: &[f32], expected: &[f32]) {
        let Self { ty, k, n_row, n_token, .. } = self;
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let (token, row) = (i / n_row, i % n_row);
            // Which not-a-number an operation gives is not defined.
            assert!(
                found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                "{} {ty}, k {k}, {n_row} rows, {n_token} tokens: row {row} of token {token} is {found}, not {expected}",
                tier.name(),
            );
        }
    }

    #[track_caller]
    fn check(&self) {
        let expected = self.expected();
        for tier in Tier::available() {
            self.assert_equal(tier, &self.computed(tier, &[(0..self.n_row, 0..self.n_token)]), &expected);
        }
    }
}

/// Elements as random bytes, but with scales of sane size, so that sums stay finite.
fn weight_bytes(random: &mut Random, ty: WeightType, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..ty.row_bytes(len).unwrap()).map(|_| random.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        let half = |random: &mut Random| half::f16::from_f32(random.normal(1)[0] * 0.1).to_le_bytes();
        match ty {
            WeightType::F32 => block.copy_from_slice(&random.normal(1)[0].to_le_bytes()),
            WeightType::F16 => block.copy_from_slice(&half(random)),
            WeightType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.normal(1)[0]).to_le_bytes()),
            WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => {
                block[..2].copy_from_slice(&half(random));
                block[2..4].copy_from_slice(&half(random));
            }
            WeightType::Q6_K => block[208..].copy_from_slice(&half(random)),
            WeightType::MXFP4 => block[0] = 110 + block[0] % 20,
            WeightType::NVFP4 => {}
            _ => block[..2].copy_from_slice(&half(random)),
        }
    }
    bytes
}

fn integer_types() -> impl Iterator<Item = WeightType> {
    WeightType::ALL.into_iter().filter(|&ty| muser_quant::integer_form(ty).is_some())
}

fn lengths(ty: WeightType) -> impl Iterator<Item = usize> {
    let lengths = if muser_quant::integer_form(ty).is_some() { LENGTHS } else { FLOAT_LENGTHS };
    lengths.into_iter().filter(move |k| k.is_multiple_of(ty.block_len()))
}

#[test]
fn products_of_every_type_and_shape_have_the_bits_of_the_oracle() {
    let random = &mut Random::new(1);
    for ty in WeightType::ALL {
        for k in lengths(ty) {
            for n_token in TOKENS {
                let n_row = 1 + random.below(9);
                Case::new(random, ty, k, n_row, n_token).check();
            }
            for n_row in 1..=9 {
                let n_token = 1 + random.below(7);
                Case::new(random, ty, k, n_row, n_token).check();
            }
        }
    }
}

#[test]
fn cutting_rows_and_tokens_anywhere_changes_no_bit() {
    let random = &mut Random::new(2);
    for ty in WeightType::ALL {
        let case = Case::new(random, ty, 768, 13, 21);
        let expected = case.expected();
        for tier in Tier::available() {
            for _ in 0..8 {
                let (row, token) = (random.below(14), random.below(22));
                let bands = [(0..row, 0..token), (0..row, token..21), (row..13, 0..token), (row..13, token..21)];
                case.assert_equal(tier, &case.computed(tier, &bands), &expected);
            }
        }
    }
}

#[test]
fn weights_at_any_address_give_the_same_bits() {
    let random = &mut Random::new(3);
    for ty in WeightType::ALL {
        for n_token in [1, 6] {
            let case = Case::new(random, ty, 512, 5, n_token);
            let expected = case.expected();
            for tier in Tier::available() {
                for shift in 0..8 {
                    let mut shifted = vec![0; shift];
                    shifted.extend(&case.bytes);
                    let weights = WeightRows::new(ty, &shifted[shift..], 5, 512).unwrap();
                    let mut acts = Activations::new();
                    acts.quantize(tier, &case.x, 512, Forms::BOTH);
                    let mut y = vec![0.0; n_token * 5];
                    let out = Disjoint::new(&mut y);
                    // SAFETY: there is one band.
                    let mut band = unsafe { Band::new(&out, 5, 0..5, 0..n_token) };
                    if case.is_integer() {
                        product_integer(tier, weights, &acts, &mut band, &mut Scratch::new());
                    } else {
                        product_float(tier, weights, &case.x, &mut band, &mut Scratch::new());
                    }
                    case.assert_equal(tier, &y, &expected);
                }
            }
        }
    }
}

#[test]
fn the_greatest_and_least_codes_and_activations_do_not_overflow() {
    let random = &mut Random::new(4);
    for ty in integer_types() {
        for n_token in [1, 5] {
            // Bytes of all ones, all zeros, the greatest positive and least negative values, and codes at their limits.
            for fill in [0x00, 0x7f, 0x80, 0xff, 0x0f, 0xf0, 0x3f] {
                let mut case = Case::new(random, ty, 512, 4, n_token);
                let scales = weight_bytes(random, ty, 4 * 512);
                case.bytes.fill(fill);
                for (block, scales) in
                    case.bytes.chunks_exact_mut(ty.block_bytes()).zip(scales.chunks_exact(ty.block_bytes()))
                {
                    match ty {
                        WeightType::Q6_K => block[208..].copy_from_slice(&scales[208..]),
                        WeightType::MXFP4 => block[0] = scales[0],
                        WeightType::NVFP4 => {}
                        WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K => {
                            block[..4].copy_from_slice(&scales[..4]);
                        }
                        _ => block[..2].copy_from_slice(&scales[..2]),
                    }
                }
                for x in [1.0, -1.0, f32::MAX, f32::MIN, 1e-30, 0.9e-30, f32::from_bits(1), 0.0, -0.0] {
                    case.x.fill(x);
                    case.check();
                }
            }
        }
    }
}

#[test]
fn scales_of_any_bits_give_the_bits_of_the_oracle() {
    let random = &mut Random::new(5);
    for ty in WeightType::ALL {
        for n_token in [1, 12] {
            // Where blocks allow it, rows end in a short group, and what follows them must not matter.
            let k = if ty.block_len() < 256 { 320 } else { 256 };
            let mut case = Case::new(random, ty, k, 40, n_token);
            case.bytes.iter_mut().for_each(|byte| *byte = random.bits() as u8);
            case.check();
        }
    }
}

#[test]
fn activations_that_are_not_finite_are_not_hidden() {
    let random = &mut Random::new(6);
    for ty in WeightType::ALL {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for n_token in [1, 6] {
                let mut case = Case::new(random, ty, 768, 4, n_token);
                case.x[random.below(768)] = bad;
                case.check();
                let first = &case.computed(Tier::detect(), &[(0..4, 0..n_token)])[..4];
                assert!(first.iter().all(|y| !y.is_finite()), "{ty}: {first:?}");
            }
        }
    }
}

fn same(found: f32, expected: f32) -> bool {
    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
}

/// The sum of the first two of every four integers, and of the other two.
fn pair_sums(q: &[i8]) -> [i16; 2] {
    let quads = q.as_chunks::<4>().0;
    [0, 2].map(|i| quads.iter().map(|quad| i16::from(quad[i]) + i16::from(quad[i + 1])).sum())
}

#[track_caller]
fn assert_row_of_the_oracle(tier: Tier, acts: &Activations, row: usize, x: &[f32]) {
    let name = tier.name();
    let expected = quantize_activations(x);
    let narrow = NarrowUnit::row(acts, row);
    assert_eq!(narrow.len(), expected.narrow().len());
    for (place, (found, expected)) in narrow.iter().zip(expected.narrow()).enumerate() {
        assert_eq!(found.q.as_flattened(), expected.q, "{name} row {row}, unit {place}");
        assert_eq!([found.pairs, found.last_pairs], [pair_sums(&expected.q), pair_sums(&expected.q[16..])]);
        assert!(same(found.scale, expected.scale) && same(found.sum, expected.sum), "{name} row {row}, unit {place}");
    }
    let (places, second) = NarrowUnit::second(acts, row);
    assert_eq!([places.len(), second.len()], [n_second(narrow.len()); 2]);
    for ((&place, found), expected) in places.iter().zip(second).zip(expected.second()) {
        assert_eq!((place as usize, found.q.as_flattened()), (expected.unit, &expected.q[..]), "{name} row {row}");
        assert_eq!([found.pairs, found.last_pairs], [pair_sums(&expected.q), pair_sums(&expected.q[16..])]);
        assert!(same(found.scale, expected.scale), "{name} row {row}, unit {place}");
    }
    for (found, expected) in WideUnit::row(acts, row).iter().zip(expected.wide()) {
        assert_eq!(found.q.as_flattened(), expected.q, "{name} row {row}");
        assert!(same(found.scale, expected.scale), "{name} row {row}");
    }
}

#[test]
fn quantised_activations_have_the_bits_of_the_oracle() {
    let random = &mut Random::new(7);
    for k in LENGTHS {
        let mut x = random.normal(12 * k);
        for (row, factor) in [1.0, 1e30, 1e-29, 1e-31, f32::MIN_POSITIVE, 0.0].into_iter().enumerate() {
            x[row * k..][..k].iter_mut().for_each(|x| *x *= factor);
        }
        // Ties between integers, values that are not finite, and ties between units.
        for (i, x) in x[6 * k..][..k].iter_mut().enumerate() {
            *x = if i % UNIT_LEN == 0 { 127.0 } else { (i % UNIT_LEN) as f32 - 15.5 };
        }
        x[7 * k + random.below(k)] = f32::NAN;
        x[8 * k + random.below(k)] = f32::NEG_INFINITY;
        x[9 * k..][..k].fill(-0.3);
        for (i, x) in x[10 * k..][..k].iter_mut().enumerate() {
            *x = ((i / UNIT_LEN * 7 % 5) as f32 - 2.0) * 0.7;
        }
        for tier in Tier::available() {
            let mut acts = Activations::new();
            acts.quantize(tier, &random.normal(12 * 4096), 4096, Forms::BOTH);
            acts.quantize(tier, &x, k, Forms::BOTH);
            assert_eq!((acts.n(), acts.k()), (12, k));
            for (row, x) in x.chunks_exact(k).enumerate() {
                assert_row_of_the_oracle(tier, &acts, row, x);
            }
        }
    }
}

#[test]
#[should_panic(expected = "Q8_0 needs")]
fn activations_without_the_form_that_weights_take_are_refused() {
    let case = Case::new(&mut Random::new(8), WeightType::Q8_0, 64, 1, 1);
    let mut acts = Activations::new();
    acts.quantize(Tier::detect(), &case.x, 64, Forms::of([WeightType::Q4_0]));
    let weights = WeightRows::new(case.ty, &case.bytes, 1, 64).unwrap();
    let mut y = [0.0];
    let out = Disjoint::new(&mut y);
    // SAFETY: there is one band.
    let mut band = unsafe { Band::new(&out, 1, 0..1, 0..1) };
    product_integer(Tier::detect(), weights, &acts, &mut band, &mut Scratch::new());
}

#[test]
fn rows_that_the_bytes_are_not_are_refused() {
    assert!(WeightRows::new(WeightType::Q8_0, &[0; 68], 2, 32).is_ok());
    assert!(WeightRows::new(WeightType::Q8_0, &[0; 67], 2, 32).is_err());
    assert!(WeightRows::new(WeightType::Q8_0, &[0; 68], 2, 31).is_err());
    assert!(WeightRows::new(WeightType::F32, &[], usize::MAX, 4).is_err());
}

#[test]
#[should_panic(expected = "rows 2..5 of 4")]
fn a_band_past_the_stride_is_refused() {
    let mut y = [0.0; 8];
    let out = Disjoint::new(&mut y);
    // SAFETY: there is one band.
    unsafe { Band::new(&out, 4, 2..5, 0..2) };
}

#[test]
#[should_panic(expected = "token 1 of 0..1")]
fn a_token_outside_of_the_band_is_refused() {
    let mut y = [0.0; 8];
    let out = Disjoint::new(&mut y);
    // SAFETY: there is one band.
    let mut band = unsafe { Band::new(&out, 4, 0..4, 0..1) };
    band.token(1);
}
