//! The same request gives the same bits, whatever else happens.

use muser_engine::service::GenerateOptions;
use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};

use crate::support::{Model, Setup, ask, drawn, end, greedy, open, solo, submit, tokens};

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
        sixteen_at_once_give_each_its_solo_bits(&open(name), 40);
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
