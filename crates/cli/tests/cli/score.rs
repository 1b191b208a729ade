//! `muser score`.

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Muser, golden, muser};

fn score(model: &str) -> Muser {
    muser(["score"]).args([model_path(model)])
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn each_line_is_answered_by_one() {
    let requests =
        "{\"ids\":[504,3575],\"next\":[282,4649]}\n\n{\"next\":[],\"ids\":[504]}\r\n{\"ids\":[504],\"next\":[1]}";
    let answers = lines(&score(SMOLLM2).args(["--top", "3"]).stdin(requests).prints());
    let n_steps: Vec<_> = answers.iter().map(|answer| answer["steps"].as_array().expect("steps").len()).collect();
    assert_eq!(n_steps, [2, 0, 1]);
    let keys: Vec<_> = answers[0]["steps"][0].as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["id", "logprob", "top"]);
    assert_eq!(answers[0]["steps"][1]["id"], 4649);
    let top = answers[0]["steps"][0]["top"].as_array().expect("a list");
    assert_eq!((top.len(), &top[0][0]), (3, &282.into()));
    assert_eq!(top[0][1], answers[0]["steps"][0]["logprob"]);
}

#[test]
fn a_whole_vocabulary_of_probabilities_adds_up_to_one() {
    let answer = score(MUSE[1]).args(["--top", "1000000"]).stdin("{\"ids\":[1],\"next\":[2]}").prints_json();
    let top = answer["steps"][0]["top"].as_array().expect("a list").iter();
    let logprobs: Vec<f64> = top.map(|entry| entry[1].as_f64().expect("a number")).collect();
    assert!(logprobs.is_sorted_by(|a, b| a >= b));
    let sum: f64 = logprobs.iter().map(|logprob| logprob.exp()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
}

#[test]
fn log_probabilities_are_near_the_truth() {
    let truth = golden("muse-Q8_0-truth.json");
    let records = truth["teacher_forced"].as_array().expect("records").iter().take(3);
    for (flags, bound) in [(&[][..], 0.12), (&["--reference"], 0.01)] {
        for record in records.clone() {
            let steps = record["steps"].as_array().expect("steps");
            let next: Vec<_> = steps.iter().map(|step| step["id"].clone()).collect();
            let request = serde_json::json!({"ids": record["ids"], "next": next}).to_string();
            let answer = score(MUSE[1]).args(flags).stdin(request).prints_json();
            let ours = answer["steps"].as_array().expect("steps");
            assert_eq!(ours.len(), steps.len());
            for (ours, step) in ours.iter().zip(steps) {
                let logprob = |step: &Value| step["logprob"].as_f64().expect("a number");
                assert!((logprob(ours) - logprob(step)).abs() < bound, "{flags:?}: {ours} and {step}");
            }
        }
    }
}

#[test]
fn a_line_that_is_no_request_is_found_by_its_number_before_anything_is_computed() {
    let cases: [(&[u8], &str); 8] = [
        (b"x", "line 3 of standard input, column 1: "),
        (b"{\"ids\":[1]", "line 3 of standard input, column 10: "),
        (b"{\"ids\":[1]}", "line 3 of standard input, column 11: missing field `next`"),
        (b"{\"ids\":[-1],\"next\":[]}", "line 3 of standard input, column 10: invalid value"),
        (b"{\"ids\":[1],\"next\":[2],\"top\":3}", "unknown field `top`"),
        (b"{\"ids\":[1],\"next\":[2]} {}", "line 3 of standard input, column 24: trailing characters"),
        (b"{\"ids\":[\"\xff\"],\"next\":[]}", "line 3 of standard input"),
        (b"{\"ids\":[],\"next\":[1]}", "line 3 of standard input: \"ids\" has no tokens"),
    ];
    for (line, expected) in cases {
        let request = [b"{\"ids\":[1],\"next\":[2]}\n\n", line].concat();
        let said = score(MUSE[1]).stdin(request).fails(2);
        assert!(said.contains(expected), "{}: {said}", line.escape_ascii());
        assert!(!said.contains("at line 1"), "two counts of lines: {said}");
    }
}

#[test]
fn a_token_that_is_not_in_the_vocabulary_is_refused_after_the_lines_before_it() {
    for bad in ["{\"ids\":[1,49152],\"next\":[1]}", "{\"ids\":[1],\"next\":[49152]}"] {
        let request = format!("{{\"ids\":[504],\"next\":[1]}}\n\n{bad}\n");
        let done = score(SMOLLM2).stdin(request).run();
        done.expect_code(2);
        assert_eq!(lines(&done.stdout).len(), 1);
        let expected = "muser: line 3 of standard input: token 49152 is not in the vocabulary of 49152 tokens\n";
        assert_eq!(done.stderr, expected);
    }
}

#[test]
fn no_lines_have_no_answers() {
    assert_eq!(score(MUSE[1]).stdin("\n \n").prints(), "");
}

#[test]
fn what_a_line_says_does_not_depend_on_the_others() {
    let request = "{\"ids\":[5,6,7],\"next\":[8,9]}\n";
    let alone = score(MUSE[1]).stdin(request).prints();
    let after = score(MUSE[1]).stdin(format!("{{\"ids\":[5,6,9,9,9,9],\"next\":[1]}}\n{request}")).prints();
    assert_eq!(after.lines().nth(1), alone.lines().next());
}
