//! The conversation of a chat request, and its prompt.

use axum::http::StatusCode;
use muser_engine::chat_prompt;
use muser_text::template::{ChatTemplate, DateTime, Message, RenderOptions, TemplateError};
use serde_json::{Map, Value};

use super::now;
use crate::app::App;
use crate::fields::{Fields, Unknown};
use crate::foreign;
use crate::messages;
use crate::reply::{ApiError, ApiResult};
use crate::tools::ToolUse;

/// What is to be answered.
pub struct Conversation {
    /// In the form that the template takes.
    messages: Vec<Message>,
    options: RenderOptions,
    /// Functions that the model may call.
    pub tools: Option<ToolUse>,
}

impl Conversation {
    /// Takes the messages, the functions, and what the template is told.
    ///
    /// # Errors
    /// What of them is missing, unknown or of the wrong type.
    pub fn take(app: &App, fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Self> {
        foreign::refuse(fields, foreign::TEMPLATE)?;
        let messages = messages::take(fields, unknown)?;
        let tools = ToolUse::take(fields, unknown)?;
        let path = fields.path("chat_template_kwargs");
        let variables = match fields.take("chat_template_kwargs") {
            None => Map::new(),
            Some(Value::Object(variables)) => {
                if let Some(name) = ["messages", "tools"].into_iter().find(|&name| variables.contains_key(name)) {
                    let message = format!("`{path}` holds `{name}`, which the request says itself; leave it out there");
                    return Err(ApiError::invalid(format!("{path}.{name}"), message));
                }
                variables
            }
            Some(other) => return Err(ApiError::out_of_range(path, &other, "an object of variables for the template")),
        };
        let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(true);
        let now = Some(DateTime::from_unix(now() as i64, 0));
        let (messages, definitions) = match &app.dialect {
            Some(dialect) => dialect.prompt(&messages, tools.as_ref()),
            None => (messages, Vec::new()),
        };
        let options = RenderOptions { add_generation_prompt, tools: definitions, variables, now };
        Ok(Self { messages, options, tools })
    }

    /// The text of the prompt.
    ///
    /// # Errors
    /// There is no template, or it refuses the messages.
    pub fn text(&self, app: &App) -> ApiResult<String> {
        template(app)?.render(&self.messages, &self.options).map_err(|error| refused(&error))
    }

    /// The tokens of the prompt.
    ///
    /// # Errors
    /// As [`text`](Self::text), or it leaves out all that is said.
    pub fn prompt(&self, app: &App) -> ApiResult<Vec<u32>> {
        let prompt = chat_prompt(template(app)?, &app.served.tokenizer, &self.messages, &self.options);
        prompt.map_err(|error| match error {
            muser_engine::Error::Template(error) => refused(&error),
            muser_engine::Error::NothingRendered => {
                ApiError::invalid("messages", "the chat template leaves out all that the messages say")
            }
            error => crate::answer::failed(&error),
        })
    }
}

/// The reply where the template did not make a prompt. It is the messages' fault as far as can be told, but for what the
/// system did not give.
fn refused(error: &TemplateError) -> ApiError {
    match error {
        TemplateError::Thread(_) => ApiError::internal(error.to_string()),
        error => ApiError::invalid("messages", error.to_string()),
    }
}

fn template(app: &App) -> ApiResult<&ChatTemplate> {
    app.served.template.as_ref().ok_or_else(|| {
        let message = "the model has no chat template; /v1/completions continues a text without one";
        ApiError::new(StatusCode::BAD_REQUEST, "no_chat_template", message)
    })
}
