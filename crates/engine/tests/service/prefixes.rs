//! What is reused, where it comes from, and why not.

use std::num::NonZero;

use muser_cpu::CpuBackend;
use muser_engine::service::{Event, GenerateOptions, Miss, Service, Stats};
use muser_memory::{Device, DeviceLimits, KvPlane};
use muser_tests::model::{MUSE, SMOLLM2};

use crate::support::{Gate, Setup, ask, end, greedy, open, solo, submit, submit_through, tokens};

fn forever() -> GenerateOptions {
    GenerateOptions { max_tokens: None, ..greedy(0) }
}

fn misses(stats: &Stats) -> [u64; Miss::ALL.len()] {
    Miss::ALL.map(|miss| stats.miss(miss).value())
}

#[test]
fn a_conversation_goes_on_where_it_was() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup::default());
    let mut prompt = model.encode("Once upon a time there was");
    for _ in 0..3 {
        let reply = ask(&service, &prompt, greedy(10));
        let held = prompt.len() + reply.ids.len() - 1;
        prompt.extend(&reply.ids);
        prompt.extend(model.encode(" And then"));
        let reply = ask(&service, &prompt, greedy(10));
        assert_eq!(reply.summary().n_reused, held);
        assert_eq!(reply.bits(), solo(&model, 512, &prompt, greedy(10)).bits());
        prompt.extend(&reply.ids);
    }
    end(&service);
}

#[test]
fn a_start_in_common_is_copied_from_a_slot_that_works() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup::default());
    let common = tokens(60, 40_000, 1);
    let beside = submit(&service, &[common.clone(), tokens(5, 40_000, 2)].concat(), forever());
    beside.until(|event| matches!(event, Event::Token { .. }));
    let prompt = [common, tokens(9, 40_000, 3)].concat();
    let reply = ask(&service, &prompt, greedy(8));
    assert_eq!(reply.summary().n_reused, 60);
    assert_eq!(service.stats().prefix_copied_tokens.value(), 60);
    assert_eq!(reply.bits(), solo(&model, 512, &prompt, greedy(8)).bits());
    service.cancel(beside.id);
    end(&service);
}

#[test]
fn prompts_that_begin_alike_and_come_together_are_processed_once() {
    for name in [SMOLLM2, MUSE[1]] {
        let model = open(name);
        let service = model.serve(Setup::default());
        let common = tokens(200, 256, 4);
        let prompts = [0, 1, 2, 3].map(|index| [common.clone(), tokens(3 * index, 256, 5)].concat());
        // All are in slots before the first step.
        let gate = Gate::default();
        let pending = prompts.each_ref().map(|prompt| {
            submit_through(
                &service,
                prompt,
                greedy(6),
                gate.at(|event| matches!(event, Event::Started { slot: 0, .. })),
            )
        });
        gate.open();
        let replies = pending.map(crate::support::Pending::reply);
        for (prompt, reply) in prompts.iter().zip(&replies) {
            assert_eq!(reply.bits(), solo(&model, 512, prompt, greedy(6)).bits(), "{name}");
        }
        // What all have in common once, and each one's own.
        assert_eq!(service.stats().prefill_tokens.value(), 200 + 3 + 6 + 9, "{name}");
        assert_eq!(replies.map(|reply| reply.summary().n_reused), [0, 200, 200, 200]);
        end(&service);
    }
}

#[test]
fn an_ended_session_is_kept_when_its_slot_is_taken() {
    let model = open(MUSE[0]);
    let service = model.serve(Setup { n_slot: 1, ..Setup::default() });
    let prompts: Vec<Vec<u32>> = (0..4).map(|seed| tokens(40, 256, seed)).collect();
    let first: Vec<_> = prompts.iter().map(|prompt| ask(&service, prompt, greedy(8)).bits()).collect();
    assert_eq!(misses(service.stats()), [4, 0, 0, 0, 0]);
    for (prompt, first) in prompts.iter().zip(&first) {
        let reply = ask(&service, prompt, greedy(8));
        assert_eq!((reply.summary().n_reused, reply.bits()), (39, first.clone()));
    }
    assert_eq!(service.stats().prefix_copied_tokens.value(), 4 * 39);
    assert_eq!(misses(service.stats()), [4, 0, 0, 0, 0]);
    end(&service);
}

/// Bytes of the cache that a session of `n` tokens takes when it is kept.
fn kept_bytes(service: &Service) -> u64 {
    service.ping(crate::support::PATIENCE).expect("it lives");
    service.status().prefix_cache.size_bytes
}

#[test]
fn sessions_are_kept_within_the_budget_and_the_one_not_used_for_longest_goes() {
    // No window, so that nothing is kept but what a slot loses.
    let model = open(SMOLLM2);
    let prompts: Vec<Vec<u32>> = (0..4).map(|seed| tokens(32, 40_000, seed)).collect();
    let service = model.serve(Setup { n_slot: 1, ..Setup::default() });
    ask(&service, &prompts[0], greedy(1));
    ask(&service, &prompts[1], greedy(1));
    let one = kept_bytes(&service);
    end(&service);

    // Room for the tokens of what has to go, too.
    let budget = 2 * one + 1024;
    let service = model.serve(Setup { n_slot: 1, prefix_cache_bytes: budget, ..Setup::default() });
    for prompt in &prompts {
        ask(&service, prompt, greedy(1));
        assert!(kept_bytes(&service) <= budget);
    }
    // Kept are those before the last, which is in the slot; the first is gone.
    assert_eq!(service.status().prefix_cache.n_entries, 2);
    assert_eq!(ask(&service, &prompts[1], greedy(1)).summary().n_reused, 31);
    assert_eq!(misses(service.stats()), [4, 0, 0, 0, 0]);
    assert_eq!(ask(&service, &prompts[0], greedy(1)).summary().n_reused, 0);
    assert_eq!(service.stats().miss(Miss::Budget).value(), 1);
    end(&service);
}

#[test]
fn tokens_and_what_says_where_rows_are_count_within_the_budget() {
    let model = open(SMOLLM2);
    let prompts: Vec<Vec<u32>> = (0..6).map(|seed| tokens(32, 40_000, seed)).collect();
    let setup = Setup { n_slot: 1, n_ctx: 64, ..Setup::default() };
    let keep = |prefix_cache_bytes, prompts: &[Vec<u32>]| {
        let device = Device::host();
        let backend = CpuBackend::new(device.clone(), NonZero::<usize>::MIN, None).expect("one thread needs no other");
        let service = model.serve_on(Box::new(backend), Setup { prefix_cache_bytes, ..setup });
        let empty_bytes = device.allocated_bytes();
        for prompt in prompts {
            ask(&service, prompt, greedy(1));
            assert!(kept_bytes(&service) <= prefix_cache_bytes);
        }
        let kept = (service.status().prefix_cache, device.allocated_bytes() - empty_bytes);
        end(&service);
        kept
    };
    let (one, rows_bytes) = keep(u64::MAX, &prompts[..2]);
    let beside_bytes = one.size_bytes - rows_bytes;
    // A plane is larger where GPUs can have it.
    let least = (model.weights.spec().layers.len() * size_of::<KvPlane>() + 32 * size_of::<u32>()) as u64;
    assert!((least..4 * least).contains(&beside_bytes), "{beside_bytes} bytes beside the rows");
    // Rows of four sessions alone are not four sessions, and neither leave they room for the tokens of what had to go.
    for (budget_bytes, n_entries) in [(4 * rows_bytes, 3), (4 * one.size_bytes, 4), (4 * one.size_bytes - 1, 3)] {
        let (kept, _) = keep(budget_bytes, &prompts);
        assert_eq!(kept.n_entries, n_entries, "{kept:?}");
        assert!(kept.size_bytes >= n_entries as u64 * one.size_bytes, "{kept:?}");
    }
    let (none, _) = keep(64, &prompts);
    assert_eq!((none.n_entries, none.size_bytes), (0, 0));
}

#[test]
fn the_budget_is_not_passed_even_for_a_moment() {
    let model = open(SMOLLM2);
    let prompts: Vec<Vec<u32>> = (0..3).map(|seed| tokens(32, 40_000, seed)).collect();
    let setup = Setup { n_slot: 1, n_ctx: 64, ..Setup::default() };
    let on = |budget_bytes, prefix_cache_bytes| {
        let device = Device::host_with(DeviceLimits { budget_bytes, ..DeviceLimits::default() });
        let backend = CpuBackend::new(device.clone(), NonZero::<usize>::MIN, None).expect("one thread needs no other");
        (model.serve_on(Box::new(backend), Setup { prefix_cache_bytes, ..setup }), device)
    };
    let (service, device) = on(None, u64::MAX);
    let empty_bytes = device.allocated_bytes();
    ask(&service, &prompts[0], greedy(1));
    ask(&service, &prompts[1], greedy(1));
    let one_bytes = kept_bytes(&service);
    let rows_bytes = device.allocated_bytes() - empty_bytes;
    end(&service);

    // A device that gives one byte more to nobody, and a budget with room for the tokens of what has to go.
    let budget_bytes = one_bytes + 512;
    let (service, _device) = on(Some(empty_bytes + rows_bytes), budget_bytes);
    for prompt in &prompts {
        ask(&service, prompt, greedy(1));
    }
    assert_eq!(ask(&service, &prompts[1], greedy(1)).summary().n_reused, 31);
    // While that was copied, there was no room for what the slot held.
    assert_eq!(ask(&service, &prompts[2], greedy(1)).summary().n_reused, 0);
    assert_eq!(service.stats().miss(Miss::Budget).value(), 1);
    assert!((one_bytes + 1..=budget_bytes).contains(&kept_bytes(&service)));
    end(&service);
}

#[test]
fn a_start_too_short_to_be_worth_a_copy_is_processed_again() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    ask(&service, &tokens(40, 256, 1), greedy(1));
    let prompt = [tokens(15, 256, 1), tokens(20, 256, 2)].concat();
    assert_eq!(ask(&service, &prompt, greedy(1)).summary().n_reused, 0);
    assert_eq!(service.stats().miss(Miss::TooShort).value(), 1);
    // All that there is of a short prompt is reused.
    ask(&service, &tokens(5, 256, 3), greedy(1));
    assert_eq!(ask(&service, &tokens(5, 256, 3), greedy(1)).summary().n_reused, 4);
    end(&service);
}

#[test]
fn a_slot_that_would_lose_much_is_left_alone_while_another_is_unused() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup { n_slot: 2, prefix_cache_bytes: 0, ..Setup::default() });
    let (long, short) = (tokens(100, 40_000, 1), [tokens(30, 40_000, 1), tokens(4, 40_000, 2)].concat());
    ask(&service, &long, greedy(1));
    let reply = submit(&service, &short, greedy(1));
    let Event::Started { slot, n_reused, .. } = reply.next() else { panic!("it starts first") };
    assert_eq!((slot, n_reused), (1, 30));
    reply.reply();
    assert_eq!(ask(&service, &long, greedy(1)).summary().n_reused, 99);
    end(&service);
}
