//! A whole answer, put together from its parts.

use super::Delta;

/// An answer put together from its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The text outside of calls.
    pub content: String,
    /// The calls.
    pub calls: Vec<ReplyCall>,
}

/// One call of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyCall {
    /// Links it to its result.
    pub id: String,
    /// The function.
    pub name: String,
    /// The JSON text of its arguments.
    pub arguments: String,
}

impl Reply {
    /// Adds a part.
    pub fn push(&mut self, delta: Delta) {
        match delta {
            Delta::Content(text) => self.content.push_str(&text),
            Delta::Call { id, name, .. } => self.calls.push(ReplyCall { id, name, arguments: String::new() }),
            Delta::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&text);
                }
            }
        }
    }
}
