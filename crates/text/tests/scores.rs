//! Merging by scores against its definition, over a vocabulary made to be awkward: equal scores, tokens with spaces
//! inside and in runs, characters without tokens.

use muser_text::{Affixes, Special, Tokenizer, VocabSpec};
use proptest::prelude::*;

const TEXT: &[(&str, f32)] = &[
    ("▁", -9.0),
    ("a", -9.0),
    ("b", -9.0),
    ("é", -9.0),
    (">", -9.0),
    ("<", -9.0),
    ("aa", -2.0),
    ("ab", -2.0),
    ("ba", -2.0),
    ("bb", -1.0),
    ("aab", -3.0),
    ("bab", 0.0),
    ("abab", -0.0),
    ("▁a", -2.0),
    ("▁b", -5.0),
    ("▁▁", -4.0),
    ("▁▁▁▁", -4.0),
    ("▁ab", -1.0),
    (">▁", -3.0),
    (">▁<", -3.5),
    ("éa", -2.0),
    ("b▁b", 2.0),
    ("▁é", -2.0),
];

fn tokens() -> Vec<String> {
    let bytes = (0..256).map(|byte| format!("<0x{byte:02X}>"));
    bytes.chain(TEXT.iter().map(|(text, _)| (*text).to_owned())).collect()
}

fn tokenizer() -> Tokenizer {
    let types: Vec<i32> = [6; 256].into_iter().chain(TEXT.iter().map(|_| 1)).collect();
    let scores: Vec<f32> = [0.0; 256].into_iter().chain(TEXT.iter().map(|&(_, score)| score)).collect();
    let spec = VocabSpec {
        token_types: Some(&types),
        scores: Some(&scores),
        add_bos: Some(false),
        add_space_prefix: Some(false),
        ..VocabSpec::new("llama", tokens(), None::<[&str; 0]>)
    };
    Tokenizer::new(spec).unwrap()
}

/// While two neighbours make a token, merge those that make the one with the highest score, the leftmost among equals.
fn by_definition(text: &str) -> Vec<u32> {
    let find = |text: &str| TEXT.iter().position(|&(token, _)| token == text);
    let mut parts: Vec<String> = text.replace(' ', "▁").chars().map(String::from).collect();
    loop {
        let mut best: Option<(f32, usize)> = None;
        for at in 1..parts.len() {
            let score = find(&(parts[at - 1].clone() + &parts[at])).map(|id| TEXT[id].1);
            if let Some(score) = score.filter(|&score| best.is_none_or(|(other, _)| score > other)) {
                best = Some((score, at));
            }
        }
        let Some((_, at)) = best else { break };
        let right = parts.remove(at);
        parts[at - 1] += &right;
    }
    let ids = parts.iter().flat_map(|part| match find(part) {
        Some(id) => vec![256 + id as u32],
        None => part.bytes().map(u32::from).collect(),
    });
    ids.collect()
}

proptest! {
    #[test]
    fn any_text_merges_by_the_definition(text in "([ab]{0,40}|[ ab]{0,40}|[ ab><é▁]{0,40}|[ aç😀]{0,9}){0,4}") {
        prop_assert_eq!(tokenizer().encode(&text, Special::Plain, Affixes::None), by_definition(&text), "{:?}", text);
    }
}

#[test]
fn words_are_cut_only_where_no_token_reaches_over() {
    for text in ["a    b", "b b b", "a> <b", "a>  <", "        ", "ab ab ab", "é é", " a", "a "] {
        assert_eq!(tokenizer().encode(text, Special::Plain, Affixes::None), by_definition(text), "{text:?}");
    }
}
