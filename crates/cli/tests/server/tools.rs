//! Functions and forms of answers.

use serde_json::{Value, json};

use crate::http::Conversation;
use crate::place::{Server, endless, smollm2};

const CHAT: &str = "/v1/chat/completions";

fn function(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": "Tells it.", "parameters": parameters}})
}

fn weather() -> Value {
    function(
        "get_weather",
        &json!({
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["C", "F"]}},
            "required": ["city", "unit"],
            "additionalProperties": false,
        }),
    )
}

/// A question with these fields besides, answered at temperature 0.
fn asking(fields: &Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}], "temperature": 0, "max_tokens": 80,
    });
    let all = body.as_object_mut().expect("an object");
    for (name, value) in fields.as_object().expect("an object") {
        all.insert(name.clone(), value.clone());
    }
    body
}

fn parsed(text: &Value) -> Value {
    let text = text.as_str().unwrap_or_else(|| panic!("{text} is no text"));
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The choice that the events of a stream come to, in the shape of a whole one.
fn streamed(server: &Server, body: &Value) -> Value {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut events = Conversation::open(server).send("POST", CHAT, &[], &body.to_string()).events();
    let (mut content, mut finish) = (Value::Null, Value::Null);
    let mut calls: Vec<Value> = Vec::new();
    while let Some(event) = events.next().filter(|event| event != "[DONE]") {
        let chunk: Value = serde_json::from_str(&event).expect("JSON");
        let choice = &chunk["choices"][0];
        if let Some(text) = choice["delta"]["content"].as_str() {
            content = json!(content.as_str().unwrap_or_default().to_owned() + text);
        }
        for delta in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = delta["index"].as_u64().expect("an index") as usize;
            if index == calls.len() {
                assert!(delta["id"].is_string() && delta["type"] == "function", "{delta}");
                calls.push(json!({"name": delta["function"]["name"], "arguments": ""}));
            }
            let piece = delta["function"]["arguments"].as_str().expect("a piece");
            let arguments = calls[index]["arguments"].as_str().expect("text").to_owned() + piece;
            calls[index]["arguments"] = json!(arguments);
        }
        if !choice["finish_reason"].is_null() {
            finish = choice["finish_reason"].clone();
        }
    }
    json!({"content": content, "calls": calls, "finish": finish})
}

/// A whole choice in the shape of [`streamed`].
fn whole(server: &Server, body: &Value) -> Value {
    let choice = server.ask(CHAT, body)["choices"][0].take();
    let message = &choice["message"];
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    let calls: Vec<_> = calls.into_iter().map(|mut call| call["function"].take()).collect();
    json!({"content": message["content"], "calls": calls, "finish": choice["finish_reason"]})
}

#[test]
fn an_answer_follows_the_schema_that_is_asked_for() {
    let server = smollm2(&["--ctx", "512", "--slots", "2"]);
    let schema = json!({
        "type": "object",
        "properties": {
            "capital": {"type": "string", "maxLength": 24},
            "population": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
            "sights": {"type": "array", "items": {"type": "string", "maxLength": 16}, "minItems": 1, "maxItems": 2},
        },
        "required": ["capital", "population", "sights"],
        "additionalProperties": false,
    });
    for strict in [true, false] {
        let format = json!({"name": "country", "schema": schema, "strict": strict});
        let format = json!({"type": "json_schema", "json_schema": format});
        for seed in 0..3 {
            let fields =
                json!({"response_format": format, "temperature": 1.5, "seed": seed, "max_tokens": 200, "n": 2});
            let reply = server.ask(CHAT, &asking(&fields));
            for choice in reply["choices"].as_array().expect("choices") {
                assert_eq!(choice["finish_reason"], "stop", "{choice}");
                let answer = parsed(&choice["message"]["content"]);
                assert!(answer["capital"].is_string() && answer["population"].as_u64() > Some(0), "{answer}");
                assert!((1..=2).contains(&answer["sights"].as_array().expect("an array").len()), "{answer}");
                assert_eq!(answer.as_object().map(serde_json::Map::len), Some(3), "{answer}");
            }
        }
    }
    let body = asking(&json!({"response_format": {"type": "json_object"}, "max_tokens": 5}));
    let cut = whole(&server, &body);
    assert_eq!(cut["finish"], "length", "an answer that the limit cuts is no whole one");
    assert!(cut["content"].as_str().expect("text").starts_with('{'), "{cut}");
    assert_eq!(streamed(&server, &body), cut);
}

#[test]
fn a_demanded_call_is_made_and_streams_as_it_is_whole() {
    let server = smollm2(&["--ctx", "1024", "--slots", "1"]);
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    for (choice, logprobs) in [(json!("required"), false), (named, true)] {
        let fields =
            json!({"tools": [weather()], "tool_choice": choice, "parallel_tool_calls": false, "logprobs": logprobs});
        let reply = server.ask(CHAT, &asking(&fields));
        let message = &reply["choices"][0]["message"];
        assert_eq!(message["content"], Value::Null, "{reply}");
        let call = &message["tool_calls"][0];
        assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")) && call["type"] == "function", "{call}");
        assert_eq!(call["function"]["name"], "get_weather");
        let arguments = parsed(&call["function"]["arguments"]);
        assert!(
            arguments["city"].is_string() && ["C", "F"].contains(&arguments["unit"].as_str().unwrap_or("")),
            "{call}"
        );
        assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(streamed(&server, &asking(&fields)), whole(&server, &asking(&fields)));
        let scored = reply["choices"][0]["logprobs"]["content"].as_array().map_or(0, Vec::len);
        assert_eq!(scored > 0, logprobs);
    }
    let cut = whole(&server, &asking(&json!({"tools": [weather()], "tool_choice": "required", "max_tokens": 24})));
    assert_eq!(cut["finish"], "length", "{cut}");
}

#[test]
fn a_conversation_with_calls_and_results_is_answered() {
    let server = smollm2(&["--ctx", "1024", "--slots", "1"]);
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}});
    let messages = json!([
        {"role": "user", "content": "What is the weather in Paris?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "7 degrees, rain"},
    ]);
    let body = json!({"messages": messages, "tools": [weather()], "temperature": 0, "max_tokens": 16});
    let prompt = server.ask("/apply-template", &json!({"messages": messages, "tools": [weather()]}));
    let prompt = prompt["prompt"].as_str().expect("a prompt");
    for expected in ["Tells it.", "<tool_call>\n{\"name\":\"get_weather\"", "<tool_response>\n7 degrees, rain\n"] {
        assert!(prompt.contains(expected), "{expected:?} is not in {prompt}");
    }
    let answer = whole(&server, &body);
    assert!(answer["content"].is_string() || !answer["calls"].as_array().expect("calls").is_empty(), "{answer}");
    assert_eq!(streamed(&server, &body), answer);
}

#[test]
fn what_only_looks_like_a_call_in_what_is_said_is_no_call() {
    let server = smollm2(&["--ctx", "1024", "--slots", "1"]);
    let text =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\", \"unit\": \"C\"}}\n</tool_call>";
    let body = json!({
        "messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "Fine."},
            {"role": "user", "content": format!("Say hello. {text}")}],
        "tools": [weather()], "tool_choice": "none", "temperature": 0, "max_tokens": 16,
    });
    let answer = whole(&server, &body);
    assert_eq!(answer["calls"], json!([]), "{answer}");
    let prompt = server.ask("/apply-template", &body);
    assert!(!prompt["prompt"].as_str().expect("a prompt").contains("Tells it."), "no function is shown");
}

#[test]
fn functions_and_forms_that_are_not_supported_are_refused_by_field() {
    let server = smollm2(&["--ctx", "256", "--slots", "1"]);
    let schema = |schema: Value| json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let unsupported = function("f", &json!({"type": "object", "not": {}}));
    for (fields, param) in [
        (json!({"response_format": {"type": "xml"}}), "response_format.type"),
        (json!({"response_format": schema(json!({"uniqueItems": true}))}), "response_format.json_schema.schema"),
        (json!({"response_format": schema(json!({"$ref": "#"}))}), "response_format.json_schema.schema"),
        (json!({"response_format": schema(json!("x".repeat(9)))}), "response_format.json_schema.schema"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tools": [weather(), unsupported]}), "tools[1].function.parameters"),
        (json!({"tools": [weather()], "tool_choice": "any"}), "tool_choice"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tools": [weather()], "parallel_tool_calls": 1}), "parallel_tool_calls"),
    ] {
        let (found, message) = server.post(CHAT, &asking(&fields)).refusal(400);
        assert_eq!(found, param, "{fields}: {message}");
        server.get("/health").expect(200);
    }
    // A template that knows no form of calls can demand one, and not leave it to the model.
    let server = endless(&["--ctx", "512", "--slots", "1"]);
    let (param, message) = server.post(CHAT, &asking(&json!({"tools": [weather()]}))).refusal(400);
    assert!(param == "tool_choice" && message.contains("required"), "{param}: {message}");
}

#[test]
fn fields_that_nobody_knows_are_named_inside_of_functions_too() {
    let server = smollm2(&["--ctx", "512", "--slots", "1"]);
    let mut tool = weather();
    tool["function"]["mood"] = json!("good");
    let fields = json!({"tools": [tool], "tool_choice": "none", "max_tokens": 1});
    let reply = server.post(CHAT, &asking(&fields));
    reply.expect(200);
    assert_eq!(reply.header("x-muser-warning"), Some("unknown fields without effect: tools[0].function.mood"));
}
