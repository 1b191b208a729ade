use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const MASK: f32 = f32::NEG_INFINITY;

fn sampler(spec: SamplerSpec) -> Sampler {
    Sampler::new(spec).unwrap()
}

/// At temperature 1 with everything else neutral.
fn warm() -> SamplerSpec {
    SamplerSpec { temperature: 1.0, ..SamplerSpec::default() }
}

/// The logits of a distribution.
fn logits_of(probabilities: &[f64]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln() as f32).collect()
}

/// Every token that comes up in many draws.
fn drawn(spec: SamplerSpec, logits: &[f32]) -> Vec<u32> {
    let mut sampler = sampler(spec);
    let ids: HashSet<u32> = (0..4000).map(|_| sampler.sample(&mut logits.to_vec()).unwrap()).collect();
    let mut ids: Vec<u32> = ids.into_iter().collect();
    ids.sort_unstable();
    ids
}

/// How far the frequencies of `n` draws are from `expected`, as Pearson's chi-square over the degrees of freedom.
fn chi_square(spec: SamplerSpec, logits: &[f32], expected: &[f64], n: usize) -> f64 {
    let mut sampler = sampler(spec);
    let mut counts = vec![0_usize; expected.len()];
    for _ in 0..n {
        counts[sampler.sample(&mut logits.to_vec()).unwrap() as usize] += 1;
    }
    let terms = counts.iter().zip(expected).filter(|(_, p)| **p > 0.0);
    assert!(counts.iter().zip(expected).all(|(count, p)| *p > 0.0 || *count == 0));
    let (sum, len) = terms.fold((0.0, 0), |(sum, len), (&count, p)| {
        let mean = p * n as f64;
        (sum + (count as f64 - mean).powi(2) / mean, len + 1)
    });
    sum / f64::from(len - 1)
}

#[test]
fn temperature_zero_takes_the_largest_logit_and_among_equals_the_lowest_id() {
    let mut sampler = sampler(SamplerSpec::default());
    assert_eq!(sampler.sample(&mut [0.0, 2.0, 1.0, 2.0]).unwrap(), 1);
    assert_eq!(sampler.sample(&mut [-0.0, 0.0]).unwrap(), 0);
    assert_eq!(sampler.sample(&mut [MASK, -3e38, MASK]).unwrap(), 1);
}

#[test]
fn draws_follow_the_distribution() {
    let probabilities = [0.4, 0.3, 0.15, 0.1, 0.04, 0.01];
    let chi = chi_square(warm(), &logits_of(&probabilities), &probabilities, 100_000);
    // With five degrees of freedom, four is passed by chance once in a thousand seeds.
    assert!(chi < 4.0, "{chi}");
    let shifted: Vec<f32> = logits_of(&probabilities).iter().map(|l| l + 1000.0).collect();
    assert!(chi_square(warm(), &shifted, &probabilities, 100_000) < 4.0);
}

#[test]
fn temperature_sharpens_and_flattens() {
    let logits = logits_of(&[0.5, 0.3, 0.2]);
    for temperature in [0.5_f32, 2.0] {
        let powers = [0.5_f64, 0.3, 0.2].map(|p| p.powf(1.0 / f64::from(temperature)));
        let expected = powers.map(|p| p / powers.iter().sum::<f64>());
        let chi = chi_square(SamplerSpec { temperature, ..warm() }, &logits, &expected, 100_000);
        assert!(chi < 6.0, "{temperature}: {chi}");
    }
    assert_eq!(drawn(SamplerSpec { temperature: 1e-30, ..warm() }, &logits), [0]);
    assert_eq!(drawn(SamplerSpec { temperature: 3e38, ..warm() }, &logits), [0, 1, 2]);
}

#[test]
fn top_k_keeps_the_likeliest_and_among_equals_the_lowest_ids() {
    let logits = [1.0, 3.0, 2.0, 2.0, 2.0];
    for (top_k, expected) in
        [(1, vec![1]), (2, vec![1, 2]), (3, vec![1, 2, 3]), (5, vec![0, 1, 2, 3, 4]), (0, vec![0, 1, 2, 3, 4])]
    {
        assert_eq!(drawn(SamplerSpec { top_k, ..warm() }, &logits), expected, "{top_k}");
    }
}

#[test]
fn top_p_keeps_the_fewest_that_reach_it() {
    let logits = logits_of(&[0.1, 0.4, 0.2, 0.3]);
    for (top_p, expected) in [
        (0.0, vec![1]),
        (0.39, vec![1]),
        (0.41, vec![1, 3]),
        (0.69, vec![1, 3]),
        (0.71, vec![1, 2, 3]),
        (1.0, vec![0, 1, 2, 3]),
    ] {
        assert_eq!(drawn(SamplerSpec { top_p, ..warm() }, &logits), expected, "{top_p}");
    }
    // After top-k, what is left counts as the whole: 0.4 of 0.7 is 0.57.
    assert_eq!(drawn(SamplerSpec { top_k: 2, top_p: 0.5, ..warm() }, &logits), [1]);
    assert_eq!(drawn(SamplerSpec { top_k: 2, top_p: 0.6, ..warm() }, &logits), [1, 3]);
}

#[test]
fn min_p_is_relative_to_the_likeliest() {
    let logits = logits_of(&[0.1, 0.4, 0.2, 0.3]);
    for (min_p, expected) in
        [(0.0, vec![0, 1, 2, 3]), (0.26, vec![1, 2, 3]), (0.51, vec![1, 3]), (0.76, vec![1]), (1.0, vec![1])]
    {
        assert_eq!(drawn(SamplerSpec { min_p, ..warm() }, &logits), expected, "{min_p}");
    }
    // The distribution that top-p sees is the one before min-p.
    assert_eq!(drawn(SamplerSpec { top_p: 0.69, min_p: 0.51, ..warm() }, &logits), [1, 3]);
}

#[test]
fn filters_look_at_the_distribution_before_temperature() {
    let logits = logits_of(&[0.1, 0.4, 0.2, 0.3]);
    assert_eq!(drawn(SamplerSpec { temperature: 50.0, top_p: 0.41, ..warm() }, &logits), [1, 3]);
    assert_eq!(drawn(SamplerSpec { temperature: 50.0, min_p: 0.51, ..warm() }, &logits), [1, 3]);
}

#[test]
fn penalties_change_the_logits_of_recent_tokens() {
    let spec = SamplerSpec {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        penalty_last_n: 4,
        ..SamplerSpec::default()
    };
    let mut sampler = sampler(spec);
    // The first token is out of reach, the last not in the vocabulary.
    sampler.restart(&[3, 0, 1, 0, 99]);
    let mut logits = [8.0, -1.0, 3.0, 2.0];
    let id = sampler.sample(&mut logits).unwrap();
    assert_eq!(logits, [8.0 / 2.0 - 2.0 * 0.25 - 0.5, -2.0 - 0.25 - 0.5, 3.0, 2.0]);
    assert_eq!(id, 0);
    // Now 1, 0, 99 and the 0 just chosen are the recent ones.
    let mut logits = [4.0; 4];
    assert_eq!(sampler.sample(&mut logits).unwrap(), 2);
    assert_eq!(logits, [1.0, 1.25, 4.0, 4.0]);
}

#[test]
fn a_penalised_token_gives_way_to_others() {
    let mut greedy = sampler(SamplerSpec { repetition_penalty: 1.5, penalty_last_n: 2, ..SamplerSpec::default() });
    let ids: Vec<u32> = (0..6).map(|_| greedy.sample(&mut [3.0, 2.9, 2.8]).unwrap()).collect();
    assert_eq!(ids, [0, 1, 2, 0, 1, 2]);
    let mut off = sampler(SamplerSpec { repetition_penalty: 1.5, penalty_last_n: 0, ..SamplerSpec::default() });
    assert_eq!((0..3).map(|_| off.sample(&mut [3.0, 2.9]).unwrap()).collect::<Vec<_>>(), [0, 0, 0]);
}

#[test]
fn the_same_seed_gives_the_same_tokens_for_good() {
    let logits: Vec<f32> = (0..1000).map(|i| ((i * 37) % 101) as f32 / 20.0).collect();
    let run = |spec: SamplerSpec| -> Vec<u32> {
        let mut sampler = sampler(spec);
        let first: Vec<u32> = (0..8).map(|_| sampler.sample(&mut logits.clone()).unwrap()).collect();
        sampler.restart(&[]);
        let again: Vec<u32> = (0..8).map(|_| sampler.sample(&mut logits.clone()).unwrap()).collect();
        assert_eq!(first, again);
        first
    };
    // Pinned: a change of these changes the texts that people have seeds for.
    assert_eq!(run(SamplerSpec { seed: 42, ..warm() }), [816, 322, 986, 702, 796, 589, 128, 607]);
    assert_eq!(
        run(SamplerSpec { seed: 42, top_k: 40, top_p: 0.95, min_p: 0.05, temperature: 0.8, ..warm() }),
        [19, 161, 726, 595, 999, 191, 434, 191]
    );
    assert_ne!(run(SamplerSpec { seed: 42, ..warm() }), run(SamplerSpec { seed: 43, ..warm() }));
}

#[test]
fn logits_that_are_no_numbers_are_refused_by_id() {
    for temperature in [0.0, 1.0] {
        let mut sampler = sampler(SamplerSpec { temperature, ..warm() });
        for value in [f32::NAN, f32::INFINITY] {
            match sampler.sample(&mut [1.0, MASK, value, value]) {
                Err(SamplerError::NotFinite { id: 2, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sampler.sample(&mut [MASK; 3]), Err(SamplerError::NothingToChoose { n_vocab: 3 }));
        assert_eq!(sampler.sample(&mut []), Err(SamplerError::NothingToChoose { n_vocab: 0 }));
        assert_eq!(sampler.sample(&mut [MASK, 1.0, MASK]), Ok(1));
    }
    let spec = SamplerSpec { repetition_penalty: 1e-30, ..SamplerSpec::default() };
    let mut sampler = sampler(spec);
    sampler.restart(&[1]);
    assert_eq!(sampler.sample(&mut [0.0, 1e30]), Err(SamplerError::NotFinite { id: 1, value: f32::INFINITY }));
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let refused = |spec: SamplerSpec| match Sampler::new(spec) {
        Err(SamplerError::Setting { name, .. }) => name,
        other => panic!("{spec:?}: {other:?}"),
    };
    let good = SamplerSpec::default();
    for bad in [-0.1, f32::NAN, f32::INFINITY] {
        assert_eq!(refused(SamplerSpec { temperature: bad, ..good }), "temperature");
        assert_eq!(refused(SamplerSpec { top_p: bad, ..good }), "top_p");
        assert_eq!(refused(SamplerSpec { min_p: bad, ..good }), "min_p");
        assert_eq!(refused(SamplerSpec { repetition_penalty: bad, ..good }), "repetition_penalty");
    }
    assert_eq!(refused(SamplerSpec { top_p: 1.1, ..good }), "top_p");
    assert_eq!(refused(SamplerSpec { min_p: 1.1, ..good }), "min_p");
    assert_eq!(refused(SamplerSpec { repetition_penalty: 0.0, ..good }), "repetition_penalty");
    for bad in [-101.0, 101.0, f32::NAN] {
        assert_eq!(refused(SamplerSpec { presence_penalty: bad, ..good }), "presence_penalty");
        assert_eq!(refused(SamplerSpec { frequency_penalty: bad, ..good }), "frequency_penalty");
    }
}

#[test]
fn logprobs_are_those_of_the_whole_vocabulary() {
    let probabilities = [0.1, 0.4, 0.2, 0.3];
    let logits = logits_of(&probabilities);
    for (id, p) in (0..).zip(probabilities) {
        assert!((logprob_of(&logits, id) - p.ln()).abs() < 1e-7);
    }
    let top = log_softmax_top(&logits, 2);
    assert_eq!(top.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(top[0].1, logprob_of(&logits, 1));
    assert_eq!(log_softmax_top(&[0.0, 0.0, MASK], 9), [(0, -2_f64.ln()), (1, -2_f64.ln()), (2, f64::NEG_INFINITY)]);
}

#[test]
fn a_large_vocabulary_is_filtered_as_a_small_one() {
    // 200 likely tokens spread over the vocabulary of a large model, all else far below.
    let mut logits = vec![-20.0_f32; 262_144];
    for i in 0..200 {
        logits[i * 1300 + 7] = (i as f32) / 100.0;
    }
    for spec in [
        SamplerSpec { top_p: 0.9, ..warm() },
        SamplerSpec { min_p: 0.5, ..warm() },
        SamplerSpec { top_k: 50, ..warm() },
        SamplerSpec { top_k: 50, top_p: 0.9, min_p: 0.5, temperature: 2.0, ..warm() },
    ] {
        let mut sampler = sampler(spec);
        for _ in 0..10 {
            let id = sampler.sample(&mut logits.clone()).unwrap() as usize;
            assert!(id % 1300 == 7 && id < 260_000);
        }
    }
    assert_eq!(log_softmax_top(&logits, 2).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [258_707, 257_407]);
}

/// The chain as the module's documentation states it, by sorting everything.
fn allowed(spec: &SamplerSpec, logits: &[f32]) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
    let logit = |id: u32| f64::from(logits[id as usize]);
    ids.sort_by(|a, b| logit(*b).total_cmp(&logit(*a)).then(a.cmp(b)));
    if spec.top_k > 0 {
        ids.truncate(spec.top_k);
    }
    let max = logit(ids[0]);
    let whole: f64 = ids.iter().map(|id| (logit(*id) - max).exp()).sum();
    let mut sum = 0.0;
    let mut kept = Vec::new();
    for &id in &ids {
        let weight = (logit(id) - max).exp();
        // A little generous where rounding decides.
        if !kept.is_empty()
            && (sum > f64::from(spec.top_p) * whole * (1.0 + 1e-12) || weight < f64::from(spec.min_p) * (1.0 - 1e-12))
        {
            break;
        }
        sum += weight;
        kept.push(id);
    }
    kept
}

proptest! {
    #[test]
    fn the_token_chosen_passes_every_filter(
        logits in prop::collection::vec(prop_oneof![8 => -9.0_f32..9.0, 1 => Just(MASK), 1 => Just(1.5)], 1..400),
        (temperature, top_k, top_p, min_p) in (prop_oneof![Just(0.0_f32), 0.01_f32..5.0], 0_usize..50, 0.0_f32..=1.0, 0.0_f32..=1.0),
        seed: u64,
    ) {
        prop_assume!(logits.iter().any(|logit| *logit != MASK));
        let spec = SamplerSpec { temperature, top_k, top_p, min_p, seed, ..SamplerSpec::default() };
        let mut sampler = sampler(spec);
        let allowed = allowed(&spec, &logits);
        for _ in 0..20 {
            let id = sampler.sample(&mut logits.clone()).unwrap();
            prop_assert!(allowed.contains(&id), "{} of {:?}", id, allowed);
            prop_assert!(logits[id as usize] != MASK);
            if temperature == 0.0 {
                prop_assert_eq!(id, allowed[0]);
            }
        }
    }
}
