//! Sequences that go on from a copy of another's keys and values, and the hidden states at their ends.

mod support;

use std::sync::Arc;

use muser_memory::Device;
use muser_model::{Error, KvCache, LogitRows, Model, Span, Tap, TapPoint, TapSink};
use support::{N_EMBD, Run, WINDOW, all, gemma3, llama, muse_glimmer, tokens};

const N_CTX: usize = 48;

fn cache(model: &Model, n_ctx: usize) -> KvCache {
    KvCache::new(model.spec(), &Device::host(), n_ctx).expect("memory")
}

/// The bits of all logits of all of `tokens` but the first `from`, processed one by one.
fn one_by_one(model: &Arc<Model>, tokens: &[u32], from: usize) -> Vec<u32> {
    bits(&Run::new(model, 1, N_CTX).logits_of_all(tokens, &vec![1; tokens.len()])[from..])
}

fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn a_sequence_goes_on_from_a_copy_with_the_bits_of_the_original_or_there_is_no_copy() {
    let (held, more) = (tokens(3 * WINDOW + 1, 6), tokens(WINDOW + 2, 7));
    for file in [llama(), muse_glimmer()] {
        let model = file.model();
        let has_window = model.spec().layers.iter().any(|layer| layer.window.is_some());
        for len in [1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, held.len()] {
            let mut original = Run::new(&model, 8, N_CTX);
            original.logits_of_all(&held[..len], &[3, 1, 8, 1, 2, 6]);
            for pos in 0..=len + 1 {
                // As long as it has to be, and through a copy of the copy, as long as contexts are.
                let mut exact = cache(&model, pos.max(1));
                let mut run = Run::new(&model, 8, N_CTX);
                run.logits_of_all(&tokens(5, 8), &[]);
                let what = format!("{}: {pos} of {len} tokens", file.arch);
                let first_held = if has_window { len.saturating_sub(WINDOW) } else { 0 };
                let reaches = pos <= len && (first_held == 0 || first_held + WINDOW - 1 <= pos);
                assert_eq!(original.cache.reaches(pos), reaches, "{what}");
                assert_eq!(exact.copy_from(&original.cache, pos).expect("the same model"), reaches, "{what}");
                if !reaches {
                    assert_eq!(exact.end(), 0, "{what}");
                    assert!(!run.cache.copy_from(&original.cache, pos).expect("the same model"), "{what}");
                    assert_eq!(run.cache.end(), 5, "{what}");
                    continue;
                }
                assert!(run.cache.copy_from(&exact, pos).expect("the same model"), "{what}");
                assert_eq!(run.cache.end(), pos, "{what}");
                let whole = [&held[..pos], &more].concat();
                assert_eq!(bits(&run.logits_of_all(&more, &[2, 4])), one_by_one(&model, &whole, pos), "{what}");
            }
            // The original goes on as if nobody had copied from it.
            let whole = [&held[..len], &more].concat();
            assert_eq!(bits(&original.logits_of_all(&more, &[8])), one_by_one(&model, &whole, len));
        }
    }
}

#[test]
fn a_copy_of_another_models_cache_or_of_more_than_fits_is_refused_and_changes_nothing() {
    let model = llama().model();
    let mut original = Run::new(&model, 8, N_CTX);
    original.logits_of_all(&tokens(8, 1), &[]);
    let mut other = cache(&gemma3().model(), N_CTX);
    assert!(matches!(other.copy_from(&original.cache, 4), Err(Error::ForeignCache)));
    let mut short = cache(&model, 4);
    assert!(short.copy_from(&original.cache, 3).expect("it fits"));
    assert!(matches!(short.copy_from(&original.cache, 5), Err(Error::ContextFull { more: 5, n_ctx: 4, .. })));
    assert_eq!((other.end(), short.end()), (0, 3));
}

#[test]
fn a_cache_takes_the_bytes_it_says_and_knows_how_many_it_fills() {
    for file in all() {
        let model = file.model();
        let device = Device::host();
        let before = device.allocated_bytes();
        let cache = KvCache::new(model.spec(), &device, N_CTX).expect("memory");
        assert_eq!(cache.size_bytes(), device.allocated_bytes() - before, "{}", file.arch);
        let planned = KvCache::planned_bytes(model.spec(), N_CTX).expect("a small cache");
        assert_eq!(planned, cache.size_bytes(), "{}", file.arch);
        assert_eq!(cache.held_bytes(), 0);
        let mut run = Run::new(&model, 1, N_CTX);
        run.logits_of_all(&tokens(1, 1), &[]);
        let row_bytes: usize = run.cache.planes().iter().map(|plane| plane.geometry().row_size_bytes()).sum();
        assert_eq!(run.cache.held_bytes(), row_bytes as u64, "{}", file.arch);
    }
}

/// Keeps the last layer's output, token by token.
struct LastLayer {
    layer: usize,
    states: Vec<Vec<f32>>,
}

impl TapSink for LastLayer {
    fn record(&mut self, point: TapPoint, values: &[f32]) {
        if (point.tap, point.layer) == (Tap::LOut, Some(self.layer)) {
            self.states.push(values.to_vec());
        }
    }
}

#[test]
fn hidden_states_are_the_last_layers_output_normed_with_the_models_gains() {
    for mut file in all() {
        let model = file.model();
        let gains: Vec<f32> = {
            let bytes = &file.tensor("output_norm.weight").bytes;
            bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        };
        let Run { mut decoder, mut backend, mut cache } = Run::new(&model, 8, N_CTX);
        let mut sink = LastLayer { layer: model.spec().layers.len() - 1, states: Vec::new() };
        let tokens = tokens(7, 3);
        let spans = &mut [Span { tokens: &tokens, cache: &mut cache, logits: LogitRows::From(2) }];
        assert_eq!(decoder.forward(&mut backend, spans, Some(&mut sink)).expect("a batch that fits"), 5);
        let hidden = decoder.hidden(&mut backend, 1, 4).expect("selected tokens").to_vec();
        assert_eq!(hidden.len(), 4 * N_EMBD);
        for (row, state) in hidden.chunks_exact(N_EMBD).zip(&sink.states[3..]) {
            let square = state.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / N_EMBD as f64;
            let scale = 1.0 / (square + f64::from(model.spec().output_eps)).sqrt();
            for ((found, x), gain) in row.iter().zip(state).zip(&gains) {
                let expected = f64::from(*x) * scale * f64::from(*gain);
                assert!((f64::from(*found) - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{}", file.arch);
            }
        }
        let error = decoder.hidden(&mut backend, 3, 3).expect_err("more than were selected");
        assert!(matches!(error, Error::Ops(_)), "{error}");
    }
}

#[test]
fn hidden_states_have_the_same_bits_in_any_batch_and_do_not_touch_logits() {
    let tokens = tokens(9, 5);
    for file in all() {
        let model = file.model();
        let run = |cuts: &[usize]| {
            let Run { mut decoder, mut backend, mut cache } = Run::new(&model, 9, N_CTX);
            let (mut hidden, mut logits, mut left) = (Vec::new(), Vec::new(), &tokens[..]);
            for &n in cuts {
                let (batch, rest) = left.split_at(n);
                left = rest;
                let spans = &mut [Span { tokens: batch, cache: &mut cache, logits: LogitRows::From(0) }];
                decoder.forward(&mut backend, spans, None).expect("a batch that fits");
                hidden.push(decoder.hidden(&mut backend, 0, n).expect("selected tokens").to_vec());
                logits.extend(support::all_logits(&mut decoder, &mut backend, n).expect("selected tokens"));
            }
            (bits(&hidden), bits(&logits))
        };
        let expected = run(&[1; 9]);
        assert_eq!(expected.1, one_by_one(&model, &tokens, 0), "{}", file.arch);
        for cuts in [&[9][..], &[4, 5], &[8, 1]] {
            assert_eq!(run(cuts), expected, "{} cut into {cuts:?}", file.arch);
        }
    }
}
