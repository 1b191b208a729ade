//! What encoding loses, and what it keeps.

mod common;

use common::{Random, encode, shapes};
use muser_quant::blocks::{E2M1_DOUBLED, IQ4_VALUES};
use muser_quant::{QuantError, WeightType, decode_row, encode_row};

fn decode(ty: WeightType, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; len];
    decode_row(ty, bytes, &mut out).expect("lengths fit");
    out
}

fn round_trip(ty: WeightType, x: &[f32]) -> Vec<f32> {
    decode(ty, &encode(ty, x), x.len())
}

/// The greatest error of any element of a block, from the format's step. Scales are halves, good to 2^-11.
fn worst_error(ty: WeightType, block: &[f32]) -> f32 {
    let extreme = block.iter().fold(0.0_f32, |a, v| a.max(v.abs()));
    let min = block.iter().copied().fold(f32::INFINITY, f32::min);
    let range = block.iter().copied().fold(f32::NEG_INFINITY, f32::max) - min;
    let half = 2.0_f32.powi(-11);
    // The shared scales of k-quants see the deepest sub-block and the one that reaches furthest from its start.
    let depth = block.chunks(32).map(|b| -b.iter().copied().fold(0.0, f32::min)).fold(0.0, f32::max);
    let reach = block
        .chunks(32)
        .map(|b| b.iter().copied().fold(0.0, f32::max) - b.iter().copied().fold(0.0, f32::min))
        .fold(0.0, f32::max);
    // Half a step; half a step of the scale over the whole reach; half a step of the minimum.
    let with_mins = |max_code: f32| reach / max_code / 2.0 + reach / 126.0 + depth / 126.0 + half * (reach + depth);
    match ty {
        WeightType::F32 => 0.0,
        WeightType::F16 => extreme * half,
        WeightType::BF16 => extreme * 2.0_f32.powi(-8),
        WeightType::Q8_0 => extreme * (0.5 / 127.0 + half),
        // The end opposite to the extreme value is one step short.
        WeightType::Q4_0 => extreme * (1.0 / 8.0 + half),
        WeightType::Q5_0 => extreme * (1.0 / 16.0 + half),
        WeightType::Q4_1 => range * (0.5 / 15.0 + half) + min.abs() * half,
        WeightType::Q5_1 => range * (0.5 / 31.0 + half) + min.abs() * half,
        WeightType::Q4_K => with_mins(15.0),
        WeightType::Q5_K => with_mins(31.0),
        // One step short at the far end; up to one step of the scale (127 for 128) over 32 codes.
        WeightType::Q6_K => extreme * (1.0 / 32.0 + 1.0 / 128.0 + half),
        // The codebook ends at 113 where the extreme is 127; its widest gap is 24.
        WeightType::IQ4_NL => extreme * (14.0 / 127.0 + half),
        WeightType::IQ4_XS => extreme * (14.0 / 127.0 + 1.0 / 32.0 + half),
        // The extreme is 4 to 8 units: 6 is the greatest code, and between 4 and 6 there is none.
        WeightType::MXFP4 => extreme / 4.0,
        // The extreme is 6 units of a scale that is good to 1/16.
        WeightType::NVFP4 => extreme / 6.0 * 17.0 / 16.0,
    }
}

#[test]
fn encoding_errs_by_no_more_than_the_step_of_the_format() {
    for ty in WeightType::ALL {
        for (name, x) in shapes() {
            let y = round_trip(ty, &x);
            let block_len = ty.block_len();
            for (b, (x, y)) in x.chunks(block_len).zip(y.chunks(block_len)).enumerate() {
                let worst = worst_error(ty, x);
                for (x, y) in x.iter().zip(y) {
                    assert!((x - y).abs() <= worst, "{ty}, {name}, block {b}: {x} became {y}, bound {worst}");
                }
            }
        }
    }
}

/// Values that `ty` expresses exactly: sub-block `j` of 16 or 32, with both ends of its codes in use.
fn grid(ty: WeightType, j: usize, random: &mut Random) -> Vec<f32> {
    use WeightType as W;
    const NOWHERE: usize = 8;

    let (len, low, high) = match ty {
        W::F32 | W::F16 | W::BF16 | W::Q8_0 => (32, -127, 127),
        W::Q4_0 => (32, -8, 7),
        W::Q5_0 => (32, -16, 15),
        W::Q5_1 | W::Q5_K => (32, 0, 31),
        W::Q6_K => (16, -32, 31),
        W::NVFP4 => (16, 0, 15),
        W::Q4_1 | W::Q4_K | W::IQ4_NL | W::IQ4_XS | W::MXFP4 => (32, 0, 15),
    };
    // The greatest scale of each 256 is in use in one sub-block, the greatest minimum in another.
    let mut multiple = |greatest_at: usize, least: i32, greatest: i32| {
        if j % 8 == greatest_at { greatest as f32 } else { random.between(least, greatest.abs() - 1) as f32 }
    };
    let (scale, min) = match ty {
        W::F32 | W::F16 | W::BF16 => (0.25, 0.0),
        W::Q4_K | W::Q5_K => (0.125 * multiple(2, 1, 63), -0.5 * multiple(5, 0, 63)),
        W::Q6_K => (0.5 * multiple(7, -128, -128), 0.0),
        W::IQ4_XS => (0.25 * multiple(4, -32, -32), 0.0),
        W::MXFP4 | W::NVFP4 => (multiple(NOWHERE, -4, 7).exp2(), 0.0),
        W::Q4_1 | W::Q5_1 => (0.25 * multiple(NOWHERE, 1, 32), -2.5),
        W::Q8_0 | W::Q4_0 | W::Q5_0 | W::IQ4_NL => (0.25 * multiple(NOWHERE, 1, 32), 0.0),
    };
    let value = |code: i32| match ty {
        W::IQ4_NL | W::IQ4_XS => f32::from(IQ4_VALUES[code as usize]),
        W::MXFP4 | W::NVFP4 => f32::from(E2M1_DOUBLED[code as usize]),
        _ => code as f32,
    };
    let code = |i: usize| match i {
        0 => low,
        1 => high,
        _ => random.between(low, high),
    };
    (0..len).map(code).map(|code| scale * value(code) + min).collect()
}

#[test]
fn values_on_the_grid_of_the_format_are_kept_exactly() {
    let mut random = Random(2);
    for ty in WeightType::ALL {
        for _ in 0..20 {
            let mut x: Vec<f32> = (0..16).flat_map(|j| grid(ty, j, &mut random)).collect();
            x.truncate(256);
            assert_eq!(round_trip(ty, &x), x, "{ty}");
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for ty in WeightType::ALL {
        assert_eq!(round_trip(ty, &[0.0; 256]), [0.0; 256], "{ty}");
    }
}

#[test]
fn scales_past_their_range_saturate_to_finite_blocks() {
    let mut x = [1.0; 256];
    for (i, v) in x.iter_mut().enumerate() {
        *v = if i % 3 == 0 { f32::MAX } else { f32::MIN / 7.0 };
    }
    for ty in WeightType::ALL.into_iter().filter(|ty| ty.block_len() > 1) {
        let y = round_trip(ty, &x);
        assert!(y.iter().all(|v| v.is_finite()), "{ty}");
        assert!(y[0] > 1000.0 && y[1] < 0.0, "{ty}: {} {}", y[0], y[1]);
    }
}

#[test]
fn a_value_that_is_not_finite_is_refused_by_its_position_except_by_float_types() {
    for ty in WeightType::ALL {
        for bad in [f32::NAN, f32::NEG_INFINITY] {
            let mut x = [1.0; 256];
            x[77] = bad;
            let mut bytes = vec![0xaa; ty.row_bytes(256).expect("whole blocks")];
            let result = encode_row(ty, &x, &mut bytes);
            if ty.block_len() == 1 {
                assert_eq!(result, Ok(()));
                let kept = decode(ty, &bytes, 256)[77];
                assert!(kept.is_nan() == bad.is_nan() && !kept.is_finite(), "{ty}: {kept}");
            } else {
                assert_eq!(result, Err(QuantError::NotFinite { ty, index: 77 }));
                assert!(bytes.iter().all(|&b| b == 0xaa), "{ty}: nothing is written on error");
            }
        }
    }
}

#[test]
fn mxfp4_reaches_the_smallest_scales() {
    // 2^-127 is the least scale; its half step and its sixfold are expressible.
    let unit = f32::from_bits(0x0040_0000);
    let mut x = [0.0; 32];
    x[3] = 6.0 * unit;
    x[20] = -0.5 * unit;
    assert_eq!(round_trip(WeightType::MXFP4, &x), x);
}

#[test]
fn nvfp4_scales_round_to_the_nearest_e4m3() {
    // The extreme is 6 units, so these units are the values to be expressed; 0x7e is the greatest.
    for (unit, byte) in [
        (448.0, 0x7e),
        (5000.0, 0x7e),
        (1.0, 0x38),
        (1.0624, 0x38),
        (1.0626, 0x39),
        (1.99, 0x40),
        (0.015_625, 0x08),
        (0.001_953_125, 0x01),
        (0.0001, 0x00),
    ] {
        let mut x = [0.0; 64];
        x[17] = -6.0 * unit;
        assert_eq!(encode(WeightType::NVFP4, &x)[..4], [0, byte, 0, 0], "{unit}");
    }
}

#[test]
fn values_halfway_between_two_4_bit_floats_take_the_even_mantissa() {
    // The extreme of 6 makes the unit 1.
    let mut x = [0.0; 64];
    let halfway = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let even = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0];
    x[..7].copy_from_slice(&halfway);
    x[7..14].copy_from_slice(&halfway.map(|v| -v));
    x[14] = 6.0;
    for ty in [WeightType::MXFP4, WeightType::NVFP4] {
        let y = round_trip(ty, &x);
        assert_eq!(y[..7], even, "{ty}");
        assert_eq!(y[7..14], even.map(|v| -v), "{ty}");
    }
}
