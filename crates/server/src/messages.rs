//! The messages of a chat, from JSON to what templates know.

use muser_text::template::{Message, ToolCall};
use serde_json::{Value, json};

use crate::fields::{Fields, Unknown};
use crate::foreign;
use crate::reply::{ApiError, ApiResult};

/// The roles there are, as the interface names them and as templates know them.
const ROLES: [(&str, &str); 6] = [
    ("system", "system"),
    // What newer models call the one above.
    ("developer", "system"),
    ("user", "user"),
    ("assistant", "assistant"),
    ("tool", "tool"),
    ("ipython", "ipython"),
];

/// Takes the messages.
///
/// # Errors
/// There are none, or one is malformed or holds something else than text.
pub fn take(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Vec<Message>> {
    const EXPECTED: &str = "an array of one message or more";
    let path = fields.path("messages");
    match fields.required("messages", EXPECTED)? {
        Value::Array(values) if !values.is_empty() => {
            let message = |(index, value)| message(Fields::of(format!("{path}[{index}]"), value)?, unknown);
            values.into_iter().enumerate().map(message).collect()
        }
        Value::Array(_) => Err(ApiError::invalid(&path, format!("`{path}` is empty; expected {EXPECTED}"))),
        other => Err(ApiError::out_of_range(path, &other, EXPECTED)),
    }
}

fn message(mut fields: Fields, unknown: &mut Unknown) -> ApiResult<Message> {
    let role = role(&mut fields)?;
    fields.without_effect(&["refusal", "annotations"]);
    foreign::refuse(&mut fields, foreign::MESSAGES)?;
    let tool_calls = tool_calls(&mut fields, unknown)?;
    let content = content(&mut fields, unknown)?;
    let only_calls = role == "assistant" && !tool_calls.is_empty();
    if content.is_none() && !only_calls {
        let path = fields.path("content");
        let message = format!("`{path}` is missing; expected a string, or an array of parts");
        return Err(ApiError::invalid(path, message));
    }
    let message = Message {
        role: role.to_owned(),
        content,
        reasoning_content: fields.string("reasoning_content")?,
        tool_calls,
        tool_call_id: fields.string("tool_call_id")?,
        name: fields.string("name")?,
    };
    fields.finish(unknown);
    Ok(message)
}

fn role(fields: &mut Fields) -> ApiResult<&'static str> {
    let names: Vec<_> = ROLES.iter().map(|(name, _)| *name).collect();
    let expected = format!("one of {}", names.join(", "));
    let given = fields.required("role", &expected)?;
    let known = ROLES.iter().find(|(name, _)| given == *name);
    known.map(|(_, role)| *role).ok_or_else(|| ApiError::out_of_range(fields.path("role"), &given, &expected))
}

/// Takes what is said: a text, or the texts of its parts, joined by line breaks.
fn content(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Option<String>> {
    let path = fields.path("content");
    let parts = match fields.take("content") {
        None => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(text)),
        Some(Value::Array(parts)) if !parts.is_empty() => parts,
        Some(other) => return Err(ApiError::out_of_range(path, &other, "a string, or an array of one part or more")),
    };
    let part = |(index, value)| {
        let mut part = Fields::of(format!("{path}[{index}]"), value)?;
        let kind = part.required("type", "\"text\"")?;
        if kind != "text" {
            return Err(ApiError::unsupported(part.path("type"), &kind, "\"text\": the model reads nothing else"));
        }
        let text = part.required("text", "a string")?;
        let Value::String(text) = text else {
            return Err(ApiError::out_of_range(part.path("text"), &text, "a string"));
        };
        part.finish(unknown);
        Ok(text)
    };
    let texts = parts.into_iter().enumerate().map(part).collect::<ApiResult<Vec<_>>>()?;
    Ok(Some(texts.join("\n")))
}

/// Takes the calls that an assistant made earlier.
fn tool_calls(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Vec<ToolCall>> {
    let path = fields.path("tool_calls");
    let calls = match fields.take("tool_calls") {
        None => return Ok(Vec::new()),
        Some(Value::Array(calls)) => calls,
        Some(other) => return Err(ApiError::out_of_range(path, &other, "an array of calls")),
    };
    let call = |(index, value)| {
        let mut call = Fields::of(format!("{path}[{index}]"), value)?;
        call.only("type", &json!("function"))?;
        call.without_effect(&["index"]);
        let id = call.string("id")?;
        let function = call.required("function", "an object")?;
        let mut function = Fields::of(call.path("function"), function)?;
        let name = function.required("name", "a string")?;
        let Value::String(name) = name else {
            return Err(ApiError::out_of_range(function.path("name"), &name, "a string"));
        };
        let arguments = arguments(&mut function)?;
        function.finish(unknown);
        call.finish(unknown);
        Ok(ToolCall { id, name, arguments })
    };
    calls.into_iter().enumerate().map(call).collect()
}

/// Takes a call's arguments, which the interface spells as a text of JSON, and templates want as an object.
fn arguments(function: &mut Fields) -> ApiResult<Value> {
    let expected = "a JSON object, as a string";
    let path = function.path("arguments");
    match function.take("arguments") {
        None => Ok(json!({})),
        Some(object @ Value::Object(_)) => Ok(object),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(json!({})),
        Some(value) => {
            let parsed = value.as_str().and_then(|text| serde_json::from_str(text).ok());
            parsed.filter(Value::is_object).ok_or_else(|| ApiError::out_of_range(path, &value, expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(value: &Value) -> ApiResult<Vec<Message>> {
        take(&mut Fields::of("", json!({"messages": value}))?, &mut Unknown::default())
    }

    #[test]
    fn texts_come_as_strings_or_in_parts() {
        let parts = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]);
        let read = messages(&json!([{"role": "developer", "content": "be brief"}, {"role": "user", "content": parts}]));
        let expected = [Message::new("system", "be brief"), Message::new("user", "one\ntwo")];
        assert_eq!(read.expect("well-formed"), expected);
    }

    #[test]
    fn earlier_calls_are_given_to_templates_as_objects() {
        let call = json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}});
        let read = messages(&json!([{"role": "assistant", "content": null, "tool_calls": [call]}]));
        let expected = ToolCall { id: Some("c1".into()), name: "f".into(), arguments: json!({"x": 1}) };
        assert_eq!(read.expect("well-formed")[0].tool_calls, [expected]);
    }

    #[test]
    fn what_is_malformed_is_refused_by_its_place() {
        let image = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
        let call = json!([{"function": {"name": "f", "arguments": "[1]"}}]);
        for (value, param) in [
            (json!([]), "messages"),
            (json!("hi"), "messages"),
            (json!(["hi"]), "messages[0]"),
            (json!([{"content": "hi"}]), "messages[0].role"),
            (json!([{"role": "wizard", "content": "hi"}]), "messages[0].role"),
            (json!([{"role": "user", "content": "a"}, {"role": "user"}]), "messages[1].content"),
            (json!([{"role": "user", "content": 7}]), "messages[0].content"),
            (json!([{"role": "user", "content": []}]), "messages[0].content"),
            (json!([{"role": "user", "content": image}]), "messages[0].content[0].type"),
            (json!([{"role": "assistant", "tool_calls": call}]), "messages[0].tool_calls[0].function.arguments"),
            (json!([{"role": "user", "content": "a", "audio": {"id": "x"}}]), "messages[0].audio"),
            (json!([{"role": "assistant", "content": "a", "prefix": true}]), "messages[0].prefix"),
        ] {
            let error = messages(&value).err().unwrap_or_else(|| panic!("{value} was taken"));
            assert_eq!(error.param.as_deref(), Some(param), "{value}");
        }
    }
}
