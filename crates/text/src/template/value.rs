//! Messages, tools and variables as values of the template engine.

use std::collections::HashSet;

use minijinja::Value;
use serde_json::{Map, Value as Json};

use super::{MAX_VALUE_DEPTH, Message, TemplateError, origin::Disguise, scan::is_word_char};

/// Roles that templates know. Some templates build the control token from the role (`'<|' + role + '|>'`), so these words
/// are the template's, not the caller's.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

/// Turns what the caller gave into values, in disguise or plain.
pub(super) struct Values<'a> {
    pub disguise: Option<&'a Disguise>,
    /// The template's words. Keys and values of structured data (tools, calls, variables) that are one of them stay as
    /// they are, since the template may look for them: `parameter.type == 'string'`. A choice among the template's own
    /// words is not free text.
    pub words: &'a HashSet<String>,
}

impl Values<'_> {
    /// A message; absent fields are absent, not none, except the content.
    pub(super) fn message(&self, message: &Message) -> Result<Value, TemplateError> {
        let mut fields = vec![
            ("role", self.role(&message.role)),
            ("content", message.content.as_deref().map_or(Value::from(()), |text| self.text(text))),
        ];
        if let Some(text) = &message.reasoning_content {
            fields.push(("reasoning_content", self.text(text)));
        }
        if let Some(text) = &message.name {
            fields.push(("name", self.text(text)));
        }
        if let Some(text) = &message.tool_call_id {
            fields.push(("tool_call_id", self.text(text)));
        }
        if !message.tool_calls.is_empty() {
            let calls = message.tool_calls.iter().map(|call| {
                let mut fields = Vec::with_capacity(3);
                if let Some(id) = &call.id {
                    fields.push(("id", self.text(id)));
                }
                fields.push(("type", Value::from("function")));
                let arguments = self.json(&call.arguments, 0)?;
                fields.push(("function", map([("name", self.word(&call.name)), ("arguments", arguments)])));
                Ok(map(fields))
            });
            fields.push(("tool_calls", Value::from(calls.collect::<Result<Vec<_>, TemplateError>>()?)));
        }
        Ok(map(fields))
    }

    /// Free text.
    pub(super) fn text(&self, text: &str) -> Value {
        match self.disguise {
            // A text that is one of the template's literals may be compared with it.
            Some(disguise) if disguise.keeps_literals() => self.word(text),
            Some(disguise) => Value::from(disguise.hide(text)),
            None => Value::from(text),
        }
    }

    fn role(&self, role: &str) -> Value {
        if ROLES.contains(&role) { Value::from(role) } else { self.word(role) }
    }

    /// A key or value of structured data.
    fn word(&self, text: &str) -> Value {
        let disguise = self.disguise.filter(|_| !(text.chars().all(is_word_char) && self.words.contains(text)));
        match disguise {
            Some(disguise) => Value::from(disguise.hide(text)),
            None => Value::from(text),
        }
    }

    /// Structured data, `depth` levels down.
    ///
    /// # Errors
    ///
    /// [`TemplateError::ValueTooDeep`].
    pub(super) fn json(&self, json: &Json, depth: usize) -> Result<Value, TemplateError> {
        if depth > MAX_VALUE_DEPTH {
            return Err(TemplateError::ValueTooDeep { max: MAX_VALUE_DEPTH });
        }
        Ok(match json {
            Json::Null => Value::from(()),
            Json::Bool(value) => Value::from(*value),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::from(value),
                (None, Some(value)) => Value::from(value),
                (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => self.word(text),
            Json::Array(items) => {
                Value::from(items.iter().map(|item| self.json(item, depth + 1)).collect::<Result<Vec<_>, _>>()?)
            }
            Json::Object(fields) => self.object(fields, depth)?,
        })
    }

    fn object(&self, fields: &Map<String, Json>, depth: usize) -> Result<Value, TemplateError> {
        let pair = |(key, value): (&String, &Json)| Ok((self.word(key), self.json(value, depth + 1)?));
        Ok(Value::from_pairs(fields.iter().map(pair).collect::<Result<Vec<_>, TemplateError>>()?))
    }
}

fn map(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::from_pairs(fields)
}

/// Every text of `json`, keys included.
pub(super) fn texts<'a>(json: &'a Json, depth: usize, out: &mut Vec<&'a str>) {
    if depth > MAX_VALUE_DEPTH {
        return;
    }
    match json {
        Json::String(text) => out.push(text),
        Json::Array(items) => items.iter().for_each(|item| texts(item, depth + 1, out)),
        Json::Object(fields) => {
            for (key, value) in fields {
                out.push(key);
                texts(value, depth + 1, out);
            }
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
