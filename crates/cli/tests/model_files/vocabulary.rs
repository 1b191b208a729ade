//! Rows 6, 7 and 14: what the vocabulary says of itself.

use crate::child::{OnDisk, unusable, usable};
use crate::raw::{ARRAY, I32, Raw, STR, U8, U32, U64, array, f32s, i32s, str, strs};

#[test]
fn token_types_and_scores_are_of_their_type_and_as_many_as_tokens() {
    let key = "tokenizer.ggml.token_type";
    for raw in [Raw::byte_level(), Raw::scored()] {
        unusable(
            &raw.clone().with(key, ARRAY, &array(U8, 7, &[1; 7])),
            &[key, "an array of 7 u8, expected an array of i32"],
        );
        unusable(&raw.clone().with(key, ARRAY, &f32s(&[1.0; 7])), &[key, "expected an array of i32"]);
        unusable(&raw.clone().with(key, I32, &[1; 4]), &[key]);
        for len in [0, 6, 8] {
            let says = format!("{key:?} is an array of {len}, expected 7 entries");
            unusable(&raw.clone().with(key, ARRAY, &i32s(&vec![1; len])), &[&says]);
        }
        for ty in [-1, 7, i32::MAX] {
            let types = [1, 1, 1, ty, 1, 1, 1];
            unusable(&raw.clone().with(key, ARRAY, &i32s(&types)), &[&format!("token 3 has type {ty}")]);
        }
    }
    let key = "tokenizer.ggml.scores";
    unusable(
        &Raw::scored().with(key, ARRAY, &array(U8, 7, &[0; 7])),
        &[key, "an array of 7 u8, expected an array of f32"],
    );
    for len in [0, 6, 8] {
        let says = format!("{key:?} is an array of {len}, expected 7 entries");
        unusable(&Raw::scored().with(key, ARRAY, &f32s(&vec![0.0; len])), &[&says]);
    }
    unusable(&Raw::scored().without(key), &["needs scores"]);
}

#[test]
fn tokens_and_merges_are_strings_and_make_a_vocabulary() {
    let tokens = "tokenizer.ggml.tokens";
    unusable(&Raw::byte_level().with(tokens, ARRAY, &i32s(&[1; 7])), &[tokens, "expected an array of str"]);
    unusable(&Raw::byte_level().with(tokens, ARRAY, &strs(&[])), &[tokens, "no entries"]);
    unusable(&Raw::byte_level().without(tokens), &["\"tokenizer.ggml.tokens\" is missing"]);
    let twice = ["a", "b", "a", "Ġ", "ab", "<|end|>", "<|begin|>"];
    unusable(&Raw::byte_level().with(tokens, ARRAY, &strs(&twice)), &["tokens 0 and 2 are both \"a\""]);
    let merges = "tokenizer.ggml.merges";
    unusable(&Raw::byte_level().without(merges), &["needs merges"]);
    unusable(&Raw::byte_level().with(merges, ARRAY, &strs(&["a b", "ab"])), &["merge 1 is \"ab\""]);
    unusable(&Raw::byte_level().with(merges, ARRAY, &strs(&["a q"])), &["merge 0 (\"a q\")"]);
    let model = "tokenizer.ggml.model";
    unusable(&Raw::byte_level().with(model, STR, &str("bert")), &["\"bert\" is not supported"]);
    unusable(&Raw::byte_level().without(model), &["\"tokenizer.ggml.model\" is missing"]);
}

#[test]
fn ids_of_special_tokens_are_in_the_vocabulary() {
    for name in ["bos", "eos", "eot", "eom", "unknown", "padding"] {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let with = |id: u32| Raw::byte_level().with(&key, U32, &id.to_le_bytes());
        usable(&with(6));
        for id in [7, 1 << 31, u32::MAX] {
            unusable(&with(id), &[&format!("token's id is {id}, but the vocabulary has 7 tokens")]);
        }
        let negative = Raw::byte_level().with(&key, I32, &(-1_i32).to_le_bytes());
        unusable(&negative, &[&format!("{key:?} has -1 at index 0, out of the range of u32")]);
        let wide = Raw::byte_level().with(&key, U64, &(1_u64 << 32).to_le_bytes());
        unusable(&wide, &[&format!("{key:?} has 4294967296 at index 0, out of the range of u32")]);
    }
}

#[test]
fn a_pre_tokeniser_is_named_and_known_or_forced() {
    let key = "tokenizer.ggml.pre";
    let missing = Raw::byte_level().without(key);
    let unknown = Raw::byte_level().with(key, STR, &str("default"));
    for (raw, says) in [(missing, "names no pre-tokeniser"), (unknown, "pre-tokeniser \"default\" is not supported")] {
        unusable(&raw, &[says, "known are gpt-2"]);
        let file = OnDisk::new(&raw.file());
        file.muser(&["tokenize", "FILE", "a"]).refused(4, &[says]);
        let document = file.muser(&["tokenize", "--json", "--force-pre", "gpt-2", "FILE", "ab"]).json();
        assert_eq!(document["ids"], serde_json::json!([4]));
    }
}
