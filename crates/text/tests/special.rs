//! Special tokens: where text may become one, what is added around it, and which end generation.

use muser_text::{Affixes, DecodeOptions, Special, TokenType, Tokenizer, VocabSpec};
use std::ops::Range;

const TOKENS: &[&str] = &[
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool>",
    "a",
    "b",
    "c",
    "<",
    ">",
    "|",
    "_",
    "/",
    "s",
    "t",
    "o",
    "l",
    "i",
    "m",
    "n",
    "e",
    "d",
    "ab",
    "Ġ",
    "st",
    "<|eom|>",
];

/// Control tokens at 0 to 3, one that is user-defined at 4, letters from 5.
fn spec(change: impl FnOnce(&mut VocabSpec<'_, &'static [&'static str], &'static [&'static str]>)) -> Tokenizer {
    let types: Vec<i32> = (0..TOKENS.len())
        .map(|id| match id {
            0..=3 | 25 => 3,
            4 => 4,
            _ => 1,
        })
        .collect();
    let mut spec = VocabSpec {
        pre: Some("gpt-2"),
        token_types: Some(&types),
        bos: Some(0),
        eos: Some(1),
        ..VocabSpec::new("gpt2", TOKENS, Some(&["a b", "s t"][..]))
    };
    change(&mut spec);
    Tokenizer::new(spec).unwrap()
}

fn tokenizer() -> Tokenizer {
    spec(|_| ())
}

fn text(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    tokenizer.decode(ids, DecodeOptions { special: true, continues: false }).unwrap()
}

#[test]
fn control_tokens_in_plain_text_stay_text() {
    let tokenizer = tokenizer();
    let input = "a<|im_end|>b</s>";
    let ids = tokenizer.encode(input, Special::Plain, Affixes::None);
    assert!(ids.iter().all(|&id| tokenizer.token_type(id) == Some(TokenType::Normal)), "{ids:?}");
    assert_eq!(text(&tokenizer, &ids), input);
}

#[test]
fn control_tokens_are_recognised_where_asked() {
    assert_eq!(tokenizer().encode("a<|im_end|>b</s>", Special::Parse, Affixes::None), [5, 3, 6, 1]);
}

#[test]
fn user_defined_tokens_are_recognised_always() {
    for special in [Special::Plain, Special::Parse] {
        assert_eq!(tokenizer().encode("ab<tool>ab", special, Affixes::None), [22, 4, 22]);
    }
}

#[test]
fn control_tokens_are_recognised_outside_what_a_user_wrote() {
    let tokenizer = tokenizer();
    let input = "<|im_start|>a<|im_end|>b<|im_end|>";
    let user = |range: Range<usize>| tokenizer.encode(input, Special::ParseOutside(&[range]), Affixes::None);
    // The user wrote `a<|im_end|>`.
    let ids = user(12..23);
    assert_eq!((ids[0], ids[ids.len() - 1]), (2, 3));
    assert_eq!(ids.iter().filter(|&&id| id == 3).count(), 1);
    assert_eq!(text(&tokenizer, &ids), input);
    // A marker that the user began or ended is not one either.
    for range in [0..1, 11..12] {
        assert_ne!(user(range)[0], 2);
    }
    assert_eq!(user(12..13), tokenizer.encode(input, Special::Parse, Affixes::None));
    assert_eq!(user(0..input.len()), tokenizer.encode(input, Special::Plain, Affixes::None));
}

#[test]
fn text_merges_across_the_border_of_what_a_user_wrote() {
    let ids = tokenizer().encode("a<s>ab", Special::ParseOutside(&[0..1, 5..6]), Affixes::None);
    assert_eq!(ids, [5, 0, 22]);
}

#[test]
fn the_longest_token_wins_at_a_place() {
    let tokens = ["<a>", "<a>b", "<a>bc", "b", "c"];
    let types = [4, 4, 3, 1, 1];
    let merges: Option<[&str; 0]> = Some([]);
    let spec = VocabSpec { pre: Some("gpt-2"), token_types: Some(&types), ..VocabSpec::new("gpt2", tokens, merges) };
    let tokenizer = Tokenizer::new(spec).unwrap();
    assert_eq!(tokenizer.encode("<a><a>b<a>bc", Special::Parse, Affixes::None), [0, 1, 2]);
    assert_eq!(tokenizer.encode("<a><a>b<a>bc", Special::Plain, Affixes::None), [0, 1, 1, 4]);
}

#[test]
fn the_beginning_of_text_is_added_exactly_once() {
    let adds = spec(|spec| spec.add_bos = Some(true));
    assert_eq!(adds.encode("a", Special::Parse, Affixes::Model), [0, 5]);
    assert_eq!(adds.encode("<s>a", Special::Parse, Affixes::Model), [0, 5]);
    assert_eq!(adds.encode("", Special::Parse, Affixes::Model), [0]);
    assert_eq!(adds.encode("a", Special::Parse, Affixes::None), [5]);
    assert_eq!(adds.encode("<s>a", Special::Plain, Affixes::Model)[..2], [0, 8]);
    assert_eq!(tokenizer().encode("a", Special::Parse, Affixes::Model), [5]);
    let mut out = vec![0];
    adds.encode_into("a", Special::Parse, Affixes::Model, &mut out);
    assert_eq!(out, [0, 0, 5], "what was there before is not of the text");
}

#[test]
fn the_end_of_text_is_added_exactly_once() {
    let adds = spec(|spec| spec.add_eos = Some(true));
    assert_eq!(adds.encode("a", Special::Parse, Affixes::Model), [5, 1]);
    assert_eq!(adds.encode("a</s>", Special::Parse, Affixes::Model), [5, 1]);
    assert_eq!(adds.encode("", Special::Parse, Affixes::Model), [1]);
}

#[test]
fn generation_ends_at_what_the_file_names_and_at_ends_of_turn_by_their_text() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.end_of_generation_ids(), [1, 3]);
    assert!(tokenizer.is_end_of_generation(3) && !tokenizer.is_end_of_generation(2));
    let named = spec(|spec| spec.eot = Some(5));
    assert_eq!(named.end_of_generation_ids(), [1, 3, 5]);
}

#[test]
fn the_end_of_a_message_ends_generation_only_if_the_file_says_so() {
    assert!(!tokenizer().is_end_of_generation(25));
    assert!(spec(|spec| spec.eom = Some(25)).is_end_of_generation(25));
}

#[test]
fn an_end_of_turn_that_its_file_calls_text_is_a_control_token_still() {
    for ty in [1, 4] {
        let types: Vec<i32> = (0..TOKENS.len()).map(|id| if id == 3 { ty } else { 1 }).collect();
        let tokenizer = spec(|spec| spec.token_types = Some(types.leak()));
        assert_eq!(tokenizer.token_type(3), Some(TokenType::Control));
        assert!(!tokenizer.encode("<|im_end|>", Special::Plain, Affixes::None).contains(&3));
        assert_eq!(tokenizer.encode("<|im_end|>", Special::Parse, Affixes::None), [3]);
    }
}

#[test]
fn the_end_of_a_message_is_overruled_by_the_end_of_an_answer() {
    let end_ids = |tokens: &[&str]| {
        let merges: Option<[&str; 0]> = Some([]);
        let spec = VocabSpec { pre: Some("gpt-2"), ..VocabSpec::new("gpt2", tokens, merges) };
        Tokenizer::new(spec).unwrap().end_of_generation_ids().to_vec()
    };
    assert_eq!(end_ids(&["<|end|>", "a"]), [0]);
    assert_eq!(end_ids(&["<|end|>", "<|return|>"]), [0, 1]);
    assert_eq!(end_ids(&["<|end|>", "<|return|>", "<|call|>"]), [1, 2]);
    assert_eq!(end_ids(&["<|end|>", "<|flush|>", "<|calls|>"]), [1, 2]);
    assert_eq!(end_ids(&["</s>", "<|tool_response>"]), [1]);
}

#[test]
fn merges_never_make_a_control_token() {
    let tokens = ["a", "b", "ab"];
    let types = [1, 1, 3];
    for pre in ["gpt-2", "llama-bpe"] {
        let spec = VocabSpec {
            pre: Some(pre),
            token_types: Some(&types),
            add_bos: Some(false),
            ..VocabSpec::new("gpt2", tokens, Some(["a b"]))
        };
        assert_eq!(Tokenizer::new(spec).unwrap().encode("ab", Special::Plain, Affixes::None), [0, 1]);
    }
    let scores = [0.0; 4];
    let spec = VocabSpec {
        token_types: Some(&[1, 1, 3, 2]),
        scores: Some(&scores),
        unk: Some(3),
        add_bos: Some(false),
        add_space_prefix: Some(false),
        ..VocabSpec::new("llama", ["a", "b", "ab", "<unk>"], None::<[&str; 0]>)
    };
    assert_eq!(Tokenizer::new(spec).unwrap().encode("ab", Special::Plain, Affixes::None), [0, 1]);
}

#[test]
fn special_tokens_are_found_by_name() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.special_token("<|im_end|>"), Some(3));
    assert_eq!(tokenizer.special_token("<tool>"), Some(4));
    assert_eq!(tokenizer.special_token("<|im_"), None);
    assert_eq!(tokenizer.special_token("a"), None);
    assert_eq!(tokenizer.special_token(""), None);
}
