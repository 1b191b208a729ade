//! `muser tokenize`.

use muser_tests::model::{GEMMA3, SMOLLM2};
use muser_tests::model_path;

use crate::support::{Muser, golden, ids, muser};

fn tokenize(model: &str) -> Muser {
    muser(["tokenize"]).args([model_path(model)])
}

#[test]
fn ids_are_those_of_the_golden_data_with_and_without_control_tokens() {
    for (model, name) in [(SMOLLM2, "smollm2"), (GEMMA3, "gemma3")] {
        let golden = golden(&format!("{name}.json"));
        // The strings are tested whole elsewhere; a few tell whether the command hands them on as they are.
        for record in golden["tokenize"].as_array().expect("records").iter().step_by(9) {
            let text = record["text"].as_str().expect("a text");
            let plain = tokenize(model).args(["--json"]).stdin(text).prints_json();
            assert_eq!(plain["ids"], record["ids"], "{text:?}");
            let special = tokenize(model).args(["--json", "--special"]).stdin(text).prints_json();
            assert_eq!(special["ids"], record["ids_with_special"], "{text:?}");
        }
    }
}

#[test]
fn control_tokens_in_a_text_act_only_when_asked() {
    let ids_of =
        |args: &[&str]| ids(&tokenize(SMOLLM2).args(["<|im_start|>x", "--json"]).args(args).prints_json()["ids"]);
    assert_eq!(ids_of(&["--special"]), [1, 104]);
    assert!(ids_of(&[]).len() > 2 && !ids_of(&[]).contains(&1));
}

#[test]
fn a_text_may_be_an_argument_or_standard_input() {
    let expected = tokenize(SMOLLM2).args(["two words"]).prints();
    assert_eq!(tokenize(SMOLLM2).stdin("two words").prints(), expected);
    let lines: Vec<_> = expected.lines().map(|line| line.split_once("  ").expect("two columns").1).collect();
    assert_eq!(lines, ["\"two\"", "\" words\""]);
}

#[test]
fn a_text_may_look_like_a_flag() {
    let expected = tokenize(SMOLLM2).args(["--json"]).stdin("--special").prints();
    assert_eq!(tokenize(SMOLLM2).args(["--json", "--", "--special"]).prints(), expected);
    let expected = tokenize(SMOLLM2).args(["--json"]).stdin("- a list").prints();
    assert_eq!(tokenize(SMOLLM2).args(["--json", "- a list"]).prints(), expected);
}

#[test]
fn every_byte_of_standard_input_counts() {
    let document = tokenize(SMOLLM2).args(["--json"]).stdin("a\0b\n").prints_json();
    assert_eq!(document["pieces"], serde_json::json!(["a", "\0", "b", "\n"]));
    assert_eq!(tokenize(SMOLLM2).stdin("").prints(), "");
    assert_eq!(tokenize(SMOLLM2).stdin(b"a\xc3").fails(2), "standard input is not UTF-8 text: byte 1 is 0xc3");
}

#[test]
fn the_vocabulary_adds_its_tokens_when_asked() {
    let plain = ids(&tokenize(GEMMA3).args(["hi", "--json"]).prints_json()["ids"]);
    let whole = ids(&tokenize(GEMMA3).args(["hi", "--json", "--bos"]).prints_json()["ids"]);
    assert_eq!(whole, [&[2], &plain[..]].concat());
    // SmolLM2's vocabulary puts none.
    let document = tokenize(SMOLLM2).args(["hi", "--json", "--bos"]).prints_json();
    assert_eq!(document, tokenize(SMOLLM2).args(["hi", "--json"]).prints_json());
}

#[test]
fn another_pre_tokenizer_can_be_forced_if_it_is_known() {
    let count = |args: &[&str]| ids(&tokenize(SMOLLM2).args(["12345", "--json"]).args(args).prints_json()["ids"]).len();
    // `smollm` splits numbers into digits, `llama-bpe` into groups of three, which this vocabulary lacks in part.
    assert_eq!(count(&[]), 5);
    assert_eq!(count(&["--force-pre", "smollm"]), 5);
    let said = tokenize(SMOLLM2).args(["x", "--force-pre", "no-such"]).fails(2);
    assert!(said.contains("no-such"), "{said}");
}

#[test]
fn what_no_token_can_express_is_said() {
    // SmolLM2's vocabulary has no token for the control character 4.
    let done = tokenize(SMOLLM2).args(["--json"]).stdin("a\u{4}b").run();
    done.expect_code(0);
    assert_eq!(
        done.stderr.trim_end(),
        "muser: 1 of the text's 3 bytes have no token in this vocabulary and are left out"
    );
    let done = tokenize(GEMMA3).args(["--json"]).stdin("a\u{4}b").run();
    done.expect_code(0);
    assert_eq!(done.stderr, "");
}

#[test]
fn a_pre_tokenizer_can_not_be_forced_on_a_vocabulary_without_one() {
    let said = tokenize(GEMMA3).args(["hi", "--force-pre", "gpt-2"]).fails(2);
    assert_eq!(said, "--force-pre: a vocabulary of kind \"llama\" does not use a pre-tokeniser, so none can be forced");
}
