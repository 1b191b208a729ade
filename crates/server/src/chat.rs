//! `/v1/chat/completions` and `/apply-template`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use muser_engine::chat_prompt;
use muser_text::template::{ChatTemplate, DateTime, Message, RenderOptions, TemplateError};
use serde_json::{Value, json};

use crate::answer::{Piece, Scored};
use crate::app::App;
use crate::body;
use crate::fields::{Fields, Unknown};
use crate::messages;
use crate::prepared::{Choice, Head, Prepared, collect};
use crate::reply::{ApiError, ApiResult};
use crate::settings::{Bounds, MAX_TOP_LOGPROBS, Settings, max_tokens};
use crate::stream::{Chunks, stream};
use crate::trace::Id;

/// Answers a conversation.
pub async fn complete(
    State(app): State<Arc<App>>,
    Extension(id): Extension<Id>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let prepared = body::parse(&app, &headers, body, prepare).await?;
    let Prepared { settings, headers, .. } = &prepared;
    let (n, stream_options, headers) = (settings.n, settings.stream, headers.clone());
    let is_scored = settings.top_logprobs.is_some();
    let head = |object| Head { id: format!("chatcmpl-{id}"), object, created: now(), model: app.model().to_owned() };
    let answers = prepared.submit(&app)?;
    if let Some(options) = stream_options {
        let chunks = ChatChunks { begun: vec![false; n], is_scored };
        return Ok((headers, stream(answers, head("chat.completion.chunk"), options, chunks)).into_response());
    }
    let (choices, usage) = collect(answers, n).await?;
    let choice = |(index, choice): (usize, Choice)| {
        json!({
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": null},
            "logprobs": logprobs(is_scored, &choice.scored),
            "finish_reason": choice.finish,
        })
    };
    let choices: Vec<_> = choices.into_iter().enumerate().map(choice).collect();
    let mut document = head("chat.completion").document(&choices);
    document["usage"] = usage.json();
    Ok((headers, Json(document)).into_response())
}

/// Shows the prompt that a conversation comes to.
pub async fn apply_template(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Response> {
    let (text, headers) = body::parse(&app, &headers, body, |app, mut fields| {
        let mut unknown = Unknown::default();
        app.take_model(&mut fields)?;
        let conversation = Conversation::take(&mut fields, &mut unknown)?;
        fields.finish(&mut unknown);
        let headers = app.judge(&unknown)?;
        let template = template(app)?;
        let rendered = template.render(&conversation.messages, &conversation.options);
        Ok((rendered.map_err(|error| refused(&error))?, headers))
    })
    .await?;
    Ok((headers, Json(json!({"prompt": text}))).into_response())
}

fn prepare(app: &App, mut fields: Fields) -> ApiResult<Prepared> {
    let mut unknown = Unknown::default();
    app.take_model(&mut fields)?;
    let conversation = Conversation::take(&mut fields, &mut unknown)?;
    let bounds = Bounds { max_n: app.n_slot(), n_vocab: app.n_vocab() };
    let mut settings = Settings::take(&mut fields, bounds, &mut unknown)?;
    settings.max_tokens = chat_max_tokens(&mut fields)?;
    settings.top_logprobs = top_logprobs(&mut fields)?;
    refuse_what_is_not_done(&mut fields, &mut unknown)?;
    fields.finish(&mut unknown);
    let headers = app.judge(&unknown)?;
    let prompt = conversation.prompt(app)?;
    Prepared::new(app, "messages", vec![prompt], settings, headers)
}

/// Takes what asks for more than text that is not held to any form.
fn refuse_what_is_not_done(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<()> {
    fields.only("modalities", &json!(["text"]))?;
    fields.only("tools", &json!([]))?;
    fields.only("tool_choice", &json!("none"))?;
    fields.only("functions", &json!([]))?;
    fields.only("function_call", &json!("none"))?;
    fields.without_effect(&["parallel_tool_calls"]);
    for name in ["audio", "reasoning_effort", "verbosity", "web_search_options", "documents", "chat_template"] {
        fields.only(name, &Value::Null)?;
    }
    fields.only("continue_final_message", &json!(false))?;
    if let Some(mut format) = fields.object("response_format")? {
        format.only("type", &json!("text"))?;
        format.finish(unknown);
    }
    Ok(())
}

/// What is to be answered.
struct Conversation {
    messages: Vec<Message>,
    options: RenderOptions,
}

impl Conversation {
    fn take(fields: &mut Fields, unknown: &mut Unknown) -> ApiResult<Self> {
        let messages = messages::take(fields, unknown)?;
        let path = fields.path("chat_template_kwargs");
        let variables = match fields.take("chat_template_kwargs") {
            None => serde_json::Map::new(),
            Some(Value::Object(variables)) => variables,
            Some(other) => return Err(ApiError::out_of_range(path, &other, "an object of variables for the template")),
        };
        let add_generation_prompt = fields.boolean("add_generation_prompt")?.unwrap_or(true);
        let now = Some(DateTime::from_unix(now() as i64, 0));
        let options = RenderOptions { add_generation_prompt, variables, now, ..RenderOptions::default() };
        Ok(Self { messages, options })
    }

    fn prompt(&self, app: &App) -> ApiResult<Vec<u32>> {
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

/// Takes the limit on tokens, by either of its names.
fn chat_max_tokens(fields: &mut Fields) -> ApiResult<Option<usize>> {
    let old = max_tokens(fields, "max_tokens")?;
    let new = max_tokens(fields, "max_completion_tokens")?;
    match (old, new) {
        (Some(old), Some(new)) if old != new => {
            let message = format!("`max_tokens` is {old} and `max_completion_tokens` is {new}; expected one of them");
            Err(ApiError::invalid("max_tokens", message))
        }
        (old, new) => Ok(new.or(old)),
    }
}

fn top_logprobs(fields: &mut Fields) -> ApiResult<Option<usize>> {
    let is_wanted = fields.flag("logprobs")?;
    let top = fields.integer("top_logprobs", 0..=MAX_TOP_LOGPROBS)?;
    if top.is_some_and(|top| top > 0) && !is_wanted {
        let message = "`top_logprobs` is only allowed where `logprobs` is true";
        return Err(ApiError::invalid("top_logprobs", message));
    }
    Ok(is_wanted.then_some(top.unwrap_or(0) as usize))
}

/// Pieces as the chat interface streams them.
struct ChatChunks {
    /// Whether a choice has said who speaks.
    begun: Vec<bool>,
    is_scored: bool,
}

impl Chunks for ChatChunks {
    fn chunks(&mut self, piece: Piece) -> Vec<Value> {
        let Piece { choice, text, scored, finish } = piece;
        let chunk = |delta: Value, scored: &[Scored], finish: Option<&str>| {
            let logprobs = logprobs(self.is_scored && !scored.is_empty(), scored);
            json!({"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish})
        };
        let mut chunks = Vec::new();
        if !self.begun[choice] {
            chunks.push(chunk(json!({"role": "assistant", "content": ""}), &[], None));
        }
        if !text.is_empty() || !scored.is_empty() {
            chunks.push(chunk(json!({"content": text}), &scored, None));
        }
        if finish.is_some() {
            chunks.push(chunk(json!({}), &[], finish));
        }
        self.begun[choice] = true;
        chunks
    }
}

fn logprobs(is_scored: bool, scored: &[Scored]) -> Value {
    if !is_scored {
        return Value::Null;
    }
    json!({"content": scored.iter().map(Scored::chat_json).collect::<Vec<_>>(), "refusal": null})
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
