//! The tables behind a tokeniser: texts of tokens, their types, and the way back from text to token.

use crate::merge::NO_TOKEN;
use crate::pieces::{PieceIndex, Pieces};
use crate::special::SpecialTrie;
use crate::spm::SPACE_MARK;
use crate::{TextError, TokenType, alphabet, stop};

/// How the texts of tokens spell bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// In GPT-2's alphabet.
    Alphabet,
    /// As they are, U+2581 for a space.
    SpaceMark,
}

/// The tokens of a vocabulary.
pub(crate) struct Vocab {
    /// What each token stands for, in bytes of text; of special tokens, their names.
    pieces: Pieces,
    /// By token.
    types: Vec<TokenType>,
    /// Tokens that plain text is made of.
    index: PieceIndex,
    /// Markers and user-defined tokens.
    special: SpecialTrie,
    /// Tokens that end generation by their text, sorted.
    end_ids: Vec<u32>,
}

impl Vocab {
    /// Reads all tokens. Also returns the token of each byte, from tokens of that type.
    pub(crate) fn new(
        spelling: Spelling,
        tokens: impl IntoIterator<Item: AsRef<[u8]>>,
        token_types: Option<&[i32]>,
    ) -> Result<(Self, Box<[u32; 256]>), TextError> {
        let tokens = tokens.into_iter();
        let n = tokens.size_hint().0;
        let mut pieces = Pieces::with_capacity(n);
        let mut index = PieceIndex::with_capacity(n);
        let mut types = Vec::with_capacity(n);
        let mut special = Vec::new();
        let mut byte_ids = Box::new([NO_TOKEN; 256]);
        for (at, text) in tokens.enumerate() {
            let text = text.as_ref();
            let id = at as u32;
            let found = token_types.and_then(|types| types.get(at));
            let ty = found.map_or(Ok(TokenType::Normal), |&found| TokenType::new(id, found))?;
            types.push(ty);
            let mut byte = None;
            if ty == TokenType::Byte {
                byte = byte_of(text);
                if byte.is_none() {
                    return Err(TextError::InvalidByteToken { id, text: lossy(text) });
                }
            }
            let mut is_text = false;
            let fits = pieces.push_with(|out| match (ty, byte) {
                (_, Some(byte)) => out.push(byte),
                (TokenType::Normal | TokenType::Unused | TokenType::Undefined, _) => {
                    is_text = spell(spelling, text, out);
                }
                (TokenType::UserDefined, _) if spelling == Spelling::SpaceMark => {
                    spell(spelling, text, out);
                }
                _ => out.extend_from_slice(text),
            });
            if !fits {
                let size_bytes = pieces.size_bytes() + text.len();
                return Err(TextError::VocabularyTooLarge { n_vocab: at + 1, size_bytes });
            }
            if let Some(byte) = byte {
                let slot = &mut byte_ids[usize::from(byte)];
                if *slot != NO_TOKEN {
                    return Err(TextError::DuplicateToken { first: *slot, second: id, text: lossy(text) });
                }
                *slot = id;
            } else if ty.is_marker() || ty == TokenType::UserDefined {
                special.push(id);
            } else if is_text && !text.is_empty() {
                index.insert(&pieces, id).map_err(|first| TextError::DuplicateToken {
                    first,
                    second: id,
                    text: lossy(text),
                })?;
            }
        }
        let n_vocab = pieces.len();
        if n_vocab == 0 {
            return Err(TextError::EmptyVocabulary);
        }
        if let Some(types) = token_types.filter(|types| types.len() != n_vocab) {
            return Err(TextError::LengthMismatch { what: "token types", found: types.len(), n_vocab });
        }
        let end_ids = take_end_tokens(&pieces, &mut types, &mut index, &mut special);
        let special = SpecialTrie::new(&pieces, special).map_err(|(first, second)| TextError::DuplicateToken {
            first,
            second,
            text: lossy(pieces.of(first)),
        })?;
        Ok((Self { pieces, types, index, special, end_ids }, byte_ids))
    }

    pub(crate) fn n_vocab(&self) -> usize {
        self.types.len()
    }

    /// The bytes of a token, which must exist.
    pub(crate) fn piece(&self, id: u32) -> &[u8] {
        self.pieces.of(id)
    }

    /// The bytes of a token, if it exists.
    pub(crate) fn get(&self, id: u32) -> Option<&[u8]> {
        self.pieces.get(id)
    }

    /// The type of a token, which must exist.
    pub(crate) fn type_of(&self, id: u32) -> TokenType {
        self.types[id as usize]
    }

    /// The token that these bytes of plain text are.
    pub(crate) fn find_text(&self, bytes: &[u8]) -> Option<u32> {
        self.index.find(&self.pieces, bytes)
    }

    /// The marker or user-defined token of this name.
    pub(crate) fn special_token(&self, name: &[u8]) -> Option<u32> {
        self.special.find(name)
    }

    pub(crate) fn special(&self) -> &SpecialTrie {
        &self.special
    }

    pub(crate) fn end_ids(&self) -> &[u32] {
        &self.end_ids
    }
}

/// Makes all tokens that end generation by their text control tokens, whatever their file says they are: otherwise
/// plain text could hold one. Returns those that do end it.
fn take_end_tokens(
    pieces: &Pieces,
    types: &mut [TokenType],
    index: &mut PieceIndex,
    special: &mut Vec<u32>,
) -> Vec<u32> {
    for text in stop::texts() {
        if let Some(id) = index.remove(pieces, text.as_bytes()) {
            special.push(id);
        }
    }
    let mut ids: Vec<u32> = special.iter().copied().filter(|&id| stop::ends_generation(pieces.of(id))).collect();
    ids.sort_unstable();
    for &id in &ids {
        types[id as usize] = TokenType::Control;
    }
    let all = ids.clone();
    let exists = |text: &str| all.iter().any(|&id| pieces.of(id) == text.as_bytes());
    ids.retain(|&id| !stop::is_overruled(pieces.of(id), exists));
    ids
}

/// Appends the bytes that a token's text stands for. Returns whether plain text can hold them: text that is not
/// spelled as the vocabulary spells is kept as it is, and never found.
fn spell(spelling: Spelling, text: &[u8], out: &mut Vec<u8>) -> bool {
    match spelling {
        Spelling::Alphabet => {
            let decodes = alphabet::decode(text, out);
            if !decodes {
                out.extend_from_slice(text);
            }
            decodes
        }
        Spelling::SpaceMark => {
            let mark = SPACE_MARK.as_bytes();
            let mut rest = text;
            while let Some(at) = rest.iter().position(|&byte| byte == mark[0]) {
                out.extend_from_slice(&rest[..at]);
                let is_mark = rest[at..].starts_with(mark);
                out.push(if is_mark { b' ' } else { rest[at] });
                rest = &rest[at + if is_mark { mark.len() } else { 1 }..];
            }
            out.extend_from_slice(rest);
            !text.contains(&b' ')
        }
    }
}

/// The byte that `<0xNN>` names.
fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let value = |digit: u8| char::from(digit).to_digit(16);
    match *digits {
        [high, low] => Some((value(high)? << 4 | value(low)?) as u8),
        _ => None,
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
