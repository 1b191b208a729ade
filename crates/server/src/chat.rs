//! `/v1/chat/completions` and `/apply-template`.

mod conversation;
mod reply;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::json;

use crate::app::App;
use crate::body;
use crate::exchange::SaidAll;
use crate::fields::{Fields, Unknown};
use crate::foreign;
use crate::json::Counted;
use crate::prepared::{Head, Prepared, collect};
use crate::reply::{ApiError, ApiResult};
use crate::settings::{Bounds, MAX_TOP_LOGPROBS, Settings, fresh_seed, max_tokens};
use crate::stream::stream;
use crate::structured::{Grammar, GrammarConstraint, ResponseFormat, SCHEMA_PARAM};
use crate::tools::{CallIds, CallParser, Dialect, ToolUse};
use crate::trace::Id;
use conversation::Conversation;
use reply::Choices;

/// Answers a conversation.
pub async fn complete(
    State(app): State<Arc<App>>,
    Extension(id): Extension<Id>,
    Extension(said_all): Extension<SaidAll>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let (prepared, parsers) = body::parse(&app, &headers, body, Some(("messages", Counted::Elements)), prepare).await?;
    let Prepared { settings, headers, .. } = &prepared;
    let (n, stream_options, headers) = (settings.n, settings.stream, headers.clone());
    let mut choices = Choices::new(parsers, settings.top_logprobs.is_some());
    let head = |object| Head { id: format!("chatcmpl-{id}"), object, created: now(), model: app.model().to_owned() };
    let answers = prepared.submit(&app)?;
    if let Some(options) = stream_options {
        return Ok(
            (headers, stream(answers, head("chat.completion.chunk"), options, said_all, choices)).into_response()
        );
    }
    let (answered, usage) = collect(answers, n).await?;
    let answered = answered.into_iter().enumerate().map(|(index, choice)| choices.whole(index, choice));
    let mut document = head("chat.completion").document(&answered.collect::<Vec<_>>());
    document["usage"] = usage.json();
    Ok((headers, Json(document)).into_response())
}

/// Shows the prompt that a conversation comes to.
pub async fn apply_template(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Response> {
    let (text, headers) = body::parse(&app, &headers, body, None, |app, mut fields| {
        let mut unknown = Unknown::default();
        app.take_model(&mut fields)?;
        let conversation = Conversation::take(app, &mut fields, &mut unknown)?;
        fields.finish(&mut unknown);
        Ok((conversation.text(app)?, app.judge(&unknown)?))
    })
    .await?;
    Ok((headers, Json(json!({"prompt": text}))).into_response())
}

/// Reads a request. Returns with it what finds calls in each choice's answer.
fn prepare(app: &App, mut fields: Fields) -> ApiResult<(Prepared, Vec<Option<CallParser>>)> {
    let mut unknown = Unknown::default();
    app.take_model(&mut fields)?;
    let conversation = Conversation::take(app, &mut fields, &mut unknown)?;
    let format = ResponseFormat::take(&mut fields, &mut unknown)?;
    let bounds = Bounds { max_n: app.n_slot(), n_vocab: app.n_vocab() };
    let mut settings = Settings::take(&mut fields, bounds, &mut unknown)?;
    settings.max_tokens = chat_max_tokens(&mut fields)?;
    settings.top_logprobs = top_logprobs(&mut fields)?;
    fields.only("best_of", &json!(settings.n))?;
    foreign::refuse(&mut fields, foreign::OF_COMPLETIONS)?;
    fields.finish(&mut unknown);
    let headers = app.judge(&unknown)?;
    let prompt = conversation.prompt(app)?;
    let tools = conversation.tools.as_ref();
    settings.constraint = constraint(app, format, tools)?;
    settings.special = tools.is_some() && app.dialect.as_ref().is_some_and(Dialect::needs_control_tokens);
    let parsers = parsers(app, tools, settings.n);
    Ok((Prepared::new(app, "messages", vec![prompt], settings, headers)?, parsers))
}

/// What answers are held to.
fn constraint(app: &App, format: ResponseFormat, tools: Option<&ToolUse>) -> ApiResult<Option<GrammarConstraint>> {
    let schema = format.schema();
    match (tools.zip(app.dialect.as_ref()), schema) {
        (Some((tools, dialect)), schema) => dialect.compile(&app.grammars, tools, schema.as_ref()).map(Some),
        (None, Some(schema)) => {
            let compiled = app.grammars.compile(&Grammar::of_json(&schema));
            compiled.map(Some).map_err(|error| error.reply(SCHEMA_PARAM))
        }
        (None, None) => Ok(None),
    }
}

fn parsers(app: &App, tools: Option<&ToolUse>, n: usize) -> Vec<Option<CallParser>> {
    let seed = fresh_seed();
    let parser = |choice: usize| {
        let (tools, dialect) = tools.zip(app.dialect.as_ref())?;
        let ids = CallIds::new(dialect.format(), seed.wrapping_add(choice as u64));
        Some(CallParser::new(dialect.format(), tools, ids))
    };
    (0..n).map(parser).collect()
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

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
