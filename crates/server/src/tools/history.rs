//! Calls in the messages of a request.

use muser_text::template::ToolCall;
use serde_json::Value;

use crate::FieldError;

/// Reads `tool_calls` of an assistant's message; `param` is where it stands, such as `messages[2].tool_calls`. Null and absent
/// are none.
///
/// # Errors
///
/// What is missing or of the wrong type, by field: arguments are a string that holds a JSON object.
pub fn parse_tool_calls(calls: Option<&Value>, param: &str) -> Result<Vec<ToolCall>, FieldError> {
    let Some(calls) = calls.filter(|calls| !calls.is_null()) else { return Ok(Vec::new()) };
    let Some(calls) = calls.as_array() else { return Err(FieldError::new(param, "must be an array")) };
    let parse = |(index, call): (usize, &Value)| {
        let at = |name: &str| format!("{param}[{index}]{name}");
        let text = |pointer: &str| call.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        if call.get("type").is_some_and(|ty| ty != "function") {
            return Err(FieldError::new(at(".type"), "must be \"function\""));
        }
        let id = text("/id").ok_or_else(|| FieldError::new(at(".id"), "must be a string"))?;
        let name = text("/function/name").ok_or_else(|| FieldError::new(at(".function.name"), "must be a string"))?;
        let arguments = text("/function/arguments").unwrap_or_default();
        let arguments: Value = serde_json::from_str(&arguments).unwrap_or_default();
        if !arguments.is_object() {
            return Err(FieldError::new(at(".function.arguments"), "must be a string that holds a JSON object"));
        }
        Ok(ToolCall { id: Some(id), name, arguments })
    };
    calls.iter().enumerate().map(parse).collect()
}
