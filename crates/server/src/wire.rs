//! The bytes of a connection, with what HTTP's implementation leaves out.
//!
//! - A client may say that it will send no more, and still wait for its reply. One that has gone away looks the same until
//!   something is sent to it; so the former is told that its reply will come.
//! - What can't be read as a request is refused in the interface's own shape.

use std::future::Future;
use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::exchange::{End, Exchange};
use crate::reply::ApiError;
use crate::timed::Timed;

/// What says that there will be a reply. Clients pass over it.
const WAIT: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How often a silent client is told so. It may go at any time, and nothing else would show it.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Where the status stands in a reply's first line.
const STATUS: std::ops::Range<usize> = 9..12;

/// One connection.
pub struct Wire {
    stream: Timed<TcpStream>,
    exchange: Arc<Exchange>,
    /// Whether the client has said that it will send no more.
    is_at_end: bool,
    /// What is done from then on, while it may wait for a reply.
    silence: Option<Silence>,
    /// A refusal that is being written, and how much of it was.
    refusal: Option<(Vec<u8>, usize)>,
}

/// What is listened for while a client says nothing more.
struct Silence {
    /// Ends when it is known to be gone.
    gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// When it is found out next.
    ask: Pin<Box<Sleep>>,
}

impl Wire {
    /// Over a stream, whose writes fail when nothing is taken for so long.
    pub fn new(stream: TcpStream, write_timeout: Duration, exchange: Arc<Exchange>) -> Self {
        Self { stream: Timed::new(stream, write_timeout), exchange, is_at_end: false, silence: None, refusal: None }
    }

    /// What it lies over.
    pub fn into_inner(self) -> Timed<TcpStream> {
        self.stream
    }

    /// At the end of what the client says. While it may wait for a reply, there is no end.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, exchange, silence, .. } = self;
        match exchange.at_end(cx.waker()) {
            End::Over => return Poll::Ready(Ok(())),
            End::Unknown => return Poll::Pending,
            End::Silence => {}
        }
        let stream = stream.get_ref();
        let silence = match silence {
            Some(silence) => silence,
            // There is no way to find out whether it is there.
            None if !exchange.may_be_told_to_wait() && !exchange.is_owed() => return Poll::Ready(Ok(())),
            None => {
                exchange.said_all();
                silence.insert(Silence { gone: Box::pin(gone(stream)?), ask: Box::pin(sleep(Duration::ZERO)) })
            }
        };
        while silence.ask.as_mut().poll(cx).is_ready() {
            if exchange.may_be_told_to_wait() {
                tell_to_wait(stream)?;
            }
            silence.ask.as_mut().reset(Instant::now() + ASK_AGAIN);
        }
        ready!(silence.gone.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }

    /// Writes a refusal in the place of a reply of `len` bytes that begins with `first`.
    fn poll_refuse(&mut self, cx: &mut Context<'_>, first: &[u8], len: usize) -> Poll<io::Result<usize>> {
        let (bytes, written) = self.refusal.get_or_insert_with(|| (unreadable(first), 0));
        while *written < bytes.len() {
            *written += ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[*written..]))?;
        }
        self.refusal = None;
        Poll::Ready(Ok(len))
    }
}

/// Says that there will be a reply. Fails if the other side is known to be gone.
fn tell_to_wait(stream: &TcpStream) -> io::Result<()> {
    match stream.try_write(WAIT) {
        Ok(n) if n == WAIT.len() => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

/// Ends when the other side has no such connection any more.
fn gone(stream: &TcpStream) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let watched = TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?;
    Ok(async move {
        // Where it can't be watched any more, it is gone as well.
        let _ = watched.ready(Interest::ERROR).await;
    })
}

/// The refusal of what HTTP's implementation could not read, by the first line of its own.
fn unreadable(first: &[u8]) -> Vec<u8> {
    let status = first.get(STATUS).and_then(|status| StatusCode::from_bytes(status).ok());
    let status = status.unwrap_or(StatusCode::BAD_REQUEST);
    refusal(&match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => ApiError::head_too_large(),
        StatusCode::URI_TOO_LONG => ApiError::new(status, "uri_too_long", "the request's address is too long"),
        status => {
            let message = "the request is not HTTP/1.1: its method, address, version or a header can't be read";
            ApiError::new(status, "invalid_http", message)
        }
    })
}

/// A whole reply, and the last of its connection.
pub fn refusal(error: &ApiError) -> Vec<u8> {
    let body = error.body().to_string();
    let head = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        error.status,
        body.len()
    );
    (head + &body).into_bytes()
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_at_end {
            let n_before = buf.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
            if buf.filled().len() > n_before || buf.remaining() == 0 {
                self.exchange.fed(&buf.filled()[n_before..]);
                return Poll::Ready(Ok(()));
            }
            self.is_at_end = true;
        }
        self.poll_end(cx)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.exchange.is_replying() {
            return self.poll_refuse(cx, bytes, bytes.len());
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if !self.exchange.is_replying() {
            let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
            return self.poll_refuse(cx, first, parts.iter().map(|part| part.len()).sum());
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.exchange.flushed();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
