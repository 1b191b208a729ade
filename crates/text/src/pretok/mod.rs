//! Pre-tokenisers: how byte-level BPE splits text into the words that merges stay inside.
//!
//! Each is an ordered alternation of a published regular expression, written out by hand so that every text takes
//! linear time and no stack. Pieces are never lost: the words of a text, joined, are the text.

mod gpt2;
mod gpt4o;
mod llama3;

use crate::TextError;
use crate::unicode::{Class, char_at, run_end};

/// A way of splitting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Split {
    /// GPT-2's expression.
    Gpt2,
    /// Every number character alone, GPT-2's expression on what lies between.
    Smollm,
    /// Llama 3's expression, with this many number characters in a word at most.
    Llama3 { max_digits: usize },
    /// The expression of the o200k family.
    Gpt4o,
}

/// A pre-tokeniser with the habits that come with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreTokenizer {
    split: Split,
    /// A word that is a token is that token, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// Whether texts start with the beginning-of-text token when the file doesn't say.
    pub(crate) add_bos: bool,
}

const GPT2: PreTokenizer = PreTokenizer { split: Split::Gpt2, ignore_merges: false, add_bos: false };
const SMOLLM: PreTokenizer = PreTokenizer { split: Split::Smollm, ..GPT2 };
const LLAMA3: PreTokenizer =
    PreTokenizer { split: Split::Llama3 { max_digits: 3 }, ignore_merges: true, add_bos: true };
const DBRX: PreTokenizer = PreTokenizer { split: Split::Llama3 { max_digits: 3 }, ..GPT2 };
const QWEN2: PreTokenizer = PreTokenizer { split: Split::Llama3 { max_digits: 1 }, ..GPT2 };
const GPT4O: PreTokenizer = PreTokenizer { split: Split::Gpt4o, ..GPT2 };

/// Names as files spell them. Several families share an expression and differ in the name only.
const NAMES: &[(&str, PreTokenizer)] = &[
    ("gpt-2", GPT2),
    ("phi-2", GPT2),
    ("mpt", GPT2),
    ("olmo", GPT2),
    ("exaone4", GPT2),
    ("smollm", SMOLLM),
    ("starcoder", SMOLLM),
    ("refact", SMOLLM),
    ("command-r", SMOLLM),
    ("codeshell", SMOLLM),
    ("exaone", SMOLLM),
    ("llama-bpe", LLAMA3),
    ("llama3", LLAMA3),
    ("llama-v3", LLAMA3),
    ("falcon3", LLAMA3),
    ("lfm2", LLAMA3),
    ("dbrx", DBRX),
    ("smaug-bpe", DBRX),
    ("qwen2", QWEN2),
    ("deepseek-r1-qwen", QWEN2),
    ("stablelm2", QWEN2),
    ("megrez", QWEN2),
    ("hunyuan", QWEN2),
    ("grok-2", QWEN2),
    ("gpt-4o", GPT4O),
    ("llama4", GPT4O),
];

/// The pre-tokenisers that [`VocabSpec::pre`](crate::VocabSpec::pre) may name.
pub fn pre_tokenizer_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|&(name, _)| name)
}

impl PreTokenizer {
    pub(crate) fn named(name: Option<&str>) -> Result<Self, TextError> {
        let known = || pre_tokenizer_names().collect::<Vec<_>>().join(", ");
        let name = name.ok_or_else(|| TextError::MissingPreTokenizer { known: known() })?;
        let found = NAMES.iter().find(|(other, _)| *other == name);
        let (_, pre) = found.ok_or_else(|| TextError::UnknownPreTokenizer { name: name.to_owned(), known: known() })?;
        Ok(*pre)
    }

    /// The words of `text`, in order.
    pub(crate) fn words(self, text: &str) -> Words<'_> {
        Words { text, pos: 0, part_end: 0, split: self.split }
    }
}

/// The words of a text, see [`PreTokenizer::words`].
pub(crate) struct Words<'t> {
    text: &'t str,
    pos: usize,
    /// Where the number-free part ends that `pos` lies in, once looked up.
    part_end: usize,
    split: Split,
}

impl<'t> Iterator for Words<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let start = self.pos;
        let (first, class) = char_at(self.text, start)?;
        self.pos = match self.split {
            Split::Gpt2 => gpt2::word_end(self.text, start, first, class),
            Split::Smollm if class == Class::Number => start + first.len_utf8(),
            Split::Smollm => {
                if start >= self.part_end {
                    self.part_end = run_end(self.text, start, |_, class| class != Class::Number);
                }
                gpt2::word_end(&self.text[..self.part_end], start, first, class)
            }
            Split::Llama3 { max_digits } => llama3::word_end(self.text, start, first, class, max_digits),
            Split::Gpt4o => gpt4o::word_end(self.text, start, first, class),
        };
        debug_assert!(self.pos > start, "a word has at least one character");
        Some(&self.text[start..self.pos])
    }
}

/// Length of an English contraction (`'s 't 'm 'd 're 've 'll`) at byte `pos`, or 0.
fn contraction_len(text: &str, pos: usize, any_case: bool) -> usize {
    let at = |offset: usize| {
        let byte = text.as_bytes().get(pos + offset).copied().unwrap_or(0);
        if any_case { byte.to_ascii_lowercase() } else { byte }
    };
    if at(0) != b'\'' {
        return 0;
    }
    match (at(1), at(2)) {
        (b's' | b't' | b'm' | b'd', _) => 2,
        (b'r' | b'v', b'e') | (b'l', b'l') => 3,
        _ => 0,
    }
}

/// `\s+(?!\S)|\s+` at byte `pos`, which is white space: all of a run but its last character, unless the run ends the
/// text or is that one character.
fn space_end(text: &str, pos: usize) -> usize {
    let mut last = pos;
    let mut end = pos;
    while let Some((c, Class::Space)) = char_at(text, end) {
        last = end;
        end += c.len_utf8();
    }
    if end == text.len() || last == pos { end } else { last }
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+` at byte `pos`, which is white space.
fn line_or_space_end(text: &str, pos: usize) -> usize {
    let end = run_end(text, pos, |_, class| class == Class::Space);
    match text.as_bytes()[pos..end].iter().rposition(|byte| matches!(byte, b'\r' | b'\n')) {
        Some(newline) => pos + newline + 1,
        None => space_end(text, pos),
    }
}

/// Where ` ?[^\s\p{L}\p{N}]+` starts its run, if it matches at byte `pos`.
fn symbols_start(text: &str, pos: usize, first: char, class: Class) -> Option<usize> {
    match class {
        Class::Other => Some(pos),
        Class::Space if first == ' ' => matches!(char_at(text, pos + 1), Some((_, Class::Other))).then_some(pos + 1),
        _ => None,
    }
}

/// Where the letters start that `[^\r\n\p{L}\p{N}]?\p{L}+` matches, if it matches at byte `pos`.
fn letters_start(text: &str, pos: usize, first: char, class: Class) -> Option<usize> {
    match class {
        Class::Letter => Some(pos),
        Class::Number => None,
        _ if matches!(first, '\r' | '\n') => None,
        _ => {
            let next = pos + first.len_utf8();
            matches!(char_at(text, next), Some((_, Class::Letter))).then_some(next)
        }
    }
}

#[cfg(test)]
mod tests;
