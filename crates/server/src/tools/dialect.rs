//! What a model's chat template does with functions, found by trying it.

use muser_text::template::{ChatTemplate, DateTime, Message, RenderOptions, ToolCall};
use muser_text::{TokenType, Tokenizer};
use serde_json::json;

use super::ToolFormat;
use super::format::{HERMES_CLOSE, HERMES_OPEN, MISTRAL_ARGUMENTS, MISTRAL_OPEN, PYTHON_TAG};

/// How a model is shown functions, and how it calls them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Dialect {
    pub format: ToolFormat,
    /// Whether the template shows functions to the model. Otherwise a message does.
    pub shows_tools: bool,
    /// Whether it writes an assistant's calls.
    pub writes_calls: bool,
    /// Whether it can write a message that has calls and no content.
    pub takes_no_content: bool,
    /// Whether it writes the messages of tools.
    pub writes_results: bool,
    /// Whether it writes a system message.
    pub has_system: bool,
    /// The format's marks that are control tokens in the vocabulary, not text.
    pub marks: Vec<(&'static str, u32)>,
}

const NAME: &str = "probe_function";
const RESULT: &str = "probe_result";
const SYSTEM: &str = "probe_system";

impl Dialect {
    /// Tries what `template` does.
    pub fn of(template: &ChatTemplate, tokenizer: &Tokenizer) -> Self {
        let probe = Probe { template };
        let user = || Message::new("user", "probe");
        let shown = probe.render(&[user()], true);
        let shows_tools = shown.as_ref().is_some_and(|text| text.contains(NAME));

        let without_content = probe.render(&[user(), call(None)], false).filter(|text| text.contains(NAME));
        let takes_no_content = without_content.is_some();
        let called = without_content.or_else(|| probe.render(&[user(), call(Some(""))], false));
        let called = called.filter(|text| text.contains(NAME));
        let content = if takes_no_content { None } else { Some("") };
        let results = probe.render(&[user(), call(content), result()], false);
        let system = probe.render(&[Message::new("system", SYSTEM), user()], false);

        let format = if shows_tools {
            called.as_deref().map_or(ToolFormat::Generic, written_format)
        } else if probe.render(&[user()], false).is_some_and(|text| text.contains("<|im_start|>")) {
            // Nearly all that was taught to call functions in this form of chat writes calls so.
            ToolFormat::Hermes
        } else {
            ToolFormat::Generic
        };
        let marks = [HERMES_OPEN, HERMES_CLOSE, PYTHON_TAG, MISTRAL_OPEN, MISTRAL_ARGUMENTS].into_iter();
        let marks = marks.filter_map(|mark| {
            let id = tokenizer.special_token(mark)?;
            (tokenizer.token_type(id) == Some(TokenType::Control)).then_some((mark, id))
        });
        Self {
            format,
            shows_tools,
            // A template that writes calls in some form of its own is of no use where the model is told another.
            writes_calls: called.is_some()
                && (shows_tools || written_format(called.as_deref().unwrap_or_default()) == format),
            takes_no_content,
            writes_results: results.is_some_and(|text| text.contains(RESULT)) && (shows_tools || called.is_some()),
            has_system: system.is_some_and(|text| text.contains(SYSTEM)),
            marks: marks.collect(),
        }
    }

    /// The form of calls.
    pub fn format(&self) -> ToolFormat {
        self.format
    }

    /// Whether the names of control tokens must be part of an answer's text, because some of them mark calls.
    pub fn needs_control_tokens(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The control token that a mark is.
    pub fn mark(&self, text: &str) -> Option<u32> {
        self.marks.iter().find(|(mark, _)| *mark == text).map(|&(_, id)| id)
    }
}

struct Probe<'a> {
    template: &'a ChatTemplate,
}

impl Probe<'_> {
    /// What the template makes of messages; `None` if it refuses them.
    fn render(&self, messages: &[Message], with_tools: bool) -> Option<String> {
        let parameters = json!({"type": "object", "properties": {"probe": {"type": "string", "description": "probe"}},
            "required": ["probe"]});
        let function = json!({"name": NAME, "description": "probe", "parameters": parameters});
        let tool = json!({"type": "function", "function": function});
        let options = RenderOptions {
            add_generation_prompt: messages.last().is_some_and(|message| message.role != "assistant"),
            tools: if with_tools { vec![tool] } else { Vec::new() },
            now: Some(DateTime::from_unix(0, 0)),
            ..RenderOptions::default()
        };
        self.template.render(messages, &options).ok()
    }
}

fn call(content: Option<&str>) -> Message {
    // Mistral's templates refuse ids of other lengths.
    let call = ToolCall { id: Some("probe0001".to_owned()), name: NAME.to_owned(), arguments: json!({"probe": "x"}) };
    Message {
        role: "assistant".to_owned(),
        content: content.map(str::to_owned),
        tool_calls: vec![call],
        ..Message::default()
    }
}

fn result() -> Message {
    Message { tool_call_id: Some("probe0001".to_owned()), name: Some(NAME.to_owned()), ..Message::new("tool", RESULT) }
}

/// The form in which a rendering has the call.
fn written_format(text: &str) -> ToolFormat {
    let text: String = text.split_whitespace().collect();
    let is = |before: &str, key: &str| text.contains(&format!("{before}{{\"name\":\"{NAME}\",\"{key}\":{{"));
    if is(HERMES_OPEN, "arguments") {
        ToolFormat::Hermes
    } else if is(&format!("{MISTRAL_OPEN}["), "arguments") {
        ToolFormat::Mistral
    } else if text.contains(&format!("{MISTRAL_OPEN}{NAME}{MISTRAL_ARGUMENTS}{{")) {
        ToolFormat::MistralNamed
    } else if is("", "parameters") {
        ToolFormat::Llama
    } else {
        ToolFormat::Generic
    }
}
