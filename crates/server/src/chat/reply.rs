//! Answers as the chat interface shows them, whole and in pieces.

use serde_json::{Value, json};

use crate::answer::{Piece, Scored};
use crate::prepared::Choice;
use crate::stream::Chunks;
use crate::tools::{CallParser, Delta, Reply, ReplyCall};

/// Turns the answers to a request into choices of replies.
pub struct Choices {
    choices: Vec<State>,
    is_scored: bool,
}

/// How far the answer of a choice has been turned.
struct State {
    /// Whether it was said who speaks.
    is_begun: bool,
    /// Finds calls, where there may be some.
    parser: Option<CallParser>,
}

impl Choices {
    /// For answers that are looked through by these parsers.
    pub fn new(parsers: Vec<Option<CallParser>>, is_scored: bool) -> Self {
        let choices = parsers.into_iter().map(|parser| State { is_begun: false, parser }).collect();
        Self { choices, is_scored }
    }

    /// The document of a choice that is over.
    pub fn whole(&mut self, index: usize, choice: Choice) -> Value {
        let Choice { text, scored, finish } = choice;
        let (deltas, finish) = self.choices[index].parts(text, Some(finish));
        let mut reply = Reply::default();
        deltas.into_iter().for_each(|delta| reply.push(delta));
        let is_silent = reply.content.is_empty() && !reply.calls.is_empty();
        let content = if is_silent { Value::Null } else { json!(reply.content) };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !reply.calls.is_empty() {
            let call = |call: &ReplyCall| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            };
            message["tool_calls"] = reply.calls.iter().map(call).collect();
        }
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs(self.is_scored, &scored),
            "finish_reason": finish,
        })
    }
}

impl State {
    /// What became certain with more text, and why the answer is over, if it is.
    fn parts(&mut self, text: String, finish: Option<&'static str>) -> (Vec<Delta>, Option<&'static str>) {
        let Some(parser) = &mut self.parser else {
            let deltas = if text.is_empty() { Vec::new() } else { vec![Delta::Content(text)] };
            return (deltas, finish);
        };
        let mut deltas = Vec::new();
        parser.push(&text, &mut deltas);
        if finish.is_some() {
            parser.finish(&mut deltas);
        }
        let has_called = finish == Some("stop") && parser.has_called();
        (deltas, if has_called { Some("tool_calls") } else { finish })
    }
}

impl Chunks for Choices {
    fn chunks(&mut self, piece: Piece) -> Vec<Value> {
        let Piece { choice: index, text, mut scored, finish } = piece;
        let state = &mut self.choices[index];
        let (deltas, finish) = state.parts(text, finish);
        let chunk = |delta: Value, scored: &[Scored], finish: Option<&str>| {
            let logprobs = logprobs(self.is_scored && !scored.is_empty(), scored);
            json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish})
        };
        let mut chunks = Vec::new();
        if !std::mem::replace(&mut state.is_begun, true) {
            // An answer of calls alone has no content.
            let content = if state.parser.is_some() { Value::Null } else { json!("") };
            chunks.push(chunk(json!({"role": "assistant", "content": content}), &[], None));
        }
        for delta in &deltas {
            // Tokens are told of once, with the first part that comes of them.
            chunks.push(chunk(delta_json(delta), &std::mem::take(&mut scored), None));
        }
        if !scored.is_empty() {
            chunks.push(chunk(json!({}), &scored, None));
        }
        if finish.is_some() {
            chunks.push(chunk(json!({}), &[], finish));
        }
        chunks
    }
}

fn delta_json(delta: &Delta) -> Value {
    match delta {
        Delta::Content(text) => json!({"content": text}),
        Delta::Call { index, id, name } => {
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        Delta::Arguments { index, text } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        }
    }
}

fn logprobs(is_scored: bool, scored: &[Scored]) -> Value {
    if !is_scored {
        return Value::Null;
    }
    json!({"content": scored.iter().map(Scored::chat_json).collect::<Vec<_>>(), "refusal": null})
}
