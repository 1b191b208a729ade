//! Slots, contexts and the queue at their borders.

use std::thread;

use serde_json::{Value, json};

use crate::http::Conversation;
use crate::place::{Server, endless, muse};

const TEXT: &str = "/v1/completions";

#[test]
fn the_smallest_contexts_answer_until_they_are_full_or_refuse() {
    for n_ctx in [1usize, 2, 16] {
        let server = endless(&["--ctx", &n_ctx.to_string(), "--slots", "1"]);
        for n_prompt in [1, n_ctx.saturating_sub(1), n_ctx, n_ctx + 1].into_iter().filter(|n| *n > 0) {
            let reply =
                server.post(TEXT, &json!({"prompt": "b".repeat(n_prompt), "max_tokens": 100, "temperature": 0}));
            if n_prompt >= n_ctx {
                let (param, message) = reply.refusal(400);
                assert_eq!(param, "prompt");
                assert!(message.contains(&format!("has {n_prompt} tokens")), "{message}");
            } else {
                let document = reply.expect(200);
                assert_eq!(document["choices"][0]["finish_reason"], "length");
                assert_eq!(document["usage"]["completion_tokens"], n_ctx - n_prompt + 1, "{n_prompt} of {n_ctx}");
            }
            server.get("/health").expect(200);
        }
        let said = server.stop();
        assert_eq!(said.contains("no room for an answer"), n_ctx == 1, "{said}");
    }
}

#[test]
fn a_prompt_beyond_the_context_is_refused_with_both_numbers_streamed_or_not() {
    let server = endless(&["--ctx", "100", "--slots", "1"]);
    let long = "b".repeat(500);
    for stream in [false, true] {
        let (param, message) = server.post(TEXT, &json!({"prompt": long, "stream": stream})).refusal(400);
        assert_eq!(param, "prompt");
        assert!(message.contains("500 tokens") && message.contains("at most 99"), "{message}");
        let chat = json!({"messages": [{"role": "user", "content": long}], "stream": stream});
        let reply = server.post("/v1/chat/completions", &chat);
        assert_eq!(reply.json()["error"]["code"], "context_length_exceeded");
        let (param, message) = reply.refusal(400);
        assert_eq!(param, "messages");
        assert!(message.contains("501 tokens"), "{message}");
    }
    let (param, _) = server.post(TEXT, &json!({"prompt": ["b", long]})).refusal(400);
    assert_eq!(param, "prompt[1]");
    let (param, message) = server.post("/v1/embeddings", &json!({"input": "b".repeat(101)})).refusal(400);
    assert_eq!(param, "input");
    assert!(message.contains("at most 100"), "{message}");
    server.post("/v1/embeddings", &json!({"input": "b".repeat(100)})).expect(200);
}

#[test]
fn more_than_there_is_room_for_waits_and_all_of_it_is_answered() {
    let server = muse(&["--ctx", "400", "--slots", "2"]);
    let ids: Vec<_> = (0..390).map(|index| index % 250).collect();
    let ask = |seed: usize| server.complete(json!({"prompt": ids, "max_tokens": 8, "seed": seed, "temperature": 1}));
    let texts = thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|seed| scope.spawn(move || ask(seed))).collect();
        asked.into_iter().map(|asked| asked.join().expect("it is answered")).collect::<Vec<_>>()
    });
    for (seed, text) in texts.into_iter().enumerate() {
        assert_eq!(text, ask(seed));
    }
}

#[test]
fn a_full_queue_refuses_with_a_time_to_come_back_and_those_in_it_are_served() {
    let server = endless(&["--ctx", "100000", "--slots", "1", "--max-queue", "1", "--prefix-cache", "0"]);
    let mut running = open(&server, 90_000);
    running.next().expect("it is being answered");
    let mut waiting = open(&server, 3);
    server.wait_until("one waits", |server| server.metric("muser_queue_depth") >= 1);
    for stream in [false, true] {
        let reply = server.post(TEXT, &json!({"prompt": "hi", "max_tokens": 1, "stream": stream}));
        assert_eq!(reply.header("retry-after"), Some("1"));
        let (_, message) = reply.refusal(503);
        assert!(message.contains("wait"), "{message}");
    }
    assert!(server.metric("muser_refusals_total{reason=\"queue_full\"}") >= 2);
    drop(running);
    assert!(waiting.next().is_some(), "the one that waits comes next");
}

#[test]
fn more_choices_than_the_queue_has_room_for_are_made_one_after_the_other() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--max-queue", "0"]);
    let prompts: Vec<_> = (0..5).map(|index| format!("prompt {index}")).collect();
    let reply = server.ask(TEXT, &json!({"prompt": prompts, "max_tokens": 2, "temperature": 0}));
    assert!(reply["choices"].as_array().expect("an array").iter().all(|choice| choice["text"] == "aa"), "{reply}");
}

#[test]
fn more_slots_than_memory_are_refused_by_the_plan_before_anything_is_loaded() {
    let place = crate::tiny::Tiny::endless().place();
    let args = ["--ctx", "1000000", "--slots", "256"];
    let output = crate::place::serve(&place.path(), &args).output().expect("it starts");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("256") && output.stdout.is_empty(), "{said}");
}

#[test]
fn what_keeps_a_server_from_starting_has_its_own_exit_code_and_prints_no_address() {
    let place = crate::tiny::Tiny::endless().place();
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let port = server.address().rsplit(':').next().expect("a port");
    let fails = |path: &std::path::Path, args: &[&str], code: i32| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_muser"));
        let output = command.arg("serve").arg(path).args(args).output().expect("it starts");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{said}");
        said
    };
    let said = fails(&place.path(), &["--port", port], 1);
    assert!(said.contains(server.address()), "{said}");
    let bad = crate::tiny::Place::new();
    let said = fails(&bad.holding(b"no model"), &["--port", "0"], 4);
    assert!(said.contains("model.gguf"), "{said}");
    let said = fails(&place.path(), &["--port", "0", "--slots", "4", "--batch", "2"], 2);
    assert!(said.contains("4 slots"), "{said}");
}

fn open(server: &Server, max_tokens: usize) -> crate::http::Events {
    let body: Value = json!({"prompt": "hi", "stream": true, "max_tokens": max_tokens, "temperature": 0});
    Conversation::open(server).send("POST", TEXT, &[], &body.to_string()).events()
}
