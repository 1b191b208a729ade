//! Forms of answers that leave no way to go on, or that can't be held to.

use serde_json::{Value, json};

use crate::http::Conversation;
use crate::place::{Server, endless, smollm2};

const CHAT: &str = "/v1/chat/completions";

/// A question whose answer is of the schema, with these fields besides.
fn of_schema(schema: &Value, fields: &Value) -> Value {
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let mut body = json!({
        "messages": [{"role": "user", "content": "hi"}], "response_format": format, "temperature": 0, "max_tokens": 400,
    });
    let all = body.as_object_mut().expect("an object");
    for (name, value) in fields.as_object().expect("an object") {
        all.insert(name.clone(), value.clone());
    }
    body
}

/// The error that ends an answer that has begun: the reply's status without a stream, and the last event with one.
fn broken_off(server: &Server, body: &Value, code: &str) {
    let reply = server.post(CHAT, body);
    let (_, message) = reply.refusal(422);
    assert!(message.contains("could not go on"), "{message}");
    assert_eq!(reply.json()["error"]["code"], code, "{message}");
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut events = Conversation::open(server).send("POST", CHAT, &[], &body.to_string()).events();
    assert_eq!(events.reply.status, 200);
    let last = std::iter::from_fn(|| events.next()).last().expect("an event");
    let last: Value = serde_json::from_str(&last).expect("the error is the last event");
    assert_eq!(last["error"]["code"], code, "{last}");
    server.get("/health").expect(200);
}

#[test]
fn a_bias_that_leaves_no_token_is_refused_before_the_answer_or_ends_it_with_its_name() {
    let server = endless(&["--ctx", "128", "--slots", "1"]);
    let [quote, b] = ["\"", "b"].map(|text| server.tokens(text)[0].to_string());
    let text = json!({"const": "ab"});
    for bias in [json!({quote: -100}), json!({b.clone(): 100})] {
        let body = of_schema(&text, &json!({"logit_bias": bias}));
        let (param, message) = server.post(CHAT, &body).refusal(400);
        assert!(param == "logit_bias" && message.contains("form"), "{param}: {message}");
    }
    broken_off(&server, &of_schema(&text, &json!({"logit_bias": {b: -100}})), "no_token_left");
    // Without a form, too: the one token that may come is the one that may not.
    let end = server.ask("/tokenize", &json!({"content": "<|end|>", "parse_special": true}))["tokens"][0].to_string();
    let body = json!({"prompt": "hi", "logit_bias": {end: 100}, "ignore_eos": true});
    let (param, _) = server.post("/v1/completions", &body).refusal(400);
    assert_eq!(param, "logit_bias");
    let answer = server.ask(CHAT, &of_schema(&text, &json!({})));
    assert_eq!(answer["choices"][0]["message"]["content"], "\"ab\"");
}

#[test]
fn a_pattern_that_passes_the_limits_in_mid_answer_ends_it_with_its_name() {
    let server = smollm2(&["--ctx", "512", "--slots", "1"]);
    let pattern = json!({"type": "string", "pattern": "^[a-z]*[aeiou][a-z]{900}$"});
    broken_off(&server, &of_schema(&pattern, &json!({"seed": 1, "temperature": 1})), "form_too_complex");
    assert_eq!(server.ask(CHAT, &of_schema(&json!({"const": 7}), &json!({})))["choices"][0]["message"]["content"], "7");
}
