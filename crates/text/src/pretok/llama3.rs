//! `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
//! with `\p{N}` alone in its place for the `qwen2` family. Case is folded in ASCII only.

use super::{contraction_len, letters_start, line_or_space_end, symbols_start};
use crate::unicode::{Class, run_end};

/// Where the word ends that starts at byte `pos` with `first`, of class `class`.
pub(super) fn word_end(text: &str, pos: usize, first: char, class: Class, max_digits: usize) -> usize {
    let contraction = contraction_len(text, pos, true);
    if contraction > 0 {
        return pos + contraction;
    }
    if let Some(letters) = letters_start(text, pos, first, class) {
        return run_end(text, letters, |_, class| class == Class::Letter);
    }
    if class == Class::Number {
        return numbers_end(text, pos, max_digits);
    }
    if let Some(symbols) = symbols_start(text, pos, first, class) {
        let end = run_end(text, symbols, |_, class| class == Class::Other);
        return run_end(text, end, |c, _| matches!(c, '\r' | '\n'));
    }
    line_or_space_end(text, pos)
}

/// `\p{N}{1,max}` at byte `pos`.
pub(super) fn numbers_end(text: &str, pos: usize, max: usize) -> usize {
    let numbers = text[pos..].chars().take(max).take_while(|&c| Class::of(c) == Class::Number);
    pos + numbers.map(char::len_utf8).sum::<usize>()
}
