//! Who may use the server, and what it keeps to itself.

use serde_json::json;

use crate::http::{Conversation, Reply};
use crate::place::{Server, endless, key_file, serve};
use crate::tiny::Tiny;

const TEXT: &str = "/v1/completions";
const BODY: &str = r#"{"prompt": "hi", "max_tokens": 1}"#;

fn server() -> Server {
    endless(&["--ctx", "64", "--slots", "1", "--allow-host", "box.example"])
}

fn post(server: &Server, headers: &[(&str, &str)]) -> Reply {
    Conversation::open(server).send("POST", TEXT, headers, BODY).reply()
}

#[test]
fn foreign_hosts_are_refused_and_its_own_names_are_not() {
    let server = server();
    let port = server.address().rsplit(':').next().expect("a port").to_owned();
    for host in
        ["evil.example", "evil.example:8080", "localhost.evil.example", "localhost@evil.example", "", "10.0.0.1"]
    {
        for path in [TEXT, "/health", "/metrics", "/nothing"] {
            let reply = Conversation::open(&server).send("POST", path, &[("Host", host)], BODY).reply();
            reply.refusal(403);
        }
    }
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80", "box.example", "localhost."] {
        post(&server, &[("Host", host)]).expect(200);
    }
    post(&server, &[("Host", &format!("127.0.0.1:{port}"))]).expect(200);
    post(&server, &[("Host", "localhost"), ("Host", "evil.example")]).refusal(400);
    let mut without = Conversation::open(&server);
    without.write(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n");
    without.reply().refusal(400);
    let mut absolute = Conversation::open(&server);
    absolute.write(b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    absolute.reply().refusal(403);
}

#[test]
fn pages_of_other_origins_are_refused_and_told_nothing() {
    let server = server();
    for origin in ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1", "file://"] {
        let reply = post(&server, &[("Origin", origin)]);
        assert_eq!(reply.header("access-control-allow-origin"), None);
        reply.refusal(403);
    }
    let own = format!("http://{}", server.address());
    post(&server, &[("Origin", &own)]).expect(200);
    post(&server, &[("Sec-Fetch-Site", "cross-site")]).refusal(403);
    let asks = [("Origin", "https://evil.example"), ("Access-Control-Request-Method", "POST")];
    let preflight = Conversation::open(&server).send("OPTIONS", TEXT, &asks, "").reply();
    assert_eq!(preflight.header("access-control-allow-origin"), None);
    preflight.refusal(403);
    Conversation::open(&server).send("OPTIONS", TEXT, &[], "").reply().refusal(405);
    assert_eq!(server.metric("muser_requests_total{outcome=\"length\"}"), 1, "only the server's own page was answered");
}

#[test]
fn an_address_that_others_can_reach_demands_keys() {
    let place = Tiny::endless().place();
    let folder = tempfile::tempdir().expect("a folder");
    let said = |args: &[&str]| {
        let output = serve(&place.path(), args).output().expect("it starts");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(output.stdout.is_empty());
        said
    };
    let refused = said(&["--host", "0.0.0.0"]);
    assert!(refused.contains("--api-key-file"), "{refused}");
    let path = |keys, mode| key_file(&folder, keys, mode).to_str().expect("text").to_owned();
    for (keys, mode, expected) in [
        ("a-good-long-key\n", 0o644, "0600"),
        ("a-good-long-key\n", 0o640, "0600"),
        ("\n# nothing\n", 0o600, "holds none"),
        ("short\n", 0o600, "line 1"),
        ("a-good-long-key\ntwo words here\n", 0o600, "line 2"),
    ] {
        let refused = said(&["--host", "0.0.0.0", "--api-key-file", &path(keys, mode)]);
        assert!(refused.contains(expected), "{refused}");
        assert!(!refused.contains("a-good-long-key"), "a secret is shown: {refused}");
    }
    let missing = folder.path().join("nothing").to_str().expect("text").to_owned();
    assert!(said(&["--api-key-file", &missing]).contains("nothing"));
}

#[test]
fn with_keys_every_route_but_health_asks_for_one_and_none_is_ever_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = key_file(&folder, "# two keys\nfirst-secret-key\n\nsecond-secret-key\n", 0o600);
    let args = ["--ctx", "64", "--slots", "1", "--host", "0.0.0.0", "--api-key-file", file.to_str().expect("text")];
    let server = endless(&args);
    for path in [TEXT, "/v1/models", "/metrics", "/slots", "/props", "/nothing"] {
        for key in ["", "Bearer ", "Bearer first-secret-ke", "Bearer first-secret-key2", "Basic first-secret-key", "x"]
        {
            let reply = Conversation::open(&server).send("GET", path, &[("Authorization", key)], "").reply();
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            let (_, message) = reply.refusal(401);
            assert!(!message.contains("first"), "{message}");
        }
        server.get(path).refusal(401);
    }
    for key in ["Bearer first-secret-key", "bearer second-secret-key"] {
        post(&server, &[("Authorization", key)]).expect(200);
    }
    server.get("/health").expect(200);
    let props = Conversation::open(&server).send("GET", "/props", &[("Authorization", "Bearer first-secret-key")], "");
    let props = props.reply().text();
    let log = server.stop();
    assert!(!props.contains("secret") && !log.contains("secret"), "a secret is shown");
}

#[test]
fn the_log_is_json_on_request_and_never_says_what_was_asked_or_answered() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--log-format", "json"]);
    let reply = server.post("/v1/completions?key=hush", &json!({"prompt": "a private matter", "max_tokens": 3}));
    let id = reply.header("x-request-id").expect("an id").to_owned();
    server.get("/a/private/path").refusal(404);
    let log = server.stop();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect();
    let of_request = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message && line["span"]["id"] == *id);
        found.unwrap_or_else(|| panic!("no {message:?} of {id} in {log}"))
    };
    assert_eq!(of_request("reply")["status"], 200);
    assert_eq!(of_request("answered")["n_generated"], 3);
    assert_eq!(of_request("reply")["span"]["route"], "/v1/completions");
    assert!(!log.contains("private") && !log.contains("hush"), "{log}");
}
