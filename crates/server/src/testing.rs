//! What tests of this crate share: vocabularies of real models, and random answers under a grammar.

use std::sync::Arc;

use muser_engine::service::Constraint as _;
use muser_engine::{read_tokenizer, with_header};
use muser_tests::{model, model_path};
use muser_text::{DecodeOptions, Tokenizer};

use crate::structured::GrammarConstraint;

/// The vocabulary of a model in the cache folder.
pub fn tokenizer(file: &str) -> Arc<Tokenizer> {
    Arc::new(with_header(&model_path(file), |_, set| read_tokenizer(set.metadata(), None)).unwrap())
}

/// One vocabulary of each kind: byte-level and by scores.
pub fn tokenizers() -> [Arc<Tokenizer>; 2] {
    [tokenizer(model::SMOLLM2), tokenizer(model::GEMMA3)]
}

/// xorshift64*: the same sequence everywhere.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

/// The tokens that may come next.
pub fn allowed(constraint: &mut GrammarConstraint, n_vocab: usize) -> Vec<u32> {
    let mut logits = vec![0.0; n_vocab];
    constraint.mask(&mut logits).unwrap();
    (0..n_vocab as u32).filter(|&id| logits[id as usize] == 0.0).collect()
}

/// An answer of random tokens. `wish` picks one of those allowed; `None` leaves it to chance. Ends where the grammar ends, or
/// after `max` tokens, which gives `None`.
pub fn random_answer(
    constraint: &mut GrammarConstraint,
    tokenizer: &Tokenizer,
    random: &mut Random,
    max: usize,
    wish: impl Fn(&[u32], &mut Random) -> Option<u32>,
) -> Option<String> {
    let mut ids = Vec::new();
    for _ in 0..max {
        if constraint.is_finished() {
            return Some(decode(tokenizer, &ids));
        }
        let allowed = allowed(constraint, tokenizer.n_vocab());
        assert!(!allowed.is_empty(), "nothing may follow {:?}", decode(tokenizer, &ids));
        let id = wish(&allowed, random).unwrap_or_else(|| allowed[random.below(allowed.len())]);
        constraint.accept(id).unwrap();
        if tokenizer.is_end_of_generation(id) {
            return Some(decode(tokenizer, &ids));
        }
        ids.push(id);
    }
    None
}

/// The text of an answer's tokens; control tokens show.
pub fn decode(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let bytes = tokenizer.decode_bytes(ids, DecodeOptions { special: true, continues: true }).unwrap();
    String::from_utf8(bytes).expect("an answer under a grammar is UTF-8")
}
