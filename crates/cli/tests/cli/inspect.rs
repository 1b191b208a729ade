//! `muser inspect`.

use muser_gguf::TensorType;
use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Tiny, muser};

#[test]
fn every_model_is_shown_with_all_its_tensors_and_keys() {
    let expected = [(SMOLLM2, "llama", 272, 33), (GEMMA3, "gemma3", 236, 33), (MUSE[0], "muse-glimmer", 115, 27)];
    let muse = MUSE[1..].iter().map(|file| (*file, "muse-glimmer", 115, 27));
    for (file, architecture, n_tensors, n_keys) in expected.into_iter().chain(muse) {
        let path = model_path(file);
        let document = muser(["inspect", "--json"]).args([&path]).prints_json();
        let keys: Vec<_> = document.as_object().expect("an object").keys().collect();
        let expected = ["version", "alignment", "size_bytes", "files", "runs", "why_not", "metadata", "tensors"];
        assert_eq!(keys, expected);
        let size_bytes = std::fs::metadata(&path).expect("it is there").len();
        assert_eq!((&document["runs"], &document["why_not"]), (&true.into(), &Value::Null));
        assert_eq!((&document["version"], &document["size_bytes"]), (&3.into(), &size_bytes.into()));
        assert_eq!(document["metadata"]["general.architecture"]["value"], architecture);
        let tensors = document["tensors"].as_array().expect("a list");
        assert_eq!((tensors.len(), document["metadata"].as_object().expect("an object").len()), (n_tensors, n_keys));

        let text = muser(["inspect", "--tensors"]).args([&path]).prints();
        let architecture = format!(" \"{architecture}\"");
        assert!(text.lines().any(|line| line.contains("general.architecture") && line.ends_with(&architecture)));
        assert!(text.lines().any(|line| line == "runs     yes"), "{text}");
        for tensor in tensors {
            let (name, ty) = (tensor["name"].as_str().expect("a name"), tensor["type"].as_str().expect("a type"));
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name)).expect("a line");
            assert!(line.contains(&format!(" {ty} ")) && line.ends_with(&tensor["size_bytes"].to_string()), "{line}");
        }
    }
}

#[test]
fn long_values_are_cut_in_text_and_whole_in_json() {
    let text = muser(["inspect"]).args([model_path(SMOLLM2)]).prints();
    assert!(text.contains("(49,152 × str)"));
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest < Some(200), "{longest:?}");
    assert!(!text.contains("blk.0."), "tensors are listed only when asked for");
    let document = muser(["inspect", "--json"]).args([model_path(SMOLLM2)]).prints_json();
    assert_eq!(document["metadata"]["tokenizer.ggml.tokens"]["value"].as_array().expect("a list").len(), 49_152);
}

#[test]
fn a_model_that_can_not_be_run_can_be_inspected_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let cases = [
        (Tiny::new().with("general.architecture", "mamba"), "architecture \"mamba\" can't be run, expected one of: "),
        (Tiny::new().without("llama.block_count"), "llama.block_count"),
        (Tiny::new().retyped("blk.0.ffn_up.weight", TensorType::Q2_K), "tensor \"blk.0.ffn_up.weight\" is Q2_K"),
        (Tiny::new().without("tokenizer.ggml.pre"), "names no pre-tokeniser"),
        (Tiny::new().with("tokenizer.chat_template", "{% for %}"), "chat template"),
    ];
    for (model, expected) in cases {
        model.write(&path);
        let document = muser(["inspect", "--json"]).args([&path]).prints_json();
        assert_eq!(document["runs"], false);
        let why = document["why_not"].as_str().expect("a reason");
        assert!(why.contains(expected), "{why}");
        let text = muser(["inspect"]).args([&path]).prints();
        assert!(text.contains(&format!("\nruns     no: {why}\n")), "{text}");
    }
}

#[test]
fn names_in_a_file_do_not_drive_the_terminal() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let mut writer = muser_gguf::Writer::new();
    writer.metadata("general.architecture", "llama").metadata("a\u{1b}[31mkey", "a\u{1b}[31mvalue");
    writer.tensor("a\u{1b}[31mtensor", &[1], TensorType::F32, &[0; 4]).expect("a tensor");
    writer.write_to(&mut std::fs::File::create(&path).expect("a file")).expect("the parser accepts it");
    let text = muser(["inspect", "--tensors"]).args([&path]).prints();
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.contains("a\\u{1b}[31mkey") && text.contains("a\\u{1b}[31mtensor"), "{text}");
}
