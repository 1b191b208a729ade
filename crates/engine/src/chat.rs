//! From a conversation to the tokens of a prompt.

use muser_text::template::{ChatTemplate, Message, RenderOptions};
use muser_text::{Affixes, Special, Tokenizer};

use crate::Error;

/// The tokens with which the model is to answer a conversation.
///
/// What the messages say is plain text, whatever it looks like: only the template's own control tokens act. A token that
/// begins every text stands there once, whether template or vocabulary puts it.
///
/// # Errors
/// When the template refuses the conversation or fails, or leaves out all that was said.
pub fn chat_prompt(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<Vec<u32>, Error> {
    let prompt = template.prompt(messages, options)?;
    let says_something = |message: &Message| message.content.as_ref().is_some_and(|text| !text.trim().is_empty());
    if prompt.foreign().is_empty() && messages.iter().any(says_something) {
        return Err(Error::NothingRendered);
    }
    Ok(tokenizer.encode(prompt.text(), Special::ParseOutside(prompt.foreign()), Affixes::Model))
}
