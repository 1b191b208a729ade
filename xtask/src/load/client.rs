//! One connection that asks and takes answers as they come.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use ureq::Agent;

use super::requests::Request;

/// No request waits longer than this for its answer, queued behind all others.
const PATIENCE: Duration = Duration::from_mins(10);

/// A client with a connection of its own, which it keeps from request to request.
pub struct Client {
    agent: Agent,
    url: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The text, its pieces joined.
    pub text: String,
    /// Why it ended.
    pub finish: String,
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// How many of them the server had from before.
    pub n_reused: usize,
    /// Tokens of the answer.
    pub n_generated: usize,
    /// From the request to the first piece of text.
    pub first_token: Duration,
}

impl Answer {
    /// Whether text, length and reason of the end agree.
    pub fn says_the_same(&self, other: &Self) -> bool {
        (&self.text, &self.finish, self.n_generated) == (&other.text, &other.finish, other.n_generated)
    }
}

impl Client {
    /// A client of the server at this address.
    pub fn new(address: &str) -> Self {
        let agent = Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
        Self { agent, url: format!("{address}/v1/completions") }
    }

    /// Asks, and reads the answer to its end.
    ///
    /// # Errors
    /// The connection breaks, the server refuses, or the answer has no end.
    pub fn ask(&self, request: &Request) -> Result<Answer> {
        let started = Instant::now();
        let body = request.body().to_string();
        let post = self.agent.post(&self.url).header("content-type", "application/json");
        let response = post.send(&body).context("the request was not taken")?;
        let mut events = Events(BufReader::new(response.into_body().into_reader()));

        let (mut text, mut finish, mut usage, mut first_token) = (String::new(), None, Value::Null, None);
        while let Some(event) = events.next()? {
            if let Some(error) = event.get("error") {
                bail!("the server reports {error}");
            }
            let choice = &event["choices"][0];
            if let Some(piece) = choice["text"].as_str().filter(|piece| !piece.is_empty()) {
                first_token.get_or_insert_with(|| started.elapsed());
                text.push_str(piece);
            }
            if let Some(reason) = choice["finish_reason"].as_str() {
                finish = Some(reason.to_owned());
            }
            if event["usage"].is_object() {
                usage = event["usage"].clone();
            }
        }
        let count = |value: &Value| value.as_u64().map(|count| count as usize);
        Ok(Answer {
            text,
            finish: finish.context("the answer has no reason for its end")?,
            n_prompt: count(&usage["prompt_tokens"]).context("the answer has no count of the prompt's tokens")?,
            n_reused: count(&usage["prompt_tokens_details"]["cached_tokens"]).unwrap_or(0),
            n_generated: count(&usage["completion_tokens"]).context("the answer has no count of its tokens")?,
            // An answer without text has its end for a beginning.
            first_token: first_token.unwrap_or_else(|| started.elapsed()),
        })
    }
}

/// Server-sent events whose data is JSON.
struct Events<R>(R);

impl<R: BufRead> Events<R> {
    /// The next event, or nothing after the last one.
    fn next(&mut self) -> Result<Option<Value>> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.0.read_line(&mut line).context("the answer broke off")? == 0 {
                bail!("the answer broke off before its last event");
            }
            match line.strip_prefix("data:").map(str::trim) {
                Some("[DONE]") => {
                    // Read to its end, the connection can be used again.
                    std::io::copy(&mut self.0, &mut std::io::sink()).context("the answer broke off")?;
                    return Ok(None);
                }
                Some(data) => return serde_json::from_str(data).with_context(|| format!("not JSON: {data}")).map(Some),
                // Comments, which keep a connection open, and the lines between events.
                None => (),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_between_events_are_passed_over_and_a_missing_end_is_an_error() {
        let mut events = Events(&b": alive\n\ndata: {\"a\":1}\n\ndata: [DONE]\n\n"[..]);
        assert_eq!(events.next().unwrap().unwrap()["a"], 1);
        assert!(events.next().unwrap().is_none());
        let mut events = Events(&b"data: {\"a\":1}\n\n"[..]);
        events.next().unwrap();
        assert!(events.next().is_err());
    }
}
