//! Byte-level BPE: words are split to bytes, and neighbours merged in the order of the vocabulary's rules.

use crate::TextError;
use crate::alphabet;
use crate::merge::{MAX_WORD_BYTES, Merged, Merger, NO_TOKEN};
use crate::pretok::PreTokenizer;
use crate::vocab::Vocab;
use hashbrown::HashMap;

/// The rules of a byte-level vocabulary.
pub(crate) struct ByteBpe {
    pre: PreTokenizer,
    /// The token of each byte, or [`NO_TOKEN`].
    byte_ids: Box<[u32; 256]>,
    /// Rules by the two tokens they merge.
    merges: HashMap<(u32, u32), Merged>,
}

impl ByteBpe {
    pub(crate) fn new(
        vocab: &Vocab,
        pre: PreTokenizer,
        merges: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Result<Self, TextError> {
        let mut byte_ids = Box::new([NO_TOKEN; 256]);
        for byte in 0..=u8::MAX {
            byte_ids[usize::from(byte)] = vocab.find_text(&[byte]).unwrap_or(NO_TOKEN);
        }
        let merges = merges.into_iter();
        let mut rules = HashMap::with_capacity(merges.size_hint().0);
        let mut decoded = Vec::new();
        for (rank, text) in merges.enumerate() {
            let text = text.as_ref();
            let lossy = || String::from_utf8_lossy(text).into_owned();
            // A part may itself begin with a space.
            let space = text.iter().skip(1).position(|&byte| byte == b' ').map(|at| at + 1);
            let parts = space.map(|at| (&text[..at], &text[at + 1..])).filter(|(_, right)| !right.is_empty());
            let Some((left_text, right_text)) = parts else {
                return Err(TextError::InvalidMerge { rank, text: lossy() });
            };
            decoded.clear();
            let decodes = alphabet::decode(left_text, &mut decoded);
            let middle = decoded.len();
            let decodes = decodes && alphabet::decode(right_text, &mut decoded);
            // Special tokens are not spelled in the alphabet.
            let find = |part: &[u8], text: &[u8]| {
                let found = if decodes { vocab.find_text(part) } else { None };
                found.or_else(|| vocab.special_token(text))
            };
            let left = find(&decoded[..middle], left_text);
            let right = find(&decoded[middle..], right_text);
            let whole = find(&decoded, &[left_text, right_text].concat());
            let (Some(left), Some(right), Some(whole)) = (left, right, whole) else {
                return Err(TextError::UnknownMergeToken { rank, text: lossy() });
            };
            // Plain text never becomes a marker.
            if [left, right, whole].iter().any(|&id| vocab.type_of(id).is_marker()) {
                continue;
            }
            let priority = u32::try_from(rank).map_err(|_| TextError::InvalidMerge { rank, text: lossy() })?;
            rules.entry((left, right)).or_insert(Merged { priority, id: whole });
        }
        Ok(Self { pre, byte_ids, merges: rules })
    }

    /// Bytes that have no token.
    pub(crate) fn missing_bytes(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|&byte| self.byte_ids[usize::from(byte)] == NO_TOKEN)
    }

    /// Appends the tokens of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        for word in self.pre.words(text) {
            let word = word.as_bytes();
            if self.pre.ignore_merges
                && let Some(id) = vocab.find_text(word)
            {
                out.push(id);
                continue;
            }
            for word in word.chunks(MAX_WORD_BYTES) {
                merger.clear();
                for &byte in word {
                    merger.push(1, self.byte_ids[usize::from(byte)]);
                }
                let left = merger.merge(|a, b| self.merges.get(&(a.id, b.id)).copied());
                out.extend(left.map(|symbol| symbol.id).filter(|&id| id != NO_TOKEN));
            }
        }
    }
}
