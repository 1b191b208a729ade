//! What the server says of itself: `/v1/models`, `/slots`, `/props`, `/health`.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::app::App;
use crate::reply::{ApiError, ApiResult};

/// How long the engine has to show that it moves. A step over a full batch takes less on any machine that is of use.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The models there are: one.
pub async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [model_json(&app)]}))
}

/// One model, by any of its names.
pub async fn model(State(app): State<Arc<App>>, name: Result<Path<String>, PathRejection>) -> ApiResult<Json<Value>> {
    let Path(name) = name.map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, "invalid_http", error.body_text()))?;
    if app.served.names.contains(&name) { Ok(Json(model_json(&app))) } else { Err(app.no_such_model(&name)) }
}

fn model_json(app: &App) -> Value {
    json!({"id": app.model(), "object": "model", "created": app.started, "owned_by": "muser"})
}

/// What each slot does.
pub async fn slots(State(app): State<Arc<App>>) -> Json<Value> {
    let status = app.served.service.status();
    let slot = |(id, slot): (usize, &muser_engine::service::SlotStatus)| {
        json!({
            "id": id,
            "state": slot.state.name(),
            "n_ctx": status.n_ctx,
            "n_held": slot.n_held,
            "n_prompt": slot.n_prompt,
            "n_reused": slot.n_reused,
            "n_generated": slot.n_generated,
            "request": slot.request.map(|id| id.to_string()),
        })
    };
    Json(status.slots.iter().enumerate().map(slot).collect())
}

/// What is served, and how.
pub async fn props(State(app): State<Arc<App>>) -> Json<Value> {
    let status = app.served.service.status();
    let tokenizer = &app.served.tokenizer;
    let text = |id: Option<u32>| {
        let bytes = id.and_then(|id| tokenizer.token_bytes(id));
        bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let mut document = json!({
        "model": app.model(),
        "names": app.served.names,
        "version": env!("CARGO_PKG_VERSION"),
        "n_ctx": status.n_ctx,
        "n_slot": status.slots.len(),
        "n_batch": status.n_batch,
        "n_vocab": tokenizer.n_vocab(),
        "backend": status.backend,
        "queue": {"n_waiting": status.n_waiting, "max_queue": status.max_queue},
        "kv": {"used_bytes": status.kv_used_bytes, "planned_bytes": status.kv_planned_bytes},
        "prefix_cache": {
            "n_entries": status.prefix_cache.n_entries,
            "n_tokens": status.prefix_cache.n_tokens,
            "size_bytes": status.prefix_cache.size_bytes,
            "budget_bytes": status.prefix_cache.budget_bytes,
        },
        "chat_template": app.served.template.as_ref().map(|template| template.source().to_owned()),
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "limits": {
            "max_body_bytes": app.options.max_body_bytes,
            "max_connections": app.options.max_connections,
        },
        "strict": app.options.strict,
    });
    for (name, fact) in &app.served.facts {
        document[name] = fact.clone();
    }
    Json(document)
}

/// Whether the engine moves: it answers this itself, between two steps.
pub async fn health(State(app): State<Arc<App>>) -> ApiResult<Json<Value>> {
    let service = app.served.service.clone();
    let answered = spawn_blocking(move || service.ping(HEALTH_TIMEOUT)).await;
    match answered {
        Ok(Ok(())) => Ok(Json(json!({"status": "ok"}))),
        Ok(Err(error)) => {
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "engine_does_not_move", error.to_string()))
        }
        Err(_) => Err(ApiError::internal("the engine could not be asked")),
    }
}
