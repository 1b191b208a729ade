//! Connections: how many, for how long, and how they end.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use hyper::server::conn::http1::{self, Parts};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::app::{App, Options};
use crate::exchange::Exchange;
use crate::metrics::HttpMetrics;
use crate::reply::{ApiError, MAX_HEAD_BYTES, MAX_HEADERS};
use crate::wire::{Wire, refusal};

/// How long to wait after a connection could not be accepted, as when there are no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the last words to a client that was too slow may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Takes connections.
pub struct Acceptor {
    app: Arc<App>,
    router: Router,
    stop: watch::Receiver<bool>,
    permits: Arc<Semaphore>,
}

/// Connections that were taken.
pub struct Connections {
    permits: Arc<Semaphore>,
    max: u32,
}

impl Connections {
    /// Waits until all are closed.
    pub async fn wait(self) {
        // It is never closed, and there are as many permits as connections may be.
        let _ = self.permits.acquire_many(self.max).await;
    }
}

impl Acceptor {
    /// For these routes. Connections end after the reply that they are at when `stop` turns true.
    pub fn new(app: Arc<App>, router: Router, stop: watch::Receiver<bool>) -> Self {
        let permits = Arc::new(Semaphore::new(app.options.max_connections));
        Self { app, router, stop, permits }
    }

    /// Takes connections, as many as may be open at a time, until `stop` turns true.
    pub async fn accept_until(self, listener: TcpListener, stop: &mut watch::Receiver<bool>) -> Connections {
        let max = self.app.options.max_connections as u32;
        let mut stopped = pin!(is_true(stop));
        loop {
            let accepted = async {
                let permit = Arc::clone(&self.permits).acquire_owned().await.expect("it is never closed");
                (permit, listener.accept().await)
            };
            let (permit, accepted) = tokio::select! {
                () = &mut stopped => break,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.spawn(stream, permit),
                Err(error) => {
                    debug!(%error, "a connection could not be accepted");
                    if !is_of_one_connection(&error) {
                        warn!(%error, "no connections can be accepted");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        Connections { permits: self.permits, max }
    }

    fn spawn(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let (app, router, stop) = (Arc::clone(&self.app), self.router.clone(), self.stop.clone());
        let connected = HttpMetrics::connect(&app);
        tokio::spawn(async move {
            if let Err(error) = converse(stream, &app.options, router, stop).await {
                debug!(%error, "a connection ended");
            }
            drop((connected, permit));
        });
    }
}

/// Answers the requests of one connection.
async fn converse(
    stream: TcpStream,
    options: &Options,
    router: Router,
    mut stop: watch::Receiver<bool>,
) -> hyper::Result<()> {
    // Events are small, and wanted at once. Where that can't be had, they come a little later.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(options.header_timeout);
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEADERS);
    let exchange = Arc::new(Exchange::default());
    let io = TokioIo::new(Wire::new(stream, options.write_timeout, Arc::clone(&exchange)));
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |request| {
        let (turn, request) = exchange.begin(request);
        let reply = routes.call(request);
        Box::pin(async move { reply.await.map(|reply| reply.map(|body| turn.reply(body))) })
    });
    let mut connection = builder.serve_connection(io, service);
    let ended = tokio::select! {
        ended = poll_fn(|cx| connection.poll_without_shutdown(cx)) => Some(ended),
        () = is_true(&mut stop) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        Pin::new(&mut connection).graceful_shutdown();
        poll_fn(|cx| connection.poll_without_shutdown(cx)).await
    };
    let Parts { io, read_buf, .. } = connection.into_parts();
    let mut stream = io.into_inner().into_inner();
    let last_words = ended.as_ref().err().filter(|_| !read_buf.is_empty()).and_then(|error| unfinished(error, options));
    let is_unread = ended.as_ref().is_err_and(hyper::Error::is_parse);
    // The connection is over; there is nobody to tell of what fails now.
    let _ = timeout(LAST_WORDS, async {
        if let Some(error) = last_words {
            stream.write_all(&refusal(&error)).await?;
        }
        stream.shutdown().await?;
        if is_unread {
            // Were it closed with something unread, its client might never see why.
            copy(&mut stream, &mut sink()).await?;
        }
        io::Result::Ok(())
    })
    .await;
    ended
}

/// What a client is told whose head does not come to an end, or begins in a way that HTTP's implementation has no reply to.
fn unfinished(error: &hyper::Error, options: &Options) -> Option<ApiError> {
    let invalid = |message| Some(ApiError::new(StatusCode::BAD_REQUEST, "invalid_http", message));
    match error {
        error if error.is_timeout() => {
            let limit = options.header_timeout.as_secs_f64();
            let message = format!("the request's head did not arrive within {limit} seconds");
            Some(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
        error if error.is_incomplete_message() => invalid("the request ended within its head"),
        error if error.is_parse_version_h2() => invalid("the connection begins with HTTP/2; expected HTTP/1.1"),
        _ => None,
    }
}

/// Waits until it turns true.
async fn is_true(stop: &mut watch::Receiver<bool>) {
    // Whoever would say it can't any more: the server has ended.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Whether only the connection that was to be accepted is gone.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
