//! What a connection's bytes have to know of the request that is being answered over it.

use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes};
use axum::http::{Request, Version, header};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::watch;

use crate::framing::{RawHead, TwoLengths};

/// The state of one connection, which its bytes and its requests share. They are at work on one task, one after the other.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Whether a request is being answered: from its head to the end of the reply.
    is_busy: AtomicBool,
    /// Whether all of that request has come.
    is_heard: AtomicBool,
    /// Whether more of it is waited for than has come.
    is_starved: AtomicBool,
    /// Whether it looked so at the end of what the client says, and what has come may still be on its way to who waits for it.
    is_doubted: AtomicBool,
    /// Whether nothing of the reply is there, and its client knows replies that only say that there will be another.
    may_be_told_to_wait: AtomicBool,
    /// Whether a part of a reply may not be written yet.
    is_owed: AtomicBool,
    /// Turns true when the client will say no more.
    has_said_all: watch::Sender<bool>,
    /// What has come of the next request's head.
    head: Mutex<RawHead>,
    /// Who reads, while a request is being answered.
    reader: Mutex<Option<Waker>>,
}

/// What it means that a client will say no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// There is nothing more to be said: no request is being answered, or one has broken off.
    Over,
    /// It may wait for a reply, or be gone.
    Silence,
    /// What has come was not looked at yet.
    Unknown,
}

fn load(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// Tells a reply that its client will say no more, and may be gone.
#[derive(Clone, Debug)]
pub struct SaidAll(watch::Receiver<bool>);

/// A request that is being answered, until this is dropped.
pub struct Turn(Arc<Exchange>);

impl SaidAll {
    /// Waits for it.
    pub async fn wait(&mut self) {
        if self.0.wait_for(|has_said_all| *has_said_all).await.is_err() {
            // The connection is gone, and what waits for this with it.
            std::future::pending::<()>().await;
        }
    }
}

impl Exchange {
    /// Begins to answer a request, whose body from now on tells when it has come to its end.
    pub fn begin(self: &Arc<Self>, request: Request<hyper::body::Incoming>) -> (Turn, Request<Body>) {
        self.is_busy.store(true, Ordering::Relaxed);
        self.is_heard.store(request.body().is_end_stream(), Ordering::Relaxed);
        self.has_come();
        self.may_be_told_to_wait.store(request.version() >= Version::HTTP_11, Ordering::Relaxed);
        let head = mem::take(&mut *self.head.lock().unwrap_or_else(PoisonError::into_inner));
        let is_coded = request.headers().contains_key(header::TRANSFER_ENCODING);
        let has_two_lengths = is_coded && head.has_content_length(request.method());
        let mut request = request.map(|body| Body::new(Heard { body, exchange: Arc::clone(self) }));
        request.extensions_mut().insert(SaidAll(self.has_said_all.subscribe()));
        if has_two_lengths {
            request.extensions_mut().insert(TwoLengths);
        }
        (Turn(Arc::clone(self)), request)
    }

    /// What it means that the client will say no more. `reader` is woken when it may mean something else.
    pub fn at_end(&self, reader: &Waker) -> End {
        let [is_busy, is_heard, is_starved] = [&self.is_busy, &self.is_heard, &self.is_starved].map(load);
        if !is_busy {
            return End::Over;
        }
        if is_starved && !is_heard {
            if self.is_doubted.swap(true, Ordering::Relaxed) {
                return End::Over;
            }
            // The last of the body may have been read just now, and then whoever waits for it is told before this is asked again.
            reader.wake_by_ref();
            return End::Unknown;
        }
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader.clone());
        if is_heard { End::Silence } else { End::Unknown }
    }

    /// More of a request has come.
    pub fn fed(&self, bytes: &[u8]) {
        self.has_come();
        if !load(&self.is_busy) || load(&self.is_heard) {
            self.head.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        }
    }

    fn has_come(&self) {
        self.is_starved.store(false, Ordering::Relaxed);
        self.is_doubted.store(false, Ordering::Relaxed);
    }

    fn wake_reader(&self) {
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.wake();
        }
    }

    /// Tells the reply that its client will say no more.
    pub fn said_all(&self) {
        self.has_said_all.send_replace(true);
    }

    /// Whether the client can be told now that a reply will come. If it can't, and there is nothing of the reply either, there
    /// is no way to find out whether it is there.
    pub fn may_be_told_to_wait(&self) -> bool {
        load(&self.may_be_told_to_wait) && !load(&self.is_owed)
    }

    /// Whether a reply has begun.
    pub fn is_owed(&self) -> bool {
        load(&self.is_owed)
    }

    /// Whether what is written belongs to a reply.
    pub fn is_replying(&self) -> bool {
        load(&self.is_busy) || self.is_owed()
    }

    /// All that there is of a reply was written.
    pub fn flushed(&self) {
        if !load(&self.is_busy) {
            self.is_owed.store(false, Ordering::Relaxed);
        }
    }
}

impl Turn {
    /// There is a reply, whose body ends the turn.
    pub fn reply(self, body: Body) -> Body {
        self.0.is_owed.store(true, Ordering::Relaxed);
        self.0.may_be_told_to_wait.store(false, Ordering::Relaxed);
        Body::new(Replied { body, _turn: self })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Relaxed);
        self.0.wake_reader();
    }
}

/// The body of a request, which tells when all of it has come.
struct Heard {
    body: hyper::body::Incoming,
    exchange: Arc<Exchange>,
}

impl HttpBody for Heard {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let is_heard = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        if is_heard || frame.is_pending() {
            let flag = if is_heard { &self.exchange.is_heard } else { &self.exchange.is_starved };
            flag.store(true, Ordering::Relaxed);
            self.exchange.wake_reader();
        } else {
            self.exchange.has_come();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a reply, which ends its turn.
struct Replied {
    body: Body,
    _turn: Turn,
}

impl HttpBody for Replied {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
