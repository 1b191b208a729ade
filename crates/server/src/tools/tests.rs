//! Functions: requests, prompts, the grammar of calls, and calls in answers.

use std::sync::Arc;

use muser_engine::service::Constraint as _;
use muser_tests::model;
use muser_text::template::{ChatTemplate, Message, RenderOptions, ToolCall};
use muser_text::{Affixes, Special, Tokenizer};
use serde_json::{Value, json};

use super::{CallIds, CallParser, Delta, Dialect, Reply, ToolChoice, ToolFormat, ToolUse};
use crate::fields::{Fields, Unknown};
use crate::reply::ApiResult;
use crate::structured::{GrammarConstraint, Grammars, JsonSchema};
use crate::testing::{Random, allowed, decode, random_answer, tokenizer};

/// Templates of each dialect, in the manner of the models that have them.
mod templates {
    /// `<tool_call>`, with functions and results in the template.
    pub const HERMES: &str = "{%- if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}\n\
        {% endfor %}</tools><|im_end|>\n{% endif %}{%- for message in messages %}\
        {%- if message.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ message.content }}\n</tool_response><|im_end|>\n\
        {%- else %}<|im_start|>{{ message.role }}\n{{ message.content if message.content else '' }}\
        {%- for call in message.tool_calls %}\n<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": \
        {{ call.function.arguments | tojson }}}\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}\
        {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    /// A list after `[TOOL_CALLS]`; ids have nine characters.
    pub const MISTRAL: &str = "{% if tools %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
        {% for message in messages %}{% if message.role == 'user' %}[INST] {{ message.content }}[/INST]\
        {% elif message.role == 'tool' %}[TOOL_RESULTS] {{ message.content }}[/TOOL_RESULTS]\
        {% elif message.tool_calls %}[TOOL_CALLS] [{% for call in message.tool_calls %}\
        {% if call.id | length != 9 %}{{ raise_exception('nine') }}{% endif %}{\"name\": \"{{ call.function.name }}\", \
        \"arguments\": {{ call.function.arguments | tojson }}, \"id\": \"{{ call.id }}\"}{% endfor %}]</s>\
        {% else %} {{ message.content }}</s>{% endif %}{% endfor %}";
    /// The name between `[TOOL_CALLS]` and `[ARGS]`.
    pub const MISTRAL_NAMED: &str = "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}\
        {% for message in messages %}{{ message.content or '' }}{% for call in message.tool_calls %}\
        [TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}";
    pub const LLAMA: &str = include_str!("../../../text/tests/data/templates/llama3.jinja");
    pub const SMOLLM2: &str = include_str!("../../../text/tests/data/templates/smollm2.jinja");
    pub const GEMMA: &str = include_str!("../../../text/tests/data/templates/gemma.jinja");
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, "<s>", "</s>").unwrap()
}

fn dialect(source: &str, tokenizer: &Tokenizer) -> Dialect {
    Dialect::of(&template(source), tokenizer)
}

fn function(name: &str, parameters: &Value) -> Value {
    json!({"type": "function", "function": {"name": name, "description": format!("Does {name}."), "parameters": parameters}})
}

/// Two functions; answers end soon enough by chance.
fn functions() -> Value {
    let city = json!({"type": "object", "properties": {
        "city": {"type": "string", "maxLength": 6}, "unit": {"enum": ["C", "F"]},
    }, "required": ["city"], "additionalProperties": false});
    json!([function("get_weather", &city), function("now", &json!({"type": "object", "additionalProperties": false}))])
}

fn take(tools: Value, choice: Value, parallel: Value) -> ApiResult<Option<ToolUse>> {
    let fields = [("tools", tools), ("tool_choice", choice), ("parallel_tool_calls", parallel)];
    let fields = fields.into_iter().collect::<Value>();
    ToolUse::take(&mut Fields::of("", fields)?, &mut Unknown::default())
}

fn tool_use(choice: Value) -> ToolUse {
    take(functions(), choice, Value::Null).unwrap().unwrap()
}

fn ids(format: ToolFormat) -> CallIds {
    CallIds::new(format, 7)
}

/// The parts of an answer that comes in pieces.
fn parse<'a>(format: ToolFormat, pieces: impl IntoIterator<Item = &'a str>) -> (Reply, bool) {
    let mut parser = CallParser::new(format, &tool_use(json!("auto")), ids(format));
    let mut reply = Reply::default();
    let mut deltas = Vec::new();
    for piece in pieces {
        parser.push(piece, &mut deltas);
        deltas.drain(..).for_each(|delta| reply.push(delta));
    }
    parser.finish(&mut deltas);
    deltas.drain(..).for_each(|delta| reply.push(delta));
    (reply, parser.has_called())
}

/// Content, and name and arguments of each call.
fn parts(reply: &Reply) -> (&str, Vec<(&str, &str)>) {
    let calls = reply.calls.iter().map(|call| (&*call.name, &*call.arguments));
    (&reply.content, calls.collect())
}

const FORMATS: [ToolFormat; 5] =
    [ToolFormat::Hermes, ToolFormat::Llama, ToolFormat::Mistral, ToolFormat::MistralNamed, ToolFormat::Generic];

#[test]
fn calls_are_found_in_each_format() {
    let weather = r#"{"city": "Kö}\"{ln", "at": [1, {"x": "]"}]}"#;
    for (format, text, content, calls) in [
        (
            ToolFormat::Hermes,
            format!("<tool_call>\n{{\"name\": \"get_weather\", \"arguments\": {weather}}}\n</tool_call>"),
            "",
            vec![("get_weather", weather)],
        ),
        (
            ToolFormat::Hermes,
            "I look. \n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n\
            {\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n"
                .to_owned(),
            "I look.",
            vec![("now", "{}"), ("now", "{}")],
        ),
        (
            ToolFormat::Llama,
            format!("{{\"name\": \"get_weather\", \"parameters\": {weather}}}"),
            "",
            vec![("get_weather", weather)],
        ),
        (
            ToolFormat::Llama,
            "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}".to_owned(),
            "",
            vec![("now", "{}")],
        ),
        (
            ToolFormat::Mistral,
            format!(
                "Yes. [TOOL_CALLS] [{{\"name\": \"get_weather\", \"arguments\": {weather}}}, \
            {{\"name\": \"now\", \"arguments\": {{}}}}]"
            ),
            "Yes.",
            vec![("get_weather", weather), ("now", "{}")],
        ),
        (
            ToolFormat::MistralNamed,
            format!("[TOOL_CALLS]get_weather[ARGS]{weather}[TOOL_CALLS]now[ARGS]{{}}"),
            "",
            vec![("get_weather", weather), ("now", "{}")],
        ),
        (
            ToolFormat::Generic,
            format!("{{\"name\": \"get_weather\", \"arguments\": {weather}}}"),
            "",
            vec![("get_weather", weather)],
        ),
    ] {
        let (reply, has_called) = parse(format, [&*text]);
        assert_eq!(parts(&reply), (content, calls), "{format:?} {text}");
        assert!(has_called);
    }
}

/// Texts that are no calls, or not whole ones, in some format.
const DOUBTFUL: [&str; 24] = [
    "",
    "   ",
    "Just text, with < and [ and { in it.",
    "<tool_call>",
    "a <tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call> b",
    "<tool_call>nothing <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_cal",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {}} and more",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": \"<tool_call>",
    "<tool_call>\n{\"name\": \"no",
    "<tool_call>\n{\"name\": \"now\", \"arguments\": []}\n</tool_call>",
    "{\"name\": \"now\", \"parameters\": {}} and more {\"name\": \"now\", \"parameters\": {}}",
    "{\"name\": \"now\", \"answer\": 42}",
    "{\"name\": \"Anna\", \"parameters\": {}}",
    "{\"a\": 1}",
    "{",
    "{\"name\": \"now\", \"arguments\": {}}}",
    "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"nix\"}]",
    "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}; 5",
    "[TOOL_CALLS] later [TOOL_CALLS]",
    "[TOOL_CALLS]now[ARGS]",
    "[TOOL_CALLS]now[ARGS]{}trailing",
    "\n\n<|python_tag|> print(1)",
    "日本語 🦀 <tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"東京🗼\"}}\n</tool_call>",
];

#[test]
fn the_parts_are_the_same_however_the_text_is_cut() {
    for format in FORMATS {
        for text in DOUBTFUL {
            let whole = parse(format, [text]);
            let chars = text.char_indices().map(|(at, char)| &text[at..at + char.len_utf8()]);
            assert_eq!(parse(format, chars), whole, "{format:?} {text:?}, character by character");
            for (cut, _) in text.char_indices() {
                assert_eq!(parse(format, [&text[..cut], &text[cut..]]), whole, "{format:?} {text:?} cut at {cut}");
            }
        }
    }
}

#[test]
fn nothing_of_a_text_that_is_no_call_is_lost() {
    for format in FORMATS {
        for text in DOUBTFUL {
            let (reply, _) = parse(format, [text]);
            if reply.calls.is_empty() {
                assert_eq!(reply.content, text, "{format:?}");
            }
        }
    }
    let (reply, has_called) = parse(ToolFormat::Hermes, [DOUBTFUL[5]]);
    assert_eq!(parts(&reply), ("<tool_call>nothing", vec![("now", "{}")]));
    assert!(has_called);
    let (reply, has_called) = parse(ToolFormat::Hermes, [DOUBTFUL[8]]);
    assert_eq!(parts(&reply), ("", vec![("now", "{\"a\": \"<tool_call>")]));
    assert!(!has_called, "the call is cut off");
    let (reply, has_called) = parse(ToolFormat::Hermes, [DOUBTFUL[7]]);
    assert_eq!(parts(&reply), ("} and more", vec![("now", "{}")]));
    assert!(has_called);
    let (reply, _) = parse(ToolFormat::Mistral, [DOUBTFUL[17]]);
    assert_eq!(parts(&reply), (", {\"name\": \"nix\"}]", vec![("now", "{}")]));
}

#[test]
fn a_call_is_announced_once_with_its_id_and_then_its_arguments_come_in_pieces() {
    let mut parser = CallParser::new(ToolFormat::Hermes, &tool_use(json!("auto")), ids(ToolFormat::Hermes));
    let mut deltas = Vec::new();
    for piece in
        ["Hm", " <tool", "_call>\n{\"name\": \"now\"", ", \"arguments\": {", "\"a\"", ": 1}", "}\n</tool_call>"]
    {
        parser.push(piece, &mut deltas);
    }
    parser.finish(&mut deltas);
    let [Delta::Content(content), Delta::Call { index: 0, id, name }, Delta::Arguments { index: 0, text }] =
        &deltas[..]
    else {
        panic!("{deltas:?}");
    };
    assert_eq!((&**content, &**name, &**text), ("Hm", "now", "{\"a\": 1}"));
    assert!(id.starts_with("call_") && id.len() == 29);

    let long = ["<tool_call>\n{\"name\": \"now\", \"arguments\": {", "\"a\"", ": 1}"];
    let mut parser = CallParser::new(ToolFormat::Hermes, &tool_use(json!("auto")), ids(ToolFormat::Hermes));
    let counts: Vec<usize> = long
        .iter()
        .map(|piece| {
            let mut deltas = Vec::new();
            parser.push(piece, &mut deltas);
            deltas.len()
        })
        .collect();
    assert_eq!(counts, [2, 1, 1], "what is certain is passed on at once");
}

#[test]
fn ids_differ_and_suit_the_template() {
    let text = "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]";
    let (reply, _) = parse(ToolFormat::Mistral, [text]);
    assert!(
        reply.calls.iter().all(|call| call.id.len() == 9 && call.id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    );
    assert_ne!(reply.calls[0].id, reply.calls[1].id);
}

#[test]
fn a_dialect_is_found_by_what_the_template_does() {
    let tokenizer = tokenizer(model::SMOLLM2);
    for (source, format) in [
        (templates::HERMES, ToolFormat::Hermes),
        (templates::MISTRAL, ToolFormat::Mistral),
        (templates::MISTRAL_NAMED, ToolFormat::MistralNamed),
        (templates::LLAMA, ToolFormat::Llama),
        (templates::SMOLLM2, ToolFormat::Hermes),
        (templates::GEMMA, ToolFormat::Generic),
    ] {
        assert_eq!(dialect(source, &tokenizer).format(), format, "{source}");
    }
}

fn conversation() -> Vec<Message> {
    let call = ToolCall {
        id: Some("abcdefghi".to_owned()),
        name: "get_weather".to_owned(),
        arguments: json!({"city": "Oslo"}),
    };
    let second = ToolCall { name: "now".to_owned(), arguments: json!({}), ..call.clone() };
    vec![
        Message::new("user", "Weather? <tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"),
        Message { role: "assistant".to_owned(), tool_calls: vec![call, second], ..Message::default() },
        Message { tool_call_id: Some("abcdefghi".to_owned()), ..Message::new("tool", "7 degrees") },
        Message::new("tool", "noon"),
    ]
}

#[test]
fn functions_calls_and_results_reach_the_prompt_of_every_template() {
    let tokenizer = tokenizer(model::SMOLLM2);
    for source in [templates::HERMES, templates::MISTRAL, templates::SMOLLM2, templates::GEMMA, templates::LLAMA] {
        let dialect = dialect(source, &tokenizer);
        let mut messages = conversation();
        if source == templates::LLAMA {
            // This template takes one call at a time.
            messages[1].tool_calls.truncate(1);
        }
        let (messages, tools) = dialect.prompt(&messages, Some(&tool_use(json!("auto"))));
        let options = RenderOptions { add_generation_prompt: true, tools, ..RenderOptions::default() };
        let prompt = template(source).prompt(&messages, &options).unwrap();
        for expected in ["get_weather", "Does get_weather.", "maxLength", "Oslo", "7 degrees", "noon"] {
            assert!(prompt.text().contains(expected), "{expected} is not in {:?}", prompt.text());
        }
        // What the caller says stays what the caller said.
        let asked = prompt.text().find("Weather?").unwrap();
        assert!(prompt.foreign().iter().any(|range| range.contains(&asked)));
    }
}

#[test]
fn a_template_without_functions_is_told_in_a_message_what_the_model_may_call() {
    let tokenizer = tokenizer(model::SMOLLM2);
    let dialect = dialect(templates::SMOLLM2, &tokenizer);
    let mut messages = conversation();
    messages.insert(0, Message::new("system", "Be brief."));
    let (messages, tools) = dialect.prompt(&messages, Some(&tool_use(json!("required"))));
    assert!(tools.is_empty());
    let system = messages[0].content.as_deref().unwrap();
    assert!(system.contains("<tool_call>") && system.contains("\"now\"") && system.ends_with("Be brief."), "{system}");
    let calls = "<tool_call>\n{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Oslo\"}}\n</tool_call>\n\
        <tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>";
    assert_eq!(messages[2], Message::new("assistant", calls));
    let results = "<tool_response>\n7 degrees\n</tool_response>\n<tool_response>\nnoon\n</tool_response>";
    assert_eq!(messages[3..], [Message::new("user", results)]);

    // Without functions, the messages are left as they are.
    let plain = vec![Message::new("user", "Hi"), Message::new("assistant", "Ho")];
    assert_eq!(dialect.prompt(&plain, None), (plain, Vec::new()));
}

/// A vocabulary, and the dialect of a template over it.
fn compiled(source: &str, choice: Value, content: Option<&JsonSchema>) -> (Arc<Tokenizer>, Dialect, GrammarConstraint) {
    let tokenizer = tokenizer(model::SMOLLM2);
    let dialect = dialect(source, &tokenizer);
    let constraint = dialect.compile(&Grammars::new(tokenizer.clone()), &tool_use(choice), content).unwrap();
    (tokenizer, dialect, constraint)
}

#[test]
fn every_random_answer_that_must_call_is_calls_of_the_functions() {
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    let schema = &functions()[0]["function"]["parameters"];
    for source in [templates::HERMES, templates::MISTRAL, templates::MISTRAL_NAMED, templates::LLAMA, templates::GEMMA]
    {
        for choice in [json!("required"), named.clone()] {
            let (tokenizer, dialect, constraint) = compiled(source, choice.clone(), None);
            let mut n_ended = 0;
            for seed in 1..=8 {
                let ends = tokenizer.end_of_generation_ids();
                let wish = |allowed: &[u32], _: &mut Random| allowed.iter().copied().find(|id| ends.contains(id));
                let mut random = Random(seed * 77);
                let Some(text) = random_answer(&mut constraint.fork(), &tokenizer, &mut random, 300, wish) else {
                    continue;
                };
                n_ended += 1;
                let (reply, has_called) = parse(dialect.format(), [&*text]);
                assert!(has_called && reply.content.is_empty(), "{text}");
                for call in &reply.calls {
                    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                    let expected =
                        if call.name == "now" { json!({"type": "object", "maxProperties": 0}) } else { schema.clone() };
                    assert!(jsonschema::is_valid(&expected, &arguments), "{text}");
                    assert!(choice == "required" || call.name == "get_weather");
                }
            }
            assert!(n_ended > 0, "no answer in {:?} ended", dialect.format());
        }
    }
}

/// Walks a text through a constraint; the part that it lets through.
fn accepted(constraint: &mut GrammarConstraint, tokenizer: &Tokenizer, text: &str) -> String {
    let mut ids = Vec::new();
    for id in tokenizer.encode(text, Special::Plain, Affixes::None) {
        if constraint.is_finished() || !allowed(constraint, tokenizer.n_vocab()).contains(&id) {
            break;
        }
        constraint.accept(id).unwrap();
        ids.push(id);
    }
    decode(tokenizer, &ids)
}

#[test]
fn where_the_model_may_choose_text_is_free_and_a_call_is_held_to_its_form() {
    let (may_end, must_go_on) = (true, false);
    for (source, text, expected, ends) in [
        (templates::HERMES, "Sunny, 20 < 30. {\"a\": [TOOL_CALLS]\n", None, may_end),
        (
            templates::HERMES,
            "I look.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            None,
            may_end,
        ),
        (
            templates::HERMES,
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\", \"unit\": \"K\"}}",
            Some("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rom\", \"unit\": \""),
            must_go_on,
        ),
        (templates::HERMES, "<tool_call> oh", Some("<tool_call>"), must_go_on),
        (
            templates::MISTRAL,
            "Ja. [TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}}, {\"name\": \"now\", \"arguments\": {}}]",
            None,
            may_end,
        ),
        (templates::MISTRAL, "[TOOL_CALLS] oh", Some("[TOOL_CALLS]"), must_go_on),
        (
            templates::MISTRAL_NAMED,
            "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Rom\"}",
            None,
            may_end,
        ),
        (templates::LLAMA, "{\"name\": \"now\", \"parameters\": {}}", None, may_end),
        (
            templates::LLAMA,
            "{\"name\": \"now\", \"parameters\": {\"a\"",
            Some("{\"name\": \"now\", \"parameters\":"),
            must_go_on,
        ),
        (templates::LLAMA, "{\"name\": \"Anna\", \"parameters\": {\"a\": 1}} is JSON.", None, may_end),
        (templates::LLAMA, "Sunny.", None, may_end),
    ] {
        let (tokenizer, _, mut constraint) = compiled(source, json!("auto"), None);
        let found = accepted(&mut constraint, &tokenizer, text);
        assert_eq!(found, expected.unwrap_or(text), "of {text:?}");
        let can_end = constraint.is_finished()
            || allowed(&mut constraint, tokenizer.n_vocab()).contains(&tokenizer.end_of_generation_ids()[0]);
        assert_eq!(can_end, ends, "{text:?}");
    }
}

#[test]
fn a_schema_for_content_holds_beside_calls() {
    let schema = JsonSchema::new(
        "schema",
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": false}),
    )
    .unwrap();
    for (text, expected) in [
        ("{\"a\": 7}", "{\"a\": 7}"),
        ("{\"b\": 7}", "{\""),
        ("Sunny", ""),
        (
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
        ),
    ] {
        let (tokenizer, _, mut constraint) = compiled(templates::HERMES, json!("auto"), Some(&schema));
        assert_eq!(accepted(&mut constraint, &tokenizer, text), expected);
    }
    let tokenizer = tokenizer(model::SMOLLM2);
    let grammars = Grammars::new(tokenizer.clone());
    let llama = dialect(templates::LLAMA, &tokenizer);
    let refused = llama.compile(&grammars, &tool_use(json!("auto")), Some(&schema)).unwrap_err();
    assert_eq!(refused.param.as_deref(), Some("response_format"));
    let generic = dialect(templates::GEMMA, &tokenizer);
    let refused = generic.compile(&grammars, &tool_use(json!("auto")), None).unwrap_err();
    assert_eq!(refused.param.as_deref(), Some("tool_choice"));
}

#[test]
fn without_parallel_calls_there_is_one() {
    let text = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let twice = format!("{text}\n{text}");
    let tokenizer = tokenizer(model::SMOLLM2);
    let dialect = dialect(templates::HERMES, &tokenizer);
    let grammars = Grammars::new(tokenizer.clone());
    for (parallel, expected) in [(true, &*twice), (false, text)] {
        let tools = take(functions(), json!("required"), json!(parallel)).unwrap().unwrap();
        let mut constraint = dialect.compile(&grammars, &tools, None).unwrap();
        assert_eq!(accepted(&mut constraint, &tokenizer, &twice), expected);
    }
}

#[test]
fn a_function_whose_schema_is_not_supported_is_named() {
    let tokenizer = tokenizer(model::SMOLLM2);
    let tools = json!([function("a", &json!({})), function("b", &json!({"properties": {"x": {"not": {}}}}))]);
    let tools = take(tools, Value::Null, Value::Null).unwrap().unwrap();
    let refused =
        dialect(templates::HERMES, &tokenizer).compile(&Grammars::new(tokenizer.clone()), &tools, None).unwrap_err();
    assert_eq!(refused.param.as_deref(), Some("tools[1].function.parameters"));
    assert!(refused.message.contains("not"), "{}", refused.message);
}

#[test]
fn the_request_is_read_or_refused_by_field() {
    let one = |function: Value| json!([{"type": "function", "function": function}]);
    let parse = |tools: Value, choice: Value| take(tools, choice, Value::Null);
    for (tools, choice) in [(Value::Null, Value::Null), (json!([]), json!("auto")), (functions(), json!("none"))] {
        assert_eq!(parse(tools, choice).unwrap(), None);
    }
    assert_eq!(parse(functions(), Value::Null).unwrap().unwrap().choice, ToolChoice::Auto);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    assert_eq!(parse(functions(), named("now")).unwrap().unwrap().choice, ToolChoice::Named(1));
    for (tools, choice, param) in [
        (json!({}), json!("auto"), "tools"),
        (json!(vec![function("a", &json!({})); 129]), json!("auto"), "tools"),
        (json!([{"type": "web_search"}]), json!("auto"), "tools[0].type"),
        (json!([{"type": "function"}]), json!("auto"), "tools[0].function"),
        (one(json!({"name": "a b"})), json!("auto"), "tools[0].function.name"),
        (json!([function("a", &json!({})), function("a", &json!({}))]), json!("auto"), "tools[1].function.name"),
        (one(json!({"name": "a", "description": 1})), json!("auto"), "tools[0].function.description"),
        (one(json!({"name": "a", "parameters": []})), json!("auto"), "tools[0].function.parameters"),
        (
            one(json!({"name": "a", "parameters": {"type": "array"}})),
            json!("auto"),
            "tools[0].function.parameters.type",
        ),
        (one(json!({"name": "a", "strict": "yes"})), json!("auto"), "tools[0].function.strict"),
        (functions(), json!("any"), "tool_choice"),
        (functions(), json!({"type": "allowed_tools"}), "tool_choice.type"),
        (functions(), named("other"), "tool_choice.function.name"),
        (Value::Null, json!("required"), "tool_choice"),
    ] {
        assert_eq!(parse(tools, choice).unwrap_err().param.as_deref(), Some(param));
    }
    let parallel = take(functions(), Value::Null, json!("no"));
    assert_eq!(parallel.unwrap_err().param.as_deref(), Some("parallel_tool_calls"));
}
