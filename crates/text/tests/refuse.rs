//! Vocabularies that are wrong in some way, each refused with an error that says so.

use muser_text::{TextError, Tokenizer, VocabSpec, pre_tokenizer_names};

type Spec<'a> = VocabSpec<'a, Vec<&'a str>, Vec<&'a str>>;
type WithId = fn(u32) -> Spec<'static>;

fn bytes() -> Spec<'static> {
    VocabSpec {
        pre: Some("gpt-2"),
        ..VocabSpec::new("gpt2", vec!["a", "b", "c", "ab", "<|im_end|>"], Some(vec!["a b"]))
    }
}

const SCORES: &[f32] = &[0.0, -1.0, -2.0, -3.0];

fn scores() -> Spec<'static> {
    let tokens = vec!["<unk>", "a", "b", "ab"];
    let types: &[i32] = &[2, 1, 1, 1];
    VocabSpec {
        scores: Some(SCORES),
        token_types: Some(types),
        unk: Some(0),
        add_bos: Some(false),
        ..VocabSpec::new("llama", tokens, None)
    }
}

fn error(spec: Spec<'_>) -> TextError {
    Tokenizer::new(spec).expect_err("the vocabulary is refused")
}

#[test]
fn the_vocabularies_that_the_other_tests_break_are_accepted() {
    Tokenizer::new(bytes()).unwrap();
    Tokenizer::new(scores()).unwrap();
}

#[test]
fn an_unknown_kind_of_tokeniser_is_refused() {
    assert_eq!(error(VocabSpec { model: "bert", ..bytes() }), TextError::UnknownModel { name: "bert".to_owned() });
}

#[test]
fn a_missing_or_unknown_pre_tokeniser_is_refused_with_those_known() {
    for pre in [None, Some(""), Some("default"), Some("GPT-2")] {
        let message = error(VocabSpec { pre, ..bytes() }).to_string();
        for name in pre_tokenizer_names() {
            assert!(message.contains(name), "{message}");
        }
        assert!(message.contains(pre.unwrap_or("names no pre-tokeniser")), "{message}");
    }
}

#[test]
fn a_vocabulary_of_scores_needs_no_pre_tokeniser() {
    Tokenizer::new(VocabSpec { pre: Some("default"), ..scores() }).unwrap();
    Tokenizer::new(VocabSpec { pre: None, ..scores() }).unwrap();
}

#[test]
fn an_empty_vocabulary_is_refused() {
    assert_eq!(error(VocabSpec { tokens: vec![], ..bytes() }), TextError::EmptyVocabulary);
}

#[test]
fn merges_and_scores_are_not_optional_where_they_are_the_model() {
    assert!(matches!(error(VocabSpec { merges: None, ..bytes() }), TextError::Missing { what: "merges", .. }));
    assert!(matches!(error(VocabSpec { scores: None, ..scores() }), TextError::Missing { what: "scores", .. }));
}

#[test]
fn types_and_scores_of_another_length_are_refused() {
    for types in [&[1, 1, 1, 1][..], &[1; 6], &[]] {
        let expected = TextError::LengthMismatch { what: "token types", found: types.len(), n_vocab: 5 };
        assert_eq!(error(VocabSpec { token_types: Some(types), ..bytes() }), expected);
    }
    for found in [&SCORES[..3], &[0.0; 5], &[]] {
        let expected = TextError::LengthMismatch { what: "scores", found: found.len(), n_vocab: 4 };
        assert_eq!(error(VocabSpec { scores: Some(found), ..scores() }), expected);
    }
}

#[test]
fn a_type_that_does_not_exist_is_refused() {
    for found in [-1, 7, i32::MAX] {
        let types = [1, found, 1, 1, 1];
        assert_eq!(
            error(VocabSpec { token_types: Some(&types), ..bytes() }),
            TextError::UnknownTokenType { id: 1, found }
        );
    }
}

#[test]
fn scores_that_are_not_finite_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let found = error(VocabSpec { scores: Some(&[0.0, -1.0, bad, 0.0]), ..scores() });
        assert!(matches!(found, TextError::NonFiniteScore { id: 2, .. }), "{found}");
    }
}

#[test]
fn special_ids_past_the_vocabulary_are_refused() {
    let specs: [(&str, WithId); 6] = [
        ("bos", |id| VocabSpec { bos: Some(id), ..bytes() }),
        ("eos", |id| VocabSpec { eos: Some(id), ..bytes() }),
        ("eot", |id| VocabSpec { eot: Some(id), ..bytes() }),
        ("eom", |id| VocabSpec { eom: Some(id), ..bytes() }),
        ("unk", |id| VocabSpec { unk: Some(id), ..bytes() }),
        ("pad", |id| VocabSpec { pad: Some(id), ..bytes() }),
    ];
    for (what, spec) in specs {
        Tokenizer::new(spec(4)).unwrap();
        for id in [5, u32::MAX] {
            assert_eq!(error(spec(id)), TextError::SpecialOutOfRange { what, id, n_vocab: 5 });
        }
    }
    let unk = error(VocabSpec { unk: Some(u32::MAX), ..scores() });
    assert_eq!(unk, TextError::SpecialOutOfRange { what: "unk", id: u32::MAX, n_vocab: 4 });
}

#[test]
fn a_token_to_be_added_must_be_named() {
    assert_eq!(error(VocabSpec { add_bos: Some(true), ..bytes() }), TextError::MissingSpecial { what: "bos" });
    assert_eq!(error(VocabSpec { add_eos: Some(true), ..bytes() }), TextError::MissingSpecial { what: "eos" });
    // Some kinds add the beginning of text unless told otherwise.
    assert_eq!(error(VocabSpec { add_bos: None, ..scores() }), TextError::MissingSpecial { what: "bos" });
    let llama3 = VocabSpec { pre: Some("llama-bpe"), ..bytes() };
    assert_eq!(error(llama3), TextError::MissingSpecial { what: "bos" });
}

#[test]
fn equal_tokens_are_refused() {
    let twice = |types: &'static [i32]| {
        let tokens = vec!["a", "b", "c", "ab", "a"];
        error(VocabSpec { tokens, token_types: Some(types), ..bytes() })
    };
    let expected = TextError::DuplicateToken { first: 0, second: 4, text: "a".to_owned() };
    assert_eq!(twice(&[1, 1, 1, 1, 1]), expected);
    assert_eq!(twice(&[3, 1, 1, 1, 4]), expected);
    let byte_twice =
        VocabSpec { tokens: vec!["<unk>", "a", "<0x0A>", "<0x0a>"], token_types: Some(&[2, 1, 6, 6]), ..scores() };
    assert!(matches!(error(byte_twice), TextError::DuplicateToken { first: 2, second: 3, .. }));
}

#[test]
fn byte_tokens_are_spelled_as_bytes() {
    for text in ["<0x0>", "<0x0G>", "<0x123>", "0x41", "", "<0x41"] {
        let spec = VocabSpec { tokens: vec!["<unk>", "a", "b", text], token_types: Some(&[2, 1, 1, 6]), ..scores() };
        assert_eq!(error(spec), TextError::InvalidByteToken { id: 3, text: text.to_owned() });
    }
}

#[test]
fn every_character_needs_a_way_to_be_encoded() {
    let found = error(VocabSpec { unk: None, ..scores() });
    assert!(matches!(found, TextError::Missing { model: "llama", .. }), "{found}");
}

#[test]
fn text_without_a_token_does_not_become_a_control_token() {
    // By its type, and by its name whatever its type.
    for (text, ty) in [("<s>", 3), ("</s>", 1), ("</s>", 4)] {
        let types = [2, 1, 1, ty];
        let tokens = vec!["<unk>", "a", "b", text];
        let spec = VocabSpec { tokens, token_types: Some(&types), unk: Some(3), ..scores() };
        assert_eq!(error(spec), TextError::UnknownIsControl { id: 3, text: text.to_owned() });
    }
    // With a token for each byte, none is unknown.
    let mut tokens: Vec<String> = (0..256).map(|byte| format!("<0x{byte:02X}>")).collect();
    tokens.push("<s>".to_owned());
    let (types, values) = ([vec![6; 256], vec![3]].concat(), vec![0.0; 257]);
    let spec = VocabSpec {
        scores: Some(&values),
        token_types: Some(&types),
        unk: Some(256),
        add_bos: Some(false),
        ..VocabSpec::new("llama", &tokens, None::<[&str; 0]>)
    };
    Tokenizer::new(spec).unwrap();
}

#[test]
fn merges_that_are_not_two_parts_are_refused() {
    for text in ["", "ab", " ", "a ", " a"] {
        let found = error(VocabSpec { merges: Some(vec!["a b", text]), ..bytes() });
        assert_eq!(found, TextError::InvalidMerge { rank: 1, text: text.to_owned() });
    }
}

#[test]
fn merges_of_or_to_tokens_that_do_not_exist_are_refused() {
    for text in ["a d", "d a", "a c", "a \u{1F600}", "a b c"] {
        let found = error(VocabSpec { merges: Some(vec!["a b", text]), ..bytes() });
        assert_eq!(found, TextError::UnknownMergeToken { rank: 1, text: text.to_owned() });
    }
}
