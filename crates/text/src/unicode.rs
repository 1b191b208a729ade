//! Characters as the pre-tokenisers see them.

use unicode_general_category::{GeneralCategory, get_general_category};

/// The four classes that the splitting expressions are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `\s`: the property `White_Space`.
    Space,
    /// `\p{L}`.
    Letter,
    /// `\p{N}`.
    Number,
    /// Everything else: marks, punctuation, symbols, controls, unassigned.
    Other,
}

const ASCII: [Class; 128] = {
    let mut table = [Class::Other; 128];
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_alphabetic() {
            table[byte as usize] = Class::Letter;
        } else if byte.is_ascii_digit() {
            table[byte as usize] = Class::Number;
        } else if byte == b' ' || (byte >= 9 && byte <= 13) {
            table[byte as usize] = Class::Space;
        }
        byte += 1;
    }
    table
};

impl Class {
    pub(crate) fn of(c: char) -> Self {
        if c.is_ascii() {
            return ASCII[c as usize];
        }
        match get_general_category(c) {
            GeneralCategory::UppercaseLetter
            | GeneralCategory::LowercaseLetter
            | GeneralCategory::TitlecaseLetter
            | GeneralCategory::ModifierLetter
            | GeneralCategory::OtherLetter => Self::Letter,
            GeneralCategory::DecimalNumber | GeneralCategory::LetterNumber | GeneralCategory::OtherNumber => {
                Self::Number
            }
            _ if c.is_whitespace() => Self::Space,
            _ => Self::Other,
        }
    }
}

/// The character at byte `pos` of `text`, with its class; `None` at the end.
pub(crate) fn char_at(text: &str, pos: usize) -> Option<(char, Class)> {
    let first = *text.as_bytes().get(pos)?;
    let c = if first.is_ascii() { char::from(first) } else { text[pos..].chars().next()? };
    Some((c, Class::of(c)))
}

/// Where the run of characters that satisfy `keep` ends, starting at byte `pos`.
pub(crate) fn run_end(text: &str, mut pos: usize, keep: impl Fn(char, Class) -> bool) -> usize {
    while let Some((c, class)) = char_at(text, pos) {
        if !keep(c, class) {
            break;
        }
        pos += c.len_utf8();
    }
    pos
}
