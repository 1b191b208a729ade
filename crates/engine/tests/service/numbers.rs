//! What a service says of itself.

use muser_engine::service::{Event, Histogram, Miss, Outcome, SlotState};
use muser_engine::{Footprint, PlanOptions, plan, with_header};
use muser_memory::LoadPolicy;
use muser_model::ModelSpec;
use muser_tests::model::MUSE;
use muser_tests::model_path;

use crate::support::{Gate, PATIENCE, Setup, ask, end, greedy, open, submit, submit_through, tokens};

fn count(histogram: &Histogram) -> u64 {
    histogram.snapshot().count
}

#[test]
fn counters_add_up_to_what_was_done() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_batch: 50, ..Setup::default() });
    ask(&service, &tokens(120, 256, 1), greedy(10));
    ask(&service, &tokens(120, 256, 1), greedy(1));
    ask(&service, &tokens(30, 256, 2), greedy(5));
    let stats = service.stats();
    assert_eq!(stats.requests.value(), 3);
    // The second processes its last token only.
    assert_eq!(stats.prefill_tokens.value(), 120 + 1 + 30);
    assert_eq!(stats.prefix_hit_tokens.value(), 119);
    assert_eq!((stats.prefix_hits.value(), stats.miss(Miss::NoCommonPrefix).value()), (1, 2));
    // The first token of an answer comes with the prompt.
    assert_eq!((stats.generated_tokens.value(), stats.decode_tokens.value()), (16, 9 + 4));
    assert_eq!(stats.outcome(Outcome::Length).value(), 3);
    // Pieces of 50, 50 and 20 rows, one of one, one of 30, and each decoded token.
    assert_eq!(stats.steps.value(), 3 + 1 + 1 + 13);
    let rows = stats.batch_rows.snapshot();
    assert_eq!((rows.count, rows.sum.round() as u64), (18, 120 + 1 + 30 + 13));
    assert_eq!((rows.cumulative[0], rows.cumulative.last()), (14, Some(&18)), "of one row, and all");
    assert_eq!((count(&stats.time_to_first_token), count(&stats.time_between_tokens)), (3, 13));
    end(&service);
}

#[test]
fn slots_show_what_they_hold_and_the_queue_how_long_it_is() {
    let model = open(MUSE[1]);
    let setup = Setup { n_slot: 2, n_batch: 16, max_queue: 9, ..Setup::default() };
    let service = model.serve(setup);
    let gate = Gate::default();
    let at_second_piece = gate.at(|event| matches!(event, Event::Prefill { done: 32, .. }));
    let first = submit_through(&service, &tokens(40, 256, 1), greedy(3), at_second_piece);
    gate.until_somebody_comes();
    let others: Vec<_> = (0..3).map(|seed| submit(&service, &tokens(5, 256, seed), greedy(3))).collect();
    let status = service.status();
    assert_eq!((status.n_ctx, status.n_batch, status.max_queue), (512, 16, 9));
    assert_eq!(status.n_waiting, 3);
    let slot = status.slots[0];
    assert_eq!((slot.state, slot.request, slot.n_held, slot.n_prompt), (SlotState::Prefill, Some(first.id), 16, 40));
    assert_eq!(status.slots[1].state, SlotState::Idle);
    gate.open();
    first.reply();
    others.into_iter().for_each(|other| assert_eq!(other.reply().ids.len(), 3));

    service.ping(PATIENCE).expect("it lives");
    let status = service.status();
    assert!(status.slots.iter().all(|slot| (slot.state, slot.request) == (SlotState::Idle, None)));
    assert_eq!(status.n_waiting, 0);
    let held: usize = status.slots.iter().map(|slot| slot.n_held).sum();
    let spec = model.weights.spec();
    // Two bytes for each element of keys and values, heads being filled up to sixteen, and two for each head's scale.
    let row_bytes: usize =
        spec.layers.iter().map(|layer| 4 * layer.n_head_kv * (layer.head_dim.next_multiple_of(16) + 1)).sum();
    // Not more than each token's rows in all layers, and not less than those in one with the whole context.
    assert!(status.kv_used_bytes <= (held * row_bytes) as u64 && status.kv_used_bytes > 0);
    assert_eq!(service.stats().kv_used_bytes.value(), status.kv_used_bytes);
    end(&service);
}

#[test]
fn slots_and_prefixes_take_what_was_planned() {
    let setup = Setup::default();
    let Setup { n_slot, n_ctx, n_batch, prefix_cache_bytes, .. } = setup;
    let options = PlanOptions { n_ctx: Some(n_ctx), n_slot, n_batch, prefix_cache_bytes, table_bytes_per_token: 0 };
    let (spec, footprint) =
        with_header(&model_path(MUSE[1]), |files, set| Ok((ModelSpec::read(set)?.0, Footprint::of(files, set)?)))
            .expect("a good model");
    let (_, plan) = plan(&spec, footprint, LoadPolicy::Map, options).expect("it fits");
    let row = |what: &str| plan.rows.iter().find(|row| row.what == what).map(|row| row.size_bytes);
    assert_eq!(row("snapshots"), Some(prefix_cache_bytes));

    let service = open(MUSE[1]).serve(setup);
    let planned = row("KV planes").expect("there are KV planes");
    let taken = service.status().kv_planned_bytes;
    // Planes take whole pages.
    let page_bytes = (2 * spec.layers.len() * n_slot * muser_memory::page_size()) as u64;
    assert!((planned..planned + page_bytes).contains(&taken), "{taken} of {planned}");
    assert_eq!(service.status().prefix_cache.budget_bytes, prefix_cache_bytes);
    end(&service);
}
