//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::app::App;
use crate::reply::ApiError;
use crate::{chat, completions, embeddings, guard, info, metrics, tokens, trace};

/// All routes, behind what every request has to pass.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/embeddings", post(embeddings::embed))
        .route("/v1/models", get(info::models))
        .route("/v1/models/{*name}", get(info::model))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/apply-template", post(chat::apply_template))
        .route("/slots", get(info::slots))
        .route("/props", get(info::props))
        .route("/health", get(info::health))
        .route("/metrics", get(metrics::metrics))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_route)
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .layer(from_fn_with_state(Arc::clone(&app), trace::trace))
        .with_state(app)
}

async fn no_route(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("there is nothing at {method} {path}"))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not take {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
