//! `response_format` of a chat request.

use serde_json::Value;

use super::{Grammar, GrammarError, JsonSchema};
use crate::FieldError;

/// The form that an answer's text must have.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ResponseFormat {
    /// Any text.
    #[default]
    Text,
    /// A JSON object.
    JsonObject,
    /// A JSON value of a schema. It is held to the schema whether or not the request calls it strict.
    JsonSchema(JsonSchema),
}

const PARAM: &str = "response_format";
const SCHEMA_PARAM: &str = "response_format.json_schema.schema";

impl ResponseFormat {
    /// Reads the field; null and absent are [`Text`](Self::Text).
    ///
    /// # Errors
    ///
    /// What is missing, unknown or of the wrong type, by field.
    pub fn parse(value: Option<&Value>) -> Result<Self, FieldError> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Self::Text) };
        let refused = |param: &str, message: String| Err(FieldError::new(param, message));
        let Some(fields) = value.as_object() else { return refused(PARAM, "must be an object".to_owned()) };
        match fields.get("type").and_then(Value::as_str) {
            Some("text") => return Ok(Self::Text),
            Some("json_object") => return Ok(Self::JsonObject),
            Some("json_schema") => {}
            _ => {
                let found = fields.get("type").unwrap_or(&Value::Null);
                let message = format!("is {found}; must be \"text\", \"json_object\" or \"json_schema\"");
                return refused("response_format.type", message);
            }
        }
        let Some(schema) = fields.get("json_schema").and_then(Value::as_object) else {
            return refused("response_format.json_schema", "must be an object with name and schema".to_owned());
        };
        if !schema.get("name").and_then(Value::as_str).is_some_and(is_name) {
            let message = "must be 1 to 64 letters, digits, underscores or dashes".to_owned();
            return refused("response_format.json_schema.name", message);
        }
        if schema.get("strict").is_some_and(|strict| !strict.is_null() && !strict.is_boolean()) {
            return refused("response_format.json_schema.strict", "must be true or false".to_owned());
        }
        let schema = schema.get("schema").unwrap_or(&Value::Null);
        JsonSchema::new(schema).map(Self::JsonSchema).map_err(|message| FieldError::new(SCHEMA_PARAM, message))
    }

    /// The schema that the answer's text must follow, if any.
    pub fn schema(&self) -> Option<JsonSchema> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(JsonSchema::any_object()),
            Self::JsonSchema(schema) => Some(schema.clone()),
        }
    }

    /// The grammar of the answer, if it has one.
    pub fn grammar(&self) -> Option<Grammar> {
        self.schema().map(|schema| Grammar::of_json(&schema))
    }

    /// Says which field a grammar that could not be compiled came from.
    pub fn field_error(error: &GrammarError) -> FieldError {
        FieldError::new(SCHEMA_PARAM, error.to_string())
    }
}

/// Whether a text is a name as `OpenAI`'s interface has them.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
