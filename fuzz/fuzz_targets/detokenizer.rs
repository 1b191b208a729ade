//! Any tokens of any vocabulary: the text that streams is the text decoded at once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use muser_fuzz::Vocabulary;
use muser_text::{DecodeOptions, Detokenizer};

fuzz_target!(|input: (Vocabulary, Vec<u16>, bool, bool)| {
    let (vocabulary, ids, special, continues) = input;
    let Ok(tokenizer) = vocabulary.tokenizer() else { return };
    let options = DecodeOptions { special, continues };
    let n_vocab = tokenizer.n_vocab() as u32;
    // One id past the vocabulary is drawn like any other, and changes nothing.
    let ids: Vec<u32> = ids.into_iter().map(|id| u32::from(id) % (n_vocab + 1)).collect();
    let known: Vec<u32> = ids.iter().copied().filter(|&id| id < n_vocab).collect();
    let whole = tokenizer.decode(&known, options).expect("they are in the vocabulary");
    let bytes = tokenizer.decode_bytes(&known, options).expect("they are in the vocabulary");
    assert_eq!(String::from_utf8_lossy(&bytes), whole);

    let mut detokenizer = Detokenizer::new(&tokenizer, options);
    let mut streamed = String::new();
    for id in ids {
        match detokenizer.push(id) {
            Ok(text) => streamed.push_str(text),
            Err(_) => assert_eq!(id, n_vocab),
        }
    }
    streamed.push_str(detokenizer.flush());
    assert_eq!(streamed, whole);
    assert_eq!(detokenizer.flush(), "");
});
