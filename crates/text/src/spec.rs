//! What a tokeniser is made from: the caller reads it from a model file, this crate knows no file format.

use crate::TextError;

/// A vocabulary as a model file describes it. Nothing in it is trusted.
///
/// `T` and `M` iterate over the texts of tokens and merges as stored: anything with bytes, not necessarily UTF-8. They
/// are read once and copied into one table, so that 262,144 tokens cost a handful of allocations.
#[derive(Debug, Clone)]
pub struct VocabSpec<'a, T, M> {
    /// Kind of tokeniser: `gpt2` (byte-level BPE) or `llama` (SentencePiece-style BPE by scores).
    pub model: &'a str,
    /// How `gpt2` vocabularies split text into words; see [`pre_tokenizer_names`](crate::pre_tokenizer_names).
    /// Ignored by `llama`.
    pub pre: Option<&'a str>,
    /// Texts of the tokens, by id.
    pub tokens: T,
    /// Types of the tokens, as numbered by [`TokenType`]; all are normal if absent. // (`n_vocab`)
    pub token_types: Option<&'a [i32]>,
    /// Scores of the tokens, needed by `llama`. // (`n_vocab`)
    pub scores: Option<&'a [f32]>,
    /// Merge rules `left right`, most important first, needed by `gpt2`.
    pub merges: Option<M>,
    /// Beginning of text.
    pub bos: Option<u32>,
    /// End of text; ends generation.
    pub eos: Option<u32>,
    /// End of turn; ends generation.
    pub eot: Option<u32>,
    /// End of message; ends generation if the file names it here.
    pub eom: Option<u32>,
    /// Unknown text.
    pub unk: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Whether texts start with `bos`; if absent, `llama` and `llama-bpe` say yes.
    pub add_bos: Option<bool>,
    /// Whether texts end with `eos`; if absent, no.
    pub add_eos: Option<bool>,
    /// Whether `llama` puts a space before text at the start and after special tokens; if absent, yes.
    pub add_space_prefix: Option<bool>,
}

impl<'a, T, M> VocabSpec<'a, T, M> {
    /// A specification with everything optional absent.
    pub fn new(model: &'a str, tokens: T, merges: Option<M>) -> Self {
        Self {
            model,
            pre: None,
            tokens,
            token_types: None,
            scores: None,
            merges,
            bos: None,
            eos: None,
            eot: None,
            eom: None,
            unk: None,
            pad: None,
            add_bos: None,
            add_eos: None,
            add_space_prefix: None,
        }
    }
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenType {
    /// 0: not said; treated as unused.
    Undefined,
    /// 1: text.
    Normal,
    /// 2: stands for text that has no token.
    Unknown,
    /// 3: a marker that is not text: hidden in output, recognised in input only where the caller says so.
    Control,
    /// 4: text that is matched before anything else.
    UserDefined,
    /// 5: never seen in training.
    Unused,
    /// 6: one byte, spelled `<0xNN>`.
    Byte,
}

impl TokenType {
    pub(crate) fn new(id: u32, found: i32) -> Result<Self, TextError> {
        Ok(match found {
            0 => Self::Undefined,
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return Err(TextError::UnknownTokenType { id, found }),
        })
    }

    /// Whether output shows the token only when asked.
    pub fn is_hidden(self) -> bool {
        matches!(self, Self::Undefined | Self::Unknown | Self::Control | Self::Unused)
    }

    /// Whether plain text never becomes this token.
    pub fn is_marker(self) -> bool {
        matches!(self, Self::Unknown | Self::Control)
    }
}
