//! How answers end, and what shapes them.

use std::sync::{Arc, Mutex};

use muser_engine::Finish;
use muser_engine::sampler::{SamplerError, SamplerSpec};
use muser_engine::service::{Constraint, ConstraintError, GenerateOptions, Outcome, Refusal, Work};
use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};

use crate::support::{Reply, Setup, ask, end, greedy, open, tokens, try_submit};

fn stopping(stop: &[&str], n: usize) -> GenerateOptions {
    GenerateOptions { stop: stop.iter().map(|&stop| stop.to_owned()).collect(), ..greedy(n) }
}

#[test]
fn a_stop_text_ends_the_answer_before_it_wherever_tokens_end() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup::default());
    let prompt = model.encode("Water boils at");
    let whole = ask(&service, &prompt, greedy(12)).text;
    let chars: Vec<(usize, char)> = whole.char_indices().collect();
    // Every place of the text once, with stop texts of one to six characters.
    for (index, &(at, _)) in chars.iter().enumerate() {
        let end_at = chars.get(index + 1 + index % 6).map_or(whole.len(), |&(end, _)| end);
        let stop = &whole[at..end_at];
        let reply = ask(&service, &prompt, stopping(&["never there", stop], 12));
        let first = whole.find(stop).expect("it is from the text");
        assert_eq!((reply.text.as_str(), reply.finish()), (&whole[..first], Finish::StopString(1)), "{stop:?}");
    }
    let reply = ask(&service, &prompt, stopping(&[&format!("{whole}!")], 12));
    assert_eq!(
        (reply.text.as_str(), reply.finish()),
        (whole.as_str(), Finish::Length),
        "what was held back comes at the end"
    );
    end(&service);
}

#[test]
fn pieces_joined_are_the_text_of_the_tokens() {
    for name in [SMOLLM2, GEMMA3, MUSE[2]] {
        let model = open(name);
        let service = model.serve(Setup::default());
        let options = GenerateOptions {
            sampler: SamplerSpec { temperature: 3.0, seed: 5, ..SamplerSpec::default() },
            stop: vec!["\u{FFFD}\u{FFFD}\u{FFFD} never".into()],
            ..greedy(60)
        };
        let reply = ask(&service, &model.encode("日本語 🙂"), options);
        let decoding = muser_text::DecodeOptions { continues: true, ..muser_text::DecodeOptions::default() };
        assert_eq!(reply.text, model.tokenizer.decode(&reply.ids, decoding).expect("known tokens"), "{name}");
        end(&service);
    }
}

#[test]
fn contexts_are_filled_to_the_last_token_and_never_beyond() {
    let model = open(MUSE[1]);
    for n_ctx in [1, 2, 16] {
        let service = model.serve(Setup { n_ctx, n_slot: 2, n_batch: 2, ..Setup::default() });
        for len in [n_ctx - 1, n_ctx, n_ctx + 1] {
            let prompt = tokens(len, 256, 3);
            for max_tokens in [None, Some(usize::MAX), Some(1 << 31)] {
                let options = GenerateOptions { max_tokens, ..greedy(0) };
                let pending = try_submit(&service, &prompt, Work::Generate(options), |_| false);
                if len == 0 {
                    assert_eq!(pending.err(), Some(Refusal::EmptyPrompt));
                } else if len < n_ctx {
                    let reply = pending.expect("it fits").reply();
                    // One for each place that is left, and one that follows the last.
                    assert_eq!((reply.finish(), reply.ids.len()), (Finish::ContextFull, n_ctx - len + 1));
                    service.ping(crate::support::PATIENCE).expect("it lives");
                    assert!(service.status().slots.iter().any(|slot| slot.n_held == n_ctx));
                } else {
                    let refusal = Refusal::PromptTooLong { tokens: len, most: n_ctx - 1, n_ctx };
                    assert_eq!(pending.err(), Some(refusal));
                }
            }
        }
        end(&service);
    }
}

#[test]
fn a_long_prompt_leaves_nothing_to_a_short_one_in_the_same_slot() {
    for name in MUSE {
        let model = open(name);
        let service = model.serve(Setup::alone());
        let short = tokens(7, 256, 1);
        let fresh = ask(&service, &short, greedy(40)).bits();
        ask(&service, &tokens(400, 256, 2), greedy(100));
        let reply = ask(&service, &short, greedy(40));
        assert_eq!((reply.summary().n_reused, reply.bits()), (0, fresh), "{name}");
        end(&service);
    }
}

#[test]
fn the_token_limit_is_exact_and_none_is_no_answer() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    for n in [0, 1, 2, 30] {
        let reply = ask(&service, &[1, 2, 3], greedy(n));
        assert_eq!((reply.ids.len(), reply.finish(), reply.summary().n_generated), (n, Finish::Length, n));
    }
    assert_eq!(service.stats().outcome(Outcome::Length).value(), 4);
    end(&service);
}

#[test]
fn the_model_ends_its_answer_unless_that_is_ignored() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup::default());
    let text = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n";
    let prompt = model.tokenizer.encode(text, muser_text::Special::Parse, muser_text::Affixes::None);
    let reply = ask(&service, &prompt, GenerateOptions { ignore_eos: false, ..greedy(100) });
    assert_eq!(reply.finish(), Finish::Stop);
    assert!(!reply.ids.is_empty() && reply.ids.iter().all(|&id| !model.tokenizer.is_end_of_generation(id)));
    let ignored = ask(&service, &prompt, greedy(100));
    assert_eq!((ignored.finish(), ignored.ids.len()), (Finish::Length, 100));
    assert_eq!(ignored.ids[..reply.ids.len()], reply.ids);
    end(&service);
}

#[test]
fn a_bias_shifts_excludes_or_forces() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let prompt = tokens(9, 256, 1);
    let with = |logit_bias| ask(&service, &prompt, GenerateOptions { logit_bias, ..greedy(5) });
    let plain = with(vec![]);
    let [likeliest, second] = [0, 1].map(|place| plain.logprobs[0].top[place]);
    assert_eq!(plain.ids[0], likeliest.0);
    assert_eq!(with(vec![(likeliest.0, -100.0)]).ids[0], second.0);
    let gap = (likeliest.1 - second.1) as f32;
    assert_eq!(with(vec![(second.0, gap + 0.01)]).ids[0], second.0);
    assert_eq!(with(vec![(second.0, gap - 0.01)]).ids[0], likeliest.0);
    assert_eq!(with(vec![(7, 100.0)]).ids, [7; 5]);
    // Log-probabilities are the model's own.
    assert_eq!(with(vec![(7, 100.0)]).logprobs[0].top, plain.logprobs[0].top);
    let forced = with(vec![(7, 100.0), (9, 100.0), (likeliest.0, 99.0)]).ids;
    assert!(forced.iter().all(|id| [7, 9].contains(id)), "{forced:?}");
    end(&service);
}

#[test]
fn log_probabilities_are_those_of_the_full_vocabulary_however_tokens_are_chosen() {
    let model = open(SMOLLM2);
    let service = model.serve(Setup::default());
    let prompt = model.encode("Two and two are");
    let sampler = SamplerSpec {
        temperature: 0.7,
        top_k: 5,
        repetition_penalty: 1.3,
        presence_penalty: 1.0,
        seed: 3,
        ..SamplerSpec::default()
    };
    let drawn = ask(&service, &prompt, GenerateOptions { sampler, top_logprobs: Some(5), ..greedy(10) });
    // What the engine says of the same tokens.
    let backend = Box::new(
        muser_cpu::CpuBackend::new(muser_memory::Device::host(), std::num::NonZero::<usize>::MIN, None)
            .expect("a thread"),
    );
    let mut engine = muser_engine::Engine::new(model.weights.clone(), backend, 64, 512).expect("memory");
    let mut session = engine.session().expect("memory");
    let scored = engine.score(&mut session, &prompt, &drawn.ids, 5, None, &mut |_| std::ops::ControlFlow::Continue(()));
    for (step, found) in scored.expect("known tokens").iter().zip(&drawn.logprobs) {
        assert_eq!((step.logprob.to_bits(), &step.top), (found.logprob.to_bits(), &found.top));
    }
    assert_eq!(drawn.logprobs.len(), 10);
    end(&service);
}

/// Allows the next of its tokens only.
struct Recite {
    ids: Vec<u32>,
    seen: Arc<Mutex<Vec<u32>>>,
    fails_at: usize,
}

impl Constraint for Recite {
    fn mask(&mut self, logits: &mut [f32]) -> Result<(), ConstraintError> {
        let at = self.seen.lock().expect("nobody panics here").len();
        if at == self.fails_at {
            return Err(ConstraintError("lost the thread".into()));
        }
        let kept = logits[self.ids[at] as usize];
        logits.fill(f32::NEG_INFINITY);
        logits[self.ids[at] as usize] = kept;
        Ok(())
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        self.seen.lock().expect("nobody panics here").push(id);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.seen.lock().expect("nobody panics here").len() == self.ids.len()
    }
}

#[test]
fn a_constraint_leads_the_answer_to_its_end_or_fails_it_alone() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let recite = |fails_at| -> (Reply, Vec<u32>) {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let constraint = Recite { ids: vec![5, 4, 3, 2], seen: Arc::clone(&seen), fails_at };
        let options = GenerateOptions { constraint: Some(Box::new(constraint)), ..greedy(30) };
        let reply = ask(&service, &[1, 2, 3], options);
        let seen = seen.lock().expect("nobody panics here").clone();
        (reply, seen)
    };
    let (reply, seen) = recite(usize::MAX);
    assert_eq!((reply.ids.as_slice(), reply.finish(), seen), (&[5, 4, 3, 2][..], Finish::Stop, vec![5, 4, 3, 2]));
    let (reply, seen) = recite(2);
    assert_eq!((reply.ids.len(), seen.len()), (2, 2));
    let error = reply.end.expect_err("the constraint fails");
    assert_eq!(error.to_string(), "the constraint on the answer failed: lost the thread");
    assert_eq!(ask(&service, &[1, 2, 3], greedy(3)).finish(), Finish::Length);
    end(&service);
}

#[test]
fn what_leaves_no_token_can_not_begin_an_answer() {
    let model = open(MUSE[1]);
    let can_begin = |logit_bias: &[(u32, f32)], ignore_eos, id: Option<u32>| {
        let recite = |id| Recite { ids: vec![id], seen: Arc::default(), fails_at: usize::MAX };
        let constraint = id.map(|id| Box::new(recite(id)) as Box<dyn Constraint>);
        let mut options = GenerateOptions { logit_bias: logit_bias.to_vec(), ignore_eos, constraint, ..greedy(1) };
        options.can_begin(&model.tokenizer).expect("the constraint begins")
    };
    let ends = model.tokenizer.end_of_generation_ids();
    let forced: Vec<_> = ends.iter().map(|&id| (id, 100.0)).collect();
    assert!(can_begin(&[], true, None) && can_begin(&forced, false, None) && can_begin(&[(5, -100.0)], false, Some(4)));
    assert!(!can_begin(&forced, true, None), "only an end may come, and it may not");
    assert!(!can_begin(&[(5, -100.0)], false, Some(5)), "the constraint's token is excluded");
    assert!(!can_begin(&[(4, 100.0)], false, Some(5)), "another one is demanded");
    let all: Vec<_> = (0..512).map(|id| (id, -100.0)).collect();
    assert!(!can_begin(&all, false, None));
}

#[test]
fn settings_out_of_range_are_refused_by_name_before_anything_is_queued() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let refused = |prompt: &[u32], options| match try_submit(&service, prompt, Work::Generate(options), |_| false) {
        Err(refusal) => refusal,
        Ok(_) => panic!("it was taken"),
    };
    assert_eq!(refused(&[], greedy(1)), Refusal::EmptyPrompt);
    assert_eq!(refused(&[1, 512], greedy(1)), Refusal::UnknownToken { id: 512, n_vocab: 512 });
    assert_eq!(refused(&[1], stopping(&["a", ""], 1)), Refusal::EmptyStop { index: 1 });
    let biased = |id, value| GenerateOptions { logit_bias: vec![(1, 0.0), (id, value)], ..greedy(1) };
    assert_eq!(refused(&[1], biased(512, 1.0)), Refusal::UnknownToken { id: 512, n_vocab: 512 });
    for value in [-100.5, 101.0, f32::INFINITY] {
        assert_eq!(refused(&[1], biased(3, value)), Refusal::LogitBias { id: 3, value });
    }
    assert!(matches!(refused(&[1], biased(3, f32::NAN)), Refusal::LogitBias { id: 3, .. }));
    let hot = SamplerSpec { temperature: -1.0, ..SamplerSpec::default() };
    let refusal = refused(&[1], GenerateOptions { sampler: hot, ..greedy(1) });
    assert!(matches!(refusal, Refusal::Sampler(SamplerError::Setting { name: "temperature", .. })), "{refusal}");
    assert_eq!(service.stats().requests.value(), 0);
    let counted: u64 = service.stats().refusals().map(|(_, count)| count.value()).sum();
    assert_eq!(counted, 9);
    end(&service);
}

#[test]
fn neutral_and_extreme_sampler_settings_have_a_meaning() {
    let model = open(MUSE[1]);
    let service = model.serve(Setup::default());
    let prompt = tokens(40, 256, 1);
    let with = |sampler| ask(&service, &prompt, GenerateOptions { sampler, ..greedy(20) });
    let plain = with(SamplerSpec::default()).ids;
    let greedy = SamplerSpec { top_k: 0, top_p: 0.0, min_p: 1.0, ..SamplerSpec::default() };
    assert_eq!(with(greedy).ids, plain);
    // Without a distribution to draw from, the filters leave the likeliest.
    assert_eq!(with(SamplerSpec { temperature: 1.0, ..greedy }).ids, plain);
    let repeating = SamplerSpec { repetition_penalty: 2.0, ..SamplerSpec::default() };
    assert_eq!(with(SamplerSpec { penalty_last_n: 0, ..repeating }).ids, plain);
    let all = with(SamplerSpec { penalty_last_n: 60, ..repeating }).ids;
    assert_eq!(with(SamplerSpec { penalty_last_n: usize::MAX, ..repeating }).ids, all);
    end(&service);
}
