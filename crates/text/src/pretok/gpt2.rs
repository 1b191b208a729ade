//! `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

use super::{contraction_len, space_end};
use crate::unicode::{Class, char_at, run_end};

/// Where the word ends that starts at byte `pos` with `first`, of class `class`.
pub(super) fn word_end(text: &str, pos: usize, first: char, class: Class) -> usize {
    let contraction = contraction_len(text, pos, false);
    if contraction > 0 {
        return pos + contraction;
    }
    // A plain space joins the run behind it, whatever that is made of.
    let (body, class) = match (first, char_at(text, pos + first.len_utf8())) {
        (' ', Some((_, next))) if next != Class::Space => (pos + 1, next),
        _ => (pos, class),
    };
    if class == Class::Space { space_end(text, pos) } else { run_end(text, body, |_, other| other == class) }
}
