//! JSON schemas as requests give them.

use serde_json::{Map, Value, json};

use super::rewrite;
use crate::reply::{ApiError, ApiResult};

/// Longest schema, written without spaces: several times the longest in use.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// What may stand between two parts of JSON: nothing, a space, or a line break and an indentation. A model that is unsure
/// what to write next finds no endless run of spaces.
const WHITESPACE: &str = r"[ ]|\r?\n[ \t]{0,24}";

/// The key under which the compiler takes its own options.
const OPTIONS_KEY: &str = "x-guidance";

/// A schema of a size that can be compiled. Whether it can be is up to the compiler.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonSchema {
    given: Value,
    compiled: Value,
}

impl JsonSchema {
    /// Checks what can be checked before compiling; the schema stands at `param`.
    ///
    /// # Errors
    /// It is no object, too long, or has a key that is not for clients.
    pub fn new(param: &str, schema: Value) -> ApiResult<Self> {
        let Value::Object(fields) = &schema else {
            return Err(ApiError::out_of_range(param, &schema, "a JSON schema, as an object"));
        };
        if let Some(options) = fields.get(OPTIONS_KEY) {
            return Err(ApiError::unsupported(format!("{param}.{OPTIONS_KEY}"), options, "the key left out"));
        }
        let size_bytes = schema.to_string().len();
        if size_bytes > MAX_SCHEMA_BYTES {
            let message =
                format!("`{param}` takes {size_bytes} bytes without spaces; expected at most {MAX_SCHEMA_BYTES}");
            return Err(ApiError::invalid(param, message));
        }
        Ok(Self::of(schema))
    }

    fn of(given: Value) -> Self {
        Self { compiled: rewrite::compiled(&given), given }
    }

    /// The schema of a function's arguments, which are an object. Absent, there are none.
    ///
    /// # Errors
    /// As [`new`](Self::new), or it is not of an object.
    pub fn of_arguments(param: &str, schema: Option<Value>) -> ApiResult<Self> {
        let Some(schema) = schema else {
            return Ok(Self::of(json!({"type": "object", "properties": {}, "additionalProperties": false})));
        };
        let Self { given: mut schema, .. } = Self::new(param, schema)?;
        match schema.get("type") {
            None => schema["type"] = json!("object"),
            Some(ty) if ty == "object" => {}
            Some(ty) => return Err(ApiError::out_of_range(format!("{param}.type"), ty, "\"object\"")),
        }
        Ok(Self::of(schema))
    }

    /// Any JSON object.
    pub fn any_object() -> Self {
        Self::of(json!({"type": "object"}))
    }

    /// The schema as the request gave it.
    pub fn value(&self) -> &Value {
        &self.given
    }

    /// The schema in the compiler's words.
    pub fn compiled(&self) -> &Value {
        &self.compiled
    }

    /// The schema as the compiler reads it, with its options.
    pub fn compiler_text(&self) -> String {
        let mut fields: Map<String, Value> = self.compiled.as_object().cloned().unwrap_or_default();
        fields.insert(OPTIONS_KEY.to_owned(), json!({"whitespace_pattern": WHITESPACE}));
        Value::Object(fields).to_string()
    }
}
