//! Vocabularies of both kinds, most of them valid.

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use muser_text::{TextError, Tokenizer, VocabSpec, pre_tokenizer_names};

/// A vocabulary as a file could describe it.
#[derive(Debug)]
pub struct Vocabulary {
    is_scored: bool,
    pre: &'static str,
    tokens: Vec<Vec<u8>>,
    types: Option<Vec<i32>>,
    scores: Vec<f32>,
    merges: Vec<Vec<u8>>,
    ids: [Option<u32>; 6],
    flags: [Option<bool>; 3],
}

impl<'a> Arbitrary<'a> for Vocabulary {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let is_scored = bool::arbitrary(u)?;
        let pre = *u.choose(&pre_tokenizer_names().collect::<Vec<_>>())?;
        let (mut tokens, mut types) = byte_tokens(u, is_scored)?;
        let mut merges = Vec::new();
        for _ in 0..u.int_in_range(0..=24)? {
            if !is_scored && bool::arbitrary(u)? {
                // A rule whose whole is made a token.
                let (left, right) = (u.choose(&tokens)?.clone(), u.choose(&tokens)?.clone());
                merges.push([&left[..], b" ", &right].concat());
                tokens.push([left, right].concat());
                types.push(1);
            } else {
                tokens.push(token(u)?);
                types.push(if u.ratio(1, 16)? { i32::arbitrary(u)? } else { u.int_in_range(0..=6)? });
            }
        }
        if u.ratio(1, 16)? {
            merges.push(token(u)?);
        }
        let mut scores = Vec::new();
        for _ in 0..tokens.len() {
            scores.push(f32::from(i8::arbitrary(u)?) / 4.0);
        }
        let n_vocab = tokens.len() as u32;
        let mut ids = [None; 6];
        for id in &mut ids {
            if u.ratio(1, 3)? {
                *id = Some(u.int_in_range(0..=n_vocab)?);
            }
        }
        let types = u.ratio(7, 8)?.then_some(types);
        Ok(Self { is_scored, pre, tokens, types, scores, merges, ids, flags: Arbitrary::arbitrary(u)? })
    }
}

impl Vocabulary {
    /// The tokeniser, if the vocabulary is valid.
    pub fn tokenizer(&self) -> std::result::Result<Tokenizer, TextError> {
        let [bos, eos, eot, eom, unk, pad] = self.ids;
        let [add_bos, add_eos, add_space_prefix] = self.flags;
        let model = if self.is_scored { "llama" } else { "gpt2" };
        Tokenizer::new(VocabSpec {
            pre: Some(self.pre),
            token_types: self.types.as_deref(),
            scores: Some(&self.scores),
            bos,
            eos,
            eot,
            eom,
            unk,
            pad,
            add_bos,
            add_eos,
            add_space_prefix,
            ..VocabSpec::new(model, &self.tokens, Some(&self.merges))
        })
    }
}

/// A token for each byte, or, of a scored vocabulary, for none.
fn byte_tokens(u: &mut Unstructured<'_>, is_scored: bool) -> Result<(Vec<Vec<u8>>, Vec<i32>)> {
    if !is_scored {
        return Ok((alphabet().map(|c| c.to_string().into_bytes()).collect(), vec![1; 256]));
    }
    if u.ratio(1, 4)? {
        return Ok((vec![b"<unk>".to_vec()], vec![2]));
    }
    Ok(((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>").into_bytes()).collect(), vec![6; 256]))
}

/// How byte-level vocabularies spell each byte.
fn alphabet() -> impl Iterator<Item = char> {
    let is_printable = |byte| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut others = 0x100_u32..;
    (0..=u8::MAX).map(move |byte| {
        let code = if is_printable(byte) { byte.into() } else { others.next().expect("it has no end") };
        char::from_u32(code).expect("a character")
    })
}

/// A token's text: short, and often of letters that others have too.
fn token(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    if u.ratio(1, 8)? {
        let texts = ["<|im_end|>", "<end_of_turn>", "<s>", "</s>", "▁", "▁a", "<0x41>", "<|eot_id|>", "a b", ""];
        return Ok(u.choose(&texts)?.as_bytes().to_vec());
    }
    let len = u.int_in_range(0..=5)?;
    if u.ratio(1, 8)? {
        Ok(u.bytes(len)?.to_vec())
    } else {
        (0..len).map(|_| Ok(*u.choose(b"abc <>|\xc4\xa0")?)).collect()
    }
}
