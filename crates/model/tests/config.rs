//! What metadata says, for every architecture, and everything that can be wrong with it.

mod support;

use muser_gguf::Writer;
use muser_model::spec::{EmbeddingSpec, HeadSpec, QkNorm, RopeScaling, RopeSpec};
use muser_model::{Error, LayerSpec, ModelSpec, architectures};
use muser_ops::{Activation, Pairing};
use muser_quant::WeightType;
use support::{File, Meta, N_CTX_TRAIN, N_EMBD, N_VOCAB, all, gemma3, llama, muse_glimmer, parsed};

fn slides(spec: &ModelSpec) -> Vec<bool> {
    spec.layers.iter().map(|layer| layer.window.is_some()).collect()
}

/// One bit for each layer, first layer leftmost: `s` slides, `g` is global.
fn pattern(spec: &ModelSpec) -> String {
    slides(spec).into_iter().map(|slides| if slides { 's' } else { 'g' }).collect()
}

#[test]
fn a_llama_is_read_as_its_keys_say() {
    let mut file = llama();
    file.set("rope.freq_base", Meta::F32(100_000.0));
    let spec = file.spec();
    assert_eq!((spec.arch, spec.n_embd, spec.n_vocab, spec.n_ctx_train), ("llama", N_EMBD, N_VOCAB, N_CTX_TRAIN));
    assert_eq!(spec.embedding, EmbeddingSpec { scale: 1.0, norm_eps: None });
    assert_eq!((spec.head, spec.logit_cap), (HeadSpec::Tied, None));
    let rope =
        RopeSpec { base: 100_000.0, n_rot: 16, pairing: Pairing::Adjacent, scaling: RopeScaling::None, factors: false };
    let layer = LayerSpec {
        n_head: 4,
        n_head_kv: 2,
        head_dim: 16,
        n_ff: 128,
        window: None,
        rope: Some(rope),
        eps: 1e-5,
        qk_norm: QkNorm::None,
        gate: false,
        attn_scale: 0.25,
        attn_cap: None,
        activation: Activation::Silu,
        post_norm_eps: None,
    };
    assert_eq!(spec.layers, vec![layer; 3]);
}

#[test]
fn a_gemma3_is_read_as_its_keys_say() {
    let spec = gemma3().spec();
    assert_eq!(spec.embedding, EmbeddingSpec { scale: 8.0, norm_eps: None });
    assert_eq!((spec.arch, spec.head, spec.logit_cap), ("gemma3", HeadSpec::Tied, None));
    let global = RopeSpec {
        base: 50_000.0,
        n_rot: 32,
        pairing: Pairing::Half,
        scaling: RopeScaling::Linear { factor: 8.0 },
        factors: false,
    };
    let layer = LayerSpec {
        n_head: 4,
        n_head_kv: 1,
        head_dim: 32,
        n_ff: 128,
        window: None,
        rope: Some(global),
        eps: 1e-6,
        qk_norm: QkNorm::Gains,
        gate: false,
        attn_scale: 1.0 / 32f32.sqrt(),
        attn_cap: None,
        activation: Activation::GeluTanh,
        post_norm_eps: Some(1e-6),
    };
    assert_eq!(spec.layers[5], layer);
    let sliding = RopeSpec { base: 10_000.0, scaling: RopeScaling::None, ..global };
    assert_eq!(spec.layers[0], LayerSpec { window: Some(8), rope: Some(sliding), ..layer });
}

#[test]
fn a_muse_glimmer_is_read_as_its_keys_say() {
    let spec = muse_glimmer().spec();
    assert_eq!(spec.embedding, EmbeddingSpec { scale: 1.0, norm_eps: Some(1e-5) });
    assert_eq!((spec.arch, spec.head, spec.logit_cap), ("muse-glimmer", HeadSpec::Own, Some(1.5)));
    assert_eq!(spec.logit_scale.to_bits(), 0.75f32.to_bits());
    let rope =
        RopeSpec { base: 500.0, n_rot: 16, pairing: Pairing::Adjacent, scaling: RopeScaling::None, factors: false };
    let layer = LayerSpec {
        n_head: 6,
        n_head_kv: 2,
        head_dim: 16,
        n_ff: 128,
        window: Some(8),
        rope: Some(rope),
        eps: 1e-5,
        qk_norm: QkNorm::ConstantGains,
        gate: true,
        attn_scale: 0.25,
        attn_cap: None,
        activation: Activation::Silu,
        post_norm_eps: Some(1e-8),
    };
    assert_eq!(spec.layers[0], layer);
    assert_eq!(spec.layers[3], LayerSpec { window: None, rope: None, ..layer });
}

#[test]
fn a_window_pattern_is_a_period_or_an_array_that_repeats() {
    let bools = |pattern: &str| Meta::Bools(pattern.chars().map(|c| c == 's').collect());
    for (value, expected) in [
        (Meta::U32(4), "sssgsssg"),
        (Meta::I32(4), "sssgsssg"),
        (Meta::U32(3), "ssgssgss"),
        (Meta::U32(2), "sgsgsgsg"),
        (Meta::U32(1), "gggggggg"),
        (Meta::U32(0), "ssssssss"),
        (bools("sssgsssg"), "sssgsssg"),
        (bools("gssssssg"), "gssssssg"),
        (bools("sssg"), "sssgsssg"),
        (bools("ssg"), "ssgssgss"),
        (bools("s"), "ssssssss"),
    ] {
        let mut file = muse_glimmer();
        file.set("attention.sliding_window_pattern", value.clone());
        assert_eq!(pattern(&file.spec()), expected, "{value:?}");
        let mut file = gemma3();
        file.set("block_count", Meta::U32(8)).set("attention.sliding_window_pattern", value.clone());
        assert_eq!(pattern(&file.spec()), expected, "{value:?}");
    }
}

#[test]
fn without_a_pattern_every_sixth_gemma3_layer_is_global_and_a_muse_glimmer_is_refused() {
    let mut file = gemma3();
    file.set("block_count", Meta::U32(13));
    assert_eq!(pattern(&file.spec()), "sssssgsssssgs");
    let mut file = muse_glimmer();
    file.unset("attention.sliding_window_pattern");
    let expected =
        "muse-glimmer.attention.sliding_window_pattern is missing, expected a period or an array of truth values";
    assert_eq!(file.metadata_problems(), [expected]);
}

#[test]
fn a_pattern_of_another_type_or_length_is_refused() {
    for mut file in [gemma3(), muse_glimmer()] {
        let n_layer = file.spec().layers.len();
        let key = format!("{}.attention.sliding_window_pattern", file.arch);
        for (len, value) in [(0, Meta::Bools(vec![])), (n_layer + 1, Meta::Bools(vec![true; n_layer + 1]))] {
            file.set("attention.sliding_window_pattern", value);
            assert_eq!(file.metadata_problems(), [format!("{key} has {len} entries, expected 1 to {n_layer}")]);
        }
        for period in [n_layer as u32 + 1, 1 << 20, u32::MAX] {
            file.set("attention.sliding_window_pattern", Meta::U32(period));
            assert_eq!(file.metadata_problems(), [format!("{key} is {period}, expected 0 to the {n_layer} layers")]);
        }
        for value in [Meta::I32(-1), Meta::F32(4.0), Meta::Bool(true), Meta::Str("sssg"), Meta::U32s(vec![1; 4])] {
            file.set("attention.sliding_window_pattern", value);
            let [problem] = file.metadata_problems().try_into().expect("one problem");
            assert!(problem.contains(&key), "{problem}");
        }
    }
}

/// The scaling of the first layer that is global or has none.
fn scaling(file: &File) -> RopeScaling {
    file.spec().layers.iter().find(|layer| layer.window.is_none()).and_then(|layer| layer.rope).expect("a rope").scaling
}

#[test]
fn rope_scaling_is_read_from_either_linear_key() {
    let linear = RopeScaling::Linear { factor: 4.0 };
    for (keys, expected) in [
        (vec![], RopeScaling::None),
        (vec![("rope.scaling.factor", Meta::F32(4.0))], linear),
        (vec![("rope.scale_linear", Meta::F32(4.0))], linear),
        (vec![("rope.scaling.type", Meta::Str("linear")), ("rope.scaling.factor", Meta::F32(4.0))], linear),
        (vec![("rope.scaling.type", Meta::Str("linear")), ("rope.scaling.factor", Meta::F32(1.0))], RopeScaling::None),
        (vec![("rope.scaling.type", Meta::Str("none")), ("rope.scaling.factor", Meta::F32(4.0))], RopeScaling::None),
        (vec![("rope.scaling.type", Meta::Str("linear"))], RopeScaling::None),
    ] {
        let mut file = llama();
        for (name, value) in &keys {
            file.set(name, value.clone());
        }
        assert_eq!(scaling(&file), expected, "{keys:?}");
        assert_eq!(file.read().expect("usable metadata").1, [] as [String; 0]);
    }
}

#[test]
fn yarn_has_its_defaults_and_takes_its_keys() {
    let mut file = llama();
    file.set("rope.scaling.type", Meta::Str("yarn")).set("rope.scaling.factor", Meta::F32(4.0));
    file.set("rope.scaling.finetuned", Meta::Bool(true)).set("rope.scaling.yarn_ext_factor", Meta::F32(1.0));
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        n_ctx_original: N_CTX_TRAIN,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attn_factor: 1.0,
    };
    assert_eq!(scaling(&file), expected);
    file.set("rope.scaling.original_context_length", Meta::U32(64));
    file.set("rope.scaling.yarn_beta_fast", Meta::F32(16.0)).set("rope.scaling.yarn_beta_slow", Meta::F32(2.0));
    file.set("rope.scaling.attn_factor", Meta::F32(0.5));
    let expected =
        RopeScaling::Yarn { factor: 4.0, n_ctx_original: 64, beta_fast: 16.0, beta_slow: 2.0, attn_factor: 0.5 };
    assert_eq!(scaling(&file), expected);
    assert_eq!(file.read().expect("usable metadata").1, [] as [String; 0]);
}

#[test]
fn rope_scaling_that_is_not_computed_is_refused() {
    let problems = |keys: &[(&str, Meta)]| {
        let mut file = llama();
        for (name, value) in keys {
            file.set(name, value.clone());
        }
        file.metadata_problems()
    };
    let yarn = ("rope.scaling.type", Meta::Str("yarn"));
    let factor = ("rope.scaling.factor", Meta::F32(4.0));
    assert_eq!(
        problems(&[("rope.scaling.type", Meta::Str("longrope"))]),
        ["llama.rope.scaling.type is \"longrope\", expected \"none\", \"linear\" or \"yarn\""]
    );
    assert_eq!(
        problems(std::slice::from_ref(&yarn)),
        ["llama.rope.scaling.type is \"yarn\", but llama.rope.scaling.factor is missing"]
    );
    assert_eq!(
        problems(&[yarn.clone(), factor.clone(), ("rope.scaling.yarn_ext_factor", Meta::F32(0.5))]),
        ["llama.rope.scaling.yarn_ext_factor is 0.5, and only 1 is supported"]
    );
    assert_eq!(
        problems(&[yarn, factor, ("rope.scaling.yarn_log_multiplier", Meta::F32(0.1))]),
        ["llama.rope.scaling.yarn_log_multiplier is set, and what it asks for is not supported"]
    );
    assert_eq!(
        problems(&[("rope.scaling.factor", Meta::F32(-2.0))]),
        ["llama.rope.scaling.factor is -2, expected more than 0"]
    );
    assert_eq!(problems(&[("rope.freq_base", Meta::F32(1.0))]), ["llama.rope.freq_base is 1, expected more than 1"]);
}

#[test]
fn counts_may_differ_from_layer_to_layer() {
    let mut file = llama();
    file.set("attention.head_count", Meta::U32s(vec![4, 8, 2]))
        .set("attention.head_count_kv", Meta::U32s(vec![4, 2, 1]));
    file.set("feed_forward_length", Meta::U32s(vec![64, 128, 256])).set("attention.key_length", Meta::U32(16));
    let found = file
        .spec()
        .layers
        .iter()
        .map(|l| (l.n_head, l.n_head_kv, l.n_ff, l.q_width(), l.kv_width()))
        .collect::<Vec<_>>();
    assert_eq!(found, [(4, 4, 64, 64, 64), (8, 2, 128, 128, 32), (2, 1, 256, 32, 16)]);
}

#[test]
fn arrays_with_an_entry_too_few_or_a_zero_are_refused() {
    let mut file = llama();
    file.set("attention.head_count", Meta::U32s(vec![4, 4]));
    file.set("feed_forward_length", Meta::U32s(vec![64, 0, 64]));
    let expected = [
        "llama.attention.head_count has 2 entries, expected one for each of 3 layers",
        "llama.feed_forward_length is 0 for layer 1, expected 1 to 1073741824",
    ];
    assert_eq!(file.metadata_problems(), expected);
}

#[test]
fn without_kv_heads_every_head_has_its_own() {
    let mut file = llama();
    file.unset("attention.head_count_kv");
    assert_eq!(file.spec().layers[0].n_head_kv, 4);
}

#[test]
fn a_head_of_its_own_and_frequency_factors_are_seen_in_the_tensor_table() {
    let mut file = llama();
    file.add_matrix("output.weight", WeightType::Q8_0, N_VOCAB, N_EMBD);
    file.add_vector("rope_freqs.weight", &[1.0; 8]);
    let spec = file.spec();
    assert_eq!(spec.head, HeadSpec::Own);
    assert!(spec.layers[0].rope.expect("a rope").factors);
}

#[test]
fn optional_gemma3_keys_are_read() {
    let mut file = gemma3();
    file.set("rope.freq_base_swa", Meta::F32(20_000.0)).set("attention.scale", Meta::F32(0.5));
    file.set("attn_logit_softcapping", Meta::F32(50.0)).set("final_logit_softcapping", Meta::F32(30.0));
    let spec = file.spec();
    let layer = &spec.layers[0];
    assert_eq!((layer.rope.expect("a rope").base, layer.attn_scale, layer.attn_cap), (20_000.0, 0.5, Some(50.0)));
    assert_eq!(spec.logit_cap, Some(30.0));
    // 0 switches a cap off.
    file.set("attn_logit_softcapping", Meta::F32(0.0)).set("final_logit_softcapping", Meta::F32(0.0));
    assert_eq!((file.spec().layers[0].attn_cap, file.spec().logit_cap), (None, None));
    file.set("final_logit_softcapping", Meta::F32(-30.0));
    assert_eq!(file.metadata_problems(), ["gemma3.final_logit_softcapping is -30, expected more than 0"]);
}

#[test]
fn the_largest_gemma3_scales_scores_by_the_width_for_each_head() {
    let mut file = gemma3();
    file.set("block_count", Meta::U32(62));
    assert_eq!(file.spec().layers[0].attn_scale.to_bits(), (1.0 / 16f32.sqrt()).to_bits());
}

#[test]
fn a_base_for_sliding_layers_is_taken_by_muse_glimmer() {
    let mut file = muse_glimmer();
    file.set("rope.freq_base_swa", Meta::F32(123.0)).set("rope.dimension_count", Meta::U32(8));
    let rope = file.spec().layers[0].rope.expect("a rope");
    assert_eq!((rope.base, rope.n_rot), (123.0, 8));
}

#[test]
fn every_missing_key_is_listed_in_one_error() {
    let missing = |names: &[&str], arch: &str| {
        let keys = names.iter().map(|name| format!("{arch}.{name}"));
        std::iter::once("tokenizer.ggml.tokens".to_owned()).chain(keys).collect::<Vec<_>>()
    };
    let common = [
        "block_count",
        "embedding_length",
        "context_length",
        "attention.layer_norm_rms_epsilon",
        "attention.head_count",
        "feed_forward_length",
    ];
    let gemma3 = [&common[..], &["attention.sliding_window"]].concat();
    let muse = ["attention.sliding_window_pattern", "rope.freq_base", "logit_scale", "final_logit_softcapping"];
    for (arch, expected) in [
        ("llama", missing(&common, "llama")),
        ("gemma3", missing(&gemma3, "gemma3")),
        ("muse-glimmer", missing(&[&gemma3[..], &muse].concat(), "muse-glimmer")),
    ] {
        let mut bytes = Vec::new();
        Writer::new().metadata("general.architecture", arch).write_to(&mut bytes).expect("a small file");
        let error = ModelSpec::read(&parsed(&bytes));
        let Err(Error::Unusable { arch: found, problems }) = error else { panic!("expected a refusal") };
        assert_eq!(found, arch);
        assert_eq!(problems.len(), expected.len(), "{problems:#?}");
        for (problem, key) in problems.iter().zip(expected) {
            assert!(problem.contains(&key) && problem.contains("missing"), "{problem} about {key}");
        }
    }
}

#[test]
fn what_a_missing_key_would_have_settled_is_no_problem_of_its_own() {
    for (name, mut file) in [
        ("embedding_length", llama()),
        ("attention.head_count", llama()),
        ("block_count", muse_glimmer()),
        ("attention.key_length", muse_glimmer()),
    ] {
        // These contradict the values that stand in for a key that can't be used.
        file.set("attention.value_length", Meta::U32(16));
        if name == "block_count" {
            file.set("feed_forward_length", Meta::U32s(vec![128; 8]));
            file.set("attention.sliding_window_pattern", Meta::Bools(vec![true; 8]));
        }
        file.set(name, Meta::U32(0));
        assert_eq!(file.metadata_problems(), [format!("{}.{name} is 0, expected 1 to 1073741824", file.arch)]);
    }
}

#[test]
fn every_impossible_key_is_listed_in_one_error() {
    for mut file in all() {
        let arch = file.arch;
        file.set("block_count", Meta::U32(0)).set("context_length", Meta::Str("long"));
        file.set("attention.layer_norm_rms_epsilon", Meta::F32(0.0)).set("attention.head_count", Meta::U32(0));
        file.set("attention.head_count_kv", Meta::U32(0)).set("feed_forward_length", Meta::I32(-1));
        file.set("embedding_length", Meta::U32(1 << 31)).set("vocab_size", Meta::U32(60));
        let problems = file.metadata_problems();
        for expected in [
            format!("{arch}.vocab_size is 60, but tokenizer.ggml.tokens has 61 entries"),
            format!("{arch}.block_count is 0, expected 1 to 1073741824"),
            format!("{arch}.embedding_length is 2147483648, expected 1 to 1073741824"),
            format!("{arch}.attention.layer_norm_rms_epsilon is 0, expected more than 0"),
            format!("{arch}.attention.head_count is 0, expected 1 to 1073741824"),
            format!("{arch}.attention.head_count_kv is 0, expected 1 to 1073741824"),
        ] {
            assert!(problems.contains(&expected), "no {expected:?} in {problems:#?}");
        }
        for key in ["context_length", "feed_forward_length"] {
            assert!(problems.iter().any(|problem| problem.contains(&format!("{arch}.{key}"))), "{key}: {problems:#?}");
        }
        assert_eq!(problems.len(), 8, "{problems:#?}");
        let message = file.read().expect_err("a refusal").to_string();
        assert!(message.starts_with(&format!("not a usable {arch} model: {arch}.vocab_size is 60, but")), "{message}");
    }
}

#[test]
fn keys_that_contradict_each_other_are_named_with_their_numbers() {
    let problems = |keys: &[(&str, u32)]| {
        let mut file = llama();
        for &(name, value) in keys {
            file.set(name, Meta::U32(value));
        }
        file.metadata_problems()
    };
    assert_eq!(
        problems(&[("attention.head_count", 6), ("attention.head_count_kv", 3), ("rope.dimension_count", 10)]),
        ["attention.head_count 6 does not divide embedding_length 64"]
    );
    assert_eq!(problems(&[("attention.head_count_kv", 3)]), ["layer 0: 4 heads can't share 3 KV heads evenly"]);
    assert_eq!(problems(&[("attention.value_length", 8)]), ["attention.value_length is 8, expected the key length 16"]);
    for n_rot in [15, 18] {
        let expected = format!("rope.dimension_count is {n_rot}, expected an even number up to the head's 16");
        assert_eq!(problems(&[("rope.dimension_count", n_rot)]), [expected]);
    }
    assert_eq!(
        problems(&[("attention.head_count", 1 << 20), ("attention.key_length", 1 << 20)]),
        ["layer 0: 1048576 heads of 1048576 are more than 1073741824 values"]
    );
    assert_eq!(problems(&[("block_count", 4097)]), ["llama.block_count is 4097, expected at most 4096"]);
}

#[test]
fn floats_that_no_model_has_are_refused_with_the_range() {
    let problems = |name: &str, value: f32| {
        let mut file = gemma3();
        file.set(name, Meta::F32(value)).metadata_problems()
    };
    for (name, value, expected) in [
        ("attention.layer_norm_rms_epsilon", 2.0, "2e0, expected 1e-12 to 1e0"),
        ("attention.layer_norm_rms_epsilon", 1e-40, "1e-40, expected 1e-12 to 1e0"),
        ("attention.scale", 3e38, "3e38, expected 1e-12 to 1e6"),
        ("final_logit_softcapping", 1e-20, "1e-20, expected 1e-12 to 1e6"),
        ("rope.scaling.factor", 1e7, "1e7, expected 1e-12 to 1e6"),
        ("rope.freq_base", 2e12, "2e12, expected 1e-12 to 1e12"),
        ("rope.freq_base_swa", 3e38, "3e38, expected 1e-12 to 1e12"),
    ] {
        assert_eq!(problems(name, value), [format!("gemma3.{name} is {expected}")]);
    }
    // The longest contexts that were trained have such a base.
    let mut file = gemma3();
    file.set("rope.freq_base", Meta::F32(4.6e10)).set("attention.layer_norm_rms_epsilon", Meta::F32(1e-12)).spec();
}

#[test]
fn a_vocabulary_size_of_0_is_one_problem() {
    let mut file = llama();
    file.set("vocab_size", Meta::U32(0));
    assert_eq!(file.metadata_problems(), ["llama.vocab_size is 0, expected 1 to 1073741824"]);
}

#[test]
fn an_empty_vocabulary_is_refused() {
    let mut file = llama();
    file.metadata.retain(|(key, _)| key != "tokenizer.ggml.tokens");
    file.metadata.push(("tokenizer.ggml.tokens".into(), Meta::Strs(Vec::new())));
    assert_eq!(file.metadata_problems(), ["tokenizer.ggml.tokens has no entries, expected at least 1"]);
}

#[test]
fn an_unknown_architecture_is_refused_with_those_that_are_known() {
    let mut file = llama();
    file.metadata[0].1 = Meta::Str("mamba");
    let error = file.read().expect_err("a refusal");
    assert!(matches!(&error, Error::UnknownArchitecture { found, .. } if found == "mamba"));
    let expected = "architecture \"mamba\" can't be run, expected one of: gemma3, llama, muse-glimmer";
    assert_eq!(error.to_string(), expected);
    assert_eq!(architectures().collect::<Vec<_>>(), ["gemma3", "llama", "muse-glimmer"]);
    file.metadata.remove(0);
    assert!(matches!(file.read().expect_err("a refusal"), Error::Gguf(_)));
}

#[test]
fn keys_that_would_change_the_answer_are_refused_unless_they_are_off() {
    for (mut file, names) in [
        (
            llama(),
            &["attention.clamp_kqv", "attention.sliding_window", "embedding_scale", "expert_count", "logit_scale"][..],
        ),
        (gemma3(), &["expert_count"]),
        (muse_glimmer(), &["attention.scale", "attn_logit_softcapping", "expert_count"]),
    ] {
        let plain = file.clone();
        for name in names {
            let mut off = plain.clone();
            off.set(name, Meta::U32(0));
            assert_eq!(off.read().expect("a key that is off").1, [] as [String; 0]);
            off.set(name, Meta::F32(0.0));
            off.spec();
            file.set(name, Meta::F32(2.0));
        }
        let expected: Vec<String> = names
            .iter()
            .map(|name| format!("{}.{name} is set, and what it asks for is not supported", file.arch))
            .collect();
        assert_eq!(file.metadata_problems(), expected);
    }
}

#[test]
fn unknown_keys_of_the_architecture_are_reported() {
    for mut file in all() {
        assert_eq!(file.read().expect("usable metadata").1, [] as [String; 0]);
        file.set("attention.novelty", Meta::U32(1)).set("vocab_size", Meta::U32(N_VOCAB as u32));
        file.metadata.push(("general.novelty".into(), Meta::U32(1)));
        assert_eq!(file.read().expect("usable metadata").1, [format!("{}.attention.novelty", file.arch)]);
    }
}
