//! The messages that a template is given, where it does not know of functions itself.

use std::fmt::Write;

use muser_text::template::{Message, ToolCall};
use serde_json::{Value, json};

use super::format::{HERMES_CLOSE, HERMES_OPEN};
use super::{Dialect, ToolFormat, ToolUse};

impl Dialect {
    /// The messages of a request in the form that the template takes, and the definitions to give it along with them.
    ///
    /// What the template can't write is put into text: calls as the model itself would write them, results as messages of the
    /// user between `<tool_response>` marks, and the functions at the head of the system message.
    pub fn prompt(&self, messages: &[Message], tools: Option<&ToolUse>) -> (Vec<Message>, Vec<Value>) {
        let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
        let mut follows_result = false;
        for message in messages {
            let is_result = message.role == "tool" && !self.writes_results;
            match out.last_mut().filter(|_| is_result && follows_result) {
                Some(last) => {
                    let content = last.content.get_or_insert_default();
                    content.push('\n');
                    content.push_str(&response(message));
                }
                None if is_result => out.push(Message::new("user", response(message))),
                None => out.push(self.with_calls(message)),
            }
            follows_result = is_result;
        }
        match tools {
            Some(tools) if self.shows_tools => (out, tools.definitions()),
            Some(tools) => {
                self.put_first(&mut out, self.instructions(tools));
                (out, Vec::new())
            }
            None => (out, Vec::new()),
        }
    }

    /// A message whose calls the template can write.
    fn with_calls(&self, message: &Message) -> Message {
        let mut message = message.clone();
        if message.tool_calls.is_empty() {
            return message;
        }
        if self.writes_calls {
            if !self.takes_no_content {
                message.content.get_or_insert_default();
            }
            return message;
        }
        let mut parts: Vec<String> = message.content.take().filter(|text| !text.is_empty()).into_iter().collect();
        parts.extend(message.tool_calls.drain(..).map(|call| self.write(&call)));
        message.content = Some(parts.join("\n"));
        message
    }

    fn write(&self, call: &ToolCall) -> String {
        let call = json!({"name": call.name, "arguments": call.arguments});
        match self.format {
            ToolFormat::Hermes => format!("{HERMES_OPEN}\n{call}\n{HERMES_CLOSE}"),
            _ => call.to_string(),
        }
    }

    /// Tells the model of its functions.
    fn instructions(&self, tools: &ToolUse) -> String {
        let mut text =
            "You can call functions. They are, one a line, with their parameters as JSON schemas:\n\n<tools>\n"
                .to_owned();
        for definition in tools.definitions() {
            // A string takes all that is written to it.
            let _ = writeln!(text, "{definition}");
        }
        text.push_str(
            "</tools>\n\nTo call a function, answer with its name and arguments in this form and nothing else:\n\n",
        );
        let form = r#"{"name": <function name>, "arguments": <object of arguments>}"#;
        match self.format {
            ToolFormat::Hermes => _ = write!(text, "{HERMES_OPEN}\n{form}\n{HERMES_CLOSE}"),
            _ => text.push_str(form),
        }
        text
    }

    /// Puts text before all that the messages say.
    fn put_first(&self, messages: &mut Vec<Message>, text: String) {
        let role = if self.has_system { "system" } else { "user" };
        match messages.iter_mut().find(|message| message.role == role).filter(|it| it.content.is_some()) {
            Some(message) => {
                let content = message.content.take().unwrap_or_default();
                message.content = Some(format!("{text}\n\n{content}"));
            }
            None => messages.insert(0, Message::new(role, text)),
        }
    }
}

fn response(message: &Message) -> String {
    format!("<tool_response>\n{}\n</tool_response>", message.content.as_deref().unwrap_or_default())
}
