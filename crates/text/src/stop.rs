//! Which tokens end generation.
//!
//! Files name the end of text and sometimes the end of a turn; many need more than that, and chat models are known by
//! the texts of their tokens. The list is the one that llama.cpp goes by, so that answers end where they end there.

/// Tokens that end generation wherever they exist. `<|eom|>` is not one: after it the same speaker goes on.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<|eot|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    // Fill-in-the-middle: padding and the borders between files.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// The texts that end generation.
pub(crate) fn texts() -> impl Iterator<Item = &'static str> {
    END_TEXTS.iter().copied()
}

/// Whether a token with this text ends generation, by its text alone.
pub(crate) fn ends_generation(text: &[u8]) -> bool {
    // Every text of the list starts with one of these, and hardly any token does.
    matches!(text.first(), Some(b'<' | b'[' | b'_')) && END_TEXTS.iter().any(|end| end.as_bytes() == text)
}

/// Texts of the list that don't end generation in the company of others: where there is an end of answer proper, the
/// end of a message is not one.
pub(crate) fn is_overruled(text: &[u8], exists: impl Fn(&str) -> bool) -> bool {
    match text {
        b"<|end|>" => {
            let call = exists("<|call|>") || exists("<|calls|>");
            call && (exists("<|return|>") || exists("<|flush|>"))
        }
        b"</s>" => exists("<|tool_response>"),
        _ => false,
    }
}
