//! A head of a row as integers with one scale.

/// The scale of numbers of which one is not finite: not a number.
const NOT_FINITE: u16 = 0x7fc0;

/// Numbers that are smaller throughout are taken for zeros, as the factor to their integers may be infinite.
const TINY: f32 = 1e-30;

/// Added to a number of at most 22 bits, it leaves the nearest integer, ties to even, in the low half.
const ROUNDING: f32 = 12_582_912.0;

/// Writes the integers, of magnitude `most` at most, to `to`, and returns the scale as the upper half of an f32.
///
/// The scale is the largest magnitude divided by `most`, rounded up to what the upper half of an f32 holds. An integer is
/// the number times the reciprocal of the scale, rounded to the nearest. The lengths are equal.
pub(super) fn to_fixed(x: &[f32], most: u16, to: &mut [u16]) -> u16 {
    // Magnitudes have the order of their bits, and what is not finite is above all.
    let (lanes, rest) = x.as_chunks::<8>();
    let mut max = [0; 8];
    for x in lanes {
        for (max, x) in max.iter_mut().zip(x) {
            *max = x.abs().to_bits().cast_signed().max(*max);
        }
    }
    let max = max.into_iter().chain(rest.iter().map(|x| x.abs().to_bits().cast_signed())).fold(0, i32::max);
    let max = f32::from_bits(max.cast_unsigned());
    if !max.is_finite() || max < TINY {
        to.fill(0);
        return if max < TINY { 0 } else { NOT_FINITE };
    }
    let scale = (((max / f32::from(most)).to_bits() + 0xffff) >> 16) as u16;
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

    fn of_fixed(x: &[f32], most: u16) -> Vec<f32> {
        let mut integers = vec![0; x.len()];
        let scale = to_scale(to_fixed(x, most, &mut integers));
        integers.iter().map(|&x| f32::from(x.cast_signed()) * scale).collect()
    }

    #[test]
    fn numbers_come_back_within_half_a_step_and_none_passes_the_largest_integer() {
        for most in [2047, 2896, 5792, i16::MAX.cast_unsigned()] {
            for scale in [1e-25f32, 1.0, 65_000.0, 1e30] {
                let x: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin() * scale).collect();
                let mut integers = vec![0; x.len()];
                let step = to_scale(to_fixed(&x, most, &mut integers));
                let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                assert!(step <= max / f32::from(most) * (1.0 + 1.0 / 128.0), "{step}");
                for (&integer, &x) in integers.iter().zip(&x) {
                    let integer = integer.cast_signed();
                    assert!(integer.unsigned_abs() <= most);
                    assert!((f32::from(integer) * step - x).abs() <= step * 0.502, "{x} in steps of {step}");
                }
            }
        }
    }

    #[test]
    fn ties_go_to_even() {
        // With 128 as the largest, a step is 1.
        assert_eq!(of_fixed(&[128.0, 0.5, 1.5, -2.5, -0.5], 128), [128.0, 0.0, 2.0, -2.0, 0.0]);
    }

    #[test]
    fn what_is_not_finite_makes_the_scale_no_number() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(of_fixed(&[1.0, bad, 2.0], 2047).iter().all(|x| x.is_nan()));
        }
    }

    #[test]
    fn zeros_and_the_smallest_numbers_are_zeros() {
        assert_eq!(of_fixed(&[0.0, -0.0, 1e-31, -1e-40], 2047), [0.0; 4]);
    }
}
