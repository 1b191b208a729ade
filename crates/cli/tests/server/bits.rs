//! The same tokens give the same bits, whoever asks for them, when, and beside whom.

use std::thread;

use serde_json::{Value, json};

use crate::place::{Server, muse, smollm2};

/// A prompt of so many tokens of the small model, unlike others with another seed.
fn prompt(len: usize, seed: usize) -> Value {
    (0..len).map(|index| (index * index * 7 + index * 13 + seed * 31 + 5) % 250).collect()
}

/// A choice with log-probabilities, as text: equal texts are equal bits.
fn answer(server: &Server, prompt: &Value, n: usize) -> String {
    let body = json!({"prompt": prompt, "max_tokens": n, "logprobs": 2, "ignore_eos": true});
    server.complete(body).to_string()
}

#[test]
fn prompts_around_a_window_give_the_same_bits_for_every_cut_and_those_of_one_pass() {
    const WINDOW: usize = 32;
    let lens = [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 10 * WINDOW];
    let in_one_pass = muse(&["--ctx", "400", "--slots", "1", "--batch", "400", "--prefix-cache", "0"]);
    let expected = lens.map(|len| answer(&in_one_pass, &prompt(len, len), 12));
    for batch in ["1", "7", "32", "100"] {
        let server = muse(&["--ctx", "400", "--slots", "1", "--batch", batch, "--prefix-cache", "0"]);
        for (len, expected) in lens.into_iter().zip(&expected) {
            assert_eq!(answer(&server, &prompt(len, len), 12), *expected, "{len} tokens in batches of {batch}");
        }
    }
}

#[test]
fn the_same_prompt_again_gives_the_same_bits_at_every_length() {
    let server = muse(&["--ctx", "600", "--slots", "2"]);
    for len in [1, 2, 31, 32, 33, 64, 128, 255, 256, 257, 512] {
        let prompt = prompt(len, len);
        let cold = answer(&server, &prompt, 8);
        for _ in 0..2 {
            assert_eq!(answer(&server, &prompt, 8), cold, "{len} tokens");
        }
    }
}

#[test]
fn a_known_prompt_is_not_computed_again_but_for_its_last_token() {
    let server = smollm2(&["--ctx", "600", "--slots", "2"]);
    for len in [2, 64, 256] {
        let body = json!({"prompt": prompt(len, len), "max_tokens": 4, "temperature": 0, "logprobs": 1});
        let cold = server.ask("/v1/completions", &body);
        assert_eq!(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        let warm = server.ask("/v1/completions", &body);
        assert_eq!(warm["usage"]["prompt_tokens_details"]["cached_tokens"], len - 1);
        assert_eq!(warm["choices"], cold["choices"], "{len} tokens");
    }
}

#[test]
fn sixteen_at_once_over_four_slots_each_get_what_they_get_alone() {
    const WORDS: [&str; 16] = [
        "apple", "bridge", "candle", "dragon", "eagle", "forest", "guitar", "hammer", "island", "jungle", "kettle",
        "lemon", "mirror", "needle", "orange", "pencil",
    ];
    let body = |word: &str| {
        let text = format!("{word}, {word}, {word}, {word}, {word}, {word},");
        json!({"prompt": text, "max_tokens": 12, "temperature": 0, "logprobs": 1})
    };
    let together = smollm2(&["--ctx", "256", "--slots", "4"]);
    let answers = thread::scope(|scope| {
        let ask = |word| {
            let together = &together;
            scope.spawn(move || together.complete(body(word)))
        };
        let asked: Vec<_> = WORDS.into_iter().map(ask).collect();
        asked.into_iter().map(|asked| asked.join().expect("it is answered")).collect::<Vec<_>>()
    });
    let alone = smollm2(&["--ctx", "256", "--slots", "1", "--prefix-cache", "0"]);
    for (word, answer) in WORDS.into_iter().zip(answers) {
        let text = answer["text"].as_str().expect("text");
        assert!(text.contains(word), "{word}: {text}");
        assert!(WORDS.iter().all(|other| *other == word || !text.contains(other)), "{word}: {text}");
        assert_eq!(answer, alone.complete(body(word)), "{word}");
    }
}

#[test]
fn a_short_prompt_after_a_long_one_is_as_in_a_fresh_slot() {
    let fresh = muse(&["--ctx", "600", "--slots", "1"]);
    let short = prompt(9, 1);
    let expected = answer(&fresh, &short, 40);
    let used = muse(&["--ctx", "600", "--slots", "1"]);
    answer(&used, &prompt(550, 2), 40);
    assert_eq!(answer(&used, &short, 40), expected);
    // One that shares its start with the long one, which goes on otherwise.
    let start: Value = prompt(550, 2).as_array().expect("an array")[..40].into();
    assert_eq!(answer(&used, &start, 20), answer(&fresh, &start, 20));
}

#[test]
fn two_hundred_requests_through_one_cache_stay_true() {
    let server = muse(&["--ctx", "200", "--slots", "2", "--prefix-cache", "1MiB"]);
    // Conversations that share their starts to different lengths.
    let body = |turn: usize| {
        let family = prompt(120, turn % 5);
        let ids = family.as_array().expect("an array");
        let own = prompt(10, turn % 20);
        let ids = ids[..20 + turn % 3 * 40].iter().chain(own.as_array().expect("an array")).cloned();
        Value::Array(ids.collect())
    };
    let cold = muse(&["--ctx", "200", "--slots", "1", "--prefix-cache", "0"]);
    let expected: Vec<_> = (0..60).map(|turn| answer(&cold, &body(turn), 6)).collect();
    for turn in 0..200 {
        assert_eq!(answer(&server, &body(turn), 6), expected[turn % 60], "request {turn}");
    }
}

#[test]
fn a_turn_regenerated_ten_times_is_the_same_each_time() {
    let server = smollm2(&["--ctx", "512", "--slots", "2"]);
    let messages = json!([
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]);
    let body = json!({"messages": messages, "max_tokens": 16, "temperature": 0, "logprobs": true});
    let ask = || server.ask("/v1/chat/completions", &body)["choices"].take();
    let first = ask();
    for _ in 0..10 {
        assert_eq!(ask(), first);
    }
}
