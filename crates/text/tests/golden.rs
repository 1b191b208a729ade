//! Ids as llama.cpp gives them, for the vocabularies of real models.

mod common;

use common::{GEMMA3, Model, SMOLLM2, tokenizer};
use muser_tests::golden_path;
use muser_text::{Affixes, DecodeOptions, Special, Tokenizer};
use serde_json::Value;

fn golden(name: &str) -> Vec<(String, Vec<u32>, Vec<u32>)> {
    let text = std::fs::read_to_string(golden_path(&format!("{name}.json"))).expect("the golden file is there");
    let golden: Value = serde_json::from_str(&text).expect("the golden file is JSON");
    let cases = golden["tokenize"].as_array().expect("the golden file has strings");
    let ids = |value: &Value| serde_json::from_value(value.clone()).expect("ids are numbers");
    cases
        .iter()
        .map(|case| {
            let text = case["text"].as_str().expect("a text is a string").to_owned();
            (text, ids(&case["ids"]), ids(&case["ids_with_special"]))
        })
        .collect()
}

fn every_string_matches(tokenizer: &Tokenizer, name: &str) {
    let cases = golden(name);
    assert_eq!(cases.len(), 55);
    for (text, plain, parsed) in cases {
        assert_eq!(tokenizer.encode(&text, Special::Plain, Affixes::None), plain, "{name}, plain: {text:?}");
        assert_eq!(tokenizer.encode(&text, Special::Parse, Affixes::None), parsed, "{name}, parsed: {text:?}");
        let options = DecodeOptions { special: true, ..DecodeOptions::default() };
        let lost = text.bytes().any(|byte| tokenizer.missing_bytes().contains(&byte));
        if !lost {
            for ids in [plain, parsed] {
                assert_eq!(tokenizer.decode(&ids, options).as_deref(), Ok(&*text), "{name}, back: {ids:?}");
            }
        }
    }
}

#[test]
fn every_golden_string_has_the_same_ids_in_smollm2() {
    let model = Model::open(SMOLLM2);
    every_string_matches(&tokenizer(&model.gguf(), |_| {}), "smollm2");
}

#[test]
fn every_golden_string_has_the_same_ids_in_gemma3() {
    let model = Model::open(GEMMA3);
    every_string_matches(&tokenizer(&model.gguf(), |_| {}), "gemma3");
}
