//! From a conversation to the tokens of a prompt.

use muser_text::template::{ChatTemplate, Message, RenderOptions, TemplateError};
use muser_text::{Affixes, Special, Tokenizer};

/// The tokens with which the model is to answer a conversation.
///
/// What the messages say is plain text, whatever it looks like: only the template's own control tokens act. A token that
/// begins every text stands there once, whether template or vocabulary puts it.
///
/// # Errors
/// When the template refuses the conversation or fails.
pub fn chat_prompt(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<Vec<u32>, TemplateError> {
    let prompt = template.prompt(messages, options)?;
    Ok(tokenizer.encode(prompt.text(), Special::ParseOutside(prompt.foreign()), Affixes::Model))
}
