//! What goes over the wire before and beside requests: heads that can't be read, bodies that are not taken as they are, clients
//! that have said all they will.

use serde_json::json;

use crate::http::Conversation;
use crate::place::{Server, endless, muse};

const TEXT: &str = "/v1/completions";

fn lasting(args: &[&str]) -> Server {
    let all = ["--ctx", "100000", "--prefix-cache", "0"].iter().chain(args).copied().collect::<Vec<_>>();
    endless(&all)
}

#[test]
fn a_client_that_will_say_no_more_gets_its_answer() {
    let server = muse(&["--ctx", "400", "--slots", "1"]);
    let expected = server.complete(json!({"prompt": "word ".repeat(40), "max_tokens": 60, "ignore_eos": true}));
    for stream in [false, true] {
        let body = json!({
            "prompt": "word ".repeat(40), "max_tokens": 60, "ignore_eos": true, "temperature": 0, "stream": stream,
        });
        let mut half = Conversation::open(&server).send("POST", TEXT, &[], &body.to_string());
        half.say_no_more();
        let text = if stream {
            let documents = half.events().documents();
            documents.iter().map(|document| document["choices"][0]["text"].as_str().expect("text")).collect()
        } else {
            half.reply().expect(200)["choices"][0]["text"].as_str().expect("text").to_owned()
        };
        assert_eq!(text, expected["text"], "streamed: {stream}");
    }
    for path in ["/health", "/metrics", "/v1/models"] {
        let mut half = Conversation::open(&server).send("GET", path, &[], "");
        half.say_no_more();
        assert_eq!(half.reply().status, 200, "{path}");
    }
    server.wait_until("its own connection is the only one", |server| server.metric("muser_http_connections") == 1);
}

#[test]
fn a_client_that_will_say_no_more_and_vanishes_is_noticed() {
    let server = lasting(&["--slots", "1"]);
    for (stream, n_cancelled) in [(false, 1), (true, 2)] {
        let body = json!({"prompt": "hi", "max_tokens": 90_000, "temperature": 0, "stream": stream}).to_string();
        let mut half = Conversation::open(&server).send("POST", TEXT, &[], &body);
        half.say_no_more();
        server.wait_until("it is being answered", |server| server.n_busy() == 1);
        let queued = Conversation::open(&server).send("POST", TEXT, &[], &body);
        server.wait_until("one waits", |server| server.metric("muser_queue_depth") == 1);
        drop(queued);
        server.wait_until("nobody waits", |server| server.metric("muser_queue_depth") == 0);
        assert_eq!(server.n_busy(), 1, "who waits for an answer was given up");
        drop(half);
        server.wait_until("its slot is free", |server| server.n_busy() == 0);
        let cancelled = "muser_requests_total{outcome=\"cancelled\"}";
        server.wait_until("all are counted", |server| server.metric(cancelled) == 2 * n_cancelled);
    }
}

#[test]
fn a_request_that_breaks_off_is_not_waited_for() {
    let server = lasting(&["--slots", "1", "--read-timeout", "1000"]);
    let mut half = Conversation::open(&server);
    half.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{");
    half.say_no_more();
    half.rest();
    server.wait_until("its own connection is the only one", |server| server.metric("muser_http_connections") == 1);
}

#[test]
fn what_can_not_be_read_as_a_request_is_refused_in_the_interfaces_own_shape() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let head = |first: &str, more: &str| format!("{first}\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
    let many = "X: a\r\n".repeat(101);
    let get = "GET /health HTTP/1.1";
    for (bytes, status) in [
        (head("GET /health HTTP/9.9", ""), 400),
        (head("GET /he alth HTTP/1.1", ""), 400),
        (head("GET <health> HTTP/1.1", ""), 400),
        (head("\x01\x02\x03", ""), 400),
        (head(get, "No colon\r\n"), 400),
        (head(get, "X: a\0b\r\n"), 400),
        (head("GET /v1/models/%ff HTTP/1.1", ""), 400),
        (head(&format!("GET /{} HTTP/1.1", "a".repeat(65_600)), ""), 414),
        (head(get, &many), 431),
        (head(get, &format!("X: {}\r\n", "a".repeat(65_536))), 431),
        (head(get, &format!("X: {}\r\n", "a".repeat(100_000))), 431),
    ] {
        let mut conversation = Conversation::open(&server);
        conversation.write(bytes.as_bytes());
        let (_, message) = conversation.reply().refusal(status);
        assert!(status != 431 || message.contains("65536 bytes"), "{message}");
    }
    let mut long = Conversation::open(&server);
    long.write(head(get, &format!("X: {}\r\n", "a".repeat(65_000))).as_bytes());
    long.reply().expect(200);
}

#[test]
fn bodies_are_taken_as_they_are_or_refused() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let body = json!({"prompt": "hi", "max_tokens": 1}).to_string();
    let encoded = |encoding: &str| {
        Conversation::open(&server).send("POST", TEXT, &[("Content-Encoding", encoding)], &body).reply()
    };
    for encoding in ["gzip", "identity, br", "x"] {
        let (_, message) = encoded(encoding).refusal(415);
        assert!(message.contains("identity"), "{message}");
    }
    encoded("Identity").expect(200);
    for (body, param) in [
        (r#"{"prompt": "hi", "temperature": 0, "temperature": 1}"#.to_owned(), "temperature"),
        (r#"{"prompt": "hi", "logit_bias": {"7": 1, "7": 2}}"#.to_owned(), "7"),
        (json!({"prompt": vec!["a"; 2049]}).to_string(), "prompt"),
        (format!(r#"{{"prompt": [{}1]}}"#, "1,".repeat(600_000)), ""),
    ] {
        let (found, message) = Conversation::open(&server).send("POST", TEXT, &[], &body).reply().refusal(400);
        assert_eq!(found, param, "{message}");
        assert!(message.contains("expected"), "{message}");
    }
    let (param, _) = server.post("/v1/embeddings", &json!({"input": vec!["a"; 2049]})).refusal(400);
    assert_eq!(param, "input");
}
