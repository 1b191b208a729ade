//! Any bytes as a row of any type: decoded, and its integer form means the same values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muser_quant::{
    GROUP_LEN, Group, UNIT_LEN, WeightType, decode_row, dot_float, dot_integer, encode_row, integer_form,
    quantize_activations, unpack_group,
};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let ty = WeightType::ALL[usize::from(choice) % WeightType::ALL.len()];
    let n_block = bytes.len() / ty.block_bytes();
    let (row, rest) = bytes.split_at(n_block * ty.block_bytes());
    let mut values = vec![0.0; n_block * ty.block_len()];
    decode_row(ty, row, &mut values).expect("whole blocks");
    if !rest.is_empty() {
        assert!(decode_row(ty, bytes, &mut values).is_err());
    }

    let activations: Vec<f32> = (0..values.len()).map(|index| (index % 17) as f32 - 8.0).collect();
    if let Some(form) = integer_form(ty) {
        let group_bytes = GROUP_LEN / ty.block_len() * ty.block_bytes();
        for (bytes, values) in row.chunks(group_bytes).zip(values.chunks(GROUP_LEN)) {
            same_values(ty, form.sub_block, bytes, values);
        }
        dot_integer(ty, row, &quantize_activations(&activations)).expect("lengths fit");
    } else {
        dot_float(ty, row, &activations).expect("lengths fit");
    }

    // Whatever finite values a row has, they can be encoded.
    if values.iter().all(|value| value.is_finite()) {
        let mut encoded = vec![0; row.len()];
        encode_row(ty, &values, &mut encoded).expect("finite values");
        decode_row(ty, &encoded, &mut values).expect("whole blocks");
    }
});

/// `w * scale + min`, rounded once, is the decoded value; a zero may differ in sign.
fn same_values(ty: WeightType, sub_block: usize, bytes: &[u8], values: &[f32]) {
    let mut group = Group::default();
    unpack_group(ty, bytes, &mut group).expect("a group");
    assert_eq!(group.len, values.len());
    for (index, &value) in values.iter().enumerate() {
        let product = f32::from(group.w[index]) * group.scale[index / sub_block];
        let meant = product + group.min[index / UNIT_LEN];
        assert!(meant == value || meant.is_nan() && value.is_nan(), "{ty}: {meant} is {value} at {index}");
    }
}
