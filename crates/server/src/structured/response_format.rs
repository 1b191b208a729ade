//! `response_format` of a chat request.

use super::JsonSchema;
use crate::fields::{Fields, Unknown};
use crate::foreign;
use crate::reply::{ApiError, ApiResult};

/// Where a schema for the answer stands in a request.
pub const SCHEMA_PARAM: &str = "response_format.json_schema.schema";

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

impl ResponseFormat {
    /// Takes the field.
    ///
    /// # Errors
    /// What of it is missing, unknown or of the wrong type.
    pub fn take(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Self> {
        const EXPECTED: &str = "\"text\", \"json_object\" or \"json_schema\"";
        let Some(mut fields) = fields.object("response_format")? else { return Ok(Self::Text) };
        let kind = fields.required("type", EXPECTED)?;
        let format = match kind.as_str() {
            Some("text") => Self::Text,
            Some("json_object") => Self::JsonObject,
            Some("json_schema") => {
                let schema = fields.required("json_schema", "an object with name and schema")?;
                Self::JsonSchema(take_schema(Fields::of(fields.path("json_schema"), schema)?, unknown)?)
            }
            _ => return Err(ApiError::out_of_range(fields.path("type"), &kind, EXPECTED)),
        };
        foreign::refuse(&mut fields, foreign::FORMATS)?;
        fields.finish(unknown);
        Ok(format)
    }

    /// The schema that the answer's text must follow, if any.
    pub fn schema(self) -> Option<JsonSchema> {
        match self {
            Self::Text => None,
            Self::JsonObject => Some(JsonSchema::any_object()),
            Self::JsonSchema(schema) => Some(schema),
        }
    }
}

fn take_schema(mut fields: Fields, unknown: &mut Unknown) -> ApiResult<JsonSchema> {
    fields.name("name")?;
    fields.string("description")?;
    fields.boolean("strict")?;
    let schema = fields.required("schema", "a JSON schema")?;
    let schema = JsonSchema::new(&fields.path("schema"), schema)?;
    fields.finish(unknown);
    Ok(schema)
}
