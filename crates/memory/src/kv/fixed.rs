//! A head of a row as integers with one scale.

use super::geometry::{KV_MOST_OF_V, KV_NORM_OF_K};

/// The scale of numbers of which one is not finite: not a number.
const NOT_FINITE: u16 = 0x7fc0;

/// Numbers that are smaller throughout are taken for zeros, as the factor to their integers may be infinite.
const TINY: f32 = 1e-30;

/// The largest integer.
const MOST: f32 = 32_767.0;

/// Added to a number of at most 22 bits, it leaves the nearest integer, ties to even, in the low half.
const ROUNDING: f32 = 12_582_912.0;

/// Writes the integers of a key to `to`, of the same length, and returns the scale as the upper half of an f32.
pub(super) fn key_to_fixed(x: &[f32], to: &mut [u16]) -> u16 {
    let max = largest(x);
    // Relative to the largest, as squares may pass what an f32 holds.
    let (reciprocal, mut squares) = (1.0 / max, [0.0; 8]);
    let (lanes, rest) = x.as_chunks::<8>();
    for x in lanes {
        for (sum, x) in squares.iter_mut().zip(x) {
            let x = x * reciprocal;
            *sum += x * x;
        }
    }
    let rest: f32 = rest.iter().map(|x| x * reciprocal).map(|x| x * x).sum();
    let norm = (squares.iter().sum::<f32>() + rest).sqrt();
    let step = if norm * MOST > KV_NORM_OF_K { norm / KV_NORM_OF_K } else { 1.0 / MOST };
    to_fixed(x, max, max * step, to)
}

/// Writes the integers of a value to `to`, of the same length, and returns the scale as the upper half of an f32.
pub(super) fn value_to_fixed(x: &[f32], to: &mut [u16]) -> u16 {
    let max = largest(x);
    to_fixed(x, max, max / f32::from(KV_MOST_OF_V), to)
}

/// The largest magnitude; what is not finite is larger.
fn largest(x: &[f32]) -> f32 {
    // Magnitudes have the order of their bits.
    let (lanes, rest) = x.as_chunks::<8>();
    let mut max = [0; 8];
    for x in lanes {
        for (max, x) in max.iter_mut().zip(x) {
            *max = x.abs().to_bits().cast_signed().max(*max);
        }
    }
    let rest = rest.iter().map(|x| x.abs().to_bits().cast_signed());
    f32::from_bits(max.into_iter().chain(rest).fold(0, i32::max).cast_unsigned())
}

/// Writes the nearest integers to the numbers divided by the scale: `step`, rounded up to what the upper half of an f32 holds.
fn to_fixed(x: &[f32], max: f32, step: f32, to: &mut [u16]) -> u16 {
    if !max.is_finite() || max < TINY {
        to.fill(0);
        return if max < TINY { 0 } else { NOT_FINITE };
    }
    let scale = ((step.to_bits() + 0xffff) >> 16) as u16;
    let factor = 1.0 / to_scale(scale);
    for (to, x) in to.iter_mut().zip(x) {
        *to = (x * factor + ROUNDING).to_bits() as u16;
    }
    scale
}

/// The scale that these bits are.
pub(super) fn to_scale(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(integers: &[u16], scale: u16) -> Vec<f32> {
        integers.iter().map(|&x| f32::from(x.cast_signed()) * to_scale(scale)).collect()
    }

    fn of_value(x: &[f32]) -> Vec<f32> {
        let mut integers = vec![0; x.len()];
        let scale = value_to_fixed(x, &mut integers);
        numbers(&integers, scale)
    }

    fn of_key(x: &[f32]) -> Vec<f32> {
        let mut integers = vec![0; x.len()];
        let scale = key_to_fixed(x, &mut integers);
        numbers(&integers, scale)
    }

    fn assert_near(found: &[f32], x: &[f32], step: f32) {
        for (found, x) in found.iter().zip(x) {
            // Half a step, a step being up to 1/128 larger than it has to be.
            assert!((found - x).abs() <= step * 0.505, "{found} for {x} in steps of {step}");
        }
    }

    #[test]
    fn values_come_back_in_steps_of_the_largest() {
        for size in [1e-25f32, 1.0, 65_000.0, 1e30] {
            let x: Vec<f32> = (0..100).map(|i| (i as f32 * 0.37).sin() * size).collect();
            assert_near(&of_value(&x), &x, largest(&x) / 16_383.0);
        }
    }

    #[test]
    fn keys_come_back_in_steps_of_their_norm_or_of_one_that_stands_out() {
        for size in [1e-25f32, 1.0, 65_000.0, 1e30] {
            let x: Vec<f32> = (0..64).map(|i| (i as f32 * 0.37).sin() * size).collect();
            let norm = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt() as f32;
            assert_near(&of_key(&x), &x, norm / 46_000.0);
            let mut x = vec![0.001 * size; 64];
            x[17] = size;
            assert_near(&of_key(&x), &x, size / 32_767.0);
        }
    }

    #[test]
    fn no_integer_and_no_sum_of_products_passes_its_range() {
        for head_dim in [1, 2, 5, 64, 80, 256, 4096] {
            for one in [1.0f32, 100.0, 1e4] {
                let mut x = vec![1.0; head_dim];
                x[head_dim / 2] = one;
                let mut integers = vec![0; head_dim];
                key_to_fixed(&x, &mut integers);
                let squares: i64 = integers.iter().map(|&x| i64::from(x.cast_signed()).pow(2)).sum();
                assert!(squares <= i64::from(i32::MAX), "{head_dim} times 1 and {one}: {squares}");
                assert!(integers.iter().all(|&x| (1..=i16::MAX).contains(&x.cast_signed())));
                value_to_fixed(&x, &mut integers);
                assert!(integers.iter().all(|&x| x <= KV_MOST_OF_V));
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        // With 16,384 as the largest, a step is the next number that half of the bits can hold: 1 and 1/128.
        let step = 1.0 + 1.0 / 128.0;
        let x = [16_384.0, 0.5 * step, 1.5 * step, -2.5 * step, -0.5 * step];
        assert_eq!(of_value(&x)[1..], [0.0, 2.0 * step, -2.0 * step, 0.0]);
    }

    #[test]
    fn what_is_not_finite_makes_the_scale_no_number() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let x = [1.0, bad, 2.0];
            assert!(of_value(&x).iter().chain(&of_key(&x)).all(|x| x.is_nan()));
        }
    }

    #[test]
    fn zeros_and_the_smallest_numbers_are_zeros() {
        let x = [0.0, -0.0, 1e-31, -1e-40];
        assert_eq!((of_value(&x), of_key(&x)), (vec![0.0; 4], vec![0.0; 4]));
    }
}
