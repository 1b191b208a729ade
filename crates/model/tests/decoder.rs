//! What the decoder promises: the bits of a token's logits follow from its sequence only, and a failure leaves no torn state
//! that could be used.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use muser_memory::{Device, KvPlane};
use muser_model::{Decoder, Error, KvCache, LogitRows, Model, ModelSpec, Span, Tap, TapPoint, TapSink};
use muser_ops::{
    Add, Append, Attention, Backend, Cap, Checked, Embed, Gated, Gather, Heads, NormRows, Project, Reference,
};
use support::{N_EMBD, N_VOCAB, Random, Run, WINDOW, all, all_logits, gemma3, llama, muse_glimmer, reference, tokens};

const N_CTX: usize = 48;

/// The logits of all tokens, each in a batch of its own.
fn one_by_one(model: &Arc<Model>, tokens: &[u32]) -> Vec<Vec<u32>> {
    bits(&Run::new(model, 1, N_CTX).logits_of_all(tokens, &vec![1; tokens.len()]))
}

fn bits(logits: &[Vec<f32>]) -> Vec<Vec<u32>> {
    logits.iter().map(|logits| logits.iter().map(|logit| logit.to_bits()).collect()).collect()
}

#[test]
fn any_cut_of_a_prompt_gives_the_same_bits() {
    let tokens = tokens(33, 1);
    // Around the window, the lanes of a plane, and the whole.
    let mut cuts: Vec<Vec<usize>> = [1, 2, 3, 7, 8, 9, 15, 16, 17, 32, 33].map(|n| vec![n; 33]).to_vec();
    let mut random = Random(5);
    cuts.extend((0..10).map(|_| (0..33).map(|_| 1 + (random.bits() % 12) as usize).collect()));
    for file in all() {
        let model = file.model();
        let expected = one_by_one(&model, &tokens);
        for cut in &cuts {
            let found = Run::new(&model, 33, N_CTX).logits_of_all(&tokens, cut);
            assert_eq!(bits(&found), expected, "{} cut into {cut:?}", file.arch);
        }
    }
}

#[test]
fn a_window_that_is_no_whole_number_of_lanes_gives_the_same_bits_in_any_cut() {
    let tokens = tokens(33, 2);
    for window in [1, 2, 5, 7, 9, 12] {
        let mut file = muse_glimmer();
        file.set("attention.sliding_window", support::Meta::U32(window));
        let model = file.model();
        let expected = one_by_one(&model, &tokens);
        for n in [2, 4, 8, 11, 33] {
            let found = Run::new(&model, 33, N_CTX).logits_of_all(&tokens, &[n; 33]);
            assert_eq!(bits(&found), expected, "window of {window}, batches of {n}");
        }
    }
}

#[test]
fn a_token_is_seen_by_as_many_positions_as_the_window_has() {
    // With one sliding layer, what a token saw can't travel further.
    let mut file = muse_glimmer();
    file.set("block_count", support::Meta::U32(1)).set("attention.sliding_window_pattern", support::Meta::U32(0));
    file.tensors.retain(|tensor| !tensor.name.starts_with("blk.") || tensor.name.starts_with("blk.0."));
    let model = file.model();
    let tokens = tokens(2 * WINDOW, 3);
    let mut other = tokens.clone();
    other[2] = (other[2] + 1) % N_VOCAB as u32;
    let differs: Vec<bool> = {
        let (a, b) = (one_by_one(&model, &tokens), one_by_one(&model, &other));
        a.iter().zip(&b).map(|(a, b)| a != b).collect()
    };
    let expected: Vec<bool> = (0..tokens.len()).map(|pos| (2..2 + WINDOW).contains(&pos)).collect();
    assert_eq!(differs, expected);
}

#[test]
fn sequences_in_one_batch_do_not_see_each_other() {
    // The first fills its window, the second crosses it inside the batch, the third starts afresh, the fourth goes on.
    let starts = [WINDOW + 3, WINDOW - 2, 0, 2];
    let lens = [3, 5, 7, 1];
    for file in all() {
        let model = file.model();
        let sequences: Vec<Vec<u32>> = (0..4).map(|i| tokens(starts[i] + lens[i], 10 + i as u64)).collect();
        let mut run = Run::new(&model, 16, N_CTX);
        let mut caches: Vec<KvCache> = Vec::new();
        for (sequence, start) in sequences.iter().zip(starts) {
            run.cache.clear();
            run.logits_of_all(&sequence[..start], &[]);
            caches.push(std::mem::replace(&mut run.cache, cache(model.spec(), N_CTX)));
        }
        let mut spans: Vec<Span<'_>> = caches
            .iter_mut()
            .zip(sequences.iter().zip(starts))
            .map(|(cache, (sequence, start))| Span { tokens: &sequence[start..], cache, logits: LogitRows::From(0) })
            .collect();
        let n = run.decoder.forward(&mut run.backend, &mut spans, None).expect("a batch that fits");
        let found = bits(&all_logits(&mut run.decoder, &mut run.backend, n).expect("logits"));
        let expected: Vec<_> = sequences
            .iter()
            .zip(starts)
            .flat_map(|(sequence, start)| one_by_one(&model, sequence).split_off(start))
            .collect();
        assert_eq!(found, expected, "{}", file.arch);
        // And what they left behind serves them as well as a cache of their own.
        let [first, ..] = caches.as_mut_slice() else { unreachable!("there are four") };
        run.cache = std::mem::replace(first, cache(model.spec(), N_CTX));
        let next = tokens(1, 20);
        let found = run.step(&next, None).expect("a batch that fits");
        let whole = [sequences[0].clone(), next].concat();
        assert_eq!(bits(&found), one_by_one(&model, &whole)[whole.len() - 1..]);
    }
}

fn cache(spec: &ModelSpec, n_ctx: usize) -> KvCache {
    KvCache::new(spec, &Device::host(), n_ctx).expect("memory")
}

#[test]
fn selected_tokens_get_the_logits_that_they_get_among_all() {
    let model = llama().model();
    let tokens = tokens(9, 4);
    let expected = one_by_one(&model, &tokens);
    for (logits, first) in
        [(LogitRows::None, 9), (LogitRows::Last, 8), (LogitRows::From(3), 3), (LogitRows::From(8), 8)]
    {
        let Run { mut decoder, mut backend, mut cache } = Run::new(&model, 9, N_CTX);
        let spans = &mut [Span { tokens: &tokens, cache: &mut cache, logits }];
        let n = decoder.forward(&mut backend, spans, None).expect("a batch that fits");
        assert_eq!(n, 9 - first, "{logits:?}");
        assert_eq!(bits(&all_logits(&mut decoder, &mut backend, n).expect("logits")), expected[first..], "{logits:?}");
        if n > 1 {
            let found = decoder.logits(&mut backend, 1, n - 1, None).expect("several at once").to_vec();
            let found: Vec<u32> = found.iter().map(|logit| logit.to_bits()).collect();
            assert_eq!(found, expected[first + 1..].concat());
        }
        let error = decoder.logits(&mut backend, n, 1, None).expect_err("a token that was not selected");
        assert!(matches!(error, Error::Ops(_)), "{error}");
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let tokens = tokens(40, 5);
    for file in all() {
        let model = file.model();
        let expected = one_by_one(&model, &tokens);
        for threads in [2, 3, 5] {
            let mut run = Run::new(&model, 40, N_CTX);
            run.backend = Reference::new(threads.try_into().expect("not zero"));
            assert_eq!(bits(&run.logits_of_all(&tokens, &[])), expected, "{} with {threads} threads", file.arch);
        }
    }
}

#[test]
fn a_truncated_cache_goes_on_as_a_fresh_one_or_stays_as_it_is() {
    let (held, more) = (tokens(2 * WINDOW + 3, 6), tokens(2, 7));
    for file in [llama(), muse_glimmer()] {
        let model = file.model();
        let has_window = model.spec().layers.iter().any(|layer| layer.window.is_some());
        for len in [WINDOW, WINDOW + 1, held.len()] {
            for pos in 0..=len + 1 {
                let mut run = Run::new(&model, 8, N_CTX);
                run.logits_of_all(&held[..len], &[3, 1, 8, 1, 2]);
                // A plane of `WINDOW` rows holds the last that many positions. The token at `pos` sees those from
                // `pos + 1 - WINDOW` on; nothing is needed when nothing is forgotten.
                let first_held = if has_window { len.saturating_sub(WINDOW) } else { 0 };
                let expected = pos == len || pos < len && first_held <= (pos + 1).saturating_sub(WINDOW);
                let what = format!("{}: {len} tokens back to {pos}", file.arch);
                assert_eq!(run.cache.truncate(pos).expect("a whole cache"), expected, "{what}");
                let kept = if expected { pos } else { len };
                assert_eq!(run.cache.end(), kept, "{what}");
                let found = bits(&run.logits_of_all(&more, &[]));
                let whole = [&held[..kept], &more].concat();
                assert_eq!(found, one_by_one(&model, &whole)[kept..], "{what}");
            }
        }
    }
}

#[test]
fn a_cleared_cache_is_like_a_new_one() {
    let model = gemma3().model();
    let mut run = Run::new(&model, 16, N_CTX);
    run.logits_of_all(&tokens(30, 8), &[16]);
    run.cache.clear();
    assert_eq!(run.cache.end(), 0);
    let tokens = tokens(12, 9);
    assert_eq!(bits(&run.logits_of_all(&tokens, &[])), one_by_one(&model, &tokens));
}

#[test]
fn a_context_holds_as_many_tokens_as_it_says_and_no_more() {
    for n_ctx in [1, WINDOW - 1, WINDOW, WINDOW + 1, 20] {
        let model = muse_glimmer().model();
        let mut run = Run::new(&model, 32, n_ctx);
        let tokens = tokens(n_ctx + 1, 10);
        let error = run.step(&tokens, None).expect_err("one token too many");
        let message = format!("the context of {n_ctx} tokens is full: it holds 0, and {} more were given", n_ctx + 1);
        assert_eq!(error.to_string(), message);
        let found = run.step(&tokens[..n_ctx], None).expect("a context's worth of tokens");
        assert_eq!(bits(&found), one_by_one(&model, &tokens[..n_ctx]));
        let error = run.step(&tokens[n_ctx..], None).expect_err("a full context");
        assert!(matches!(error, Error::ContextFull { held, more: 1, .. } if held == n_ctx), "{error}");
        assert_eq!(run.cache.end(), n_ctx);
    }
}

#[test]
fn a_refused_batch_leaves_every_cache_as_it_was() {
    let model = llama().model();
    let other = muse_glimmer().model();
    let good = tokens(4, 11);
    let refused = |bad: &[u32], logits: LogitRows, mut bad_cache: KvCache| {
        let Run { mut decoder, mut backend, mut cache } = Run::new(&model, 8, 16);
        let spans = &mut [
            Span { tokens: &good, cache: &mut cache, logits: LogitRows::Last },
            Span { tokens: bad, cache: &mut bad_cache, logits },
        ];
        let error = decoder.forward(&mut backend, spans, None).expect_err("a bad batch").to_string();
        assert_eq!(cache.end(), 0, "{error}");
        let nothing = decoder.logits(&mut backend, 0, 1, None).expect_err("no token was selected");
        assert!(matches!(nothing, Error::Ops(_)), "{nothing}");
        let mut run = Run { decoder, backend, cache };
        assert_eq!(bits(&run.step(&good, None).expect("an intact cache")), one_by_one(&model, &good), "{error}");
        error
    };
    let fresh = || cache(model.spec(), 16);
    assert_eq!(refused(&[], LogitRows::None, fresh()), "a batch without tokens");
    assert_eq!(refused(&[1; 5], LogitRows::None, fresh()), "a batch of 9 tokens, expected at most 8");
    assert_eq!(refused(&[3, 61], LogitRows::None, fresh()), "token 61 is not in the vocabulary of 61");
    assert_eq!(
        refused(&[1, 2], LogitRows::From(2), fresh()),
        "logits were asked from token 2 of a span on, expected less than its 2 tokens"
    );
    assert_eq!(
        refused(&[1, 2], LogitRows::None, cache(other.spec(), 16)),
        "the sequence's keys and values were made for another model"
    );
    assert_eq!(
        refused(&[1, 2], LogitRows::None, cache(model.spec(), 17)),
        "a sequence of up to 17 tokens, expected at most 16, which the decoder was made for"
    );
    assert_eq!(
        refused(&[1, 2], LogitRows::None, cache(model.spec(), 1)),
        "the context of 1 tokens is full: it holds 0, and 2 more were given"
    );
    let mut run = Run::new(&model, 8, 16);
    let error = run.decoder.forward(&mut run.backend, &mut [], None).expect_err("no span at all");
    assert_eq!(error.to_string(), "a batch without tokens");
    let error = Decoder::new(model.clone(), &Device::host(), 0, 16).err().expect("a decoder for nothing");
    assert_eq!(error.to_string(), "a batch without tokens");
}

/// Fails at one of its calls, and counts them.
struct Failing {
    inner: Reference,
    calls: usize,
    fails_at: usize,
}

impl Failing {
    fn new(fails_at: usize) -> Self {
        Self { inner: reference(), calls: 0, fails_at }
    }

    fn call(&mut self) -> Result<&mut Reference, muser_ops::Error> {
        self.calls += 1;
        if self.calls - 1 == self.fails_at {
            return Err(muser_ops::Error::Unaligned { len: self.fails_at });
        }
        Ok(&mut self.inner)
    }
}

impl Backend for Failing {
    fn describe(&self) -> String {
        "failing".to_owned()
    }

    fn device(&self) -> &Device {
        self.inner.device()
    }

    fn embed(&mut self, op: Checked<Embed<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.embed(op)
    }

    fn gather(&mut self, op: Checked<Gather<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.gather(op)
    }

    fn norm(&mut self, op: Checked<NormRows<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.norm(op)
    }

    fn project(&mut self, op: Checked<Project<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.project(op)
    }

    fn gated(&mut self, op: Checked<Gated<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.gated(op)
    }

    fn heads(&mut self, op: Checked<Heads<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.heads(op)
    }

    fn append(&mut self, op: Checked<Append<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.append(op)
    }

    fn attention(&mut self, op: Checked<Attention<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.attention(op)
    }

    fn add(&mut self, op: Checked<Add<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.add(op)
    }

    fn cap(&mut self, op: Checked<Cap<'_>>) -> Result<(), muser_ops::Error> {
        self.call()?.cap(op)
    }

    fn synchronize(&mut self) -> Result<(), muser_ops::Error> {
        self.call()?.synchronize()
    }
}

#[test]
fn a_pass_that_failed_anywhere_leaves_a_cache_that_is_refused_until_cleared() {
    let model = muse_glimmer().model();
    let (held, more) = (tokens(WINDOW + 1, 12), tokens(2, 13));
    let whole = [held.clone(), more.clone()].concat();
    let expected = one_by_one(&model, &whole);
    let mut fails_at = 0;
    loop {
        let mut run = Run::new(&model, 16, N_CTX);
        run.logits_of_all(&held, &[]);
        let mut failing = Failing::new(fails_at);
        let spans = &mut [Span { tokens: &more, cache: &mut run.cache, logits: LogitRows::Last }];
        let result = run.decoder.forward(&mut failing, spans, None);
        if failing.calls <= fails_at {
            assert_eq!(result.expect("a pass without a failure"), 1);
            break;
        }
        let error = result.expect_err("a failure");
        assert!(matches!(error, Error::Ops(muser_ops::Error::Unaligned { len }) if len == fails_at), "{error}");
        assert!(
            run.decoder.logits(&mut run.backend, 0, 1, None).is_err(),
            "logits of a pass that failed at {fails_at}"
        );
        let error = run.step(&more, None).expect_err("a torn cache");
        assert!(matches!(error, Error::BrokenCache), "{error}");
        let error = run.cache.truncate(0).expect_err("a torn cache");
        assert!(matches!(error, Error::BrokenCache), "{error}");
        run.cache.clear();
        assert_eq!(bits(&run.logits_of_all(&whole, &[])), expected, "cleared after failing at {fails_at}");
        fails_at += 1;
    }
    // An embedding, in each layer nine operations and an append (two where a batch crosses the window), a gather, an end.
    assert_eq!(fails_at, 1 + 8 * 9 + 6 * 2 + 2 + 2);
}

#[test]
fn failing_logits_can_be_asked_for_again() {
    let model = muse_glimmer().model();
    let tokens = tokens(3, 14);
    let mut run = Run::new(&model, 16, N_CTX);
    let spans = &mut [Span { tokens: &tokens, cache: &mut run.cache, logits: LogitRows::From(0) }];
    let n = run.decoder.forward(&mut run.backend, spans, None).expect("a batch that fits");
    for fails_at in 0..3 {
        run.decoder.logits(&mut Failing::new(fails_at), 0, n, None).expect_err("a failure");
    }
    let found = all_logits(&mut run.decoder, &mut run.backend, n).expect("logits");
    assert_eq!(bits(&found), one_by_one(&model, &tokens));
}

/// Span, position, layer and name.
type Point = (usize, usize, Option<usize>, &'static str);

/// The bits of every recording of every tap.
#[derive(Default)]
struct Recorder(BTreeMap<Point, Vec<Vec<u32>>>);

impl TapSink for Recorder {
    fn record(&mut self, point: TapPoint, values: &[f32]) {
        let TapPoint { tap, layer, span, pos } = point;
        let values = values.iter().map(|value| value.to_bits()).collect();
        self.0.entry((span, pos, layer, tap.name())).or_default().push(values);
    }
}

#[test]
fn every_tap_is_recorded_once_for_each_layer_and_token_and_changes_no_bit() {
    let tokens = tokens(WINDOW + 6, 15);
    for file in all() {
        let model = file.model();
        let expected = one_by_one(&model, &tokens);
        let mut cuts = [vec![tokens.len()], vec![5, WINDOW, 1]].into_iter().map(|cut| {
            let mut run = Run::new(&model, 16, N_CTX);
            let mut recorder = Recorder::default();
            let mut left = tokens.as_slice();
            for n in cut {
                let (batch, rest) = left.split_at(n);
                let Run { decoder, backend, cache } = &mut run;
                let spans = &mut [Span { tokens: batch, cache, logits: LogitRows::From(0) }];
                decoder.forward(backend, spans, Some(&mut recorder)).expect("a batch that fits");
                for row in 0..n {
                    decoder.logits(backend, row, 1, Some(&mut recorder)).expect("logits");
                }
                left = rest;
            }
            recorder.0
        });
        let (whole, cut) = (cuts.next().expect("one"), cuts.next().expect("another"));
        assert!(whole == cut, "{}: taps differ with the cut", file.arch);

        let layer = &model.spec().layers[0];
        let mut points = Vec::new();
        for (pos, logits) in expected.iter().enumerate() {
            points.push(((0, pos, None, "embd"), N_EMBD));
            points.push(((0, pos, None, "logits"), N_VOCAB));
            assert_eq!(whole[&(0, pos, None, "logits")], std::slice::from_ref(logits), "{} at {pos}", file.arch);
            for index in 0..model.spec().layers.len() {
                for (tap, width) in [
                    ("attn_norm", N_EMBD),
                    ("q", layer.q_width()),
                    ("k", layer.kv_width()),
                    ("v", layer.kv_width()),
                    ("attn_out", N_EMBD),
                    ("ffn_out", N_EMBD),
                    ("l_out", N_EMBD),
                ] {
                    points.push(((0, pos, Some(index), tap), width));
                }
            }
        }
        let found: BTreeMap<_, _> = whole.iter().map(|(&point, values)| (point, values)).collect();
        assert_eq!(found.len(), points.len(), "{}", file.arch);
        for (point, width) in points {
            let values = found.get(&point).unwrap_or_else(|| panic!("{}: no {point:?}", file.arch));
            assert_eq!(values.iter().map(Vec::len).collect::<Vec<_>>(), [width], "{}: {point:?}", file.arch);
        }
    }
}

#[test]
fn taps_of_several_sequences_name_their_span_and_position() {
    let model = llama().model();
    let mut run = Run::new(&model, 16, N_CTX);
    run.logits_of_all(&tokens(3, 16), &[]);
    let mut other = cache(model.spec(), N_CTX);
    let (first, second) = (tokens(2, 17), tokens(4, 18));
    let spans = &mut [
        Span { tokens: &first, cache: &mut run.cache, logits: LogitRows::Last },
        Span { tokens: &second, cache: &mut other, logits: LogitRows::Last },
    ];
    let mut recorder = Recorder::default();
    run.decoder.forward(&mut run.backend, spans, Some(&mut recorder)).expect("a batch that fits");
    run.decoder.logits(&mut run.backend, 0, 2, Some(&mut recorder)).expect("logits");
    let of = |tap: &str| {
        let points = recorder.0.keys().filter(|(.., layer, name)| *name == tap && layer.is_none_or(|layer| layer == 1));
        points.map(|&(span, pos, ..)| (span, pos)).collect::<Vec<_>>()
    };
    assert_eq!(of("l_out"), [(0, 3), (0, 4), (1, 0), (1, 1), (1, 2), (1, 3)]);
    assert_eq!(of("logits"), [(0, 4), (1, 3)]);
}

#[test]
fn a_tap_is_found_by_its_name() {
    for tap in Tap::ALL {
        assert_eq!(Tap::from_name(tap.name()), Some(tap));
    }
    assert_eq!(Tap::from_name("l_in"), None);
}

#[test]
fn a_cache_takes_a_window_of_rows_for_a_sliding_layer_and_the_context_for_a_global_one() {
    let spec = muse_glimmer().spec();
    let rows = |n_ctx| {
        let cache = cache(&spec, n_ctx);
        let geometries = cache.planes().iter().map(KvPlane::geometry);
        geometries.map(|g| (g.n_head_kv, g.head_dim, g.rows)).collect::<Vec<_>>()
    };
    let (sliding, global) = ((2, 16, 8), (2, 16, 20));
    assert_eq!(rows(20), [sliding, sliding, sliding, global, sliding, sliding, sliding, global]);
    assert_eq!(rows(5), [(2, 16, 5); 8]);
    let windows: Vec<_> = KvCache::layers(&spec).map(|layer| layer.max_rows).collect();
    assert_eq!(windows, [Some(8), Some(8), Some(8), None, Some(8), Some(8), Some(8), None]);
}
