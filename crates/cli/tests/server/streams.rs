//! Streams say what whole replies say, piece by piece.

use serde_json::{Value, json};

use crate::http::Conversation;
use crate::place::{Server, endless, muse, smollm2};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// The documents of a streamed reply.
fn stream(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let events = Conversation::open(server).send("POST", path, &[], &body.to_string()).events();
    assert_eq!(events.reply.status, 200);
    assert_eq!(events.reply.header("content-type"), Some("text/event-stream"));
    events.documents()
}

/// The joined text of each choice, and why it ended.
fn joined(documents: &[Value], n: usize) -> Vec<(String, Value)> {
    let mut choices = vec![(String::new(), Value::Null); n];
    for choice in documents.iter().flat_map(|document| document["choices"].as_array().expect("choices")) {
        let (text, finish) = &mut choices[choice["index"].as_u64().expect("an index") as usize];
        assert_eq!(*finish, Value::Null, "something follows the end");
        let piece = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str());
        *text += piece.unwrap_or_default();
        *finish = choice["finish_reason"].clone();
    }
    choices
}

fn whole(server: &Server, path: &str, body: &Value) -> Vec<(String, Value)> {
    let reply = server.ask(path, body);
    let choice = |choice: &Value| {
        let text = choice["text"].as_str().or_else(|| choice["message"]["content"].as_str());
        (text.expect("text").to_owned(), choice["finish_reason"].clone())
    };
    reply["choices"].as_array().expect("an array").iter().map(choice).collect()
}

#[test]
fn streamed_pieces_joined_are_the_whole_answer_whatever_the_tokens_are() {
    // Random weights give bytes of all kinds: parts of characters, invalid ones, and ends inside of one.
    let server = muse(&["--ctx", "512"]);
    for seed in 0..12 {
        let prompt = ["日本語", "🦀🦀", "caf\u{e9}", "\u{1F468}\u{200D}\u{1F469}"][seed % 4];
        let body =
            json!({"prompt": prompt, "max_tokens": 24, "seed": seed, "n": 2, "temperature": 1.5, "ignore_eos": true});
        let streamed = joined(&stream(&server, TEXT, &body), 2);
        assert_eq!(streamed, whole(&server, TEXT, &body), "seed {seed}");
        assert!(streamed.iter().all(|(text, finish)| !text.is_empty() && finish == "length"), "{streamed:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_replaced_and_all_others_come() {
    // At this temperature every byte is as likely as any other: parts of characters, wrong ones, and ends inside of one.
    let server = endless(&["--ctx", "512", "--slots", "2"]);
    for seed in 0..8 {
        let messages = json!([{"role": "user", "content": "hi"}]);
        let body = json!({"messages": messages, "max_tokens": 200, "seed": seed, "logprobs": true, "ignore_eos": true});
        let choice = server.ask(CHAT, &body)["choices"][0].take();
        let tokens = choice["logprobs"]["content"].as_array().expect("an array");
        let bytes = tokens.iter().flat_map(|token| token["bytes"].as_array().expect("bytes"));
        let bytes: Vec<u8> = bytes.map(|byte| byte.as_u64().expect("a byte") as u8).collect();
        assert_eq!(bytes.len(), 200);
        let text = choice["message"]["content"].as_str().expect("text");
        assert_eq!(text, String::from_utf8_lossy(&bytes), "seed {seed}");
        assert!(text.contains('\u{FFFD}'), "no byte was wrong: {text:?}");
    }
}

#[test]
fn a_chat_begins_with_the_speaker_and_ends_with_the_reason_and_nothing_in_between_is_lost() {
    let server = smollm2(&["--ctx", "512", "--slots", "1"]);
    let messages = json!([{"role": "user", "content": "Write 日本 and 🦀 three times."}]);
    let body = json!({"messages": messages, "max_tokens": 40, "temperature": 0, "logprobs": true});
    let documents = stream(&server, CHAT, &body);
    let first = &documents[0]["choices"][0];
    assert_eq!(first["delta"], json!({"role": "assistant", "content": ""}));
    let last = &documents.last().expect("some")["choices"][0];
    assert_eq!(last["delta"], json!({}));
    assert!(documents.iter().all(|document| document["object"] == "chat.completion.chunk"));
    assert!(documents.iter().all(|document| document["id"] == documents[0]["id"]));
    assert!(documents.iter().all(|document| document.get("usage").is_none()), "nobody asked for the usage");
    assert_eq!(joined(&documents, 1), whole(&server, CHAT, &body));
    let whole = server.ask(CHAT, &body)["choices"][0]["logprobs"]["content"].take();
    let entries = documents.iter().filter_map(|document| document["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(Value::Array(entries.flatten().cloned().collect()), whole);
}

#[test]
fn usage_comes_in_a_last_chunk_without_choices_where_it_is_asked_for() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let body = json!({"prompt": "hi", "max_tokens": 3, "stream_options": {"include_usage": true}});
    let documents = stream(&server, TEXT, &body);
    let (last, others) = documents.split_last().expect("some");
    assert_eq!(last["choices"], json!([]));
    let usage = json!({"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0}});
    assert_eq!(last["usage"], usage);
    assert!(others.iter().all(|document| document.get("usage") == Some(&Value::Null)), "{others:?}");
    let without = json!({"prompt": "hi", "max_tokens": 3, "stream_options": {"include_usage": false}});
    assert!(stream(&server, TEXT, &without).iter().all(|document| document.get("usage").is_none()));
}

#[test]
fn stop_texts_are_never_seen_wherever_tokens_and_characters_begin() {
    let server = muse(&["--ctx", "512"]);
    let body = |seed: usize, stop: Value| json!({"prompt": "日本", "max_tokens": 60, "seed": seed, "temperature": 1.2, "ignore_eos": true, "stop": stop});
    let mut found = 0;
    for seed in 0..10 {
        let (text, _) = whole(&server, TEXT, &body(seed, Value::Null)).remove(0);
        let chars: Vec<char> = text.chars().collect();
        // Stops that do occur: of one character and of several, overlapping ones, one that nearly occurs.
        let part = |from: usize, len: usize| chars[from..from + len].iter().collect::<String>();
        let nearly = part(2, 3) + "\u{10FFFF}";
        for stop in [json!(part(10, 1)), json!([part(8, 5), part(9, 2)]), json!([nearly.clone(), part(12, 4)])] {
            let stops: Vec<&str> = stop.as_array().map_or_else(
                || vec![stop.as_str().expect("text")],
                |stops| stops.iter().map(|stop| stop.as_str().expect("text")).collect(),
            );
            let end = stops.iter().filter_map(|stop| text.find(stop)).min().expect("one occurs");
            let expected = vec![(text[..end].to_owned(), json!("stop"))];
            assert_eq!(whole(&server, TEXT, &body(seed, stop.clone())), expected, "seed {seed}, stop {stop}");
            assert_eq!(joined(&stream(&server, TEXT, &body(seed, stop.clone())), 1), expected, "streamed, {stop}");
            found += 1;
        }
        // What was held back comes out where it turns out to be no stop.
        assert_eq!(whole(&server, TEXT, &body(seed, json!([nearly])))[0].0, text, "seed {seed}");
    }
    assert_eq!(found, 30);
}

#[test]
fn a_stop_text_does_not_show_in_log_probabilities_either() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    // The letters a, a, a are forced into the stop by its length.
    let body = json!({"prompt": "hi", "max_tokens": 9, "stop": "aaa", "logprobs": 0});
    let choice = server.complete(body);
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(""), &json!("stop")));
    assert_eq!(choice["logprobs"]["tokens"], json!([]));
    let body = json!({"prompt": "hi", "max_tokens": 2, "stop": "aaa", "logprobs": 0});
    let choice = server.complete(body);
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("aa"), &json!("length")));
    assert_eq!(choice["logprobs"]["tokens"], json!(["a", "a"]));
}

#[test]
fn streams_of_several_choices_tell_them_apart() {
    let server = muse(&["--ctx", "256", "--slots", "4"]);
    let body = json!({"prompt": ["one", "two"], "n": 2, "max_tokens": 10, "seed": 3, "ignore_eos": true});
    assert_eq!(joined(&stream(&server, TEXT, &body), 4), whole(&server, TEXT, &body));
}

#[test]
fn a_stream_that_waits_for_a_slot_is_kept_alive_by_comments() {
    let server = endless(&["--ctx", "100000", "--slots", "1", "--prefix-cache", "0"]);
    let body = json!({"prompt": "hi", "stream": true, "max_tokens": 90_000, "temperature": 0}).to_string();
    let mut running = Conversation::open(&server).send("POST", TEXT, &[], &body).events();
    running.next().expect("it is being answered");
    let mut waiting = Conversation::open(&server).send("POST", TEXT, &[], &body).events();
    assert_eq!(waiting.reply.status, 200);
    assert_eq!(waiting.line().expect("something comes"), ":");
}
