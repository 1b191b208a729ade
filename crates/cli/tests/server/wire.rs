//! What goes over the wire before and beside requests: heads that can't be read, bodies that are not taken as they are, clients
//! that have said all they will.

use serde_json::{Value, json};

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
fn a_client_may_say_no_more_together_with_the_end_of_its_request() {
    let server = muse(&["--ctx", "64", "--slots", "1"]);
    let expected = server.complete(json!({"prompt": "a", "max_tokens": 2}))["text"].take();
    let body = json!({"prompt": "a", "max_tokens": 2, "temperature": 0}).to_string();
    let post = |more: &str| format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
    let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
    let (first, rest) = body.split_at(body.len() / 2);
    let coded = post("Transfer-Encoding: chunked\r\n");
    let get = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let requests = [
        coded.clone() + &chunk(&body) + &chunk(""),
        coded.clone() + &chunk(first) + &chunk(rest) + &chunk(""),
        get.to_owned() + &coded + &chunk(&body) + &chunk(""),
        post(&format!("Expect: 100-continue\r\nContent-Length: {}\r\n", body.len())) + &body,
    ];
    for request in requests {
        // What is late by chance is late again.
        for _ in 0..8 {
            let mut half = Conversation::open(&server);
            half.write(request.as_bytes());
            half.say_no_more();
            let said = String::from_utf8(half.rest()).expect("text");
            let reply = said.rsplit("\r\n\r\n").next().unwrap_or_default();
            let reply: Value = serde_json::from_str(reply).unwrap_or_else(|_| panic!("{request}: {said:?}"));
            assert_eq!(reply["choices"][0]["text"], expected, "{request}: {said}");
        }
    }
    // Of a body that is not whole there is nothing to wait for.
    let mut half = Conversation::open(&server);
    half.write((coded + &chunk(first)).as_bytes());
    half.say_no_more();
    half.rest();
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
fn what_leaves_open_where_its_body_ends_is_refused_and_nothing_after_it_is_read() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    for (headers, body, status, word) in [
        ("Transfer-Encoding: gzip, chunked\r\n", chunks, 501, "\"gzip\""),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", chunks, 501, "\"gzip\""),
        ("Transfer-Encoding: identity, Chunked\r\n", chunks, 501, "\"identity\""),
        ("Transfer-Encoding: chunked, chunked\r\n", chunks, 400, "more than once"),
        ("Transfer-Encoding: gzip\r\n", "hello", 400, "can't be read"),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            chunks,
            400,
            "`Content-Length` and `Transfer-Encoding`",
        ),
        (
            "content-length: 20\r\nTRANSFER-ENCODING: chunked\r\n",
            chunks,
            400,
            "`Content-Length` and `Transfer-Encoding`",
        ),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", "hello", 400, "can't be read"),
        ("Expect: foo\r\nContent-Length: 5\r\n", "hello", 417, "\"100-continue\""),
        ("Expect: 100-continue, foo\r\n", "", 417, "\"foo\""),
    ] {
        let first = format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}");
        let second = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut conversation = Conversation::open(&server);
        conversation.write(format!("{first}{second}").as_bytes());
        let replies = String::from_utf8(conversation.rest()).expect("text");
        let (head, error) = replies.split_once("\r\n\r\n").expect("a reply");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{headers}: {replies}");
        assert!(head.to_ascii_lowercase().contains("connection: close"), "{headers}: {replies}");
        let error: Value = serde_json::from_str(error).expect("one reply");
        assert!(error["error"]["message"].as_str().is_some_and(|message| message.contains(word)), "{headers}: {error}");
    }
    for headers in ["Transfer-Encoding: Chunked\r\n", "Transfer-Encoding: chunked\r\nExpect: 100-Continue\r\n"] {
        let mut conversation = Conversation::open(&server);
        let body = r#"{"prompt": "hi", "max_tokens": 1}"#;
        let head = format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        conversation.write(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes());
        conversation.reply().expect(200);
    }
}

#[test]
fn a_length_of_one_request_is_not_taken_for_one_of_the_next() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let body = r#"{"prompt": "hi", "max_tokens": 1}"#;
    let served = "muser_requests_total{outcome=\"length\"}";
    let mut conversation = Conversation::open(&server);
    let head = |headers: &str| format!("POST {TEXT} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n");
    conversation.write(format!("{}{body}", head(&format!("Content-Length: {}", body.len()))).as_bytes());
    server.wait_until("the first is answered", |server| server.metric(served) == 1);
    let chunked = head("Connection: close\r\nTransfer-Encoding: chunked");
    conversation.write(format!("{chunked}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes());
    let replies = String::from_utf8(conversation.rest()).expect("text");
    assert_eq!(replies.matches("HTTP/1.1 200 OK").count(), 2, "{replies}");
}

#[test]
fn who_ends_within_a_head_or_begins_with_another_protocol_is_told_so() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    for (bytes, word) in [
        ("G", "within its head"),
        ("GET /health HTTP/1.1\r\nHost: loc", "within its head"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "expected HTTP/1.1"),
        ("PRI * HTTP/2.0\r\n\r\n", "not HTTP/1.1"),
    ] {
        let mut conversation = Conversation::open(&server);
        conversation.write(bytes.as_bytes());
        conversation.say_no_more();
        let (_, message) = conversation.reply().refusal(400);
        assert!(message.contains(word), "{bytes:?}: {message}");
    }
    for nothing in ["", "\r\n"] {
        let mut conversation = Conversation::open(&server);
        conversation.write(nothing.as_bytes());
        conversation.say_no_more();
        assert_eq!(conversation.rest(), b"", "nothing was asked");
    }
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
        (format!(r#"{{"prompt": "hi", "stop": [{}1]}}"#, "1,".repeat(600_000)), ""),
    ] {
        let (found, message) = Conversation::open(&server).send("POST", TEXT, &[], &body).reply().refusal(400);
        assert_eq!(found, param, "{message}");
        assert!(message.contains("expected"), "{message}");
    }
    let (param, _) = server.post("/v1/embeddings", &json!({"input": vec!["a"; 2049]})).refusal(400);
    assert_eq!(param, "input");
}
