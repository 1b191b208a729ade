//! Errors as clients of the interface know them, and headers of replies.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The request's id, in every reply.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// What of a request had no effect.
pub const WARNING: HeaderName = HeaderName::from_static("x-muser-warning");
/// Most tokens that an answer could have.
pub const MAX_TOKENS: HeaderName = HeaderName::from_static("x-muser-max-tokens");

/// Longest head of a request, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// Most headers of a request.
pub const MAX_HEADERS: usize = 100;

/// A reply that says why there is no other.
#[derive(Debug)]
pub struct ApiError {
    /// The reply's status.
    pub status: StatusCode,
    /// What went wrong, in one word for programs.
    pub code: &'static str,
    /// The field that is to blame.
    pub param: Option<String>,
    /// What went wrong, for people.
    pub message: String,
    /// Seconds after which it may be worth another try.
    pub retry_after: Option<u64>,
}

/// What handlers return.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// An error without a field.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, param: None, message: message.into(), retry_after: None }
    }

    /// A request that can't be served as it is, with the field to blame.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, "invalid_value", message) }
    }

    /// A field with a value out of its range.
    pub fn out_of_range(param: impl Into<String>, found: &Value, expected: &str) -> Self {
        let param = param.into();
        let message = format!("`{param}` is {}; expected {expected}", shown(found));
        Self::invalid(param, message)
    }

    /// A field whose value would change the answer, and does not here.
    pub fn unsupported(param: impl Into<String>, found: &Value, expected: &str) -> Self {
        let param = param.into();
        let message = format!("`{param}` is {}, which is not supported; expected {expected}", shown(found));
        Self { code: "unsupported_value", ..Self::invalid(param, message) }
    }

    /// A failure that is the server's.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    }

    /// A head that is longer than it may be, or has too many headers.
    pub fn head_too_large() -> Self {
        let message = format!(
            "the request's head is too large; expected at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} headers"
        );
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large", message)
    }

    /// The document.
    pub fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}})
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A value as messages show it: cut where it is long.
pub fn shown(value: &Value) -> String {
    const MOST: usize = 80;
    match value {
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        value => {
            let text = value.to_string();
            match text.char_indices().nth(MOST) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}
