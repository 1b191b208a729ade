//! Every request has an id, a span, a line in the log when its reply begins, and a place in the metrics.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use tracing::{Instrument as _, info, info_span, warn};

use crate::app::App;
use crate::reply::REQUEST_ID;
use crate::settings::fresh_seed;

/// A request's id, unlike any other's, of this server or another.
#[derive(Clone)]
pub struct Id(Arc<str>);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Makes ids.
pub struct Ids {
    prefix: u64,
    next: AtomicU64,
}

impl Ids {
    /// Ids that start with a random number.
    pub fn new() -> Self {
        Self { prefix: fresh_seed(), next: AtomicU64::new(0) }
    }

    fn next(&self) -> Id {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Id(format!("{:016x}{number:08x}", self.prefix).into())
    }
}

/// Follows a request from its arrival to the beginning of its reply.
pub async fn trace(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let id = app.ids.next();
    // Paths that lead nowhere are the client's words, and belong neither into labels nor into the log.
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = matched.unwrap_or_else(|| "none".to_owned());
    let span = info_span!("request", id = %id, method = %request.method(), route);
    request.extensions_mut().insert(id.clone());
    let mut following = Following { app, route, started: Instant::now(), is_answered: false };
    async move {
        let mut response = next.run(request).await;
        following.answered(&response);
        let id = HeaderValue::from_str(&id.0).expect("hexadecimal digits");
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }
    .instrument(span)
    .await
}

/// A request that has no reply yet. Dropped before it has one when its client goes away.
struct Following {
    app: Arc<App>,
    route: String,
    started: Instant,
    is_answered: bool,
}

impl Following {
    fn answered(&mut self, response: &Response) {
        self.is_answered = true;
        self.app.metrics.count(&self.route, response.status());
        let (status, seconds) = (response.status().as_u16(), self.started.elapsed().as_secs_f64());
        if response.status().is_server_error() {
            warn!(status, seconds, "reply");
        } else {
            info!(status, seconds, "reply");
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if !self.is_answered {
            self.app.metrics.count_abandoned();
            info!(seconds = self.started.elapsed().as_secs_f64(), "abandoned");
        }
    }
}
