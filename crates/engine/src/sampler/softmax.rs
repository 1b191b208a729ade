//! Exponentials, their sums, and the largest of many logits.

use std::cmp::Ordering;

use crate::logits::Survey;

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub logit: f32,
    pub id: u32,
}

/// The likelier first; the lower id among equals. A total order for logits without NaN.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that sorting asks for")]
pub(super) fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// Puts the `k` likeliest of `logits` into `out`, in order. One pass, with room for `2 * k`.
pub(super) fn top(logits: &[f32], k: usize, out: &mut Vec<Candidate>) {
    out.clear();
    if k == 0 {
        return;
    }
    let room = k.saturating_mul(2).min(logits.len());
    out.reserve(room);
    // Below or at this, `k` likelier ones are known: a later equal has a higher id.
    let mut bar = None;
    for (&logit, id) in logits.iter().zip(0..) {
        if bar.is_some_and(|bar| logit <= bar) {
            continue;
        }
        out.push(Candidate { logit, id });
        if out.len() == room && room > k {
            let (_, least, _) = out.select_nth_unstable_by(k - 1, likelier);
            bar = Some(least.logit);
            out.truncate(k);
        }
    }
    if out.len() > k {
        out.select_nth_unstable_by(k - 1, likelier);
        out.truncate(k);
    }
    out.sort_unstable_by(likelier);
}

/// `1 / n!` for `n` from 13 to 0.
const RECIPROCALS: [f64; 14] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    0.5,
    1.0,
    1.0,
];

/// `e^x` for `x` up to 0, to the last bit or two of an f64, by additions and multiplications only, so that it is the same
/// on every platform. 0 below -708, where the result would be subnormal. NaN for NaN.
pub(super) fn exp(x: f64) -> f64 {
    exp_each([x])[0]
}

/// [`exp`] of each. One step for all before the next one, which compilers turn into vector instructions.
fn exp_each<const N: usize>(x: [f64; N]) -> [f64; N] {
    // Adding this leaves an integer in the low bits of the sum.
    const ROUND: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    const LEAST: f64 = -708.0;
    let clamped = x.map(|x| if x < LEAST { LEAST } else { x });
    let shifted = clamped.map(|x| x * std::f64::consts::LOG2_E + ROUND);
    let mut r = [0.0; N];
    for at in 0..N {
        let n = shifted[at] - ROUND;
        r[at] = (clamped[at] - n * LN_2_HIGH) - n * LN_2_LOW;
    }
    // |r| is at most ln(2) / 2; the first term left out, r^14 / 14!, is below 2^-57.
    let mut sum = [0.0; N];
    for reciprocal in RECIPROCALS {
        for at in 0..N {
            sum[at] = sum[at] * r[at] + reciprocal;
        }
    }
    let mut out = [0.0; N];
    for at in 0..N {
        let power = f64::from_bits(shifted[at].to_bits().wrapping_add(1023) << 52);
        out[at] = if x[at] < LEAST { 0.0 } else { sum[at] * power };
    }
    out
}

/// `ln Σ e^logit`, in f64, in a fixed order. NaN if a logit is NaN or infinitely large, or if none is above minus infinity.
pub(super) fn log_sum_exp(logits: &[f32]) -> f64 {
    const LANES: usize = 8;
    let Survey { max, has_nan, .. } = Survey::of(logits);
    if has_nan || max.is_infinite() {
        return f64::NAN;
    }
    let max = f64::from(max);
    let mut sums = [0.0; LANES];
    let (whole, rest) = logits.as_chunks::<LANES>();
    for chunk in whole {
        let terms = exp_each(chunk.map(|logit| f64::from(logit) - max));
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }
    for (sum, &logit) in sums.iter_mut().zip(rest) {
        *sum += exp(f64::from(logit) - max);
    }
    let [a, b, c, d, e, f, g, h] = sums;
    max + (((a + b) + (c + d)) + ((e + f) + (g + h))).ln()
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_right_to_two_units_in_the_last_place() {
        for step in 0..700_000 {
            let x = -f64::from(step) / 1000.0;
            let error = (exp(x) - x.exp()).abs() / x.exp();
            assert!(error <= 4.5e-16, "e^{x}: {} for {}", exp(x), x.exp());
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e300), 0.0);
        assert_eq!(exp(-800.0), 0.0);
        assert!(exp(f64::NAN).is_nan());
    }

    #[test]
    fn the_exponential_s_bits_are_pinned() {
        let bits = [-0.1, -1.0, -10.5, -700.25].map(|x| exp(x).to_bits());
        assert_eq!(
            bits,
            [4_606_325_270_462_671_674, 4_600_298_746_774_613_816, 4_538_748_550_476_374_202, 57_128_419_154_484_366]
        );
    }

    #[test]
    fn the_sum_is_that_of_the_definition() {
        let logits: Vec<f32> = (0..1003).map(|i| ((i * 7919) % 1000) as f32 / 50.0 - 10.0).collect();
        let expected = logits.iter().map(|l| f64::from(*l).exp()).sum::<f64>().ln();
        assert!((log_sum_exp(&logits) - expected).abs() < 1e-12);
        assert_eq!(log_sum_exp(&[3.0]), 3.0);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY, -3e38]), f64::from(-3e38_f32));
        assert!((log_sum_exp(&[3e38, 3e38]) - f64::from(3e38_f32)).abs() <= 1.0);
        assert!(log_sum_exp(&[1.0, f32::NAN]).is_nan());
        assert!(log_sum_exp(&[1.0, f32::INFINITY]).is_nan());
        assert!(log_sum_exp(&[f32::NEG_INFINITY]).is_nan());
        assert!(log_sum_exp(&[]).is_nan());
    }

    #[test]
    fn the_top_is_what_sorting_gives() {
        let logits: Vec<f32> = (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 22) as f32).collect();
        let mut sorted: Vec<_> = logits.iter().zip(0..).map(|(&logit, id)| Candidate { logit, id }).collect();
        sorted.sort_by(likelier);
        let mut found = Vec::new();
        for k in [0, 1, 2, 3, 40, 2499, 2500, 2501, 4999, 5000, 5001, usize::MAX] {
            top(&logits, k, &mut found);
            assert_eq!(found, sorted[..k.min(5000)], "{k}");
        }
    }
}
