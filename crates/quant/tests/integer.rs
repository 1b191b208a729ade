//! The integer form, and the products whose bits every kernel repeats.
#![allow(clippy::float_cmp, reason = "exact results are what is promised")]

mod common;

use common::{Random, encode, golden, shapes};
use muser_quant::{
    ActivationsView, GROUP_LEN, Group, IntegerForm, MAX_ACTIVATION, QuantError, SUM_LEN, WeightType, decode_row,
    dot_float, dot_integer, fold, integer_form, quantize_activations, unpack_group,
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
                        (f32::from(group.w[e]), group.scale[e / form.sub_block], group.min[e / SUM_LEN]);
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
fn types_share_scales_and_minimums_as_documented() {
    for (ty, form) in integer_types() {
        let (sub_block, has_min) = match ty {
            WeightType::NVFP4 => (16, false),
            WeightType::Q4_1 | WeightType::Q5_1 => (32, true),
            WeightType::Q4_K | WeightType::Q5_K => (256, true),
            WeightType::Q6_K | WeightType::IQ4_XS => (256, false),
            _ => (32, false),
        };
        assert_eq!(form, IntegerForm { sub_block, has_min }, "{ty}");
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
            assert!(group.min[len / SUM_LEN..].iter().all(|&m| m == 0.0), "{ty}");
        }
    }
}

#[test]
fn activations_keep_fifteen_bits_of_each_group_and_the_exact_sums() {
    for (name, x) in shapes() {
        let x = &x[..500];
        let acts = quantize_activations(x);
        let acts = acts.view();
        assert_eq!((acts.len(), acts.scale().len(), acts.sums().len()), (500, 2, 16));
        for (e, (&x, &q)) in x.iter().zip(acts.q()).enumerate() {
            let scale = f64::from(acts.scale()[e / GROUP_LEN]);
            let error = (f64::from(x) - f64::from(q) * scale).abs();
            // Half a step, and two roundings of a value of up to 2^14 steps.
            assert!(error <= scale * (0.5 + 2.0_f64.powi(-9)), "{name}: {x} is {q} steps of {scale}");
        }
        for (block, &sum) in acts.q().chunks(SUM_LEN).zip(acts.sums()) {
            assert_eq!(f64::from(sum), block.iter().map(|&q| f64::from(q)).sum::<f64>(), "{name}");
        }
        for group in acts.q().chunks(GROUP_LEN) {
            assert_eq!(group.iter().map(|q| q.abs()).max(), Some(MAX_ACTIVATION), "{name}: the full range is used");
        }
    }
}

#[test]
fn halfway_activations_round_to_even() {
    // The scale is 1, so these are steps.
    let x = [16_383.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0];
    assert_eq!(quantize_activations(&x).view().q(), [16_383, 0, 2, 2, 0, -2, -2, 0]);
}

#[test]
fn activations_at_the_ends_of_the_range_stay_sound() {
    let tiny = quantize_activations(&[0.9e-30, -0.9e-30, 0.0]);
    assert_eq!((tiny.view().q(), tiny.view().scale()), (&[0, 0, 0][..], &[0.0][..]));
    for amax in [1e-30, f32::MAX] {
        let acts = quantize_activations(&[amax, -amax, amax / 2.0]);
        assert_eq!(acts.view().q()[..2], [MAX_ACTIVATION, -MAX_ACTIVATION]);
        assert!(acts.view().scale()[0].is_normal());
    }
}

#[test]
fn an_activation_that_is_not_finite_shows_in_every_product_of_its_row() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = vec![1.0; 512];
        x[300] = bad;
        let acts = quantize_activations(&x);
        assert!(acts.view().scale()[1].is_nan() && acts.view().q()[256..].iter().all(|&q| q == 0));
        for (ty, _) in integer_types() {
            let row = encode(ty, &vec![1.0; 512]);
            assert!(dot_integer(ty, &row, acts.view()).expect("lengths fit").is_nan(), "{ty}");
        }
    }
}

#[test]
fn the_largest_lane_sums_fit_in_32_bits() {
    // Overflow checks are on in tests, so a sum that did not fit would panic.
    let one = [0x00, 0x3c];
    // Every scale -128 and every code 0: w = -128 * (0 - 32) = 4096.
    let q6_k = [&[0; 192][..], &[0x80; 16], &one].concat();
    // Every scale 63 and every code 31; minimums and their scale are zero.
    let q5_k = [&one[..], &[0; 2], &[0xff; 4], &[0xc0; 4], &[0x0f; 4], &[0xff; 160]].concat();
    // Every scale 0 - 32 and every code 0: w = -32 * -127.
    let iq4_xs = [&one[..], &[0; 134]].concat();
    for (ty, block, w) in
        [(WeightType::Q6_K, q6_k, 4096), (WeightType::Q5_K, q5_k, 1953), (WeightType::IQ4_XS, iq4_xs, 4064)]
    {
        assert_eq!(unpack(ty, &block).w, [w; 256], "{ty}");
        for x in [16_383.0_f32, -16_383.0] {
            let found = dot_integer(ty, &block, quantize_activations(&[x; 256]).view()).expect("lengths fit");
            assert_eq!(found, f32::from(w) * x * 256.0, "{ty}");
        }
    }
    assert!(32 * 4096 * i64::from(MAX_ACTIVATION) <= i64::from(i32::MAX));
    assert!(32 * 4096 * i64::from(MAX_ACTIVATION + 1) > i64::from(i32::MAX), "the range can't be wider");
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
            let found = f64::from(dot_integer(ty, &row, acts.view()).expect("lengths fit"));

            let mut decoded = vec![0.0; len];
            decode_row(ty, &row, &mut decoded).expect("lengths fit");
            let exact: f64 = decoded.iter().zip(&x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
            // Each activation errs by half a step. Each f32 operation errs by 2^-24 of a magnitude that is at most the sum of
            // |w * scale| + |min| over |x|; no element passes through more than 8 of a group's, 2 of the row's, and the fold.
            let mut magnitude = 0.0;
            for (bytes, x) in row.chunks(group_bytes(ty)).zip(x.chunks(GROUP_LEN)) {
                let group = unpack(ty, bytes);
                for (e, x) in x.iter().enumerate() {
                    let w = f64::from(group.w[e]) * f64::from(group.scale[e / form.sub_block]);
                    magnitude += (w.abs() + f64::from(group.min[e / SUM_LEN].abs())) * f64::from(x.abs());
                }
            }
            let quantised: f64 = decoded
                .iter()
                .enumerate()
                .map(|(e, &w)| f64::from(w.abs()) * f64::from(acts.view().scale()[e / GROUP_LEN]) * 0.51)
                .sum();
            let bound = quantised + magnitude * 32.0 * 2.0_f64.powi(-24);
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
        (WeightType::Q8_0, 0xca78_cd16),
        (WeightType::Q4_0, 0x49b7_c48e),
        (WeightType::Q4_1, 0x4af6_5dad),
        (WeightType::Q5_0, 0x4abe_7614),
        (WeightType::Q5_1, 0xcad8_702a),
        (WeightType::Q4_K, 0xc9c1_3f14),
        (WeightType::Q5_K, 0x45a6_af49),
        (WeightType::Q6_K, 0x46a4_da11),
        (WeightType::IQ4_NL, 0xc940_32d4),
        (WeightType::IQ4_XS, 0x46e9_188c),
        (WeightType::MXFP4, 0x4527_c5c0),
        (WeightType::NVFP4, 0xca36_96ed_u32),
    ];
    for (golden, (ty, expected)) in golden().into_iter().zip(pinned) {
        assert_eq!(golden.ty, ty);
        let mut row: Vec<u8> = golden.rows.into_iter().flat_map(|(bytes, _)| bytes).collect();
        if ty.block_len() < GROUP_LEN {
            row.truncate(row.len() - ty.block_bytes());
        }
        let x = pinned_x(row.len() / ty.block_bytes() * ty.block_len());
        let found = dot_integer(ty, &row, quantize_activations(&x).view()).expect("lengths fit");
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
        assert_eq!(dot_integer(ty, &[], acts.view()), Err(QuantError::NoIntegerForm { ty }));
        assert_eq!(unpack_group(ty, &[0; 4], &mut Group::default()), Err(QuantError::NoIntegerForm { ty }));
    }
    let ty = WeightType::Q8_0;
    assert_eq!(dot_float(ty, &[0; 68], &[1.0; 64]), Err(QuantError::NoFloatProduct { ty }));
    let error = QuantError::RowBytes { ty, len: 64, expected: 68, found: 34 };
    assert_eq!(dot_integer(ty, &[0; 34], acts.view()), Err(error));
    for found in [0, 33, 9 * 34] {
        let result = unpack_group(ty, &vec![0; found], &mut Group::default());
        assert_eq!(result, Err(QuantError::GroupBytes { ty, found }));
    }
}

#[test]
fn activation_parts_that_do_not_belong_together_are_refused() {
    let (q, scale, sums) = ([1; 260], [1.0; 2], [1.0; 9]);
    assert!(ActivationsView::new(&q, &scale, &sums).is_ok());
    let error = ActivationsView::new(&q, &scale[..1], &sums).expect_err("260 elements are two groups");
    assert_eq!(error, QuantError::ActivationLen { part: "scale", len: 260, expected: 2, found: 1 });
    let error = ActivationsView::new(&q, &scale, &sums[..8]).expect_err("260 elements are nine blocks of 32");
    assert_eq!(error, QuantError::ActivationLen { part: "sums", len: 260, expected: 9, found: 8 });
}
