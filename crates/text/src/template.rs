//! Chat templates: messages to a prompt, by the Jinja source that a model file carries.
//!
//! A template is foreign code. It behaves as it would in Hugging Face's `apply_chat_template` (`trim_blocks`,
//! `lstrip_blocks`, loop controls, `raise_exception`, `strftime_now`, `tojson` without HTML escapes, Python's methods on
//! strings, `generation` blocks, lenient undefined values whose attributes are errors), but within limits: of source
//! size, nesting, steps and output. Whatever goes wrong is a [`TemplateError`]; nothing falls back to another template.
//!
//! # Who wrote what
//!
//! A message may contain the text of a control token. It must stay text, while the template's own control tokens act.
//! So [`ChatTemplate::prompt`] also says which bytes came from the caller, and the tokeniser recognises markers outside
//! of these only ([`Special::ParseOutside`](crate::Special::ParseOutside)). It holds that:
//!
//! 1. the text is that of [`ChatTemplate::render`], byte for byte;
//! 2. no byte that came from a message's content, reasoning, name or call id, nor from the free text of tools, calls and
//!    variables, lies outside the ranges.
//!
//! The rendering is done once plain and once in a disguise in which every character of the caller is replaced by another
//! that only it can have produced. Undone, the second must equal the first; then the ranges are exact. Where it doesn't,
//! because the template compares a message with a literal of its own, a second disguise leaves those literals readable.
//! If that fails too, the prompt is refused ([`TemplateError::UnknownOrigin`]).
//!
//! Not free text are: a role that all templates know; words of the template itself (`string`, `function`) where
//! structured data repeats them, or where, in the second disguise, a message is nothing but that word; numbers and
//! booleans. None of them can spell a control token unless the template itself builds one around it.

mod environment;
mod json;
mod origin;
mod scan;
mod strftime;
mod strings;
mod value;

use std::{collections::HashSet, fmt, ops::Range};

use minijinja::{Environment, Value};
use serde_json::{Map, Value as Json};

pub use strftime::DateTime;

use environment::{DISGUISE, Limits, environment, on_own_stack, render, set_clock};
use origin::Disguise;
use value::Values;

/// Longest template source. The longest in use are near 30 KiB.
pub const MAX_SOURCE_BYTES: usize = 256 << 10;
/// Deepest nesting of blocks, and of brackets in an expression. The engine parses by recursion.
pub const MAX_NESTING: usize = 64;
/// Most tokens in one tag. A chain of operators becomes a tree as deep as it is long.
pub const MAX_TAG_TOKENS: usize = 8192;
/// Most `elif` in a template. They nest in the engine.
pub const MAX_ELIF: usize = 1024;
/// Deepest nesting of tools, arguments, variables and values that a template keeps.
pub const MAX_VALUE_DEPTH: usize = 64;
/// Steps of one rendering, each about an instruction or some bytes of text; a few tenths of a second. A thousand short
/// messages take a tenth of them. Two more are allowed for each byte that the caller gives.
pub const FUEL: u64 = 2_000_000;
/// Longest rendering of short messages, a hundred times what templates add to a conversation. Sixteen more bytes are
/// allowed for each that the caller gives, up to [`MAX_OUTPUT_BYTES`].
pub const OUTPUT_BYTES: usize = 2 << 20;
/// Longest rendering of any messages: eight bytes a token for four million tokens.
pub const MAX_OUTPUT_BYTES: usize = 32 << 20;

/// What can go wrong with a chat template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no template. For callers that look for one in a file; nothing here returns it.
    #[error("the model has no chat template")]
    Missing,
    /// The source is too long.
    #[error("the chat template is {size_bytes} bytes long; the limit is {max}")]
    SourceTooLong {
        /// Length of the source.
        size_bytes: usize,
        /// [`MAX_SOURCE_BYTES`].
        max: usize,
    },
    /// Blocks or brackets nest too deep.
    #[error("line {line} of the chat template nests more than {max} blocks or brackets")]
    TooDeep {
        /// [`MAX_NESTING`].
        max: usize,
        /// Line of the source, from 1.
        line: usize,
    },
    /// One tag holds too much.
    #[error("line {line} of the chat template has more than {max} tokens in one tag")]
    TagTooLong {
        /// [`MAX_TAG_TOKENS`].
        max: usize,
        /// Line of the source, from 1.
        line: usize,
    },
    /// There are too many `elif`.
    #[error("the chat template has more than {max} `elif` by line {line}")]
    TooManyBranches {
        /// [`MAX_ELIF`].
        max: usize,
        /// Line of the source, from 1.
        line: usize,
    },
    /// The source isn't Jinja.
    #[error("the chat template is malformed{}: {message}", at(*.line))]
    Syntax {
        /// What the parser says.
        message: String,
        /// Line of the source, from 1.
        line: Option<usize>,
    },
    /// The template called `raise_exception`.
    #[error("the chat template refuses these messages: {message}")]
    Raised {
        /// The template's own message.
        message: String,
    },
    /// The template uses a filter, test, function or method that doesn't exist.
    #[error("the chat template asks for something unknown{}: {message}", at(*.line))]
    Unknown {
        /// What, by name.
        message: String,
        /// Line of the source, from 1.
        line: Option<usize>,
    },
    /// The template failed while running.
    #[error("the chat template failed{}: {message}", at(*.line))]
    Render {
        /// What the engine says.
        message: String,
        /// Line of the source, from 1.
        line: Option<usize>,
    },
    /// The template ran too long.
    #[error("the chat template was stopped after {max} steps")]
    OutOfSteps {
        /// [`FUEL`] and what the messages allowed on top.
        max: u64,
    },
    /// The template wrote too much.
    #[error("the chat template was stopped at {max} bytes of output")]
    OutputTooLong {
        /// [`OUTPUT_BYTES`] and what the messages allowed on top.
        max: usize,
    },
    /// A value nests too deep.
    #[error("a value of the chat template nests more than {max} deep")]
    ValueTooDeep {
        /// [`MAX_VALUE_DEPTH`].
        max: usize,
    },
    /// It can't be told which part of the prompt the caller wrote.
    #[error(
        "the chat template changes the messages in a way that hides which part of the prompt they are; control tokens in \
         them could act"
    )]
    UnknownOrigin,
    /// The system gave no thread to run the template on.
    #[error("no thread for the chat template: {0}")]
    Thread(#[source] std::io::Error),
}

fn at(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(" in line {line}"))
}

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what else the template knows.
    pub role: String,
    /// What is said. Absent is `none` to the template, as in an assistant's message that only calls tools.
    pub content: Option<String>,
    /// What the assistant thought before it spoke.
    pub reasoning_content: Option<String>,
    /// The assistant's calls.
    pub tool_calls: Vec<ToolCall>,
    /// In a tool's message: the call it answers.
    pub tool_call_id: Option<String>,
    /// The speaker's or the tool's name.
    pub name: Option<String>,
}

impl Message {
    /// A message of role and content.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: Some(content.into()), ..Message::default() }
    }
}

/// One call of a function by the assistant.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Links the call to the tool's message.
    pub id: Option<String>,
    /// The function's name.
    pub name: String,
    /// Its arguments; templates expect an object, not the string of one.
    pub arguments: Json,
}

/// What a rendering depends on besides the messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderOptions {
    /// Whether the prompt ends with the opening of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Functions the assistant may call, as `OpenAI`'s interface describes them. None is `none` to the template.
    pub tools: Vec<Json>,
    /// More variables of the template, such as `enable_thinking`. They win over the ones above.
    pub variables: Map<String, Json>,
    /// What `strftime_now` shows. Without it, the function is undefined.
    pub now: Option<DateTime>,
}

/// A rendered conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    foreign: Vec<Range<usize>>,
}

/// A part of a prompt with one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Never empty.
    pub text: &'a str,
    /// Whether the template wrote it; control tokens act in such text only.
    pub trusted: bool,
}

impl Prompt {
    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The byte ranges of [`text`](Self::text) that the caller wrote: not empty, ascending, neither touching nor
    /// overlapping.
    pub fn foreign(&self) -> &[Range<usize>] {
        &self.foreign
    }

    /// The text in parts, in order; neighbours differ in origin.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let ends = self.foreign.iter().flat_map(|range| [(range.start, true), (range.end, false)]);
        let mut from = 0;
        ends.chain([(self.text.len(), true)]).filter_map(move |(end, trusted)| {
            let text = &self.text[from..end];
            from = end;
            (!text.is_empty()).then_some(Segment { text, trusted })
        })
    }

    /// Whether the template itself wrote `token_text` at the beginning: then the vocabulary must not add it again.
    /// A message that begins with the same characters doesn't count.
    pub fn begins_with(&self, token_text: &str) -> bool {
        !token_text.is_empty()
            && self.text.starts_with(token_text)
            && self.foreign.first().is_none_or(|range| range.start >= token_text.len())
    }
}

/// A compiled template.
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    words: HashSet<String>,
    literals: Vec<String>,
    bos_token: String,
    eos_token: String,
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").field("source", &self.source).finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Compiles `source`. The texts of the begin and end tokens are what the template sees as `bos_token` and
    /// `eos_token`; empty where the model has none.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Syntax`], or that a limit on sources is passed.
    pub fn new(source: &str, bos_token: &str, eos_token: &str) -> Result<ChatTemplate, TemplateError> {
        let scanned = scan::scan(source)?;
        let env = on_own_stack(|| environment(scanned.source))?;
        Ok(ChatTemplate {
            env,
            source: source.to_owned(),
            words: scanned.words,
            literals: scanned.literals,
            bos_token: bos_token.to_owned(),
            eos_token: eos_token.to_owned(),
        })
    }

    /// The source as given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The text of a conversation. Control tokens in messages look like the template's own; use
    /// [`prompt`](Self::prompt) for what a model is to read.
    ///
    /// # Errors
    ///
    /// What the template says with `raise_exception`, what it does wrong, or the limit it passes.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TemplateError> {
        on_own_stack(|| self.render_with(None, messages, options))
    }

    /// The text of a conversation, and which bytes of it the caller wrote.
    ///
    /// # Errors
    ///
    /// As [`render`](Self::render), and [`TemplateError::UnknownOrigin`].
    pub fn prompt(&self, messages: &[Message], options: &RenderOptions) -> Result<Prompt, TemplateError> {
        on_own_stack(|| {
            let text = self.render_with(None, messages, options)?;
            let hiding =
                || Disguise::hiding([&*self.source, &*self.bos_token, &*self.eos_token], texts(messages, options));
            if let Some(foreign) = self.foreign(&text, hiding(), messages, options) {
                return Ok(Prompt { text, foreign });
            }
            let keeping = hiding().keeping(&self.literals);
            let foreign = self.foreign(&text, keeping, messages, options);
            foreign.map(|foreign| Prompt { text, foreign }).ok_or(TemplateError::UnknownOrigin)
        })
    }

    /// The ranges of `text` that a rendering in `disguise` shows to be the caller's; `None` if it comes to another text.
    fn foreign(
        &self,
        text: &str,
        disguise: Disguise,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Option<Vec<Range<usize>>> {
        let disguise = Value::from_object(disguise);
        // An error is a text that differs: the plain rendering had none.
        let rendered = self.render_with(Some(&disguise), messages, options).ok()?;
        let (revealed, foreign) = disguise.downcast_object_ref::<Disguise>()?.finish(&rendered)?;
        (revealed == text).then_some(foreign)
    }

    fn render_with(
        &self,
        disguise: Option<&Value>,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<String, TemplateError> {
        let mut env = self.env.clone();
        if let Some(disguise) = disguise {
            env.add_global(DISGUISE, disguise.clone());
        }
        if let Some(now) = options.now {
            set_clock(&mut env, now);
        }
        let given_bytes = texts(messages, options).iter().map(|text| text.len()).sum::<usize>();
        let limits = Limits {
            fuel: FUEL + 2 * given_bytes as u64,
            output_bytes: given_bytes.saturating_mul(16).saturating_add(OUTPUT_BYTES).min(MAX_OUTPUT_BYTES),
        };
        let values = Values { disguise: disguise.and_then(Value::downcast_object_ref), words: &self.words };
        let messages = messages.iter().map(|message| values.message(message)).collect::<Result<Vec<_>, _>>()?;
        let tools = match &*options.tools {
            [] => Value::from(()),
            tools => tools.iter().map(|tool| values.json(tool, 0)).collect::<Result<Value, _>>()?,
        };
        let mut context = vec![
            ("messages".to_owned(), Value::from(messages)),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), Value::from(())),
            ("add_generation_prompt".to_owned(), Value::from(options.add_generation_prompt)),
            ("bos_token".to_owned(), Value::from(&*self.bos_token)),
            ("eos_token".to_owned(), Value::from(&*self.eos_token)),
        ];
        for (name, variable) in &options.variables {
            context.push((name.clone(), values.json(variable, 0)?));
        }
        // A disguised character takes four bytes, and marks of four bytes each may surround it.
        let longer = if disguise.is_some() { 12 } else { 1 };
        render(&mut env, Value::from_pairs(context), limits, longer)
    }
}

/// Everything the caller wrote.
fn texts<'a>(messages: &'a [Message], options: &'a RenderOptions) -> Vec<&'a str> {
    let mut out = Vec::new();
    for message in messages {
        out.push(&*message.role);
        let fields = [&message.content, &message.reasoning_content, &message.name, &message.tool_call_id];
        out.extend(fields.into_iter().flatten().map(String::as_str));
        for call in &message.tool_calls {
            out.extend(call.id.as_deref());
            out.push(&call.name);
            value::texts(&call.arguments, 0, &mut out);
        }
    }
    options.tools.iter().chain(options.variables.values()).for_each(|json| value::texts(json, 0, &mut out));
    out
}
