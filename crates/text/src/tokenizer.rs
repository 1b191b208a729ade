//! Text to tokens.

use crate::bpe::ByteBpe;
use crate::merge::{Merger, NO_TOKEN};
use crate::pretok::PreTokenizer;
use crate::spm::ScoreBpe;
use crate::vocab::{Spelling, Vocab};
use crate::{TextError, TokenType, VocabSpec};
use std::ops::Range;

/// Which special tokens are recognised in a text by their names. User-defined tokens always are; markers (control
/// tokens, and the one for unknown text) are not text, and text that comes from a user must not become one.
#[derive(Debug, Clone, Copy)]
pub enum Special<'a> {
    /// Markers stay text.
    Plain,
    /// Markers are recognised.
    Parse,
    /// Markers are recognised where they touch none of these ranges of bytes, which are sorted and don't overlap: the
    /// parts of a rendered chat that users wrote.
    ParseOutside(&'a [Range<usize>]),
}

/// What is added around a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affixes {
    /// Nothing.
    None,
    /// What the vocabulary asks for, unless it is there: the beginning of text before and the end of text after it.
    Model,
}

/// A vocabulary, ready to encode and decode. Immutable, and shared between threads as it is.
///
/// Special tokens that the vocabulary names:
///
/// | | |
/// | --- | --- |
/// | `bos` | beginning of text |
/// | `eos`, `eot`, `eom` | end of text, of a turn, of a message |
/// | `unk`, `pad` | unknown text, padding |
pub struct Tokenizer {
    vocab: Vocab,
    model: Model,
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    eom: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    /// Tokens that end generation, sorted.
    end_ids: Vec<u32>,
}

enum Model {
    Bytes(ByteBpe),
    Scores(ScoreBpe),
}

impl Tokenizer {
    /// Checks a vocabulary and builds its tables.
    ///
    /// # Errors
    ///
    /// Whatever of `spec` is missing, unknown, out of range or contradicts itself; see [`TextError`].
    pub fn new<T, M>(spec: VocabSpec<'_, T, M>) -> Result<Self, TextError>
    where
        T: IntoIterator<Item: AsRef<[u8]>>,
        M: IntoIterator<Item: AsRef<[u8]>>,
    {
        let (vocab, model, add_bos) = match spec.model {
            "gpt2" => {
                let pre = PreTokenizer::named(spec.pre)?;
                let merges = spec.merges.ok_or(TextError::Missing { model: "gpt2", what: "merges" })?;
                let (vocab, _) = Vocab::new(Spelling::Alphabet, spec.tokens, spec.token_types)?;
                let bpe = ByteBpe::new(&vocab, pre, merges)?;
                (vocab, Model::Bytes(bpe), pre.add_bos)
            }
            "llama" => {
                let scores = spec.scores.ok_or(TextError::Missing { model: "llama", what: "scores" })?;
                let (vocab, byte_ids) = Vocab::new(Spelling::SpaceMark, spec.tokens, spec.token_types)?;
                check_scores(scores, vocab.n_vocab())?;
                if byte_ids.contains(&NO_TOKEN) {
                    check_unknown(&vocab, spec.unk)?;
                }
                let prefix = spec.add_space_prefix.unwrap_or(true);
                let bpe = ScoreBpe::new(&vocab, scores, byte_ids, spec.unk, prefix);
                (vocab, Model::Scores(bpe), true)
            }
            name => return Err(TextError::UnknownModel { name: name.to_owned() }),
        };
        let n_vocab = vocab.n_vocab();
        for (what, id) in [
            ("bos", spec.bos),
            ("eos", spec.eos),
            ("eot", spec.eot),
            ("eom", spec.eom),
            ("unk", spec.unk),
            ("pad", spec.pad),
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= n_vocab) {
                return Err(TextError::SpecialOutOfRange { what, id, n_vocab });
            }
        }
        let add_bos = spec.add_bos.unwrap_or(add_bos);
        let add_eos = spec.add_eos.unwrap_or(false);
        for (what, add, id) in [("bos", add_bos, spec.bos), ("eos", add_eos, spec.eos)] {
            if add && id.is_none() {
                return Err(TextError::MissingSpecial { what });
            }
        }
        let mut end_ids = vocab.end_ids().to_vec();
        end_ids.extend([spec.eos, spec.eot, spec.eom].iter().flatten());
        end_ids.sort_unstable();
        end_ids.dedup();
        let VocabSpec { bos, eos, eot, eom, unk, pad, .. } = spec;
        Ok(Self { vocab, model, bos, eos, eot, eom, unk, pad, add_bos, add_eos, end_ids })
    }

    /// Number of tokens; ids are below it.
    pub fn n_vocab(&self) -> usize {
        self.vocab.n_vocab()
    }

    /// The bytes a token stands for (of a special token, its name); not always UTF-8. `None` past the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.get(id)
    }

    /// What a token is for. `None` past the vocabulary.
    pub fn token_type(&self, id: u32) -> Option<TokenType> {
        self.vocab.get(id).map(|_| self.vocab.type_of(id))
    }

    /// The marker or user-defined token with this name, such as `<|im_start|>`.
    pub fn special_token(&self, name: &str) -> Option<u32> {
        self.vocab.special_token(name.as_bytes())
    }

    /// Beginning of text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// End of text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// End of turn, if the file names one.
    pub fn eot(&self) -> Option<u32> {
        self.eot
    }

    /// End of message, if the file names one.
    pub fn eom(&self) -> Option<u32> {
        self.eom
    }

    /// Unknown text.
    pub fn unk(&self) -> Option<u32> {
        self.unk
    }

    /// Padding.
    pub fn pad(&self) -> Option<u32> {
        self.pad
    }

    /// Whether [`Affixes::Model`] puts `bos` before a text.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether [`Affixes::Model`] puts `eos` after a text.
    pub fn add_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a model that yields this token is done.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_ids.binary_search(&id).is_ok()
    }

    /// The tokens that end generation, sorted.
    pub fn end_of_generation_ids(&self) -> &[u32] {
        &self.end_ids
    }

    /// Bytes that no token can express. Text loses them in [`encode`](Self::encode), as it does elsewhere: published
    /// byte-level vocabularies lack bytes that their training text did not have. Those that UTF-8 never uses are left
    /// out of the list.
    pub fn missing_bytes(&self) -> Vec<u8> {
        match &self.model {
            Model::Bytes(bpe) => bpe.missing_bytes().filter(|byte| !matches!(byte, 0xC0 | 0xC1 | 0xF5..)).collect(),
            Model::Scores(_) => Vec::new(),
        }
    }

    /// Whether decoded text starts with a space that encoding put there.
    pub(crate) fn strips_space(&self) -> bool {
        match &self.model {
            Model::Bytes(_) => false,
            Model::Scores(bpe) => bpe.add_space_prefix(),
        }
    }

    /// The tokens of a text, in time linear in its length but for a logarithm within single words.
    pub fn encode(&self, text: &str, special: Special<'_>, affixes: Affixes) -> Vec<u32> {
        // English takes four bytes a token.
        let mut out = Vec::with_capacity(text.len() / 4 + 4);
        self.encode_into(text, special, affixes, &mut out);
        out
    }

    /// [`encode`](Self::encode), appending to `out`.
    pub fn encode_into(&self, text: &str, special: Special<'_>, affixes: Affixes, out: &mut Vec<u32>) {
        let start = out.len();
        let mut encoder = Encoder { tokenizer: self, merger: Merger::default(), out };
        let mut raw_start = 0;
        let mut pos = 0;
        let mut marker = MarkerRule::new(special);
        while pos < text.len() {
            marker.advance(pos);
            let allow = |id, end| self.vocab.type_of(id) == TokenType::UserDefined || marker.allows(end);
            match self.vocab.special().longest_at(text.as_bytes(), pos, allow) {
                Some((id, end)) => {
                    encoder.text(&text[raw_start..pos]);
                    encoder.out.push(id);
                    raw_start = end;
                    pos = end;
                }
                None => pos += 1,
            }
        }
        encoder.text(&text[raw_start..]);
        if affixes == Affixes::Model {
            if let Some(bos) = self.bos.filter(|bos| self.add_bos && out.get(start) != Some(bos)) {
                out.insert(start, bos);
            }
            if let Some(eos) = self.eos.filter(|eos| self.add_eos && out[start..].last() != Some(eos)) {
                out.push(eos);
            }
        }
    }
}

/// Encodes what lies between the special tokens of one text.
struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    merger: Merger,
    out: &'a mut Vec<u32>,
}

impl Encoder<'_> {
    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let Self { tokenizer: Tokenizer { vocab, model, .. }, merger, out } = self;
        match model {
            Model::Bytes(bpe) => bpe.encode(vocab, text, merger, out),
            Model::Scores(bpe) => bpe.encode(vocab, text, merger, out),
        }
    }
}

/// Decides, place by place, whether a marker may be recognised.
struct MarkerRule<'a> {
    parse: bool,
    /// Ranges that don't end before the place.
    plain: &'a [Range<usize>],
}

impl<'a> MarkerRule<'a> {
    fn new(special: Special<'a>) -> Self {
        match special {
            Special::Plain => Self { parse: false, plain: &[] },
            Special::Parse => Self { parse: true, plain: &[] },
            Special::ParseOutside(plain) => Self { parse: true, plain },
        }
    }

    fn advance(&mut self, pos: usize) {
        while self.plain.first().is_some_and(|range| range.end <= pos) {
            self.plain = &self.plain[1..];
        }
    }

    /// Whether one may lie between the place and `end`.
    fn allows(&self, end: usize) -> bool {
        self.parse && self.plain.first().is_none_or(|range| range.start >= end)
    }
}

/// Checks the token that text without one becomes. An id past the vocabulary is left to the check of all ids.
fn check_unknown(vocab: &Vocab, unk: Option<u32>) -> Result<(), TextError> {
    let what = "a token for each byte, or one for unknown text";
    let id = unk.ok_or(TextError::Missing { model: "llama", what })?;
    match vocab.get(id) {
        Some(name) if vocab.type_of(id) == TokenType::Control => {
            Err(TextError::UnknownIsControl { id, text: String::from_utf8_lossy(name).into_owned() })
        }
        _ => Ok(()),
    }
}

fn check_scores(scores: &[f32], n_vocab: usize) -> Result<(), TextError> {
    if scores.len() != n_vocab {
        return Err(TextError::LengthMismatch { what: "scores", found: scores.len(), n_vocab });
    }
    match scores.iter().position(|score| !score.is_finite()) {
        Some(id) => Err(TextError::NonFiniteScore { id: id as u32, score: scores[id] }),
        None => Ok(()),
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("n_vocab", &self.n_vocab()).finish_non_exhaustive()
    }
}
