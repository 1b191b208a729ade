//! A client that sees what is sent.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::place::{PATIENCE, Server};

/// One connection, for one request.
pub struct Conversation {
    stream: TcpStream,
    host: String,
}

/// What came back.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A stream of events, read one by one.
pub struct Events {
    lines: BufReader<Body>,
    pub reply: Reply,
}

/// A body in chunks, without them.
struct Body {
    source: BufReader<TcpStream>,
    left: usize,
    is_over: bool,
}

impl Conversation {
    pub fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Self { stream, host: server.address().to_owned() }
    }

    pub fn get(self, path: &str) -> Reply {
        self.send("GET", path, &[], "").reply()
    }

    pub fn post(self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], &body.to_string()).reply()
    }

    /// Sends a request with further headers; one of `Host` takes the place of the right one.
    pub fn send(mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            let _ = write!(head, "Host: {}\r\n", self.host);
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        self.write(format!("{head}\r\n{body}").as_bytes());
        self
    }

    /// Sends bytes as they are. That the other side does not take them shows in what it replies.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Tells the other side that nothing more will be said.
    pub fn say_no_more(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("a socket");
    }

    /// All that comes until the other side ends the connection.
    pub fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A connection that breaks has ended too.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    /// Whether nothing comes for a while, where there would be a reply at once.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
        let is_silent = self.stream.peek(&mut [0]).is_err();
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        is_silent
    }

    /// Reads the whole reply.
    pub fn reply(self) -> Reply {
        let Events { mut lines, mut reply } = self.events();
        lines.read_to_end(&mut reply.body).expect("the whole body comes");
        reply
    }

    /// Reads the head of the reply, and its body as it comes.
    pub fn events(self) -> Events {
        let mut source = BufReader::new(self.stream);
        let mut line = || {
            let mut line = String::new();
            source.read_line(&mut line).expect("a reply comes");
            line.trim_end().to_owned()
        };
        let mut first = line();
        while first == "HTTP/1.1 100 Continue" {
            assert_eq!(line(), "");
            first = line();
        }
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no reply: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let reply = Reply { status, headers, body: Vec::new() };
        let len = reply.header("content-length").map(|len| len.parse().expect("a length"));
        let body = Body { source, left: len.unwrap_or(0), is_over: len.is_some() };
        Events { lines: BufReader::new(body), reply }
    }
}

impl Read for Body {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && !self.is_over {
            let mut size = String::new();
            // The first chunk's size has no line before it.
            while size.trim().is_empty() && self.source.read_line(&mut size)? > 0 {}
            self.left = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            self.is_over = self.left == 0;
        }
        let most = into.len().min(self.left);
        let n = self.source.read(&mut into[..most])?;
        self.left -= n;
        Ok(n)
    }
}

impl Events {
    /// The next event's data; `None` at the end of the stream.
    pub fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.line()?.strip_prefix("data: ") {
                return Some(data.to_owned());
            }
        }
    }

    /// The next line that is not empty, events or not; `None` at the end of the stream.
    pub fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            match self.lines.read_line(&mut line).expect("the stream goes on") {
                0 => return None,
                _ if line.trim().is_empty() => {}
                _ => return Some(line.trim_end().to_owned()),
            }
        }
    }

    /// All documents; the stream has to end as streams end.
    pub fn documents(mut self) -> Vec<Value> {
        let mut documents = Vec::new();
        while let Some(data) = self.next() {
            if data == "[DONE]" {
                assert_eq!(self.next(), None, "something follows the end");
                return documents;
            }
            documents.push(serde_json::from_str(&data).expect("JSON"));
        }
        panic!("the stream broke off after {documents:?}")
    }

    /// Waits for the end of the connection, whatever comes before it.
    pub fn drain(mut self) -> String {
        let mut text = String::new();
        // A connection that breaks has ended too.
        let _ = self.lines.read_to_string(&mut text);
        text
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// The document, of a reply that has to have this status.
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }

    /// Of a refusal with this status, in the interface's own shape: the field to blame, and the message.
    pub fn refusal(&self, status: u16) -> (String, String) {
        let document = self.expect(status);
        let error = &document["error"];
        let keys: Vec<_> = error.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["message", "type", "param", "code"], "{document}");
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty() && !text("type").is_empty() && !text("code").is_empty(), "{document}");
        (text("param"), text("message"))
    }
}
