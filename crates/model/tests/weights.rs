//! How tensors are bound, and every file that is refused for them.

mod support;

use muser_gguf::TensorType;
use muser_quant::WeightType;
use support::oracle::{Oracle, differences};
use support::{File, N_EMBD, N_VOCAB, Run, Tensor, all, gemma3, llama, muse_glimmer, tokens};

#[test]
fn every_missing_tensor_is_listed_in_one_error() {
    for mut file in all() {
        let names: Vec<String> = file.tensors.iter().map(|tensor| tensor.name.clone()).collect();
        file.tensors.clear();
        let mut problems = file.tensor_problems();
        let mut expected: Vec<String> = names.iter().map(|name| format!("tensor {name:?} is missing")).collect();
        problems.sort();
        expected.sort();
        assert_eq!(problems, expected);
    }
}

#[test]
fn each_tensor_is_missed_by_name() {
    for file in all() {
        for name in file.tensors.iter().map(|tensor| tensor.name.clone()) {
            let mut file = file.clone();
            assert_eq!(file.remove_tensor(&name).tensor_problems(), [format!("tensor {name:?} is missing")]);
        }
    }
}

#[test]
fn a_muse_glimmer_without_a_head_of_its_own_is_refused_where_others_tie_it() {
    assert_eq!(
        muse_glimmer().remove_tensor("output.weight").tensor_problems(),
        ["tensor \"output.weight\" is missing"]
    );
    assert!(gemma3().tensors.iter().all(|tensor| tensor.name != "output.weight"));
    gemma3().model();
}

#[test]
fn a_tensor_of_another_shape_is_refused_with_both() {
    for file in all() {
        for index in 0..file.tensors.len() {
            let mut file = file.clone();
            let tensor = &mut file.tensors[index];
            let expected = tensor.dims.clone();
            // One row more, or one value more in a vector.
            let row_bytes = if let [_, rows] = tensor.dims[..] { tensor.bytes.len() / rows as usize } else { 4 };
            *tensor.dims.last_mut().expect("a dimension") += 1;
            tensor.bytes.resize(tensor.bytes.len() + row_bytes, 0);
            let (name, found) = (tensor.name.clone(), tensor.dims.clone());
            let problem = format!("tensor {name:?} has dimensions {found:?}, expected {expected:?}");
            assert_eq!(file.tensor_problems(), [problem]);
        }
    }
}

#[test]
fn a_transposed_matrix_is_refused() {
    let mut file = llama();
    let Tensor { dims, .. } = file.tensor("blk.0.attn_output.weight");
    *dims = vec![128, 32];
    let expected = "tensor \"blk.0.attn_output.weight\" has dimensions [128, 32], expected [64, 64]";
    assert_eq!(file.tensor_problems(), [expected]);
}

#[test]
fn dimensions_of_one_after_the_last_do_not_matter() {
    let mut file = llama();
    file.tensor("blk.1.attn_norm.weight").dims = vec![64, 1];
    file.tensor("blk.1.attn_q.weight").dims = vec![64, 64, 1];
    file.model();
}

/// A type's tensor of the same dimensions, all zero.
fn retype(file: &mut File, name: &str, ty: TensorType) {
    let tensor = file.tensor(name);
    let n_values: u64 = tensor.dims.iter().product();
    tensor.ty = ty;
    tensor.bytes = vec![0; (n_values / ty.block_len() * ty.block_bytes()) as usize];
}

#[test]
fn types_that_can_not_be_computed_are_refused_by_tensor_and_type() {
    let rows_fit = |ty: &TensorType| (N_EMBD as u64).is_multiple_of(ty.block_len());
    let mut n_refused = 0;
    for ty in TensorType::all().filter(rows_fit) {
        let mut file = llama();
        retype(&mut file, "blk.2.ffn_up.weight", ty);
        if WeightType::from_ggml_id(ty.id()).is_some() {
            file.model();
        } else {
            let expected = format!("tensor \"blk.2.ffn_up.weight\" is {ty}, a type that can't be computed");
            assert_eq!(file.tensor_problems(), [expected]);
            n_refused += 1;
        }
    }
    assert!(n_refused >= 6, "only {n_refused} types were refused");
}

#[test]
fn a_norm_that_is_not_f32_is_refused() {
    let mut file = gemma3();
    retype(&mut file, "blk.2.post_ffw_norm.weight", TensorType::F16);
    retype(&mut file, "output_norm.weight", TensorType::BF16);
    let expected = [
        "tensor \"output_norm.weight\" is BF16, expected F32",
        "tensor \"blk.2.post_ffw_norm.weight\" is F16, expected F32",
    ];
    assert_eq!(file.tensor_problems(), expected);
}

#[test]
fn tensors_that_nothing_reads_are_refused() {
    let mut file = llama();
    file.add_vector("blk.0.attn_q.bias", &[0.0; 64]);
    assert_eq!(file.tensor_problems(), ["tensors that this architecture does not use: \"blk.0.attn_q.bias\""]);
    for layer in 3..9 {
        file.add_vector(format!("blk.{layer}.attn_norm.weight"), &[1.0; 64]);
    }
    let [problem] = file.tensor_problems().try_into().expect("one problem");
    assert!(problem.ends_with("\"blk.6.attn_norm.weight\" and 2 more"), "{problem}");
    // What one architecture needs, another does not use.
    let mut file = llama();
    file.add_vector("blk.0.attn_q_norm.weight", &[1.0; 16]);
    assert_eq!(file.tensor_problems(), ["tensors that this architecture does not use: \"blk.0.attn_q_norm.weight\""]);
}

#[test]
fn query_and_key_norms_of_a_muse_glimmer_have_to_be_constant() {
    let mut file = muse_glimmer();
    let bytes = &mut file.tensor("blk.5.attn_q_norm.weight").bytes;
    bytes[4 * 11..][..4].copy_from_slice(&3.5f32.to_le_bytes());
    let bytes = &mut file.tensor("blk.7.attn_k_norm.weight").bytes;
    bytes[4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let expected = [
        "tensor \"blk.5.attn_q_norm.weight\" is not constant: value 0 is 3.87, value 11 is 3.5",
        "tensor \"blk.7.attn_k_norm.weight\" is not constant: value 0 is 1, value 1 is NaN",
    ];
    assert_eq!(file.tensor_problems(), expected);
    // Where they are learned, they may differ: those of `gemma3()` do.
    gemma3().model();
}

#[test]
fn a_factor_beside_a_tensor_scales_its_products() {
    let tokens = tokens(12, 21);
    for suffix in [".scale", ".weight.scale"] {
        let mut file = muse_glimmer();
        let mut oracle = Oracle::new(&file);
        for (name, factor) in
            [("blk.2.ffn_up", 0.5f32), ("blk.3.attn_gate", -2.0), ("output", 0.75), ("token_embd", 3.0)]
        {
            file.add_vector(format!("{name}{suffix}"), &[factor]);
            file.add_vector(format!("{name}.input_scale"), &[17.0]);
            oracle.scale(&format!("{name}.weight"), f64::from(factor));
        }
        let found = Run::new(&file.model(), 12, 12).logits_of_all(&tokens, &[]);
        let (mean, largest) = differences(&found, &oracle.muse_glimmer(&tokens));
        assert!(mean < 5e-4 && largest < 3e-3, "off by {mean} on average, at most {largest}");
    }
}

#[test]
fn a_factor_that_is_no_number_is_refused() {
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let mut file = llama();
        file.add_vector("blk.1.ffn_up.scale", &[value]);
        let expected = format!("tensor \"blk.1.ffn_up.scale\" holds {shown}, expected a finite factor");
        assert_eq!(file.tensor_problems(), [expected]);
    }
    let mut file = llama();
    file.add_vector("blk.1.ffn_up.scale", &[1.0, 1.0]);
    let expected = "tensor \"blk.1.ffn_up.scale\" has dimensions [2], expected [1]";
    assert_eq!(file.tensor_problems(), [expected]);
    let mut file = llama();
    file.add_vector("blk.1.ffn_up.scale", &[2.0]).add_vector("blk.1.ffn_up.weight.scale", &[2.0]);
    let expected = "tensors \"blk.1.ffn_up.scale\" and \"blk.1.ffn_up.weight.scale\" both scale \
                    \"blk.1.ffn_up.weight\", expected one";
    assert_eq!(file.tensor_problems(), [expected]);
}

#[test]
fn divisors_of_frequencies_have_to_be_finite_and_above_zero() {
    for (value, shown) in [(f32::NAN, "NaN"), (0.0, "0"), (-1.0, "-1"), (f32::INFINITY, "inf")] {
        let mut file = llama();
        file.add_vector("rope_freqs.weight", &[1.0, 1.0, value, 1.0, 1.0, 1.0, 1.0, 1.0]);
        let expected = format!("tensor \"rope_freqs.weight\": value 2 is {shown}, expected a finite one above 0");
        assert_eq!(file.tensor_problems(), [expected]);
    }
    let mut file = llama();
    file.add_vector("rope_freqs.weight", &[1.0; 7]);
    assert_eq!(file.tensor_problems(), ["tensor \"rope_freqs.weight\" has dimensions [7], expected [8]"]);
}

#[test]
fn all_problems_of_a_file_come_together() {
    let mut file = muse_glimmer();
    file.remove_tensor("output.weight").remove_tensor("blk.4.ffn_norm.weight");
    retype(&mut file, "blk.0.attn_k.weight", TensorType::I8);
    file.add_matrix("blk.0.attn_sinks.weight", WeightType::F32, 1, 6);
    let expected = [
        "tensor \"output.weight\" is missing",
        "tensor \"blk.0.attn_k.weight\" is I8, a type that can't be computed",
        "tensor \"blk.4.ffn_norm.weight\" is missing",
        "tensors that this architecture does not use: \"blk.0.attn_sinks.weight\"",
    ];
    assert_eq!(file.tensor_problems(), expected);
    assert_eq!(N_VOCAB, 61);
}
