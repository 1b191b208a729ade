//! The integer form, and the products whose bits every kernel repeats.
#![allow(clippy::float_cmp, reason = "exact results are what is promised")]

mod common;

use common::{Random, encode, golden, shapes};
use muser_quant::activations::{MAX_NARROW, MAX_WIDE, SECOND_STEPS, n_second};
use muser_quant::{
    GROUP_LEN, Group, IntegerForm, QuantError, UNIT_LEN, WeightType, decode_row, dot_float, dot_integer, fold,
    integer_form, quantize_activations, unpack_group,
};

/// The types with an integer form.
fn integer_types() -> impl Iterator<Item = (WeightType, IntegerForm)> {
    WeightType::ALL.into_iter().filter_map(|ty| Some((ty, integer_form(ty)?)))
}

fn group_bytes(ty: WeightType) -> usize {
    GROUP_LEN / ty.block_len() * ty.block_bytes()
}

fn unpack(ty: WeightType, bytes: &[u8]) -> Group {
    // Stale contents must not show through.
    let mut group = Group { len: 9, w: [99; 256], scale: [99.0; 16], min: [99.0; 8] };
    unpack_group(ty, bytes, &mut group).expect("a whole group");
    group
}

/// Golden rows and encoded rows of a type.
fn rows(ty: WeightType) -> Vec<Vec<u8>> {
    let golden = golden().into_iter().filter(|g| g.ty == ty).flat_map(|g| g.rows).map(|(bytes, _)| bytes);
    golden.chain(shapes().iter().map(|(_, x)| encode(ty, x))).collect()
}

#[test]
fn the_integer_form_is_exact_and_rounds_once_to_the_decoded_value() {
    for (ty, form) in integer_types() {
        for row in rows(ty) {
            for bytes in row.chunks(group_bytes(ty)) {
                let mut decoded = [0.0; GROUP_LEN];
                decode_row(ty, bytes, &mut decoded).expect("a whole group");
                let group = unpack(ty, bytes);
                assert_eq!(group.len, GROUP_LEN);
                for (e, &expected) in decoded.iter().enumerate() {
                    let (w, scale, min) =
                        (f32::from(group.w[e]), group.scale[e / form.sub_block], group.min[e / UNIT_LEN]);
                    assert_eq!(
                        f64::from(w * scale).to_bits(),
                        (f64::from(w) * f64::from(scale)).to_bits(),
                        "{ty}: exact"
                    );
                    assert_eq!(w * scale + min, expected, "{ty}, element {e}");
                }
            }
        }
    }
}

#[test]
fn types_share_scales_and_minimums_and_take_activations_as_documented() {
    for (ty, form) in integer_types() {
        let sub_block = if ty == WeightType::NVFP4 { 16 } else { 32 };
        let has_min = matches!(ty, WeightType::Q4_1 | WeightType::Q5_1 | WeightType::Q4_K | WeightType::Q5_K);
        let wide = matches!(ty, WeightType::Q8_0 | WeightType::IQ4_NL | WeightType::IQ4_XS);
        assert_eq!(form, IntegerForm { sub_block, has_min, wide }, "{ty}");
    }
    assert_eq!(integer_types().count(), 12);
}

#[test]
fn a_short_group_is_zero_past_its_elements() {
    for (ty, form) in integer_types().filter(|(ty, _)| ty.block_len() < GROUP_LEN) {
        let row = &rows(ty)[0];
        let whole = unpack(ty, &row[..group_bytes(ty)]);
        for n_block in 1..GROUP_LEN / ty.block_len() {
            let len = n_block * ty.block_len();
            let group = unpack(ty, &row[..n_block * ty.block_bytes()]);
            assert_eq!(group.len, len, "{ty}");
            assert_eq!(group.w[..len], whole.w[..len], "{ty}");
            assert!(group.w[len..].iter().all(|&w| w == 0), "{ty}");
            assert!(group.scale[len / form.sub_block..].iter().all(|&s| s == 0.0), "{ty}");
            assert!(group.min[len / UNIT_LEN..].iter().all(|&m| m == 0.0), "{ty}");
        }
    }
}

/// Rows of 500 values, whose last unit is short.
fn activation_rows() -> impl Iterator<Item = (&'static str, Vec<f32>)> {
    shapes().into_iter().map(|(name, x)| (name, x[..500].to_vec()))
}

#[test]
fn activations_keep_eight_bits_of_each_unit_or_sixteen() {
    for (name, x) in activation_rows() {
        let acts = quantize_activations(&x);
        assert_eq!((acts.len(), acts.narrow().len(), acts.wide().len()), (500, 16, 16));
        for ((x, narrow), wide) in x.chunks(UNIT_LEN).zip(acts.narrow()).zip(acts.wide()) {
            for (e, &x) in x.iter().enumerate() {
                for (q, scale) in [(f64::from(narrow.q[e]), narrow.scale), (f64::from(wide.q[e]), wide.scale)] {
                    let scale = f64::from(scale);
                    let error = (f64::from(x) - q * scale).abs();
                    // Half a step, and two roundings of a value of up to 2^15 steps.
                    assert!(error <= scale * (0.5 + 2.0_f64.powi(-8)), "{name}: {x} is {q} steps of {scale}");
                }
            }
            assert!(narrow.q[x.len()..].iter().all(|&q| q == 0) && wide.q[x.len()..].iter().all(|&q| q == 0));
            let greatest = (narrow.q.iter().map(|q| q.abs()).max(), wide.q.iter().map(|q| q.abs()).max());
            assert_eq!(greatest, (Some(MAX_NARROW), Some(MAX_WIDE)), "{name}: the full range is used");
        }
    }
}

#[test]
fn second_digits_keep_eight_bits_more_of_the_units_with_the_greatest_values() {
    for (name, x) in activation_rows() {
        let acts = quantize_activations(&x);
        let amax = |unit: usize| x[unit * UNIT_LEN..].iter().take(UNIT_LEN).fold(0.0, |a: f32, x| a.max(x.abs()));
        let chosen: Vec<usize> = acts.second().iter().map(|digit| digit.unit).collect();
        assert_eq!(chosen.len(), 2, "an eighth of sixteen units");
        assert!(chosen[0] < chosen[1]);
        for other in (0..16).filter(|unit| !chosen.contains(unit)) {
            for &unit in &chosen {
                let before = amax(unit) > amax(other) || amax(unit) == amax(other) && unit < other;
                assert!(before, "{name}: unit {unit} rather than {other}");
            }
        }
        for digit in acts.second() {
            let first = &acts.narrow()[digit.unit];
            assert_eq!(digit.scale, first.scale / SECOND_STEPS);
            for (e, &x) in x[digit.unit * UNIT_LEN..].iter().take(UNIT_LEN).enumerate() {
                let kept =
                    f64::from(first.q[e]) * f64::from(first.scale) + f64::from(digit.q[e]) * f64::from(digit.scale);
                // Half a step of the second digit, and three roundings of a value of up to 2^15 such steps.
                let bound = f64::from(digit.scale) * (0.5 + 2.0_f64.powi(-7));
                assert!((f64::from(x) - kept).abs() <= bound, "{name}: {x} is kept as {kept}");
            }
        }
    }
}

#[test]
fn of_equal_units_the_first_have_the_second_digits() {
    let acts = quantize_activations(&[0.75; 24 * UNIT_LEN]);
    assert_eq!(acts.second().iter().map(|digit| digit.unit).collect::<Vec<_>>(), [0, 1, 2]);
    let mut x = [0.75; 24 * UNIT_LEN];
    x[20 * UNIT_LEN + 3] = -0.8;
    let acts = quantize_activations(&x);
    assert_eq!(acts.second().iter().map(|digit| digit.unit).collect::<Vec<_>>(), [0, 1, 20]);
}

#[test]
fn an_eighth_of_the_units_has_second_digits_whatever_the_values() {
    assert_eq!([0, 1, 7, 8, 18, 20, 48, 64].map(n_second), [0, 0, 0, 1, 2, 2, 6, 8]);
    for (_, x) in activation_rows() {
        for n_unit in [1, 7, 8, 15] {
            assert_eq!(quantize_activations(&x[..n_unit * UNIT_LEN]).second().len(), n_second(n_unit));
        }
    }
}

#[test]
fn sums_are_those_of_the_integers_with_both_digits() {
    for (name, x) in activation_rows() {
        let acts = quantize_activations(&x);
        for (unit, narrow) in acts.narrow().iter().enumerate() {
            let sum = |q: &[i8]| q.iter().map(|&q| f32::from(q)).sum::<f32>();
            let mut expected = narrow.scale * sum(&narrow.q);
            if let Some(digit) = acts.second().iter().find(|digit| digit.unit == unit) {
                expected = digit.scale.mul_add(sum(&digit.q), expected);
            }
            assert_eq!(narrow.sum, expected, "{name}, unit {unit}");
        }
    }
}

#[test]
fn halfway_activations_round_to_even() {
    // The scales are 1, so these are steps.
    let steps = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0];
    let rounded = [0, 2, 2, 0, -2, -2, 0];
    let narrow = quantize_activations(&[&[127.0], &steps[..]].concat());
    assert_eq!(narrow.narrow()[0].q[1..8], rounded);
    let wide = quantize_activations(&[&[32_767.0], &steps[..]].concat());
    assert_eq!(wide.wide()[0].q[1..8], rounded.map(i16::from));
    // With a second digit, half a step is 127 of its steps.
    let row = [&[127.0], &steps[..], &[0.0; 248]].concat();
    assert_eq!(quantize_activations(&row).second()[0].q[..8], [0, 127, -127, 127, -127, 127, -127, 0]);
}

#[test]
fn activations_at_the_ends_of_the_range_stay_sound() {
    let tiny = quantize_activations(&[0.9e-30, -0.9e-30, 0.0]);
    assert_eq!((tiny.narrow()[0].q, tiny.narrow()[0].scale, tiny.narrow()[0].sum), ([0; 32], 0.0, 0.0));
    assert_eq!((tiny.wide()[0].q, tiny.wide()[0].scale), ([0; 32], 0.0));
    for amax in [1e-30, f32::MAX] {
        // Nothing that a first digit leaves passes the range of the second, at either end.
        let x: Vec<f32> = (0..256).map(|i| amax * (((i * 37 % 255) as f32 - 127.0) / 127.5)).collect();
        let acts = quantize_activations(&[&[amax, -amax], &x[2..]].concat());
        assert_eq!(acts.narrow()[0].q[..2], [MAX_NARROW, -MAX_NARROW]);
        assert_eq!(acts.wide()[0].q[..2], [MAX_WIDE, -MAX_WIDE]);
        let scales = [acts.narrow()[0].scale, acts.second()[0].scale, acts.wide()[0].scale];
        assert!(scales.iter().all(|scale| scale.is_normal()), "{scales:?}");
    }
}

#[test]
fn no_rest_passes_the_range_of_the_second_digit() {
    // The product with the inverse errs most beside a half of a great number of steps.
    for amax in (0..4000).map(|i| 1.0 + i as f32 * 0.000_251) {
        let halves = (0..127).map(|i| (i as f32 + 0.5) * (amax / 127.0));
        let around = halves.flat_map(|x| [x.next_down(), x, x.next_up()]).take(31).collect::<Vec<_>>();
        for x in [around.clone(), around.iter().map(|x| amax - x).collect()] {
            let row = [&[amax], &x[..], &[0.0; 224]].concat();
            // `as` saturates, so that a rest that passed the range would be kept with an error of its own.
            let acts = quantize_activations(&row);
            let (first, second) = (&acts.narrow()[0], &acts.second()[0]);
            for (e, &x) in row.iter().take(UNIT_LEN).enumerate() {
                let kept =
                    f64::from(first.q[e]) * f64::from(first.scale) + f64::from(second.q[e]) * f64::from(second.scale);
                assert!(
                    (f64::from(x) - kept).abs() <= f64::from(second.scale) * 0.51,
                    "{x} of {amax} is kept as {kept}"
                );
            }
        }
    }
}

#[test]
fn an_activation_that_is_not_finite_shows_in_every_product_of_its_row() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = vec![1.0; 512];
        x[300] = bad;
        let acts = quantize_activations(&x);
        let (narrow, wide) = (&acts.narrow()[9], &acts.wide()[9]);
        assert!(narrow.scale.is_nan() && narrow.sum.is_nan() && wide.scale.is_nan());
        assert_eq!((narrow.q, wide.q), ([0; 32], [0; 32]));
        for (ty, _) in integer_types() {
            let row = encode(ty, &vec![1.0; 512]);
            assert!(dot_integer(ty, &row, &acts).expect("lengths fit").is_nan(), "{ty}");
        }
    }
}

#[test]
fn the_greatest_sums_fit() {
    let one = [0x00, 0x3c];
    // Every scale -128 and every code 0: w = -128 * (0 - 32) = 4096.
    let q6_k = [&[0; 192][..], &[0x80; 16], &one].concat();
    // Every scale 63 and every code 31; minimums and their scale are zero.
    let q5_k = [&one[..], &[0; 2], &[0xff; 4], &[0xc0; 4], &[0x0f; 4], &[0xff; 160]].concat();
    // Every scale 0 - 32 and every code 0: w = -127.
    let iq4_xs = [&one[..], &[0; 134]].concat();
    let q8_0 = [&one[..], &[0x80; 32]].concat().repeat(8);
    for (ty, block, w, value) in [
        (WeightType::Q6_K, q6_k, 4096, 4096.0),
        (WeightType::Q5_K, q5_k, 31, 1953.0),
        (WeightType::IQ4_XS, iq4_xs, -127, 4064.0),
        (WeightType::Q8_0, q8_0, -128, -128.0),
    ] {
        assert_eq!(unpack(ty, &block).w, [w; 256], "{ty}");
        // Narrow activations have a step of 1 with these, wide ones with those; either way a product is exact.
        let max = if integer_form(ty).expect("an integer type").wide { f32::from(MAX_WIDE) } else { 127.0 };
        for x in [max, -max] {
            // Overflow checks are on in tests, so a sum that did not fit would panic.
            let found = dot_integer(ty, &block, &quantize_activations(&[x; 256])).expect("lengths fit");
            let exact = value * x * 256.0;
            // Sums of wide products round as they become f32, and so may each unit's addition.
            let error = if integer_form(ty).expect("an integer type").wide { 16.0 * f32::EPSILON } else { 0.0 };
            assert!((found - exact).abs() <= error * exact.abs(), "{ty}: {found} for {exact}");
        }
    }
    assert!(32 * 4096 * i64::from(MAX_NARROW) < 1 << 24, "an f32 holds every sum of narrow products");
    assert!(32 * 128 * i64::from(MAX_WIDE) < 1 << 27);
}

#[test]
fn products_are_as_near_to_the_exact_ones_as_their_roundings_allow() {
    let mut random = Random(3);
    for (ty, form) in integer_types() {
        for (name, weights) in shapes() {
            // A short last group where blocks allow.
            let len = if ty.block_len() == GROUP_LEN { 512 } else { 448 };
            let row = encode(ty, &weights[..len]);
            let x: Vec<f32> = (0..len).map(|_| random.bell()).collect();
            let acts = quantize_activations(&x);
            let found = f64::from(dot_integer(ty, &row, &acts).expect("lengths fit"));

            let mut decoded = vec![0.0; len];
            decode_row(ty, &row, &mut decoded).expect("lengths fit");
            let exact: f64 = decoded.iter().zip(&x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            // Each activation errs by half a step of its last digit. Each f32 operation errs by 2^-24 of a magnitude that is
            // at most the sum of |w * scale| + |min| over |x|; no element passes through more than three of a unit's
            // and two for each that follows.
            let step = |unit: usize| {
                let second = acts.second().iter().find(|digit| digit.unit == unit).map(|digit| digit.scale);
                if form.wide { acts.wide()[unit].scale } else { second.unwrap_or(acts.narrow()[unit].scale) }
            };
            let mut magnitude = 0.0;
            for (bytes, x) in row.chunks(group_bytes(ty)).zip(x.chunks(GROUP_LEN)) {
                let group = unpack(ty, bytes);
                for (e, x) in x.iter().enumerate() {
                    let w = f64::from(group.w[e]) * f64::from(group.scale[e / form.sub_block]);
                    magnitude += (w.abs() + f64::from(group.min[e / UNIT_LEN].abs())) * f64::from(x.abs());
                }
            }
            let quantised: f64 = decoded
                .iter()
                .enumerate()
                .map(|(e, &w)| f64::from(w.abs()) * f64::from(step(e / UNIT_LEN)) * 0.51)
                .sum();
            let bound = quantised + magnitude * 64.0 * 2.0_f64.powi(-24);
            assert!((found - exact).abs() <= bound, "{ty}, {name}: {found} for {exact}, bound {bound}");
        }
    }
}

/// The activations of the pinned products.
fn pinned_x(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + 13) % 2003) as f32 - 1001.0).map(|n| n / 3.0).collect()
}

#[test]
fn integer_products_have_the_bits_of_the_contract() {
    // From a model of the contract in exact rational arithmetic, over the three golden rows of each type in a line,
    // less one block where a block is shorter than a group.
    let pinned = [
        (WeightType::Q8_0, 0xca78_c743),
        (WeightType::Q4_0, 0x49b6_9ff2),
        (WeightType::Q4_1, 0x4af5_132f),
        (WeightType::Q5_0, 0x4abe_8538),
        (WeightType::Q5_1, 0xcad8_f2c2),
        (WeightType::Q4_K, 0xc9c4_0c95),
        (WeightType::Q5_K, 0x45a7_b4ec),
        (WeightType::Q6_K, 0x46a6_7fdf),
        (WeightType::IQ4_NL, 0xc940_3bf6),
        (WeightType::IQ4_XS, 0x46e9_1c18),
        (WeightType::MXFP4, 0x4528_9e2c),
        (WeightType::NVFP4, 0xca36_a8ee_u32),
    ];
    for (golden, (ty, expected)) in golden().into_iter().zip(pinned) {
        assert_eq!(golden.ty, ty);
        let mut row: Vec<u8> = golden.rows.into_iter().flat_map(|(bytes, _)| bytes).collect();
        if ty.block_len() < GROUP_LEN {
            row.truncate(row.len() - ty.block_bytes());
        }
        let x = pinned_x(row.len() / ty.block_bytes() * ty.block_len());
        let found = dot_integer(ty, &row, &quantize_activations(&x)).expect("lengths fit");
        assert_eq!(found.to_bits(), expected, "{ty}: {found}");
    }
}

#[test]
fn float_products_have_the_bits_of_the_contract() {
    // Weights that all three types express exactly, so that they give the same bits.
    let w: Vec<f32> = (0..77).map(|i| ((i * 5 + 3) % 255) as f32 - 127.0).map(|n| n / 16.0).collect();
    for ty in [WeightType::F32, WeightType::F16, WeightType::BF16] {
        let found = dot_float(ty, &encode(ty, &w), &pinned_x(77)).expect("lengths fit");
        assert_eq!(found.to_bits(), 0xc482_b15e, "{ty}: {found}");
    }
}

#[test]
fn the_fold_is_the_documented_tree() {
    // Each sum of the tree loses or keeps its small part in its own way.
    let big = 16_777_216.0;
    assert_eq!(fold([big, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), big, "v0 + v4 first");
    assert_eq!(fold([big, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]), big + 2.0, "v2 + v6 before joining v0");
    assert_eq!(fold([big, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]), big + 2.0, "odd lanes before the even ones");
    assert_eq!(fold([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), 36.0);
}

#[test]
fn a_product_of_the_wrong_kind_or_length_is_refused() {
    let acts = quantize_activations(&[1.0; 64]);
    for ty in [WeightType::F32, WeightType::F16, WeightType::BF16] {
        assert_eq!(dot_integer(ty, &[], &acts), Err(QuantError::NoIntegerForm { ty }));
        assert_eq!(unpack_group(ty, &[0; 4], &mut Group::default()), Err(QuantError::NoIntegerForm { ty }));
    }
    let ty = WeightType::Q8_0;
    assert_eq!(dot_float(ty, &[0; 68], &[1.0; 64]), Err(QuantError::NoFloatProduct { ty }));
    let error = QuantError::RowBytes { ty, len: 64, expected: 68, found: 34 };
    assert_eq!(dot_integer(ty, &[0; 34], &acts), Err(error));
    for found in [0, 33, 9 * 34] {
        let result = unpack_group(ty, &vec![0; found], &mut Group::default());
        assert_eq!(result, Err(QuantError::GroupBytes { ty, found }));
    }
}
