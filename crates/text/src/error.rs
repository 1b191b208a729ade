//! What can be wrong with a vocabulary, or with a token id.

/// An error of the tokenisers, naming what was wrong and the numbers.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The tokeniser's model is of a kind that is not supported.
    #[error("tokeniser model {name:?} is not supported; known are \"gpt2\" and \"llama\"")]
    UnknownModel {
        /// The name found.
        name: String,
    },
    /// A byte-level vocabulary does not say how text is split into words.
    #[error("the vocabulary names no pre-tokeniser; known are {known}")]
    MissingPreTokenizer {
        /// The names that are known, separated by commas.
        known: String,
    },
    /// The pre-tokeniser is not one of those known.
    #[error("pre-tokeniser {name:?} is not supported; known are {known}")]
    UnknownPreTokenizer {
        /// The name found.
        name: String,
        /// The names that are known, separated by commas.
        known: String,
    },
    /// There is no token at all.
    #[error("the vocabulary is empty")]
    EmptyVocabulary,
    /// The vocabulary is larger than ids or offsets of 32 bits can address.
    #[error("the vocabulary is too large: {n_vocab} tokens of {size_bytes} bytes, where both must fit 32 bits")]
    VocabularyTooLarge {
        /// Tokens read until then.
        n_vocab: usize,
        /// Their bytes.
        size_bytes: usize,
    },
    /// A list that runs parallel to the tokens has another length.
    #[error("there are {found} {what} for {n_vocab} tokens")]
    LengthMismatch {
        /// Which list.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The number of tokens.
        n_vocab: usize,
    },
    /// A token's type is none of those defined.
    #[error("token {id} has type {found}, which is not in 0..=6")]
    UnknownTokenType {
        /// The token.
        id: u32,
        /// The type found.
        found: i32,
    },
    /// A token's score is not a finite number.
    #[error("token {id} has score {score}, which is not finite")]
    NonFiniteScore {
        /// The token.
        id: u32,
        /// The score found.
        score: f32,
    },
    /// A byte token is not spelled as one.
    #[error("byte token {id} is {text:?}, not of the form \"<0xNN>\"")]
    InvalidByteToken {
        /// The token.
        id: u32,
        /// Its text.
        text: String,
    },
    /// Two tokens have the same text.
    #[error("tokens {first} and {second} are both {text:?}")]
    DuplicateToken {
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
        /// Their text.
        text: String,
    },
    /// What the kind of tokeniser can't do without is absent.
    #[error("a vocabulary of model {model:?} needs {what}")]
    Missing {
        /// The kind of tokeniser.
        model: &'static str,
        /// What is absent.
        what: &'static str,
    },
    /// Text that has no token would become a control token, and act.
    #[error("token {id} ({text:?}) is a control token, and can't also stand for unknown text")]
    UnknownIsControl {
        /// The token.
        id: u32,
        /// Its text.
        text: String,
    },
    /// A merge rule is not two parts with a space between.
    #[error("merge {rank} is {text:?}, not two parts separated by a space")]
    InvalidMerge {
        /// Its place in the list.
        rank: usize,
        /// Its text.
        text: String,
    },
    /// A merge rule names a token that does not exist.
    #[error("merge {rank} ({text:?}) names or makes a token that is not in the vocabulary")]
    UnknownMergeToken {
        /// Its place in the list.
        rank: usize,
        /// Its text.
        text: String,
    },
    /// A special token's id is past the end of the vocabulary.
    #[error("the {what} token's id is {id}, but the vocabulary has {n_vocab} tokens")]
    SpecialOutOfRange {
        /// Which one.
        what: &'static str,
        /// Its id.
        id: u32,
        /// The number of tokens.
        n_vocab: usize,
    },
    /// The vocabulary asks for a token around each text without saying which.
    #[error("the vocabulary wants the {what} token added, but names none")]
    MissingSpecial {
        /// Which one.
        what: &'static str,
    },
    /// A token id is past the end of the vocabulary.
    #[error("token id {id} is out of range: the vocabulary has {n_vocab} tokens")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// The number of tokens.
        n_vocab: usize,
    },
}
