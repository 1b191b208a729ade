//! Tokens to text: all at once, one by one, and there and back.

mod common;

use common::{GEMMA3, Model, SMOLLM2, tokenizer};
use muser_text::{Affixes, DecodeOptions, Detokenizer, Special, TextError, Tokenizer, VocabSpec};
use proptest::prelude::*;
use std::sync::Arc;

/// SentencePiece-style: byte tokens at 0 to 255, then control, user-defined, unknown and some text.
fn scores(add_space_prefix: bool) -> Tokenizer {
    let mut tokens: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    let mut types = vec![6; 256];
    for (text, ty) in
        [("<s>", 3), ("<u>", 4), ("<unk>", 2), ("▁", 1), ("▁hi", 1), ("é", 1), ("h", 1), ("i", 1), ("hi", 1)]
    {
        tokens.push(text.to_owned());
        types.push(ty);
    }
    let scores = vec![-1.0; tokens.len()];
    let spec = VocabSpec {
        token_types: Some(&types),
        scores: Some(&scores),
        add_bos: Some(false),
        add_space_prefix: Some(add_space_prefix),
        ..VocabSpec::new("llama", &tokens, None::<[&str; 0]>)
    };
    Tokenizer::new(spec).unwrap()
}

const CONTROL: u32 = 256;
const USER_DEFINED: u32 = 257;
const SPACE_HI: u32 = 260;
const HI: u32 = 264;

fn streamed(tokenizer: &Tokenizer, ids: &[u32], options: DecodeOptions) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(tokenizer, options);
    let mut parts: Vec<String> = ids.iter().map(|&id| detokenizer.push(id).unwrap().to_owned()).collect();
    parts.push(detokenizer.flush().to_owned());
    parts
}

proptest! {
    #[test]
    fn streamed_text_is_the_text_decoded_at_once(
        ids in proptest::collection::vec(prop_oneof![0..265_u32, 0xE0..0xF5_u32, 0x80..0xC0_u32], 0..40),
        special in any::<bool>(),
        continues in any::<bool>(),
        prefix in any::<bool>(),
    ) {
        let tokenizer = scores(prefix);
        let options = DecodeOptions { special, continues };
        let whole = tokenizer.decode(&ids, options).unwrap();
        let bytes = tokenizer.decode_bytes(&ids, options).unwrap();
        prop_assert_eq!(String::from_utf8_lossy(&bytes), &*whole);
        let parts = streamed(&tokenizer, &ids, options);
        prop_assert_eq!(parts.concat(), &*whole);
        // What was streamed so far is never taken back: it is a start of the whole.
        let mut sent = String::new();
        for part in parts {
            sent += &part;
            prop_assert!(whole.starts_with(&sent));
        }
    }

    #[test]
    fn text_survives_encoding_and_decoding(text in any::<String>(), prefix in any::<bool>()) {
        let tokenizer = scores(prefix);
        let ids = tokenizer.encode(&text, Special::Plain, Affixes::None);
        // Text after a user-defined token gets a space of its own, as it does elsewhere.
        prop_assume!(!prefix || !text.contains("<u>"));
        let expected = text.replace('▁', " ");
        prop_assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()).unwrap(), expected);
    }
}

#[test]
fn text_of_real_vocabularies_survives_however_it_is_streamed() {
    let text = "Grüße, мир! 日本語 👩\u{200D}👩\u{200D}👧 \t\n x = 3.14  # “done” <end_of_turn>";
    for name in [SMOLLM2, GEMMA3] {
        let model = Model::open(name);
        let tokenizer = tokenizer(&model.gguf(), |_| {});
        let ids = tokenizer.encode(text, Special::Plain, Affixes::None);
        assert_eq!(streamed(&tokenizer, &ids, DecodeOptions::default()).concat(), text);
    }
}

#[test]
fn a_character_is_held_back_until_it_is_complete() {
    let parts = streamed(&scores(false), &[0xF0, 0x9F, 0x98, 0x80, 0xC3, HI], DecodeOptions::default());
    assert_eq!(parts, ["", "", "", "😀", "", "\u{FFFD}hi", ""]);
}

#[test]
fn an_incomplete_end_becomes_one_replacement_character() {
    let tokenizer = scores(false);
    let mut detokenizer = Detokenizer::new(Arc::new(tokenizer), DecodeOptions::default());
    for id in [0xF0, 0x9F, 0x98] {
        assert_eq!(detokenizer.push(id), Ok(""));
    }
    assert_eq!(detokenizer.flush(), "\u{FFFD}");
    assert_eq!(detokenizer.flush(), "");
    assert_eq!(detokenizer.push(HI), Ok("hi"));
}

#[test]
fn the_space_put_before_a_text_is_taken_off_its_start_only() {
    let [start, later] = [false, true].map(|continues| DecodeOptions { special: false, continues });
    let ids = [CONTROL, SPACE_HI, SPACE_HI];
    assert_eq!(scores(true).decode(&ids, start).unwrap(), "hi hi");
    assert_eq!(scores(true).decode(&ids, later).unwrap(), " hi hi");
    assert_eq!(scores(false).decode(&ids, start).unwrap(), " hi hi");
}

#[test]
fn the_space_prefix_is_put_before_text_at_the_start_and_after_special_tokens() {
    let ids = scores(true).encode("hi<s>hi<u>hi", Special::Parse, Affixes::None);
    assert_eq!(ids, [SPACE_HI, CONTROL, SPACE_HI, USER_DEFINED, SPACE_HI]);
    let ids = scores(false).encode("hi<s>hi<u>hi", Special::Parse, Affixes::None);
    assert_eq!(ids, [HI, CONTROL, HI, USER_DEFINED, HI]);
}

#[test]
fn markers_are_hidden_unless_asked_for_and_user_defined_tokens_are_not() {
    let ids = [CONTROL, USER_DEFINED, 258, HI];
    let tokenizer = scores(false);
    assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()).unwrap(), "<u>hi");
    let options = DecodeOptions { special: true, ..DecodeOptions::default() };
    assert_eq!(tokenizer.decode(&ids, options).unwrap(), "<s><u><unk>hi");
}

#[test]
fn characters_without_a_token_become_their_bytes() {
    assert_eq!(scores(false).encode("éà", Special::Plain, Affixes::None), [261, 0xC3, 0xA0]);
}

#[test]
fn text_that_spells_a_byte_token_is_not_that_byte() {
    let tokenizer = scores(false);
    let ids = tokenizer.encode("<0x41>", Special::Parse, Affixes::None);
    assert_eq!(ids, "<0x41>".bytes().map(u32::from).collect::<Vec<_>>());
}

#[test]
fn ids_past_the_vocabulary_are_errors_that_change_nothing() {
    let tokenizer = scores(false);
    for id in [265, u32::MAX] {
        let error = TextError::TokenOutOfRange { id, n_vocab: 265 };
        assert_eq!(tokenizer.decode(&[HI, id], DecodeOptions::default()), Err(error.clone()));
        assert_eq!((tokenizer.token_bytes(id), tokenizer.token_type(id)), (None, None));
        let mut detokenizer = Detokenizer::new(&tokenizer, DecodeOptions::default());
        assert_eq!(detokenizer.push(0xC3), Ok(""));
        assert_eq!(detokenizer.push(id), Err(error));
        assert_eq!(detokenizer.push(0xA9), Ok("é"));
    }
}

#[test]
fn a_megabyte_of_one_word_is_encoded_and_comes_back() {
    for name in [SMOLLM2, GEMMA3] {
        let model = Model::open(name);
        let tokenizer = tokenizer(&model.gguf(), |_| {});
        for unit in ["x", " ", "\n", "😀", "xy", "<", "7"] {
            let text = unit.repeat((1 << 20) / unit.len());
            let ids = tokenizer.encode(&text, Special::Parse, Affixes::None);
            assert!(tokenizer.decode(&ids, DecodeOptions::default()).as_deref() == Ok(&*text), "{name}: {unit:?}");
        }
    }
}
