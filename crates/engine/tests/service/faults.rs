//! What fails, fails the requests concerned and says so; what is stuck or gone is noticed.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use muser_engine::service::{Event, Outcome, Refusal, Work};
use muser_engine::{Error, Finish};
use muser_tests::model::MUSE;
use muser_tests::model_path;

use crate::backend::{Mood, Moody, Remote};
use crate::support::{
    Gate, Model, PATIENCE, Setup, ask, end, greedy, open, open_at, submit, submit_through, tokens, try_submit,
};

/// A model and a service over a backend with moods.
fn moody(setup: Setup) -> (Model, muser_engine::service::Service, Remote) {
    let model = open(MUSE[1]);
    let (backend, remote) = Moody::new(model.weights.spec().layers.len());
    let service = model.serve_on(backend, setup);
    (model, service, remote)
}

#[test]
fn a_backend_that_fails_fails_every_request_of_the_batch_and_serves_the_next_from_scratch() {
    for mood in [Mood::Fails, Mood::FailsAtLogits] {
        let (_, service, remote) = moody(Setup { n_slot: 2, ..Setup::default() });
        let prompt = tokens(20, 256, 1);
        let expected = ask(&service, &prompt, greedy(8)).bits();
        remote.set(mood);
        let both = [&prompt, &tokens(9, 256, 2)].map(|prompt| submit(&service, prompt, greedy(8)));
        for pending in both {
            let error = pending.reply().end.expect_err("the backend fails");
            assert!(error.to_string().contains("12345"), "{error}");
        }
        assert_eq!(service.stats().outcome(Outcome::Failed).value(), 2);
        remote.set(Mood::Works);
        let reply = ask(&service, &prompt, greedy(8));
        assert_eq!((reply.summary().n_reused, reply.bits()), (0, expected));
        end(&service);
    }
}

#[test]
fn a_panic_on_the_engine_thread_fails_what_is_under_way_and_then_everything() {
    let (_, service, remote) = moody(Setup { n_slot: 1, ..Setup::default() });
    remote.set(Mood::Panics);
    // The second is still in the queue when the first panics.
    let gate = Gate::default();
    let first = submit_through(
        &service,
        &tokens(9, 256, 1),
        greedy(4),
        gate.at(|event| matches!(event, Event::Started { .. })),
    );
    let second = submit(&service, &tokens(9, 256, 2), greedy(4));
    gate.open();
    for pending in [first, second] {
        assert!(matches!(pending.reply().end, Err(Error::EnginePanicked)));
    }
    assert!(matches!(service.ping(PATIENCE), Err(Error::EnginePanicked)));
    let refused = try_submit(&service, &[1], Work::Generate(greedy(1)), |_| false).err();
    assert_eq!(refused, Some(Refusal::Ended));
    assert!(service.status().is_ended);
    end(&service);
}

#[test]
fn a_sink_that_panics_takes_the_thread_down_and_nobody_waits_for_ever() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let gate = Gate::default();
    let is_token = |event: &Event| matches!(event, Event::Token { .. });
    let beside = submit_through(&service, &tokens(9, 256, 1), greedy(400), gate.at(is_token));
    let panics = |event: &Event| {
        assert!(!matches!(event, Event::Token { .. }), "a sink that panics at the first token");
        false
    };
    let _gone = submit_through(&service, &tokens(9, 256, 2), greedy(4), panics);
    gate.open();
    assert!(matches!(beside.reply().end, Err(Error::EnginePanicked)));
    assert!(matches!(service.ping(PATIENCE), Err(Error::EnginePanicked)));
    end(&service);
}

#[test]
fn a_ping_fails_while_the_thread_is_stuck_and_passes_when_it_moves_again() {
    let (_, service, remote) = moody(Setup::default());
    service.ping(PATIENCE).expect("an idle thread answers");
    let gate = Gate::default();
    remote.set(Mood::Waits(gate.clone()));
    let pending = submit(&service, &tokens(9, 256, 1), greedy(4));
    gate.until_somebody_comes();
    let timeout = Duration::from_millis(20);
    assert!(matches!(service.ping(timeout), Err(Error::NoAnswer { timeout: found }) if found == timeout));
    // What is asked meanwhile does not wait for the thread.
    assert_eq!(service.status().slots.len(), 4);
    gate.open();
    service.ping(PATIENCE).expect("the thread moves again");
    assert_eq!(pending.reply().finish(), Finish::Length);
    end(&service);
}

#[test]
fn a_shutdown_does_not_wait_for_ever_for_a_thread_that_is_stuck() {
    let (_, service, remote) = moody(Setup::default());
    let gate = Gate::default();
    remote.set(Mood::Waits(gate.clone()));
    let pending = submit(&service, &tokens(9, 256, 1), greedy(4));
    gate.until_somebody_comes();
    let started = Instant::now();
    service.shutdown(started);
    assert!(started.elapsed() < Duration::from_mins(1));
    gate.open();
    assert_eq!(pending.reply().finish(), Finish::Interrupted);
}

#[test]
fn a_model_file_that_changes_ends_the_service_which_knows_its_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    std::fs::copy(model_path(MUSE[1]), &path).expect("room for a copy");
    let model = open_at(&path);
    let service = model.serve(Setup::default());
    let prompt = tokens(20, 256, 1);
    let gate = Gate::default();
    let pending = submit_through(&service, &prompt, greedy(400), gate.at(|event| matches!(event, Event::Token { .. })));
    gate.until_somebody_comes();
    let file = std::fs::File::options().write(true).open(&path).expect("it is ours");
    file.write_all_at(b"GGUF", 0).expect("it can be written");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a clock that ticks at once");
    gate.open();
    assert!(matches!(pending.reply().end, Err(Error::ModelChanged)), "clients are told no names");
    let error = service.wait().expect_err("it was no shutdown");
    assert!(error.to_string().contains("model.gguf"), "{error}");
    assert!(matches!(service.ping(PATIENCE), Err(Error::ModelChanged)));
    let refused = try_submit(&service, &prompt, Work::Generate(greedy(4)), |_| false).err();
    assert_eq!(refused, Some(Refusal::Ended));
    end(&service);
}
