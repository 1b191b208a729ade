//! `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use muser_text::{Affixes, DecodeOptions, Special};
use serde_json::{Value, json};

use crate::app::App;
use crate::body;
use crate::fields::Unknown;
use crate::foreign;
use crate::reply::{ApiError, ApiResult};
use crate::settings::token_ids;

/// The tokens of a text.
pub async fn tokenize(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Response> {
    let (tokens, headers) = body::parse(&app, &headers, body, None, |app, mut fields| {
        let mut unknown = Unknown::default();
        app.take_model(&mut fields)?;
        let content = fields.required("content", "a string")?;
        let Value::String(text) = content else {
            return Err(ApiError::out_of_range("content", &content, "a string"));
        };
        let special = if fields.flag("parse_special")? { Special::Parse } else { Special::Plain };
        let affixes = if fields.flag("add_special")? { Affixes::Model } else { Affixes::None };
        let with_pieces = fields.flag("with_pieces")?;
        foreign::refuse(&mut fields, foreign::TOKENS)?;
        fields.finish(&mut unknown);
        let headers = app.judge(&unknown)?;
        let tokenizer = &app.served.tokenizer;
        let ids = tokenizer.encode(&text, special, affixes);
        let piece = |id: &u32| {
            let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
            // What is no text by itself is shown as it is.
            let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
            json!({"id": id, "piece": piece})
        };
        let tokens = if with_pieces { ids.iter().map(piece).collect() } else { json!(ids) };
        Ok((tokens, headers))
    })
    .await?;
    Ok((headers, Json(json!({"tokens": tokens}))).into_response())
}

/// The text of tokens.
pub async fn detokenize(State(app): State<Arc<App>>, headers: HeaderMap, body: Body) -> ApiResult<Response> {
    let (text, headers) = body::parse(&app, &headers, body, None, |app, mut fields| {
        const EXPECTED: &str = "an array of token ids";
        let mut unknown = Unknown::default();
        app.take_model(&mut fields)?;
        let tokens = fields.required("tokens", EXPECTED)?;
        let Value::Array(values) = tokens else {
            return Err(ApiError::out_of_range("tokens", &tokens, EXPECTED));
        };
        let ids = token_ids("tokens", &values, app.n_vocab())?;
        let options = DecodeOptions { special: fields.flag("special")?, ..DecodeOptions::default() };
        foreign::refuse(&mut fields, foreign::TOKENS)?;
        fields.finish(&mut unknown);
        let headers = app.judge(&unknown)?;
        let text = app.served.tokenizer.decode(&ids, options);
        Ok((text.map_err(|error| ApiError::invalid("tokens", error.to_string()))?, headers))
    })
    .await?;
    Ok((headers, Json(json!({"content": text}))).into_response())
}
