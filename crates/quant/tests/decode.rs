//! What rows decode to, against values from an independent implementation.

mod common;

use muser_quant::blocks::{e4m3_half, e8m0_half};
use muser_quant::{QuantError, WeightType, decode_row};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_quantised_type_decodes_bit_for_bit_as_the_golden_rows() {
    let mut n_value = 0;
    for golden in common::golden() {
        let ty = golden.ty;
        assert_eq!((golden.id, golden.block_len, golden.block_bytes), (ty.ggml_id(), ty.block_len(), ty.block_bytes()));
        for (i, (bytes, expected)) in golden.rows.iter().enumerate() {
            let mut found = vec![f32::NAN; expected.len()];
            decode_row(ty, bytes, &mut found).expect("lengths fit");
            assert_eq!(bits(&found), bits(expected), "{ty}, row {i}");
            n_value += found.len();
        }
    }
    assert_eq!(n_value, 12 * 3 * 256);
}

#[test]
fn float_types_decode_to_the_values_their_bits_mean() {
    let mut out = [0.0; 4];
    let f32s = [1.5_f32, -0.0, f32::MIN_POSITIVE / 2.0, f32::INFINITY];
    let bytes: Vec<u8> = f32s.iter().flat_map(|v| v.to_le_bytes()).collect();
    decode_row(WeightType::F32, &bytes, &mut out).expect("lengths fit");
    assert_eq!(bits(&out), bits(&f32s));

    // One, the least subnormal, the greatest finite half, minus infinity.
    let halves = [0x3c00_u16, 0x0001, 0x7bff, 0xfc00].map(u16::to_le_bytes).concat();
    decode_row(WeightType::F16, &halves, &mut out).expect("lengths fit");
    assert_eq!(bits(&out), bits(&[1.0, 2.0_f32.powi(-24), 65504.0, f32::NEG_INFINITY]));

    let brains = [0x3f80_u16, 0x4049, 0x8000, 0x0001].map(u16::to_le_bytes).concat();
    decode_row(WeightType::BF16, &brains, &mut out).expect("lengths fit");
    assert_eq!(bits(&out), bits(&[1.0, 3.140_625, -0.0, f32::from_bits(0x0001_0000)]));
}

#[test]
fn the_type_numbers_of_files_and_the_types_are_one_to_one() {
    for ty in WeightType::ALL {
        assert_eq!(WeightType::from_ggml_id(ty.ggml_id()), Some(ty));
    }
    let known = (0..1000).filter(|&id| WeightType::from_ggml_id(id).is_some()).count();
    assert_eq!(known, WeightType::ALL.len());
    assert_eq!(WeightType::from_ggml_id(10), None, "Q2_K is not computed");
}

#[test]
fn a_row_of_part_of_a_block_or_past_the_address_space_is_refused() {
    assert_eq!(WeightType::Q4_K.row_bytes(512), Ok(288));
    assert_eq!(WeightType::Q4_K.row_bytes(0), Ok(0));
    let ty = WeightType::Q4_K;
    assert_eq!(ty.row_bytes(257), Err(QuantError::RaggedRow { ty, len: 257 }));
    let (ty, len) = (WeightType::F32, usize::MAX / 2);
    assert_eq!(ty.row_bytes(len), Err(QuantError::RowTooLong { ty, len }));
}

#[test]
fn a_row_of_the_wrong_size_is_refused_with_its_numbers() {
    let ty = WeightType::Q8_0;
    let error = decode_row(ty, &[0; 67], &mut [0.0; 64]).expect_err("one byte is missing");
    assert_eq!(error, QuantError::RowBytes { ty, len: 64, expected: 68, found: 67 });
    assert_eq!(error.to_string(), "a Q8_0 row of 64 elements takes 68 bytes, but 67 were given");
}

#[test]
fn shared_scales_of_4_bit_floats_mean_what_their_formats_say() {
    // Half scales: 2^(e - 128), the first two subnormal.
    for (e, expected) in [(0, 0x0020_0000), (1, 0x0040_0000), (2, 0x0080_0000), (128, 0x3f80_0000), (255, 0x7f00_0000)]
    {
        assert_eq!(e8m0_half(e).to_bits(), expected, "E8M0 {e}");
    }
    // Half of an E4M3 value without sign; only 0x7f is not a number, and counts as zero.
    let cases = [(0x00, 0.0), (0x01, 1.0 / 1024.0), (0x07, 7.0 / 1024.0), (0x08, 8.0 / 1024.0), (0x38, 0.5)];
    for (byte, expected) in cases.into_iter().chain([(0x7e, 224.0), (0x7f, 0.0), (0x80, 0.0), (0xb8, 0.5)]) {
        assert_eq!(bits(&[e4m3_half(byte)]), bits(&[expected]), "E4M3 {byte:#04x}");
    }
}
