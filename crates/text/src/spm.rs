//! SentencePiece-style BPE: characters are merged in the order of the scores of what they make; a character without a
//! token becomes its bytes.

use crate::merge::{MAX_WORD_BYTES, Merged, Merger, NO_TOKEN};
use crate::vocab::Vocab;
use std::borrow::Cow;

/// U+2581, which stands for a space in the vocabulary, and so does in text.
pub(crate) const SPACE_MARK: &str = "\u{2581}";

/// The scores of a vocabulary.
pub(crate) struct ScoreBpe {
    /// By token: lower is merged sooner.
    priorities: Vec<u32>,
    /// The token of each byte, or [`NO_TOKEN`].
    byte_ids: Box<[u32; 256]>,
    unk: Option<u32>,
    add_space_prefix: bool,
    /// By byte: whether some token has it before a space. Behind all others a space starts a word that nothing merges
    /// with what is before it.
    joins_space: Box<[bool; 256]>,
}

impl ScoreBpe {
    /// `scores` are finite, one for each token.
    pub(crate) fn new(
        vocab: &Vocab,
        scores: &[f32],
        byte_ids: Box<[u32; 256]>,
        unk: Option<u32>,
        add_space_prefix: bool,
    ) -> Self {
        let mut joins_space = Box::new([false; 256]);
        for id in 0..vocab.n_vocab() as u32 {
            let piece = vocab.piece(id);
            for at in 1..piece.len() {
                if piece[at] == b' ' {
                    joins_space[usize::from(piece[at - 1])] = true;
                }
            }
        }
        let priorities = scores.iter().map(|&score| priority(score)).collect();
        Self { priorities, byte_ids, unk, add_space_prefix, joins_space }
    }

    pub(crate) fn add_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the tokens of `text`, which starts a text or follows a special token.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        let prefix = if self.add_space_prefix { " " } else { "" };
        let text = match (prefix, text.contains(SPACE_MARK)) {
            ("", false) => Cow::Borrowed(text),
            _ => Cow::Owned(prefix.to_owned() + &text.replace(SPACE_MARK, " ")),
        };
        let mut rest = &*text;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(self.word_end(rest));
            self.encode_word(vocab, word, merger, out);
            rest = after;
        }
    }

    fn word_end(&self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let cut = (1..bytes.len()).find(|&at| bytes[at] == b' ' && !self.joins_space[usize::from(bytes[at - 1])]);
        let mut end = cut.unwrap_or(bytes.len()).min(MAX_WORD_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        end
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.clear();
        for c in word.chars() {
            merger.push(c.len_utf8(), NO_TOKEN);
        }
        let word = word.as_bytes();
        let left = merger.merge(|a, b| {
            let id = vocab.find_text(&word[a.start as usize..(b.start + b.len) as usize])?;
            Some(Merged { priority: self.priorities[id as usize], id })
        });
        for symbol in left {
            let bytes = &word[symbol.start as usize..][..symbol.len as usize];
            let id = if symbol.id == NO_TOKEN { vocab.find_text(bytes) } else { Some(symbol.id) };
            match (id, self.unk) {
                (Some(id), _) => out.push(id),
                (None, Some(unk)) if bytes.iter().any(|&byte| self.byte_ids[usize::from(byte)] == NO_TOKEN) => {
                    out.push(unk);
                }
                (None, _) => out.extend(bytes.iter().map(|&byte| self.byte_ids[usize::from(byte)])),
            }
        }
    }
}

/// Orders scores from high to low as numbers from low to high.
fn priority(score: f32) -> u32 {
    // Adding zero makes -0 and 0 one.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::priority;

    #[test]
    fn higher_scores_are_merged_sooner() {
        let scores = [f32::MAX, 3.5, 1.0, f32::MIN_POSITIVE, 0.0, -1e-40, -1.0, -1000.0, f32::MIN];
        assert!(scores.windows(2).all(|two| priority(two[0]) < priority(two[1])));
        assert_eq!(priority(0.0), priority(-0.0));
    }
}
