//! Clients that vanish, an engine that is stuck, and the end of a server.

use std::fs;
use std::io::Read as _;
use std::process::Command;
use std::thread;
use std::time::SystemTime;

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Conversation, Events};
use crate::place::{Server, endless, serve};

const TEXT: &str = "/v1/completions";

/// A server whose answers last longer than any test.
fn lasting(args: &[&str]) -> Server {
    let all = ["--ctx", "100000", "--prefix-cache", "0"].iter().chain(args).copied().collect::<Vec<_>>();
    endless(&all)
}

fn open(server: &Server, body: &Value) -> Events {
    let mut body = body.clone();
    body["stream"] = json!(true);
    body["temperature"] = json!(0);
    Conversation::open(server).send("POST", TEXT, &[], &body.to_string()).events()
}

fn cancelled(server: &Server) -> u64 {
    server.metric("muser_requests_total{outcome=\"cancelled\"}")
}

#[test]
fn clients_that_vanish_in_the_queue_in_a_prompt_or_in_an_answer_take_nobody_with_them() {
    let server = lasting(&["--slots", "3", "--batch", "4"]);
    let long = json!({"prompt": "b".repeat(90_000)});
    let mut stays = open(&server, &json!({"prompt": "stays", "max_tokens": 90_000}));
    let mut answered = open(&server, &json!({"prompt": "goes", "max_tokens": 90_000}));
    stays.next().expect("it is being answered");
    answered.next().expect("it is being answered");
    let in_prompt = open(&server, &long);
    server.wait_until("the prompt is being processed", |server| {
        server.get("/slots").json().as_array().expect("an array").iter().any(|slot| slot["state"] == "prefill")
    });
    let queued = open(&server, &json!({"prompt": "queued", "max_tokens": 90_000}));
    server.wait_until("one waits", |server| server.metric("muser_queue_depth") >= 1);
    assert_eq!(cancelled(&server), 0);

    drop(queued);
    server.wait_until("nobody waits", |server| server.metric("muser_queue_depth") == 0);
    assert_eq!(server.n_busy(), 3, "somebody else was ended");
    drop(in_prompt);
    server.wait_until("its slot is free", |server| server.n_busy() == 2);
    drop(answered);
    server.wait_until("its slot is free", |server| server.n_busy() == 1);
    server.wait_until("all three are counted", |server| cancelled(server) == 3);
    for _ in 0..100 {
        let event = stays.next().expect("it goes on");
        assert!(event.contains("\"text\":\"a\""), "{event}");
    }
    assert_eq!(server.complete(json!({"prompt": "b", "max_tokens": 2}))["text"], "aa");
}

#[test]
fn a_client_that_waits_for_a_whole_reply_is_noticed_when_it_vanishes() {
    let server = lasting(&["--slots", "1"]);
    let body = json!({"prompt": "hi", "max_tokens": 90_000, "temperature": 0}).to_string();
    let waits = Conversation::open(&server).send("POST", TEXT, &[], &body);
    server.wait_until("it is being answered", |server| server.n_busy() == 1);
    drop(waits);
    server.wait_until("its slot is free", |server| server.n_busy() == 0);
    assert_eq!(cancelled(&server), 1);
}

#[test]
fn a_storm_of_clients_that_vanish_leaves_nothing_behind() {
    let server = lasting(&["--slots", "2", "--max-queue", "8"]);
    let body = json!({"prompt": "hi", "max_tokens": 90_000, "stream": true, "temperature": 0}).to_string();
    for _ in 0..10 {
        let storm: Vec<_> = (0..20)
            .map(|index| match index % 4 {
                // Gone before, while and after it asks.
                0 => Conversation::open(&server),
                1 => {
                    let mut half = Conversation::open(&server);
                    half.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{");
                    half
                }
                _ => Conversation::open(&server).send("POST", TEXT, &[], &body),
            })
            .collect();
        drop(storm);
    }
    server.wait_until("all slots are free", |server| server.n_busy() == 0);
    server.wait_until("its own connection is the only one", |server| server.metric("muser_http_connections") == 1);
    assert_eq!(server.complete(json!({"prompt": "b", "max_tokens": 2}))["text"], "aa");
}

#[test]
fn a_client_that_does_not_read_holds_nobody() {
    let server = lasting(&["--slots", "2"]);
    // More than sockets hold.
    let wanted = 5000;
    let unread = open(&server, &json!({"prompt": "hi", "max_tokens": wanted, "logprobs": 20}));
    for _ in 0..3 {
        assert_eq!(server.complete(json!({"prompt": "b", "max_tokens": 2}))["text"], "aa");
    }
    server.wait_until("the engine is done with it", |server| server.n_busy() == 0);
    let documents = unread.documents();
    let texts = documents.iter().map(|document| document["choices"][0]["text"].as_str().expect("text"));
    assert_eq!(texts.collect::<String>(), "a".repeat(wanted));
}

#[test]
fn a_client_that_takes_nothing_for_too_long_is_given_up() {
    let server = lasting(&["--slots", "1", "--write-timeout", "0.3"]);
    let unread = open(&server, &json!({"prompt": "hi", "max_tokens": 90_000, "logprobs": 20}));
    server.wait_until("its slot is free", |server| server.n_busy() == 0 && cancelled(server) == 1);
    server.wait_until("its connection is closed", |server| server.metric("muser_http_connections") == 1);
    assert!(!unread.drain().contains("[DONE]"), "the answer was complete");
}

#[test]
fn health_fails_within_a_bound_while_the_engine_is_stuck() {
    // One step over the whole prompt with the slow reference backend takes minutes.
    let args = ["--reference", "--ctx", "2048", "--batch", "2048", "--slots", "1", "--prefix-cache", "0"];
    let server = Server::start(&model_path(SMOLLM2), &args);
    server.get("/health").expect(200);
    let body = json!({"prompt": "word ".repeat(2000)}).to_string();
    let _stuck = Conversation::open(&server).send("POST", TEXT, &[], &body);
    let mut reply = server.get("/health");
    server.wait_until("health fails", |server| {
        reply = server.get("/health");
        reply.status != 200
    });
    let (_, message) = reply.refusal(503);
    assert!(message.contains("engine"), "{message}");
    server.get("/v1/models").expect(200);
    server.get("/slots").expect(200);
}

#[test]
fn a_request_to_terminate_lets_answers_end_and_takes_no_more() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--shutdown-timeout", "100"]);
    let mut events = open(&server, &json!({"prompt": "hi", "max_tokens": 60}));
    let mut data = vec![events.next().expect("it is being answered")];
    server.signal(Signal::TERM);
    data.extend(std::iter::from_fn(|| events.next()));
    assert_eq!(data.last().map(String::as_str), Some("[DONE]"), "{data:?}");
    assert_eq!(data.len(), 60 + 1 + 1, "tokens, their end, and the end of the stream");
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn answers_that_outlast_the_time_for_a_shutdown_are_ended_and_say_so() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = lasting(&["--slots", "1", "--shutdown-timeout", "0.2"]);
        let mut events = open(&server, &json!({"prompt": "hi", "max_tokens": 90_000}));
        events.next().expect("it is being answered");
        let body = json!({"prompt": "queued", "max_tokens": 90_000, "temperature": 0}).to_string();
        let queued = Conversation::open(&server).send("POST", TEXT, &[], &body);
        server.wait_until("one waits", |server| server.metric("muser_queue_depth") >= 1);
        server.signal(signal);
        let mut last = String::new();
        while let Some(event) = events.next() {
            last = event;
        }
        let error: Value = serde_json::from_str(&last).expect("JSON");
        assert_eq!(error["error"]["code"], "shutting_down");
        queued.reply().refusal(503);
        let ended = server.end();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    }
}

#[test]
fn a_second_signal_ends_everything_at_once() {
    let server = lasting(&["--slots", "1", "--shutdown-timeout", "100000"]);
    let mut events = open(&server, &json!({"prompt": "hi", "max_tokens": 90_000}));
    events.next().expect("it is being answered");
    server.signal(Signal::TERM);
    let address = server.address().to_owned();
    server.wait_until("it takes no more", |_| std::net::TcpStream::connect(&address).is_err());
    assert!(events.next().is_some(), "what runs goes on");
    server.signal(Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(128 + 15), "{}", ended.stderr);
    events.drain();
}

#[test]
fn a_request_to_terminate_ends_a_load_at_once() {
    // Opening a pipe lasts until somebody writes to it, which nobody does.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    assert!(Command::new("mkfifo").arg(&path).status().expect("it starts").success());
    let mut child = serve(&path, &[] as &[&str]).spawn().expect("the binary starts");
    let port = || fs::read_to_string(format!("/proc/{}/net/tcp", child.id())).unwrap_or_default();
    assert!(!port().is_empty(), "there is no such process");
    let pid = Pid::from_child(&child);
    // Handlers are installed before a file is opened; a signal before that ends it by itself.
    kill_process(pid, Signal::TERM).expect("it is there");
    let mut printed = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut printed).expect("it can be read");
    let status = child.wait().expect("it ends");
    assert!(!status.success() && printed.is_empty(), "{status}, {printed:?}");
}

#[test]
fn a_server_that_was_killed_under_load_starts_again_and_answers_the_same() {
    let server = lasting(&["--slots", "2"]);
    let expected = server.complete(json!({"prompt": "b", "max_tokens": 5, "logprobs": 2}));
    let mut running: Vec<_> = (0..4).map(|_| open(&server, &json!({"prompt": "hi", "max_tokens": 90_000}))).collect();
    running[0].next().expect("it is being answered");
    server.signal(Signal::KILL);
    thread::scope(|scope| running.drain(..).for_each(|events| drop(scope.spawn(|| events.drain()))));
    assert_eq!(server.end().status.code(), None);
    let again = lasting(&["--slots", "2"]);
    assert_eq!(again.complete(json!({"prompt": "b", "max_tokens": 5, "logprobs": 2})), expected);
}

#[test]
fn arguments_that_can_not_be_meant_are_refused_before_a_model_is_loaded() {
    for (args, code, said) in [
        (vec!["--slots", "100000"], 2, "at most 256"),
        (vec!["--slots", "999999999999999"], 2, "at most 256"),
        (vec!["--slots", "-1"], 2, "above 0"),
        (vec!["--prefix-cache", "999999T"], 3, "--prefix-cache"),
        (vec!["--alias", ""], 2, "--alias"),
        (vec!["--read-timeout", "0"], 2, "above 0"),
        (vec!["--max-queue", "-1"], 2, "from 0 up"),
    ] {
        let ended = serve(&model_path(SMOLLM2), &args).output().expect("the binary starts");
        let stderr = String::from_utf8(ended.stderr).expect("text");
        assert_eq!(ended.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
}

#[test]
fn the_log_says_what_is_served_and_how_far_an_answer_came_that_was_given_up() {
    let server = lasting(&["--slots", "1"]);
    let mut events = open(&server, &json!({"prompt": "hi", "max_tokens": 90_000}));
    for _ in 0..3 {
        events.next().expect("it is being answered");
    }
    drop(events);
    server.wait_until("its slot is free", |server| server.n_busy() == 0);
    let log = server.stop();
    let line =
        |what: &str| log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what} in {log}"));
    let listening = line("listening");
    for fact in ["model=\"model\"", "n_ctx=100000", "n_slot=1"] {
        assert!(listening.contains(fact), "{listening}");
    }
    let (_, told) = line("given up").split_once("n_generated=").expect("it says how many");
    let told = told.split(' ').next().and_then(|n| n.parse::<usize>().ok());
    assert!(told >= Some(3), "{told:?}");
}

#[test]
fn a_model_that_changes_ends_the_server_if_its_pages_are_the_files() {
    let folder = TempDir::new().expect("room for a folder");
    let model = folder.path().join("muse.gguf");
    for load in ["map", "read"] {
        fs::copy(model_path(MUSE[1]), &model).expect("room for it");
        let server = Server::start(&model, &["--ctx", "64", "--slots", "1", "--load", load]);
        let body = json!({"prompt": "a", "max_tokens": 2, "temperature": 0});
        let before = server.ask("/v1/completions", &body)["choices"].take();
        let file = fs::File::options().write(true).open(&model).expect("it is ours");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("it is ours");
        let reply = server.post("/v1/completions", &body);
        if load == "read" {
            assert_eq!(reply.expect(200)["choices"], before, "what was read is none of the file's any more");
            server.stop();
            continue;
        }
        let error = reply.expect(500)["error"]["message"].as_str().expect("a message").to_owned();
        assert!(error.starts_with("the model's file changed") && !error.contains("muse.gguf"), "{error}");
        let ended = server.end();
        assert_eq!(ended.status.code(), Some(4), "{}", ended.stderr);
        assert!(ended.stderr.contains("muse.gguf: the file changed while it was in use"), "{}", ended.stderr);
    }
}
