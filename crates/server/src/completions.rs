//! `/v1/completions`: texts and tokens are continued as they are.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use muser_text::{Affixes, Special};
use serde_json::{Map, Value, json};

use crate::answer::{Piece, Scored};
use crate::app::App;
use crate::body;
use crate::chat::now;
use crate::exchange::SaidAll;
use crate::fields::{Fields, Unknown};
use crate::foreign;
use crate::json::Counted;
use crate::prepared::{Choice, Head, Prepared, collect};
use crate::reply::{ApiError, ApiResult};
use crate::settings::{Bounds, MAX_TOP_LOGPROBS, Settings, max_tokens, token_ids};
use crate::stream::{Chunks, stream};
use crate::trace::Id;

/// Most tokens of an answer where a request does not say, as in the interface.
const DEFAULT_MAX_TOKENS: usize = 16;
/// Most prompts of a request.
const MAX_PROMPTS: usize = 2048;

/// Continues prompts.
pub async fn complete(
    State(app): State<Arc<App>>,
    Extension(id): Extension<Id>,
    Extension(said_all): Extension<SaidAll>,
    headers: HeaderMap,
    body: Body,
) -> ApiResult<Response> {
    let prepared = body::parse(&app, &headers, body, Some(("prompt", Counted::Numbers)), prepare).await?;
    let Prepared { settings, headers, prompts } = &prepared;
    let (n_choice, stream_options, headers) = (prompts.len() * settings.n, settings.stream, headers.clone());
    let is_scored = settings.top_logprobs.is_some();
    let model = app.model().to_owned();
    let head = Head { id: format!("cmpl-{id}"), object: "text_completion", created: now(), model };
    let answers = prepared.submit(&app)?;
    if let Some(options) = stream_options {
        return Ok((headers, stream(answers, head, options, said_all, TextChunks { is_scored })).into_response());
    }
    let (choices, usage) = collect(answers, n_choice).await?;
    let choice = |(index, choice): (usize, Choice)| {
        let Choice { text, scored, finish } = choice;
        json!({
            "index": index,
            "text": text,
            "logprobs": logprobs(is_scored, &scored),
            "finish_reason": finish,
        })
    };
    let choices: Vec<_> = choices.into_iter().enumerate().map(choice).collect();
    let mut document = head.document(&choices);
    document["usage"] = usage.json();
    Ok((headers, Json(document)).into_response())
}

fn prepare(app: &App, mut fields: Fields) -> ApiResult<Prepared> {
    let mut unknown = Unknown::default();
    app.take_model(&mut fields)?;
    let special = if fields.flag("parse_special")? { Special::Parse } else { Special::Plain };
    let prompts = take_prompts(app, &mut fields, "prompt", special, MAX_PROMPTS)?;
    let bounds = Bounds { max_n: app.n_slot(), n_vocab: app.n_vocab() };
    let mut settings = Settings::take(&mut fields, bounds, &mut unknown)?;
    settings.max_tokens = max_tokens(&mut fields, "max_tokens")?.or(Some(DEFAULT_MAX_TOKENS));
    let top_logprobs = fields.integer("logprobs", 0..=MAX_TOP_LOGPROBS)?;
    settings.top_logprobs = top_logprobs.map(|top| top as usize);
    fields.only("best_of", &json!(settings.n))?;
    foreign::refuse(&mut fields, foreign::OF_CHATS)?;
    foreign::refuse(&mut fields, foreign::TEMPLATE)?;
    fields.finish(&mut unknown);
    let headers = app.judge(&unknown)?;
    Prepared::new(app, "prompt", prompts, settings, headers)
}

/// Takes a text, tokens, or an array of either.
///
/// # Errors
/// It is something else, or there are none or too many.
pub fn take_prompts(
    app: &App,
    fields: &mut Fields,
    name: &str,
    special: Special<'_>,
    most: usize,
) -> ApiResult<Vec<Vec<u32>>> {
    const EXPECTED: &str = "a string, an array of token ids, or an array of either";
    let path = fields.path(name);
    let encode = |text: &str| app.served.tokenizer.encode(text, special, Affixes::Model);
    let values = match fields.required(name, EXPECTED)? {
        Value::String(text) => return Ok(vec![encode(&text)]),
        Value::Array(values) if values.is_empty() => {
            return Err(ApiError::invalid(&path, format!("`{path}` is empty; expected {EXPECTED}")));
        }
        Value::Array(values) => values,
        other => return Err(ApiError::out_of_range(path, &other, EXPECTED)),
    };
    if values[0].is_number() {
        return Ok(vec![token_ids(&path, &values, app.n_vocab())?]);
    }
    if values.len() > most {
        let message = format!("`{path}` has {} elements; expected at most {most}", values.len());
        return Err(ApiError::invalid(path, message));
    }
    let prompt = |(index, value): (usize, &Value)| match value {
        Value::String(text) => Ok(encode(text)),
        Value::Array(ids) => token_ids(&format!("{path}[{index}]"), ids, app.n_vocab()),
        other => Err(ApiError::out_of_range(format!("{path}[{index}]"), other, "a string, or an array of token ids")),
    };
    values.iter().enumerate().map(prompt).collect()
}

/// Pieces as the interface streams them.
struct TextChunks {
    is_scored: bool,
}

impl Chunks for TextChunks {
    fn chunks(&mut self, piece: Piece) -> Vec<Value> {
        let Piece { choice, text, scored, finish } = piece;
        let logprobs = logprobs(self.is_scored && !scored.is_empty(), &scored);
        vec![json!({"index": choice, "text": text, "logprobs": logprobs, "finish_reason": finish})]
    }
}

fn logprobs(is_scored: bool, scored: &[Scored]) -> Value {
    if !is_scored {
        return Value::Null;
    }
    let each = |value: &dyn Fn(&Scored) -> Value| scored.iter().map(value).collect::<Vec<_>>();
    let top = |scored: &Scored| {
        let mut map = Map::new();
        for (token, logprob) in &scored.top {
            // Tokens whose texts look alike share an entry, as in the interface; the likelier one is listed.
            map.entry(token.text()).or_insert_with(|| json!(logprob));
        }
        Value::Object(map)
    };
    json!({
        "tokens": each(&|scored| json!(scored.token.text())),
        "token_logprobs": each(&|scored| json!(scored.logprob)),
        "top_logprobs": each(&top),
        "text_offset": each(&|scored| json!(scored.offset)),
    })
}
