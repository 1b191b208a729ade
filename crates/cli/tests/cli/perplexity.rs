//! `muser perplexity`.

use std::fs;
use std::path::Path;

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Muser, golden, golden_path, muser};

fn perplexity(model: &str, file: &Path) -> Muser {
    muser(["perplexity"]).args([model_path(model)]).args([file])
}

#[test]
fn the_first_chunk_is_as_hard_as_the_golden_data_say() {
    let golden = golden("ppl.json");
    let text = golden_path("text/gpl3-head.txt");
    let document = perplexity(SMOLLM2, &text).args(["--chunks", "1", "--json"]).prints_json();
    let keys: Vec<_> = document.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["ppl", "running", "context", "chunks"]);
    assert_eq!((&document["context"], &document["chunks"]), (&512.into(), &1.into()));
    let running: Vec<f64> =
        document["running"].as_array().expect("a list").iter().map(|ppl| ppl.as_f64().expect("a number")).collect();
    assert_eq!(Some(running[0]), document["ppl"].as_f64());
    let truth = first_of_truth(&golden);
    assert!((running[0] / truth - 1.0).abs() < 0.02, "{} and {truth}", running[0]);
}

/// The perplexity of `SmolLM2` over the first chunk, with f32 activations.
fn first_of_truth(golden: &Value) -> f64 {
    golden["smollm2-135m-q4_1"]["running_f32"][0].as_f64().expect("a number")
}

#[test]
fn a_person_reads_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("text");
    fs::write(&file, "one two three ".repeat(20)).expect("it can be written");
    let said = perplexity(MUSE[1], &file).args(["--ctx", "16", "--chunks", "2"]).prints();
    let number = said.strip_prefix("perplexity ").and_then(|rest| rest.strip_suffix(" over 2 chunks of 16 tokens\n"));
    let ppl: f64 = number.unwrap_or_else(|| panic!("{said}")).parse().expect("a number");
    assert!(ppl.is_finite() && ppl > 1.0);
    let said = perplexity(MUSE[1], &file).args(["--ctx", "3", "--chunks", "1"]).prints();
    assert!(said.ends_with(" over 1 chunk of 3 tokens\n") && !said.contains("NaN"), "{said}");
}

#[test]
fn a_text_that_can_not_be_measured_is_wrong_usage() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("text");
    fs::write(&file, "too short").expect("it can be written");
    let said = perplexity(SMOLLM2, &file).fails(2);
    assert_eq!(said, "the text has 2 tokens, and one chunk needs 512");
    assert!(perplexity(MUSE[1], &file).args(["--ctx", "2"]).fails(2).contains("expected at least 3"));
    perplexity(MUSE[1], &file).args(["--ctx", "0"]).refuses();
    perplexity(MUSE[1], &file).args(["--chunks", "0"]).refuses();
    fs::write(&file, b"caf\xe9").expect("it can be written");
    let said = perplexity(MUSE[1], &file).fails(2);
    assert_eq!(said, format!("{} is not UTF-8 text: byte 3 is 0xe9", file.display()));
    fs::write(&file, "").expect("it can be written");
    assert_eq!(perplexity(SMOLLM2, &file).fails(2), "the text has 0 tokens, and one chunk needs 512");
}

#[test]
fn a_text_that_can_not_be_read_is_a_failure() {
    let said = perplexity(MUSE[1], Path::new("/no/such/file")).fails(1);
    assert_eq!(said, "reading /no/such/file: No such file or directory (os error 2)");
    let folder = tempfile::tempdir().expect("a folder");
    assert!(perplexity(MUSE[1], folder.path()).fails(1).contains("Is a directory"));
}
