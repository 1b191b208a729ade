//! Replies that come as a stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::Value;

use crate::answer::{Answers, Piece};
use crate::exchange::SaidAll;
use crate::prepared::Head;
use crate::reply::ApiError;
use crate::settings::StreamOptions;

/// How often a comment is sent while there is nothing else: below the time after which proxies give up.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The choices of one document for a piece of an answer, in an interface's own shape.
pub trait Chunks: Send + 'static {
    /// They are sent one after the other.
    fn chunks(&mut self, piece: Piece) -> Vec<Value>;
}

struct Streaming<C> {
    answers: Answers,
    chunks: C,
    head: Head,
    options: StreamOptions,
    /// Until it was told.
    said_all: Option<SaidAll>,
    ready: VecDeque<Event>,
    is_over: bool,
}

/// Streams answers. A failure is an event with the error in it, and the last.
pub fn stream(
    answers: Answers,
    head: Head,
    options: StreamOptions,
    said_all: SaidAll,
    chunks: impl Chunks,
) -> Response {
    let said_all = Some(said_all);
    let streaming = Streaming { answers, chunks, head, options, said_all, ready: VecDeque::new(), is_over: false };
    let events = unfold(streaming, |mut streaming| async {
        let event = streaming.next().await?;
        Some((Ok::<_, Infallible>(event), streaming))
    });
    // Asks proxies to pass events on as they come.
    let unbuffered = [("x-accel-buffering", "no")];
    (unbuffered, Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))).into_response()
}

impl<C: Chunks> Streaming<C> {
    async fn next(&mut self) -> Option<Event> {
        while self.ready.is_empty() && !self.is_over {
            let next = tokio::select! {
                next = self.answers.next() => next,
                () = said_all(&mut self.said_all) => {
                    // If it is gone, its system says so when something is sent.
                    self.ready.push_back(Event::default().comment(""));
                    continue;
                }
            };
            match next {
                Ok(Some(piece)) => {
                    for choice in self.chunks.chunks(piece) {
                        let event = self.event(&[choice], Value::Null);
                        self.ready.push_back(event);
                    }
                }
                Ok(None) => {
                    if self.options.include_usage {
                        let event = self.event(&[], self.answers.usage().json());
                        self.ready.push_back(event);
                    }
                    self.ready.push_back(Event::default().data("[DONE]"));
                    self.is_over = true;
                }
                Err(error) => self.fail(&error),
            }
        }
        self.ready.pop_front()
    }

    fn event(&self, choices: &[Value], usage: Value) -> Event {
        let mut document = self.head.document(choices);
        if self.options.include_usage {
            document["usage"] = usage;
        }
        Event::default().data(document.to_string())
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back(Event::default().data(error.body().to_string()));
        self.is_over = true;
    }
}

/// Waits until the client will say no more, once.
async fn said_all(said_all: &mut Option<SaidAll>) {
    match said_all {
        Some(waiting) => waiting.wait().await,
        None => pending().await,
    }
    *said_all = None;
}
