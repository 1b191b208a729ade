//! The same request gives the same bits, whatever else happens.

use muser_engine::service::{Event, GenerateOptions, Outcome};
use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};

use crate::support::{Model, Setup, ask, drawn, end, greedy, open, solo, submit, submit_through, tokens};

/// Sixteen requests of mixed lengths. The first are alike in their first half.
fn mixed(model: &Model, longest: usize) -> Vec<(Vec<u32>, GenerateOptions)> {
    let common = tokens(longest / 2, model.n_vocab(), 99);
    let request = |index: usize| {
        let own = tokens(1 + index * 5 % (longest / 2), model.n_vocab(), index as u32);
        let prompt = if index < 6 { [common.clone(), own].concat() } else { own };
        let n = 3 + index * 7 % 12;
        (prompt, if index.is_multiple_of(2) { greedy(n) } else { drawn(n, index as u64) })
    };
    (0..16).map(request).collect()
}

fn sixteen_at_once_give_each_its_solo_bits(model: &Model, longest: usize) {
    let expected: Vec<_> =
        mixed(model, longest).into_iter().map(|(prompt, options)| solo(model, 512, &prompt, options).bits()).collect();
    let service = model.serve(Setup::default());
    for round in ["cold", "warm"] {
        let pending: Vec<_> =
            mixed(model, longest).into_iter().map(|(prompt, options)| submit(&service, &prompt, options)).collect();
        for (index, (pending, expected)) in pending.into_iter().zip(&expected).enumerate() {
            assert_eq!(pending.reply().bits(), *expected, "request {index}, {round}");
        }
    }
    assert!(service.stats().prefix_hit_tokens.value() > 0);
    end(&service);
}

#[test]
fn sixteen_requests_on_four_slots_give_each_its_solo_bits() {
    for name in MUSE {
        sixteen_at_once_give_each_its_solo_bits(&open(name), 100);
    }
}

#[test]
fn sixteen_requests_to_real_models_give_each_its_solo_bits() {
    for name in [SMOLLM2, GEMMA3] {
        sixteen_at_once_give_each_its_solo_bits(&open(name), 32);
    }
}

#[test]
fn a_turn_regenerated_ten_times_is_the_same_and_only_its_last_token_is_processed_again() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup::default());
    let prompt = model.encode("The capital of France is a city that many people");
    let first = ask(&service, &prompt, greedy(12));
    assert_eq!(first.summary().n_reused, 0);
    for _ in 0..10 {
        let again = ask(&service, &prompt, greedy(12));
        assert_eq!((again.bits(), &again.text), (first.bits(), &first.text));
        assert_eq!(again.summary().n_reused, prompt.len() - 1);
    }
    end(&service);
}

#[test]
fn two_hundred_requests_through_one_cache_give_each_its_solo_bits_while_others_leave() {
    for name in [MUSE[1], MUSE[2]] {
        let model = open(name);
        // A tree of prompts: each begins as an earlier one, up to somewhere.
        let mut prompts = vec![tokens(70, 256, 0)];
        for seed in 1..20 {
            let earlier = &prompts[seed * 7 % prompts.len()];
            let common = earlier.len() * (seed % 5) / 4;
            let own = tokens(1 + seed * 13 % 60, 256, seed as u32);
            prompts.push([&earlier[..common.min(200)], &own].concat());
        }
        let options = |at: usize| if at.is_multiple_of(3) { drawn(12, at as u64) } else { greedy(9) };
        let expected: Vec<_> =
            prompts.iter().enumerate().map(|(at, prompt)| solo(&model, 512, prompt, options(at)).bits()).collect();

        let service = model.serve(Setup { n_slot: 3, n_batch: 24, prefix_cache_bytes: 4 << 20, ..Setup::default() });
        let order = tokens(200, prompts.len() as u32, 77);
        for (round, wave) in order.chunks(20).enumerate() {
            let pending: Vec<_> = wave
                .iter()
                .enumerate()
                .map(|(place, &at)| {
                    let at = at as usize;
                    // One in five leaves after some events.
                    let mut n_left = if place % 5 == round % 5 { 1 + (place + round) % 9 } else { usize::MAX };
                    let leaves = move |_: &Event| {
                        n_left -= 1;
                        n_left == 0
                    };
                    (at, n_left, submit_through(&service, &prompts[at], options(at), leaves))
                })
                .collect();
            for (at, n_left, pending) in pending {
                if n_left == usize::MAX {
                    assert_eq!(pending.reply().bits(), expected[at], "{name}: prompt {at} in wave {round}");
                }
            }
        }
        let stats = service.stats();
        for (what, count) in [("hits", &stats.prefix_hits), ("copies", &stats.prefix_copied_tokens)] {
            assert!(count.value() > 20, "{what}: {}", count.value());
        }
        end(&service);
        let n_ended: u64 = Outcome::ALL.map(|outcome| stats.outcome(outcome).value()).iter().sum();
        assert_eq!((n_ended, stats.requests.value()), (200, 200));
        assert!(stats.outcome(Outcome::Cancelled).value() > 20);
    }
}
