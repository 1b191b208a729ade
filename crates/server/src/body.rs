//! The body of a request, read within its limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::app::App;
use crate::fields::Fields;
use crate::framing::{shown, values};
use crate::json::{self, Bounded, Counted};
use crate::reply::{ApiError, ApiResult};

/// How long a refused body is read on, so that its sender comes to read the reply.
const LINGER: Duration = Duration::from_secs(2);

/// How many of the longest bodies may be in memory at a time.
const MAX_BODIES: usize = 16;

/// Bytes of all bodies that are in memory now.
#[derive(Debug, Default)]
pub struct Held(AtomicUsize);

/// Counts a body's bytes until it is dropped.
struct Share<'a> {
    held: &'a Held,
    size_bytes: usize,
}

impl Share<'_> {
    /// Counts more bytes. Returns how many all bodies have.
    fn add(&mut self, size_bytes: usize) -> usize {
        self.size_bytes += size_bytes;
        self.held.0.fetch_add(size_bytes, Ordering::Relaxed) + size_bytes
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.size_bytes, Ordering::Relaxed);
    }
}

/// Reads a body.
async fn read<'a>(app: &'a App, headers: &HeaderMap, body: Body) -> ApiResult<(Vec<u8>, Share<'a>)> {
    let max = app.options.max_body_bytes;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|len| len > max as u64) {
        // Who asked first whether to send it does not.
        if !headers.contains_key(header::EXPECT) {
            discard(body);
        }
        return Err(too_large(max));
    }
    let limit = app.options.body_timeout;
    timeout(limit, collect(body, max, &app.held)).await.unwrap_or_else(|_| {
        let message = format!("the body did not arrive within {} seconds", limit.as_secs_f64());
        Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
    })
}

/// Reads a body, and makes something of the fields of its JSON object on a thread where that may take its time. The array of
/// the field that `bounded` names, if it names one, has to fit into the context.
///
/// # Errors
/// It is compressed, longer than allowed, takes too long to arrive or is not a JSON object; or what `parse` finds wrong.
pub async fn parse<T: Send + 'static>(
    app: &Arc<App>,
    headers: &HeaderMap,
    body: Body,
    bounded: Option<(&'static str, Counted)>,
    parse: impl FnOnce(&App, Fields) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    check_encoding(headers)?;
    let (bytes, _share) = read(app, headers, body).await?;
    let reader = Arc::clone(app);
    let n_ctx = app.served.service.status().n_ctx;
    let bounded = bounded.map(|(field, counted)| Bounded { field, counted, n_ctx });
    let parsed = spawn_blocking(move || {
        let document = json::parse(&bytes, bounded)?;
        drop(bytes);
        parse(&reader, Fields::of("", document)?)
    })
    .await;
    parsed.map_err(|_| ApiError::internal("the request could not be read"))?
}

/// Bodies are read as they are.
fn check_encoding(headers: &HeaderMap) -> ApiResult<()> {
    match values(headers, &header::CONTENT_ENCODING).find(|name| !name.eq_ignore_ascii_case(b"identity")) {
        None => Ok(()),
        Some(name) => {
            let name = shown(name);
            let message = format!("bodies with Content-Encoding {name:?} are not read; expected \"identity\", or none");
            Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", message))
        }
    }
}

async fn collect(mut body: Body, max: usize, held: &Held) -> ApiResult<(Vec<u8>, Share<'_>)> {
    let mut read = Vec::new();
    let mut share = Share { held, size_bytes: 0 };
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(ApiError::new(StatusCode::BAD_REQUEST, "incomplete_body", "the body ended before its time"));
        };
        if let Ok(data) = frame.into_data() {
            if read.len() + data.len() > max {
                discard(body);
                return Err(too_large(max));
            }
            if share.add(data.len()) > max.saturating_mul(MAX_BODIES) {
                let error = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_busy", "too many large bodies at once");
                return Err(ApiError { retry_after: Some(1), ..error });
            }
            read.extend_from_slice(&data);
        }
    }
    Ok((read, share))
}

fn too_large(max: usize) -> ApiError {
    let message = format!("the body is too large; expected at most {max} bytes");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

/// Reads on for a while and forgets what comes: a client that is still sending would otherwise find its connection
/// closed, and not the reply.
pub fn discard(mut body: Body) {
    tokio::spawn(timeout(LINGER, async move { while let Some(Ok(_)) = body.frame().await {} }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_as_long_as_they_are_held() {
        let held = Held::default();
        let mut first = Share { held: &held, size_bytes: 0 };
        assert_eq!(first.add(5), 5);
        let mut second = Share { held: &held, size_bytes: 0 };
        assert_eq!(second.add(7), 12);
        drop(first);
        assert_eq!(second.add(1), 8);
    }
}
