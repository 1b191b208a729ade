//! The decoder against forward passes in f64, for every architecture.

mod support;

use muser_quant::WeightType;
use support::oracle::{Oracle, differences};
use support::{File, Meta, N_EMBD, N_VOCAB, Run, gemma3, llama, muse_glimmer, tokens};

/// Logits are about 1 in size. f32 arithmetic moves them by some 1e-6; where a key or value lies so near the middle of two
/// steps that f32 and f64 round it to different ones, by a step of one of many addends, which later layers amplify: up to
/// 6e-5 on average and 3e-4 at most were seen. Deviations of meaning move them further on average: a post norm's epsilon
/// of 1e-7 for 1e-8 by 0.02, a window longer by one by 0.5, another pairing by 0.7.
const MEAN_TOLERANCE: f64 = 2e-4;
const TOLERANCE: f64 = 1e-3;

fn assert_agrees(file: &File, expected: impl Fn(&Oracle, &[u32]) -> Vec<Vec<f64>>) {
    let tokens = tokens(40, 3);
    let expected = expected(&Oracle::new(file), &tokens);
    let found = Run::new(&file.model(), 16, 40).logits_of_all(&tokens, &[5, 1, 16, 2]);
    let size = expected.iter().flatten().copied().fold(0.0, |max: f64, x| max.max(x.abs()));
    assert!(size > 1.0, "logits of at most {size} say little");
    let (mean, largest) = differences(&found, &expected);
    assert!(mean < MEAN_TOLERANCE && largest < TOLERANCE, "{}: off by {mean} on average, at most {largest}", file.arch);
}

fn frequencies(base: f64) -> Vec<f64> {
    (0..8).map(|pair| base.powf(-2.0 * f64::from(pair) / 16.0)).collect()
}

#[test]
fn llama_with_tied_embeddings() {
    assert_agrees(&llama(), |oracle, tokens| oracle.llama(tokens, &frequencies(10_000.0), "token_embd.weight"));
}

#[test]
fn llama_with_a_head_of_its_own_and_divided_frequencies() {
    let factors = [1.0, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 8.0];
    let mut file = llama();
    file.set("rope.freq_base", Meta::F32(500_000.0));
    file.add_vector("rope_freqs.weight", &factors);
    file.add_matrix("output.weight", WeightType::Q5_1, N_VOCAB, N_EMBD);
    assert_agrees(&file, |oracle, tokens| {
        let divided = frequencies(500_000.0).into_iter().zip(factors).map(|(f, factor)| f / f64::from(factor));
        oracle.llama(tokens, &divided.collect::<Vec<_>>(), "output.weight")
    });
}

#[test]
fn gemma3_agrees() {
    assert_agrees(&gemma3(), Oracle::gemma3);
}

#[test]
fn muse_glimmer_agrees() {
    assert_agrees(&muse_glimmer(), Oracle::muse_glimmer);
}
