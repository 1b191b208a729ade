//! Cancelling, queueing, shutting down.

use std::time::Instant;

use muser_engine::service::{Event, GenerateOptions, Outcome, Refusal, Service, SlotState, Work};
use muser_engine::{Error, Finish};
use muser_tests::model::MUSE;

use crate::support::{Gate, PATIENCE, Setup, ask, end, greedy, open, solo, submit, submit_through, tokens, try_submit};

fn forever() -> GenerateOptions {
    GenerateOptions { max_tokens: None, ..greedy(0) }
}

fn is_token(event: &Event) -> bool {
    matches!(event, Event::Token { .. })
}

/// The states of all slots, after whatever was under way.
fn states(service: &Service) -> Vec<SlotState> {
    service.ping(PATIENCE).expect("it lives");
    service.status().slots.iter().map(|slot| slot.state).collect()
}

#[test]
fn a_request_whose_client_goes_in_prefill_or_decode_frees_its_slot_and_harms_nobody() {
    let model = open(MUSE[1]);
    let (prompt, long) = (tokens(30, 256, 1), tokens(200, 256, 2));
    let expected = solo(&model, 512, &prompt, greedy(60)).bits();
    let goes: [fn(&Event) -> bool; 3] = [
        |event| matches!(event, Event::Started { .. }),
        |event| matches!(event, Event::Prefill { done, total } if done < total),
        is_token,
    ];
    for is_gone in goes {
        let service = model.serve(Setup { n_slot: 2, n_batch: 64, ..Setup::default() });
        let beside = submit(&service, &prompt, greedy(60));
        let gone = submit_through(&service, &long, forever(), is_gone);
        let seen: Vec<Event> = gone.events.iter().collect();
        assert!(is_gone(seen.last().expect("an event")), "told after it was gone: {seen:?}");
        // The channel ends with the sink, so the slot is free at the end of the very step.
        assert_eq!(states(&service)[1], SlotState::Idle);
        assert_eq!(beside.reply().bits(), expected);
        assert_eq!(service.stats().outcome(Outcome::Cancelled).value(), 1);
        // What it left is whole.
        assert_eq!(ask(&service, &long, greedy(5)).bits(), solo(&model, 512, &long, greedy(5)).bits());
        end(&service);
    }
}

#[test]
fn a_request_is_cancelled_wherever_it_is_and_told_so() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 1, n_batch: 16, ..Setup::default() });
    let gate = Gate::default();
    let decoding = submit_through(&service, &tokens(5, 256, 1), forever(), gate.at(is_token));
    let queued = submit(&service, &tokens(5, 256, 2), forever());
    gate.until_somebody_comes();
    service.cancel(queued.id);
    service.cancel(decoding.id);
    gate.open();
    let reply = queued.reply();
    assert_eq!((reply.finish(), reply.ids.len()), (Finish::Interrupted, 0));
    let reply = decoding.reply();
    assert_eq!((reply.finish(), reply.ids.len()), (Finish::Interrupted, 1));

    let gate = Gate::default();
    let at_first_piece = gate.at(|event| matches!(event, Event::Prefill { done: 16, .. }));
    let prefilling = submit_through(&service, &tokens(300, 256, 3), forever(), at_first_piece);
    gate.until_somebody_comes();
    service.cancel(prefilling.id);
    gate.open();
    let reply = prefilling.reply();
    assert_eq!((reply.finish(), reply.ids.len()), (Finish::Interrupted, 0));
    assert_eq!(service.status().slots[0].n_held, 16, "the slot is free within a step");
    assert_eq!(service.stats().outcome(Outcome::Cancelled).value(), 3);
    assert_eq!(states(&service), [SlotState::Idle]);
    end(&service);
}

#[test]
fn one_request_more_than_slots_and_queue_hold_is_refused_at_once() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 2, max_queue: 3, ..Setup::default() });
    let gate = Gate::default();
    let held = submit_through(&service, &[1], forever(), gate.at(|event| matches!(event, Event::Started { .. })));
    let others: Vec<_> = (0..4).map(|seed| submit(&service, &tokens(5, 256, seed), greedy(3))).collect();
    let one_more = || try_submit(&service, &[1], Work::Generate(greedy(1)), |_| false);
    assert_eq!(one_more().err(), Some(Refusal::QueueFull { n_waiting: 3 }));
    let refused = |name| service.stats().refusals().find(|(found, _)| *found == name).map(|(_, count)| count.value());
    assert_eq!(refused("queue_full"), Some(1));
    gate.open();
    for other in others {
        assert_eq!(other.reply().finish(), Finish::Length);
    }
    service.cancel(held.id);
    held.reply();
    assert_eq!(one_more().expect("there is room again").reply().finish(), Finish::Length);
    assert_eq!(service.stats().requests.value(), 6);
    end(&service);
}

#[test]
fn without_a_queue_a_request_finds_a_slot_or_is_refused() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 1, max_queue: 0, ..Setup::default() });
    for _ in 0..3 {
        assert_eq!(ask(&service, &[1], greedy(2)).finish(), Finish::Length);
    }
    let gate = Gate::default();
    let working = submit_through(&service, &[1], forever(), gate.at(is_token));
    let refused = try_submit(&service, &[1], Work::Generate(greedy(1)), |_| false).err();
    assert_eq!(refused, Some(Refusal::QueueFull { n_waiting: 0 }));
    let said = refused.map(|refusal| refusal.to_string());
    assert_eq!(said.as_deref(), Some("every slot is at work, and no request may wait for one"));
    service.cancel(working.id);
    gate.open();
    end(&service);
}

#[test]
fn a_shutdown_lets_what_was_taken_end_and_takes_no_more() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 1, ..Setup::default() });
    let gate = Gate::default();
    let first = submit_through(&service, &[1], greedy(20), gate.at(|event| matches!(event, Event::Started { .. })));
    let second = submit(&service, &[2], greedy(20));
    gate.until_somebody_comes();
    let closing = std::thread::spawn({
        let service = service.clone();
        move || end(&service)
    });
    while !service.status().is_shutting_down {
        std::thread::yield_now();
    }
    let refused = try_submit(&service, &[1], Work::Generate(greedy(1)), |_| false).err();
    assert_eq!(refused, Some(Refusal::ShuttingDown));
    gate.open();
    assert_eq!(first.reply().finish(), Finish::Length);
    assert_eq!(second.reply().finish(), Finish::Length);
    closing.join().expect("the shutdown ends");
    assert!(matches!(service.ping(PATIENCE), Err(Error::ServiceEnded)));
    assert_eq!(try_submit(&service, &[1], Work::Generate(greedy(1)), |_| false).err(), Some(Refusal::Ended));
}

#[test]
fn a_shutdown_whose_deadline_has_come_ends_what_runs_and_what_waits() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 1, ..Setup::default() });
    let gate = Gate::default();
    let running = submit_through(&service, &[1], forever(), gate.at(is_token));
    let waiting = submit(&service, &[2], forever());
    gate.until_somebody_comes();
    let deadline = Instant::now();
    let closing = std::thread::spawn({
        let service = service.clone();
        move || service.shutdown(deadline)
    });
    while !service.status().is_shutting_down {
        std::thread::yield_now();
    }
    gate.open();
    closing.join().expect("the shutdown ends");
    assert_eq!(running.reply().finish(), Finish::Interrupted);
    assert_eq!(waiting.reply().finish(), Finish::Interrupted);
    assert_eq!(service.stats().outcome(Outcome::Interrupted).value(), 2);
}

#[test]
fn the_thread_ends_when_the_last_handle_is_dropped() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let gate = Gate::default();
    let running = submit_through(&service, &[1], forever(), gate.at(is_token));
    gate.until_somebody_comes();
    let clone = service.clone();
    drop(service);
    clone.stats();
    drop(clone);
    gate.open();
    let reply = running.reply();
    assert_eq!((reply.finish(), reply.ids.len()), (Finish::Interrupted, 1));
}
