//! The o200k family's expression in the approximation that llama.cpp computes and GGUF files are used with.
//!
//! Declared, a word is `[^\r\n\p{L}\p{N}]?` then upper-case-like letters and marks, then lower-case-like ones, with at
//! least one of either, then a contraction. The approximation calls every letter but `a-z` upper and every letter but
//! `A-Z` lower, so letters outside ASCII are both, and marks are not letters. It differs from the declared form on
//! case outside ASCII and on marks. The remaining alternatives are
//! `\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`.

use super::llama3::numbers_end;
use super::{contraction_len, letters_start, line_or_space_end, symbols_start};
use crate::unicode::{Class, char_at, run_end};

/// Where the word ends that starts at byte `pos` with `first`, of class `class`.
pub(super) fn word_end(text: &str, pos: usize, first: char, class: Class) -> usize {
    if let Some(letters) = letters_start(text, pos, first, class) {
        let end = letters_end(text, letters);
        return end + contraction_len(text, end, true);
    }
    if class == Class::Number {
        return numbers_end(text, pos, 3);
    }
    if let Some(symbols) = symbols_start(text, pos, first, class) {
        let end = run_end(text, symbols, |_, class| class == Class::Other);
        return run_end(text, end, |c, _| matches!(c, '\r' | '\n' | '/'));
    }
    line_or_space_end(text, pos)
}

/// Where `U*L+|U+L*` ends, for letters at byte `pos` and the overlapping classes `U` and `L` above.
fn letters_end(text: &str, pos: usize) -> usize {
    let mut end = pos;
    let mut last_in_both = None;
    while let Some((c, Class::Letter)) = char_at(text, end) {
        if c.is_ascii_lowercase() {
            return run_end(text, end, |c, class| class == Class::Letter && !c.is_ascii_uppercase());
        }
        end += c.len_utf8();
        if !c.is_ascii() {
            last_in_both = Some(end);
        }
    }
    // No lower-case letter follows, so `L+` takes back the last letter that is in both classes, and what comes after
    // that is left for the next word.
    last_in_both.unwrap_or(end)
}
