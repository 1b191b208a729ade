//! Sliding windows: prompts around them, in pieces of any size, and what can be gone on from.

use std::ops::ControlFlow;

use muser_engine::sampler::{Sampler, SamplerSpec};
use muser_engine::service::Miss;
use muser_engine::{Engine, Event};
use muser_memory::Device;
use muser_tests::model::{GEMMA3, MUSE};

use crate::support::{Model, Setup, ask, end, greedy, open, solo, submit, tokens};

/// The window of the synthetic models.
const WINDOW: usize = 32;
const AROUND: [usize; 5] = [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 10 * WINDOW];

/// An answer by the engine alone, one token at a time, on another backend thread count.
fn plainly(model: &Model, prompt: &[u32], n: usize) -> Vec<u32> {
    let backend =
        muser_cpu::CpuBackend::new(Device::host(), std::num::NonZero::<usize>::MIN, None).expect("one thread");
    let mut engine = Engine::new(model.weights.clone(), Box::new(backend), 1, 512).expect("memory");
    let mut session = engine.session().expect("memory");
    let mut sampler = Sampler::new(SamplerSpec::default()).expect("greedy");
    let mut ids = Vec::new();
    let on_event = &mut |event: Event<'_>| {
        if let Event::Token { id, .. } = event {
            ids.push(id);
        }
        ControlFlow::Continue(())
    };
    let generated = engine.generate(&mut session, &model.tokenizer, prompt, &mut sampler, Some(n), on_event);
    // The end of the text may come in a piece without a token of its own.
    ids.truncate(generated.expect("a good prompt").n_generated);
    ids
}

#[test]
fn prompts_around_the_window_give_the_same_bits_in_pieces_of_any_size() {
    let model = open(MUSE[1]);
    for len in AROUND {
        let prompt = tokens(len, 256, len as u32);
        let mut expected = None;
        for n_batch in [1, 7, WINDOW - 1, WINDOW, WINDOW + 1, 256] {
            let service = model.serve(Setup { n_batch, ..Setup::alone() });
            let reply = ask(&service, &prompt, greedy(8));
            let expected = expected.get_or_insert_with(|| reply.bits());
            assert_eq!(reply.bits(), *expected, "{len} tokens, {n_batch} at once");
            end(&service);
        }
        let ids: Vec<u32> = expected.into_iter().flatten().map(|(id, ..)| id).collect();
        let plain = plainly(&model, &prompt, 8);
        assert_eq!(ids[..plain.len()], plain, "{len} tokens");
    }
}

#[test]
fn a_real_window_is_passed_in_pieces_beside_others_without_a_trace() {
    let model = open(GEMMA3);
    let prompt = tokens(513, model.n_vocab(), 1);
    let expected = solo(&model, 600, &prompt, greedy(3)).bits();
    let service = model.serve(Setup { n_ctx: 600, n_slot: 2, n_batch: 100, ..Setup::default() });
    let beside = submit(&service, &tokens(20, model.n_vocab(), 2), greedy(30));
    assert_eq!(ask(&service, &prompt, greedy(3)).bits(), expected);
    assert_eq!(beside.reply().ids.len(), 30);
    end(&service);
}

#[test]
fn a_window_that_moved_on_is_processed_again_and_the_reason_counted() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::alone());
    for len in AROUND {
        let first = [tokens(len, 256, 7), tokens(WINDOW + 8, 256, 8)].concat();
        let second = [tokens(len, 256, 7), tokens(5, 256, 9)].concat();
        ask(&service, &first, greedy(1));
        let n_missed = service.stats().miss(Miss::WindowLeft).value();
        let reply = ask(&service, &second, greedy(6));
        assert_eq!(reply.summary().n_reused, 0, "{len} tokens in common");
        assert_eq!(service.stats().miss(Miss::WindowLeft).value(), n_missed + 1);
        assert_eq!(reply.bits(), solo(&model, 512, &second, greedy(6)).bits());
    }
    end(&service);
}

#[test]
fn where_the_window_still_holds_what_is_needed_the_prompt_goes_on_from_there() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::alone());
    for len in AROUND {
        let first = tokens(len, 256, 7);
        let next = [first.clone(), tokens(5, 256, 9)].concat();
        ask(&service, &first, greedy(1));
        let reply = ask(&service, &next, greedy(6));
        assert_eq!(reply.summary().n_reused, len);
        assert_eq!(reply.bits(), solo(&model, 512, &next, greedy(6)).bits());
    }
    end(&service);
}

#[test]
fn another_answer_to_a_prompt_longer_than_the_window_starts_where_the_prompt_ends() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 1, ..Setup::default() });
    for len in AROUND {
        let prompt = tokens(len, 256, len as u32);
        let first = ask(&service, &prompt, greedy(2 * WINDOW));
        for _ in 0..3 {
            let again = ask(&service, &prompt, greedy(2 * WINDOW));
            assert_eq!(again.summary().n_reused, len - 1, "{len} tokens");
            assert_eq!(again.bits(), first.bits(), "{len} tokens");
        }
    }
    assert_eq!(service.stats().miss(Miss::WindowLeft).value(), 0);
    end(&service);
}

#[test]
fn prompts_that_begin_alike_start_where_earlier_ones_parted() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup { n_slot: 1, ..Setup::default() });
    for len in [WINDOW + 1, 2 * WINDOW, 10 * WINDOW] {
        let prompt = |seed: u32| [tokens(len, 256, len as u32), tokens(WINDOW + 8, 256, 1000 + seed)].concat();
        // The second finds that the window has left where they part, and the others what it kept there.
        for (seed, n_reused) in (0..).zip([0, 0, len, len]) {
            let reply = ask(&service, &prompt(seed), greedy(6));
            assert_eq!(reply.summary().n_reused, n_reused, "{len} tokens in common");
            assert_eq!(reply.bits(), solo(&model, 512, &prompt(seed), greedy(6)).bits());
        }
    }
    assert_eq!(service.stats().miss(Miss::WindowLeft).value(), 3);
    end(&service);
}
