//! Prompts as vectors.

use muser_engine::Finish;
use muser_engine::service::{Miss, Outcome, Pooling, Refusal, Service, Work};
use muser_tests::model::{GEMMA3, MUSE};

use crate::support::{Reply, Setup, ask, end, greedy, open, submit, tokens, try_submit};

fn embed(service: &Service, prompt: &[u32], pooling: Pooling) -> Reply {
    try_submit(service, prompt, Work::Embed(pooling), |_| false).expect("a good request").reply()
}

fn bits(reply: &Reply) -> Vec<u32> {
    let vector = reply.embedding.as_ref().unwrap_or_else(|| panic!("no vector: {:?}", reply.end));
    vector.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn a_vector_is_the_same_in_pieces_of_any_size_and_beside_others() {
    for (name, longest) in [(MUSE[1], 200), (GEMMA3, 24)] {
        let model = open(name);
        for pooling in [Pooling::Mean, Pooling::Last] {
            let prompt = tokens(longest, 256, 1);
            let mut expected = None;
            for n_batch in [4, 33, 256] {
                let service = model.serve(Setup { n_batch, ..Setup::default() });
                let beside = submit(&service, &tokens(20, 256, 2), greedy(12));
                let alike = submit(&service, &[&prompt[..longest / 2], &[7; 9]].concat(), greedy(3));
                let found = embed(&service, &prompt, pooling);
                assert_eq!((found.finish(), found.summary().n_generated), (Finish::Stop, 0));
                assert_eq!(bits(&found).len(), model.weights.spec().n_embd);
                let expected = expected.get_or_insert_with(|| bits(&found));
                assert_eq!(bits(&found), *expected, "{name}: {pooling:?}, {n_batch} at once");
                assert_eq!(bits(&embed(&service, &prompt, pooling)), *expected, "{name}: {pooling:?}, again");
                beside.reply();
                alike.reply();
                assert_eq!(service.stats().outcome(Outcome::Embedding).value(), 2);
                end(&service);
            }
        }
    }
}

#[test]
fn the_mean_is_that_of_the_last_vectors_of_all_starts() {
    let model = open(MUSE[0]);
    let service = model.serve(Setup::default());
    let prompt = tokens(24, 256, 3);
    let last = |len: usize| embed(&service, &prompt[..len], Pooling::Last).embedding.expect("a vector");
    let mut sums = vec![0.0_f32; model.weights.spec().n_embd];
    for len in 1..=prompt.len() {
        sums.iter_mut().zip(last(len)).for_each(|(sum, value)| *sum += value);
    }
    let expected: Vec<u32> = sums.iter().map(|sum| (sum / prompt.len() as f32).to_bits()).collect();
    assert_eq!(bits(&embed(&service, &prompt, Pooling::Mean)), expected);
    end(&service);
}

#[test]
fn the_last_vector_needs_the_last_token_only_and_the_mean_needs_all() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let prompt = tokens(100, 256, 1);
    ask(&service, &prompt, greedy(1));
    assert_eq!(embed(&service, &prompt, Pooling::Last).summary().n_reused, 99);
    assert_eq!(embed(&service, &prompt, Pooling::Mean).summary().n_reused, 0);
    assert_eq!(service.stats().miss(Miss::AllNeeded).value(), 1);
    // What was processed for a vector serves an answer.
    let longer = [prompt, tokens(9, 256, 2)].concat();
    assert_eq!(ask(&service, &longer, greedy(4)).summary().n_reused, 100);
    end(&service);
}

#[test]
fn a_prompt_may_fill_the_context_and_no_more() {
    let model = open(MUSE[1]);
    for n_ctx in [1, 16] {
        let service = model.serve(Setup { n_ctx, n_slot: 1, n_batch: 1, ..Setup::default() });
        for pooling in [Pooling::Mean, Pooling::Last] {
            assert!(embed(&service, &tokens(n_ctx, 256, 1), pooling).embedding.is_some());
            let refused = try_submit(&service, &tokens(n_ctx + 1, 256, 1), Work::Embed(pooling), |_| false).err();
            assert_eq!(refused, Some(Refusal::PromptTooLong { tokens: n_ctx + 1, most: n_ctx, n_ctx }));
        }
        end(&service);
    }
}
