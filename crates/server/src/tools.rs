//! Functions that a model may call.
//!
//! - [`ToolUse`] is what a request says: the functions, and whether one must be called.
//! - [`Dialect`] is what a model's chat template makes of it: how functions are shown, how calls and their results are
//!   written. From both come the messages of the prompt and the [grammar](Dialect::compile) of the answer.
//! - [`CallParser`] turns the text of an answer into content and calls, as it comes.
//!
//! Calls are found in what the model writes and nowhere else: what messages and results contain is only ever part of the
//! prompt.

mod dialect;
mod format;
mod grammar;
mod head;
mod id;
mod parser;
mod prompt;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use dialect::Dialect;
pub use format::ToolFormat;
pub use id::CallIds;
pub use parser::{CallParser, Delta};
pub use reply::{Reply, ReplyCall};
pub use request::{Tool, ToolChoice, ToolUse};
