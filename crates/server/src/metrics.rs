//! `/metrics`: what the server and the engine have done, for Prometheus.

mod exposition;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use muser_engine::service::{Miss, Outcome};

use crate::app::App;
use exposition::{Format, Page};

/// What the server counts by itself.
#[derive(Debug, Default)]
pub struct HttpMetrics {
    /// By route and status.
    replies: Mutex<BTreeMap<(String, u16), u64>>,
    /// Requests whose client went away before the reply began.
    abandoned: AtomicU64,
    /// Connections that are open.
    connections: AtomicU64,
}

impl HttpMetrics {
    /// Counts a reply.
    pub fn count(&self, route: &str, status: StatusCode) {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        *replies.entry((route.to_owned(), status.as_u16())).or_default() += 1;
    }

    /// Counts a request that nobody waits for any more.
    pub fn count_abandoned(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection until the returned value is dropped.
    pub fn connect(app: &Arc<App>) -> Connected {
        app.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Connected(Arc::clone(app))
    }
}

/// An open connection.
pub struct Connected(Arc<App>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Shows all metrics.
pub async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let accepts =
        |kind| headers.get(header::ACCEPT).is_some_and(|value| value.to_str().is_ok_and(|a| a.contains(kind)));
    let format = if accepts("application/openmetrics-text") { Format::OpenMetrics } else { Format::Prometheus };
    ([(header::CONTENT_TYPE, format.content_type())], page(&app, format)).into_response()
}

fn page(app: &App, format: Format) -> String {
    let mut page = Page::new(format);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.gauge("muser_build_info", "The version that runs.", [(&version[..], 1)]);
    http(app, &mut page);
    requests(app, &mut page);
    work(app, &mut page);
    memory(app, &mut page);
    page.finish()
}

fn http(app: &App, page: &mut Page) {
    let metrics = &app.metrics;
    page.counter("muser_http_replies", "Replies, by route and status.", {
        let replies = metrics.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let rows: Vec<_> = replies.iter().map(|((route, status), n)| (route.clone(), status.to_string(), *n)).collect();
        rows.into_iter().map(|(route, status, n)| ([("route", route), ("status", status)], n))
    });
    let abandoned = metrics.abandoned.load(Ordering::Relaxed);
    let help = "Requests whose client went away before the reply began.";
    page.counter("muser_http_abandoned", help, [(NONE, abandoned)]);
    let connections = metrics.connections.load(Ordering::Relaxed);
    page.gauge("muser_http_connections", "Open connections.", [(NONE, connections)]);
}

fn requests(app: &App, page: &mut Page) {
    let stats = app.served.service.stats();
    let outcome = |outcome: &Outcome| ([("outcome", outcome.name())], stats.outcome(*outcome).value());
    let help = "Requests to the engine that have ended, by how: every choice of a reply is one.";
    page.counter("muser_requests", help, Outcome::ALL.iter().map(outcome));
    let refusal =
        |(reason, counter): (&'static str, &muser_engine::service::Counter)| ([("reason", reason)], counter.value());
    page.counter("muser_refusals", "Requests that the engine did not take, by why.", stats.refusals().map(refusal));
    let help = "Requests that wait for a slot.";
    page.gauge("muser_queue_depth", help, [(NONE, stats.queue_depth.value())]);
    let help = "Seconds from a request's arrival to its first token.";
    page.histogram("muser_time_to_first_token_seconds", help, &stats.time_to_first_token.snapshot());
    let help = "Seconds from each token to the next of the same answer.";
    page.histogram("muser_time_between_tokens_seconds", help, &stats.time_between_tokens.snapshot());
}

fn work(app: &App, page: &mut Page) {
    let stats = app.served.service.stats();
    for (name, help, counter) in [
        ("muser_prefill_tokens", "Tokens of prompts that were processed.", &stats.prefill_tokens),
        ("muser_decode_tokens", "Tokens of answers that were processed.", &stats.decode_tokens),
        ("muser_generated_tokens", "Tokens of answers that were told.", &stats.generated_tokens),
        ("muser_prefix_hit_tokens", "Tokens of prompts that were not processed again.", &stats.prefix_hit_tokens),
        ("muser_prefix_copied_tokens", "Those that were copied from elsewhere.", &stats.prefix_copied_tokens),
        ("muser_prefix_hits", "Requests that found a prefix.", &stats.prefix_hits),
        ("muser_steps", "Batches.", &stats.steps),
    ] {
        page.counter(name, help, [(NONE, counter.value())]);
    }
    let miss = |miss: &Miss| ([("reason", miss.name())], stats.miss(*miss).value());
    page.counter(
        "muser_prefix_misses",
        "Requests that processed known tokens again, by why.",
        Miss::ALL.iter().map(miss),
    );
    page.histogram("muser_batch_rows", "Tokens in a batch.", &stats.batch_rows.snapshot());
    let fallback = |(what, n): &(&'static str, u64)| ([("what", *what)], *n);
    let help = "What was done otherwise than asked, and said when the server started.";
    page.counter("muser_fallbacks", help, app.served.fallbacks.iter().map(fallback));
}

fn memory(app: &App, page: &mut Page) {
    let stats = app.served.service.stats();
    for (name, help, gauge) in [
        ("muser_kv_used_bytes", "Bytes of the keys and values that slots hold.", &stats.kv_used_bytes),
        ("muser_kv_planned_bytes", "Bytes of all slots' planes.", &stats.kv_planned_bytes),
        ("muser_prefix_cache_bytes", "Bytes of ended sessions.", &stats.prefix_cache_bytes),
        ("muser_prefix_cache_entries", "Ended sessions that are kept.", &stats.prefix_cache_entries),
    ] {
        page.gauge(name, help, [(NONE, gauge.value())]);
    }
}

/// No labels.
const NONE: [(&str, &str); 0] = [];
