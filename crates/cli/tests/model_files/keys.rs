//! Row 8, and 15 as far as the metadata go: keys that are missing, impossible, or no numbers.

use crate::child::{unreadable, unusable, usable};
use crate::raw::{ARRAY, F32, F64, I32, N_EMBD, Raw, STR, U32, U64, f32s, str};

fn with_count(key: &str, count: u32) -> Raw {
    Raw::byte_level().with(key, U32, &count.to_le_bytes())
}

#[test]
fn every_key_that_is_missing_or_impossible_is_said_in_one_error() {
    let keys = [
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
    ];
    let none = keys.iter().fold(Raw::byte_level(), |raw, key| raw.without(key));
    unusable(&none, &keys.map(|key| format!("{key:?} is missing")).each_ref().map(|part| &**part));
    let counts = &keys[..5];
    let zeros = counts.iter().fold(Raw::byte_level(), |raw, key| raw.with(key, U32, &[0; 4]));
    unusable(
        &zeros,
        &counts
            .iter()
            .map(|key| format!("{key} is 0, expected 1 to"))
            .collect::<Vec<_>>()
            .iter()
            .map(|part| &**part)
            .collect::<Vec<_>>(),
    );
    for key in keys {
        unusable(&Raw::byte_level().without(key), &[&format!("{key:?} is missing")]);
        unusable(&Raw::byte_level().with(key, STR, &str("1")), &[&format!("{key:?} is str \"1\"")]);
        unusable(&Raw::byte_level().with(key, I32, &(-1_i32).to_le_bytes()), &[key]);
        unusable(&Raw::byte_level().with(key, U64, &u64::MAX.to_le_bytes()), &[key]);
    }
}

#[test]
fn without_the_first_block_every_missing_tensor_is_named() {
    let raw = Raw::byte_level().without_tensors("blk.0.");
    unusable(&raw, &["\"blk.0.attn_norm.weight\" is missing", "\"blk.0.ffn_down.weight\" is missing"]);
    unusable(&with_count("llama.block_count", 2), &["tensor \"blk.1.attn_q.weight\" is missing"]);
    unusable(&Raw::byte_level().without_tensors("token_embd"), &["tensor \"token_embd.weight\" is missing"]);
    let unknown = Raw::byte_level().tensor("blk.0.attn_q.bias", &[32], 0);
    unusable(&unknown, &["tensors that this architecture does not use: \"blk.0.attn_q.bias\""]);
}

#[test]
fn heads_divide_what_they_share() {
    let by_width = |heads: u32| {
        let raw = with_count("llama.attention.head_count", heads).without("llama.attention.key_length");
        raw.without("llama.attention.value_length").without("llama.attention.head_count_kv")
    };
    unusable(&by_width(7), &[&format!("attention.head_count 7 does not divide embedding_length {N_EMBD}")]);
    unusable(&with_count("llama.attention.head_count_kv", 2), &["1 heads can't share 2 KV heads evenly"]);
    unusable(&with_count("llama.attention.head_count_kv", 0), &["llama.attention.head_count_kv is 0"]);
    unusable(&with_count("llama.attention.head_count", u32::MAX), &["llama.attention.head_count is 4294967295"]);
    unusable(&with_count("llama.rope.dimension_count", 33), &["rope.dimension_count is 33"]);
    unusable(&with_count("llama.rope.dimension_count", 0), &["llama.rope.dimension_count is 0"]);
}

#[test]
fn counts_that_no_model_has_are_refused_before_anything_is_made_for_them() {
    for (key, count) in [
        ("llama.block_count", 4097),
        ("llama.block_count", u32::MAX),
        ("llama.context_length", u32::MAX),
        ("llama.embedding_length", u32::MAX),
        ("llama.feed_forward_length", 1 << 31),
        ("llama.attention.key_length", 1 << 31),
        ("llama.vocab_size", 0),
        ("llama.vocab_size", 8),
    ] {
        unusable(&with_count(key, count), &[&format!("{key} is {count}, ")]);
    }
}

#[test]
fn floats_of_the_metadata_are_finite_and_in_range() {
    let key = "llama.attention.layer_norm_rms_epsilon";
    for float in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let raw = Raw::byte_level().with(key, F32, &float.to_le_bytes());
        unreadable(&raw.file(), &[&format!("{key:?} is {float} at index 0, expected a finite number")]);
        let raw = Raw::byte_level().with("general.unread", F64, &f64::from(float).to_le_bytes());
        unreadable(&raw.file(), &["\"general.unread\"", "expected a finite number"]);
        let raw = Raw::byte_level().with("general.unread", ARRAY, &f32s(&[1.0, float]));
        unreadable(&raw.file(), &["\"general.unread\"", "at index 1, expected a finite number"]);
    }
    for float in [0.0, -1e-5, 2.0, f32::MAX] {
        unusable(&Raw::byte_level().with(key, F32, &float.to_le_bytes()), &[key]);
    }
    let base = "llama.rope.freq_base";
    for float in [1.0, 0.0, -10_000.0, f32::MAX] {
        unusable(&Raw::byte_level().with(base, F32, &float.to_le_bytes()), &[base]);
    }
    unusable(&Raw::byte_level().with(base, F64, &1e300_f64.to_le_bytes()), &[base, "out of the range of f32"]);
    usable(&Raw::byte_level().with(base, F64, &1e6_f64.to_le_bytes()));
}
