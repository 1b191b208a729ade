//! Fields of requests: what is taken, what is refused, and by which name.

use serde_json::{Value, json};

use crate::place::{Server, endless, muse, smollm2};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// A request with these fields besides what it has to have.
fn chat(fields: &Value) -> Value {
    with(json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}), fields)
}

fn text(fields: &Value) -> Value {
    with(json!({"prompt": "hi", "max_tokens": 2}), fields)
}

fn with(mut body: Value, fields: &Value) -> Value {
    let all = body.as_object_mut().expect("an object");
    for (name, value) in fields.as_object().expect("an object") {
        all.insert(name.clone(), value.clone());
    }
    body
}

/// Asserts that the field is refused by its name, and that the server goes on.
fn refuses(server: &Server, path: &str, body: &Value, param: &str) -> String {
    let (found, message) = server.post(path, body).refusal(400);
    assert_eq!(found, param, "{body}: {message}");
    server.get("/health").expect(200);
    message
}

#[test]
fn token_limits_are_at_least_one_and_never_more_than_the_context() {
    let server = endless(&["--ctx", "64"]);
    for wrong in [json!(0), json!(-1), json!(1.5), json!("7"), json!([])] {
        for (path, body) in [(CHAT, chat(&json!({"max_tokens": wrong}))), (TEXT, text(&json!({"max_tokens": wrong})))] {
            let message = refuses(&server, path, &body, "max_tokens");
            assert!(message.contains("from 1 up"), "{message}");
        }
        refuses(
            &server,
            CHAT,
            &chat(&json!({"max_tokens": null, "max_completion_tokens": wrong})),
            "max_completion_tokens",
        );
    }
    // The prompts have two tokens, and a line break of the template. What is left of the context is the answer's, of which
    // the last token needs no place.
    let room = [(CHAT, 64 - 3 + 1), (TEXT, 64 - 2 + 1)];
    for (path, room) in room {
        for large in [json!(64), json!(1u64 << 31), json!(u64::MAX), json!(1e300)] {
            let fields = json!({"max_tokens": large, "temperature": 0});
            let body = if path == CHAT { chat(&fields) } else { text(&fields) };
            let reply = server.post(path, &body);
            let document = reply.expect(200);
            assert_eq!(document["usage"]["completion_tokens"], room, "{document}");
            assert_eq!(document["choices"][0]["finish_reason"], "length");
            assert_eq!(reply.header("x-muser-max-tokens"), Some(&*room.to_string()));
        }
    }
}

#[test]
fn a_prompt_that_leaves_one_place_has_an_answer_of_two_tokens() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let id = &server.tokens("a")[0];
    for (max_tokens, n_token) in [(json!(1), 1), (json!(2), 2), (json!(3), 2)] {
        let reply = server.post(TEXT, &json!({"prompt": vec![id; 63], "max_tokens": max_tokens, "temperature": 0}));
        let document = reply.expect(200);
        assert_eq!(document["usage"]["completion_tokens"], n_token, "{document}");
        assert_eq!(document["choices"][0]["finish_reason"], "length");
        assert_eq!(reply.header("x-muser-max-tokens"), Some(&*n_token.to_string()));
    }
    let message = refuses(&server, TEXT, &json!({"prompt": vec![id; 64]}), "prompt");
    assert!(message.contains("64 tokens; expected at most 63"), "{message}");
}

#[test]
fn without_a_token_limit_chats_fill_the_context_and_completions_have_sixteen() {
    let server = endless(&["--ctx", "64"]);
    for (path, body, n) in [
        (CHAT, chat(&json!({"max_tokens": null, "temperature": 0})), 62),
        (TEXT, text(&json!({"max_tokens": null, "temperature": 0})), 16),
    ] {
        let reply = server.ask(path, &body);
        assert_eq!(reply["usage"]["completion_tokens"], n, "{reply}");
        assert_eq!(reply["choices"][0]["finish_reason"], "length");
    }
}

#[test]
fn requests_without_anything_to_answer_are_refused() {
    let server = smollm2(&["--ctx", "256", "--slots", "1"]);
    for (path, body, param) in [
        (CHAT, json!({}), "messages"),
        (CHAT, json!({"messages": []}), "messages"),
        (CHAT, json!({"messages": null}), "messages"),
        (TEXT, json!({}), "prompt"),
        (TEXT, json!({"prompt": []}), "prompt"),
        (TEXT, json!({"prompt": ""}), "prompt"),
        (TEXT, json!({"prompt": ["hi", ""]}), "prompt[1]"),
        (TEXT, json!({"prompt": [[]]}), "prompt"),
        ("/v1/embeddings", json!({"input": ""}), "input"),
        ("/v1/embeddings", json!({"input": []}), "input"),
    ] {
        refuses(&server, path, &body, param);
    }
    for messages in [json!([{"role": "system", "content": "be brief"}]), json!([{"role": "user", "content": " "}])] {
        let reply = server.ask(CHAT, &json!({"messages": messages, "max_tokens": 2}));
        assert_eq!(reply["choices"][0]["message"]["role"], "assistant", "{reply}");
    }
    assert!(server.complete(json!({"prompt": " ", "max_tokens": 2}))["text"].is_string());
}

#[test]
fn bodies_that_are_no_objects_are_refused() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    for body in [json!([]), json!("hi"), json!(null), json!(7)] {
        let (_, message) = server.post(CHAT, &body).refusal(400);
        assert!(message.contains("expected a JSON object"), "{message}");
    }
}

#[test]
fn every_setting_at_its_borders_has_a_meaning_or_is_refused() {
    let server = muse(&["--ctx", "128", "--slots", "1"]);
    let greedy = server.complete(text(&json!({"max_tokens": 12})))["text"].take();
    for fields in [
        json!({"top_k": 0, "top_p": 0, "min_p": 1}),
        json!({"penalty_last_n": 0, "repetition_penalty": 2}),
        json!({"temperature": 1, "top_k": 1}),
        json!({"temperature": 1, "top_p": 0}),
        json!({"temperature": 1, "min_p": 1}),
        json!({"logit_bias": {}, "seed": 7}),
    ] {
        let found = server.complete(text(&with(json!({"max_tokens": 12}), &fields)));
        assert_eq!(found["text"], greedy, "{fields}");
    }
    // A window of the whole context, asked for or passed by far, is the same one.
    let even = endless(&["--ctx", "128", "--slots", "1"]);
    let penalised = |last_n: i64| {
        let fields = json!({"max_tokens": 6, "presence_penalty": 1, "penalty_last_n": last_n});
        even.complete(text(&fields))["text"].take()
    };
    for (last_n, expected) in [(0, "aaaaaa"), (1, "ababab"), (2, "abcabc"), (-1, "abcdef"), (1 << 40, "abcdef")] {
        assert_eq!(penalised(last_n), expected, "a window of {last_n}");
    }
    for (field, wrong) in [
        ("temperature", json!(2.1)),
        ("temperature", json!(-1)),
        ("top_p", json!(1.01)),
        ("top_k", json!(-2)),
        ("min_p", json!(-0.5)),
        ("penalty_last_n", json!(-2)),
        ("repetition_penalty", json!(0)),
        ("presence_penalty", json!(2.5)),
        ("frequency_penalty", json!("much")),
        ("seed", json!(1.5)),
        ("n", json!(2)),
    ] {
        let message = refuses(&server, TEXT, &text(&json!({field: wrong})), field);
        assert!(message.contains("expected"), "{message}");
    }
}

#[test]
fn what_would_change_the_answer_and_is_not_done_is_refused() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    for (field, value) in [
        ("reasoning_effort", json!("high")),
        ("audio", json!({})),
        ("modalities", json!(["text", "audio"])),
        ("verbosity", json!("low")),
        ("web_search_options", json!({})),
        ("store", json!(true)),
        ("functions", json!([{"name": "f"}])),
        ("mirostat", json!(2)),
        ("grammar", json!("root ::= \"a\"")),
        ("repeat_penalty", json!(1.1)),
        ("continue_final_message", json!(true)),
        ("best_of", json!(2)),
        ("top_n_sigma", json!(1.5)),
        ("stop_sequences", json!(["a"])),
        ("num_predict", json!(7)),
        ("suppress_tokens", json!([7])),
        ("regex", json!("a+")),
        ("enable_thinking", json!(false)),
        ("system", json!("Be brief.")),
        ("truncate", json!(true)),
        ("options", json!({"temperature": 0})),
        ("prompt", json!("hi")),
    ] {
        refuses(&server, CHAT, &chat(&json!({field: value})), field);
    }
    for (field, value) in [
        ("echo", json!(true)),
        ("suffix", json!("end")),
        ("best_of", json!(3)),
        ("response_format", json!({"type": "json_object"})),
        ("max_completion_tokens", json!(7)),
        ("messages", json!([{"role": "user", "content": "hi"}])),
        ("tools", json!([{}])),
        ("system", json!("Be brief.")),
    ] {
        refuses(&server, TEXT, &text(&json!({field: value})), field);
    }
    refuses(&server, "/v1/embeddings", &json!({"input": "hi", "dimensions": 8}), "dimensions");
    // Where they ask for what is done anyway, they are taken, and so are those without any effect.
    let neutral = json!({
        "modalities": ["text"], "store": false, "response_format": {"type": "text"}, "service_tier": "auto",
        "user": "somebody", "metadata": {"a": "b"}, "logprobs": false, "stop": null, "reasoning_effort": null,
    });
    let reply = server.post(CHAT, &chat(&neutral));
    reply.expect(200);
    assert_eq!(reply.header("x-muser-warning"), None);
}

#[test]
fn unknown_fields_are_named_in_a_header_or_refused_where_strictness_is_asked_for() {
    let body =
        with(chat(&json!({"wizardry": 1})), &json!({"messages": [{"role": "user", "content": "hi", "mood": "ü"}]}));
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let reply = server.post(CHAT, &body);
    reply.expect(200);
    let warning = reply.header("x-muser-warning").expect("a warning");
    assert_eq!(warning, "unknown fields without effect: messages[0].mood, wizardry");
    let strict = endless(&["--ctx", "64", "--slots", "1", "--strict"]);
    let message = refuses(&strict, CHAT, &body, "messages[0].mood");
    assert!(message.contains("--strict"), "{message}");
    strict.post(CHAT, &chat(&json!({}))).expect(200);
}

#[test]
fn another_model_than_the_one_there_is_is_not_found() {
    let server = endless(&["--ctx", "64", "--slots", "1", "--alias", "gpt-x"]);
    for name in ["model", "gpt-x"] {
        let reply = server.ask(CHAT, &chat(&json!({"model": name})));
        assert_eq!(reply["model"], "model");
    }
    let (param, message) = server.post(CHAT, &chat(&json!({"model": "gpt-y"}))).refusal(404);
    assert_eq!(param, "model");
    assert!(message.contains("gpt-x"), "{message}");
    server.get("/v1/models/gpt-x").expect(200);
    server.get("/v1/models/gpt-y").refusal(404);
    assert_eq!(server.get("/v1/models").expect(200)["data"][0]["id"], "model");
}

#[test]
fn biases_of_100_force_a_token_and_of_minus_100_exclude_it() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let [a, b] = ["a", "b"].map(|letter| server.tokens(letter)[0].to_string());
    let answer = |bias: Value| server.complete(text(&json!({"logit_bias": bias, "max_tokens": 3})))["text"].take();
    assert_eq!(answer(json!({})), "aaa");
    assert_eq!(answer(json!({b.clone(): 100})), "bbb");
    assert_eq!(answer(json!({a: -100})), "bbb");
}
