use super::*;
use crate::caps::Tier;
use crate::testing::{Random, assert_same_bits};

const LENGTHS: [usize; 12] = [1, 2, 7, 8, 9, 15, 16, 17, 64, 100, 576, 2049];

#[test]
fn a_norm_divides_by_the_root_of_the_mean_square() {
    for tier in Tier::available() {
        let mut out = [0.0; 3];
        rms_norm(tier, &[1.0, -2.0, 2.0], Some(&[1.0, 2.0, -1.0]), 1.0, &mut out);
        for (out, expected) in out.into_iter().zip([0.5, -2.0, -1.0]) {
            assert!((out - expected).abs() < 1.0e-6, "{out} {expected}");
        }
    }
}

#[test]
fn a_row_of_zeros_stays_zero() {
    for tier in Tier::available() {
        let mut x = [0.0; 11];
        rms_norm_in_place(tier, &mut x, None, 1.0e-6);
        assert_same_bits(&x, &[0.0; 11]);
    }
}

#[test]
fn all_forms_and_tiers_agree_in_every_bit() {
    let mut random = Random::new(1);
    for n in LENGTHS {
        let (x, weight, sum) = (random.normal(n), random.normal(n), random.normal(n));
        for weight in [None, Some(&weight[..])] {
            let mut expected = vec![0.0; n];
            rms_norm(Tier::named("scalar").unwrap(), &x, weight, 1.0e-5, &mut expected);
            let expected_sum: Vec<f32> = sum.iter().zip(&expected).map(|(sum, x)| sum + x).collect();
            for tier in Tier::available() {
                let mut out = vec![0.0; n];
                rms_norm(tier, &x, weight, 1.0e-5, &mut out);
                assert_same_bits(&out, &expected);
                out.copy_from_slice(&x);
                rms_norm_in_place(tier, &mut out, weight, 1.0e-5);
                assert_same_bits(&out, &expected);
                out.copy_from_slice(&sum);
                add_rms_norm(tier, &x, weight, 1.0e-5, &mut out);
                assert_same_bits(&out, &expected_sum);
            }
        }
    }
}

#[test]
fn a_value_that_is_not_finite_is_not_hidden() {
    for tier in Tier::available() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut x = [1.0, bad, 2.0];
            rms_norm_in_place(tier, &mut x, None, 0.0);
            assert!(x.iter().any(|x| x.is_nan()), "{x:?}");
        }
    }
}
