//! JSON schemas as requests give them.

use serde_json::{Map, Value, json};

/// Longest schema, written without spaces. Reading one nests as deep as its chains of references are long, about 25 bytes
/// of schema for each level.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// What may stand between two parts of JSON: nothing, a space, or a line break and an indentation. A model that is unsure
/// what to write next finds no endless run of spaces.
const WHITESPACE: &str = r"[ ]|\r?\n[ \t]{0,24}";

/// The key under which the compiler takes its own options.
const OPTIONS_KEY: &str = "x-guidance";

/// A schema of a size that can be compiled. Whether it can be is up to the compiler.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonSchema(Value);

impl JsonSchema {
    /// Checks what can be checked before compiling.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let Value::Object(fields) = schema else {
            return Err(format!("must be a JSON schema, an object, not {}", kind(schema)));
        };
        if fields.contains_key(OPTIONS_KEY) {
            return Err(format!("has the key {OPTIONS_KEY:?}, which is not supported"));
        }
        let size_bytes = schema.to_string().len();
        if size_bytes > MAX_SCHEMA_BYTES {
            return Err(format!("is {size_bytes} bytes long without spaces; the limit is {MAX_SCHEMA_BYTES}"));
        }
        Ok(Self(schema.clone()))
    }

    /// The schema of a function's arguments: [`new`](Self::new), and objects only. Absent, there are no arguments.
    ///
    /// # Errors
    ///
    /// What is wrong, in words.
    pub fn of_arguments(schema: Option<&Value>) -> Result<Self, String> {
        let Some(schema) = schema.filter(|schema| !schema.is_null()) else {
            return Ok(Self(json!({"type": "object", "properties": {}, "additionalProperties": false})));
        };
        let Self(mut schema) = Self::new(schema)?;
        let fields = schema.as_object_mut().expect("a schema is an object");
        match fields.get("type") {
            None => _ = fields.insert("type".to_owned(), json!("object")),
            Some(ty) if ty == "object" => {}
            Some(ty) => return Err(format!("has type {ty}; arguments are an object, so it must be \"object\"")),
        }
        Ok(Self(schema))
    }

    /// Any JSON object.
    pub fn any_object() -> Self {
        Self(json!({"type": "object"}))
    }

    /// The schema as the request gave it.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// The schema in the compiler's own form, with its options.
    pub(super) fn compiler_text(&self) -> String {
        let mut fields: Map<String, Value> = self.0.as_object().cloned().unwrap_or_default();
        fields.insert(OPTIONS_KEY.to_owned(), json!({"whitespace_pattern": WHITESPACE}));
        Value::Object(fields).to_string()
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
