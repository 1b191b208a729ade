//! Any vocabulary and any text: refused, or encoded into tokens that stand for the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muser_fuzz::Vocabulary;
use muser_text::{Affixes, DecodeOptions, Special, TokenType};

fuzz_target!(|input: (Vocabulary, &str, u8)| {
    let (vocabulary, text, cut) = input;
    let tokenizer = match vocabulary.tokenizer() {
        Ok(tokenizer) => tokenizer,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let n_vocab = tokenizer.n_vocab() as u32;
    let mut cut = usize::from(cut).min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let all = 0..text.len();
    let foreign = [0..cut];
    for (special, foreign) in [
        (Special::Plain, &all),
        (Special::Parse, &(0..0)),
        (Special::ParseOutside(if cut == 0 { &[] } else { &foreign }), &foreign[0]),
    ] {
        let ids = tokenizer.encode(text, special, Affixes::None);
        assert!(ids.iter().all(|&id| id < n_vocab));
        let around = tokenizer.encode(text, special, Affixes::Model);
        assert!(around.len() >= ids.len() && around.len() <= ids.len() + 2);
        // What a user wrote never becomes a control token.
        let is_control = |&&id: &&u32| tokenizer.token_type(id) == Some(TokenType::Control);
        if *foreign == all {
            assert_eq!(ids.iter().filter(is_control).count(), 0, "{text:?} in {vocabulary:?}");
        }
        let options = DecodeOptions { special: true, continues: false };
        tokenizer.decode(&ids, options).expect("the ids are in the vocabulary");
    }
});
