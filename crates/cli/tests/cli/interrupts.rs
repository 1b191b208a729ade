//! Ctrl-C, which arrives as a signal, at any moment.

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use rustix::process::Signal;

use crate::support::{Tiny, endless, muser};

#[test]
fn an_interrupted_answer_keeps_its_text_and_says_how_far_it_came() {
    let place = Tiny::endless().place();
    let mut running = endless(&place).start();
    let first = running.some_output();
    running.interrupt();
    let done = running.end();
    done.expect_code(130);
    assert!(!first.is_empty() && done.stdout.ends_with('\n'), "{:?}", done.stdout);
    assert!(done.stderr.contains(", interrupted | seed "), "{}", done.stderr);
}

#[test]
fn an_interrupted_answer_in_json_is_a_whole_document() {
    let place = Tiny::endless().place();
    let (running, mut terminal) = endless(&place).args(["--json"]).start_in_terminal(false);
    terminal.expect("answer");
    running.interrupt();
    let done = running.end();
    done.expect_code(130);
    let document: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(document["finish"], "interrupted");
    assert!(document["text"].as_str().expect("text").len() > 10);
}

#[test]
fn a_prompt_that_takes_long_shows_progress_and_can_be_interrupted() {
    let prompt = "word ".repeat(3000);
    let call = muser(["run", "--raw", "--batch", "8", "--threads", "1"]).args([model_path(SMOLLM2)]).args([&prompt]);
    let (running, mut terminal) = call.start_in_terminal(false);
    terminal.expect("prompt");
    terminal.expect("/3,001 tokens");
    running.interrupt();
    let done = running.end();
    done.expect_code(130);
    assert_eq!(done.stdout, "\n");
    let said = terminal.expect("interrupted | seed ");
    assert!(said.contains("answer 0 tokens"), "{said}");
}

#[test]
fn measuring_and_scoring_show_progress_and_can_be_interrupted() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("text");
    std::fs::write(&text, "one two three ".repeat(2000)).expect("it can be written");
    let call = muser(["perplexity", "--batch", "8", "--threads", "1"]).args([&model_path(SMOLLM2), &text]);
    let (running, mut terminal) = call.start_in_terminal(false);
    terminal.expect("perplexity");
    running.interrupt();
    let done = running.end();
    done.expect_code(130);
    assert_eq!(done.stdout, "");
    terminal.expect("muser: interrupted");
}

#[test]
fn a_benchmark_shows_what_it_is_at_and_can_be_interrupted() {
    let args = ["bench", "-p", "6000", "-n", "0", "-d", "400", "--batch", "8", "--threads", "1"];
    let (running, mut terminal) = muser(args).args([model_path(SMOLLM2)]).start_in_terminal(false);
    terminal.expect("filling to depth 400");
    terminal.expect("prefill at depth 400, 1 of 3");
    running.interrupt();
    let done = running.end();
    done.expect_code(130);
    assert_eq!(done.stdout, "");
    terminal.expect("muser: interrupted");
}

#[test]
fn waiting_for_standard_input_can_be_interrupted() {
    let path = model_path(MUSE[1]);
    for args in [vec!["score"], vec!["tokenize"], vec!["run"]] {
        let mut running = muser(&args).args([&path]).start();
        running.wait_until_it_reads();
        running.interrupt();
        running.end().expect_code(130);
    }
}

#[test]
fn a_request_to_terminate_ends_it_at_once() {
    let place = Tiny::endless().place();
    let mut running = endless(&place).start();
    running.some_output();
    running.signal(Signal::TERM);
    running.end().expect_code(128 + 15);
}
