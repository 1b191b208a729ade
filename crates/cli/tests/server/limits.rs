//! Bodies and heads that are too large, too deep or too slow.

use std::fs;

use serde_json::json;

use crate::http::Conversation;
use crate::place::{Server, endless};

const TEXT: &str = "/v1/completions";

fn post(server: &Server, body: &str) -> crate::http::Reply {
    Conversation::open(server).send("POST", TEXT, &[], body).reply()
}

#[test]
fn nesting_without_end_is_refused() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    for body in [
        "[".repeat(3000),
        r#"{"prompt": "#.to_owned() + &"[".repeat(3000),
        r#"{"a":"#.repeat(3000),
        r#"{"messages": "#.to_owned() + &"[".repeat(3000) + &"]".repeat(3000) + "}",
    ] {
        let (_, message) = post(&server, &body).refusal(400);
        assert!(message.contains("JSON"), "{message}");
    }
    server.post(TEXT, &json!({"prompt": "hi"})).expect(200);
}

#[test]
fn what_is_no_json_is_refused() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    for body in ["", "{", "prompt=hi", "{\"prompt\": \"\\ud800\"}", "{\"prompt\": \"hi\"} more", "nul"] {
        post(&server, body).refusal(400);
    }
    let mut bytes = Conversation::open(&server);
    let body = b"{\"prompt\": \"\xff\xfe\"}";
    let head = format!(
        "POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    bytes.write(&[head.as_bytes(), body].concat());
    bytes.reply().refusal(400);
}

#[test]
fn a_gigabyte_is_refused_before_it_comes_and_while_it_comes_and_memory_stays_flat() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--max-body", "1MiB"]);
    let before = resident_bytes(&server);
    let head = |how: &str| format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{how}\r\n\r\n");
    let mut announced = Conversation::open(&server);
    announced.write(head("Content-Length: 1073741824").as_bytes());
    for _ in 0..64 {
        // Sent on as by clients that look at the reply last.
        announced.write(&vec![b'\n'; 1 << 20]);
    }
    let (_, message) = announced.reply().refusal(413);
    assert!(message.contains("1048576 bytes"), "{message}");
    let mut chunked = Conversation::open(&server);
    chunked.write(head("Transfer-Encoding: chunked").as_bytes());
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(chunk.len() + (1 << 20), b'\n');
    chunk.extend(b"\r\n");
    for _ in 0..64 {
        chunked.write(&chunk);
    }
    chunked.reply().refusal(413);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
    server.post(TEXT, &json!({"prompt": "hi"})).expect(200);
}

#[test]
fn what_is_longer_than_the_context_is_refused_before_it_is_held() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let message = r#"{"role":"user","content":"hi"},"#;
    let ids = "1,".repeat(500_000);
    let bodies = [
        (
            "/v1/chat/completions",
            "messages",
            150_001,
            format!(r#"{{"messages":[{}"#, message.repeat(150_000)) + &message[..30] + "]}",
        ),
        (TEXT, "prompt", 500_001, format!(r#"{{"prompt":[{ids}1]}}"#)),
        (TEXT, "prompt", 500_001, format!(r#"{{"prompt":[[1],[{ids}1]]}}"#)),
        ("/v1/embeddings", "input", 500_001, format!(r#"{{"input":[{ids}1]}}"#)),
    ];
    let peak = peak_bytes(&server);
    for (path, field, n, body) in &bodies {
        let reply = Conversation::open(&server).send("POST", path, &[], body).reply();
        let (param, message) = reply.refusal(400);
        assert_eq!(param, *field, "{message}");
        assert!(message.starts_with(&format!("`{field}` has {n} ")), "{message}");
        assert!(message.contains("expected at most 64: the context holds 64 tokens"), "{message}");
    }
    // The bodies themselves, and little more.
    let longest = bodies.iter().map(|(.., body)| body.len() as u64).max().expect("there are some");
    let grown = peak_bytes(&server) - peak;
    assert!(grown < 2 * longest + (8 << 20), "{grown} bytes for bodies of {longest} at most");
    let prompts = vec!["hi"; 100];
    server.post(TEXT, &json!({"prompt": prompts, "max_tokens": 1})).expect(200);
}

#[test]
fn a_body_that_does_not_come_to_an_end_is_given_up() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--read-timeout", "0.3"]);
    let mut slow = Conversation::open(&server);
    slow.write(format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{\"pro").as_bytes());
    let (_, message) = slow.reply().refusal(408);
    assert!(message.contains("0.3 seconds"), "{message}");
    server.post(TEXT, &json!({"prompt": "hi"})).expect(200);
}

#[test]
fn a_head_that_does_not_come_to_an_end_is_given_up_and_so_is_a_connection_without_one() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--read-timeout", "0.3"]);
    let mut slow = Conversation::open(&server);
    slow.write(b"GET /health HTTP/1.1\r\nHost: loc");
    let (_, message) = slow.reply().refusal(408);
    assert!(message.contains("0.3 seconds"), "{message}");
    let silent = Conversation::open(&server);
    assert_eq!(silent.rest(), b"", "nothing was asked");
    server.get("/health").expect(200);
}

#[test]
fn a_head_without_bounds_is_refused() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let mut large = Conversation::open(&server);
    large.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Large: ");
    large.write(&vec![b'a'; 1 << 20]);
    large.write(b"\r\n\r\n");
    let head = String::from_utf8(large.rest()).expect("text");
    assert!(head.is_empty() || head.starts_with("HTTP/1.1 431"), "{head}");
    server.get("/health").expect(200);
}

#[test]
fn connections_beyond_the_limit_wait_for_others_to_end() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--max-connections", "2"]);
    let first = Conversation::open(&server);
    let second = Conversation::open(&server);
    let mut third = Conversation::open(&server);
    third.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(third.is_silent(), "it was answered beside two others");
    drop((first, second));
    third.reply().expect(200);
}

/// What the process has of the machine's memory.
fn resident_bytes(server: &Server) -> u64 {
    memory(server, "VmRSS:")
}

/// The most that it ever had.
fn peak_bytes(server: &Server) -> u64 {
    memory(server, "VmHWM:")
}

fn memory(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
