//! How calls are written in text.

/// The form of calls in an answer.
///
/// | | one call |
/// | --- | --- |
/// | `Hermes` | `<tool_call>⏎{"name": "f", "arguments": {…}}⏎</tool_call>`, again for the next |
/// | `Llama` | `{"name": "f", "parameters": {…}}`, the whole answer, perhaps after `<\|python_tag\|>` |
/// | `Mistral` | `[TOOL_CALLS] [{"name": "f", "arguments": {…}}, …]` |
/// | `MistralNamed` | `[TOOL_CALLS]f[ARGS]{…}`, again for the next |
/// | `Generic` | `{"name": "f", "arguments": {…}}`, the whole answer |
///
/// A `Generic` call can't be told from an answer that happens to be JSON, so it is used only where a call is demanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// Of Hermes, Qwen, `SmolLM` and many others.
    Hermes,
    /// Of Llama 3.1 and later.
    Llama,
    /// Of Mistral's models up to the tokeniser's version 7.
    Mistral,
    /// Of Mistral's later models.
    MistralNamed,
    /// Of models that were taught none.
    Generic,
}

pub const HERMES_OPEN: &str = "<tool_call>";
pub const HERMES_CLOSE: &str = "</tool_call>";
pub const PYTHON_TAG: &str = "<|python_tag|>";
pub const MISTRAL_OPEN: &str = "[TOOL_CALLS]";
pub const MISTRAL_ARGUMENTS: &str = "[ARGS]";

impl ToolFormat {
    /// What a call begins with wherever it stands in an answer. Without one, a call is the whole answer.
    pub fn trigger(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some(HERMES_OPEN),
            Self::Mistral | Self::MistralNamed => Some(MISTRAL_OPEN),
            Self::Llama | Self::Generic => None,
        }
    }

    /// The key of a call's arguments.
    pub fn arguments_key(self) -> &'static str {
        if self == Self::Llama { "parameters" } else { "arguments" }
    }

    /// Whether an answer can have more than one call.
    pub fn is_parallel(self) -> bool {
        !matches!(self, Self::Llama | Self::Generic)
    }
}
