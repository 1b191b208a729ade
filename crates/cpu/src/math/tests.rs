use super::*;
use crate::caps::Tier;
use crate::dispatch::kernel;

macro_rules! over_slices {
    ($($name:ident),*) => {
        mod bodies {
            use super::Simd;
            $(#[inline(always)]
            pub(super) fn $name<S: Simd>(s: S, x: &mut [[f32; 8]]) {
                let (pairs, rest) = x.as_chunks_mut();
                for [a, b] in pairs {
                    let [x, y] = super::super::$name(s, [s.load(a), s.load(b)]);
                    s.store(x, a);
                    s.store(y, b);
                }
                for a in rest {
                    let [x] = super::super::$name(s, [s.load(a)]);
                    s.store(x, a);
                }
            }
            )*
        }
        mod run {
            $(super::kernel! { pub(super) fn $name(x: &mut [[f32; 8]]) = super::bodies::$name; })*
            super::kernel! { pub(super) fn tanh(x: &mut [[f32; 8]]) = super::tanh_lanes; }
        }
    };
}
over_slices!(exp, exp2, sigmoid, silu, gelu_tanh);

#[inline(always)]
fn tanh_lanes<S: Simd>(s: S, x: &mut [[f32; 8]]) {
    for x in x {
        s.store(tanh(s, s.load(x)), x);
    }
}

type Function = fn(Tier, &mut [[f32; 8]]);

fn best() -> Tier {
    Tier::detect()
}

fn one(function: Function, tier: Tier, x: f32) -> f32 {
    let mut lanes = [[x; 8]];
    function(tier, &mut lanes);
    lanes[0][0]
}

/// All f32 whose bits are multiples of `step`, or a step above one, in `low..=high`.
fn samples(low: f32, high: f32, step: usize) -> Vec<[f32; 8]> {
    let positive = (0..f32::MAX.to_bits()).step_by(step).map(f32::from_bits);
    let values: Vec<f32> = positive.flat_map(|x| [x, -x]).filter(|x| (low..=high).contains(x)).collect();
    values.as_chunks().0.to_vec()
}

/// The largest distance from `truth` in units of the last place of the true value.
fn worst_ulp(function: Function, samples: &[[f32; 8]], truth: impl Fn(f64) -> f64) -> f64 {
    let mut results = samples.to_vec();
    function(best(), &mut results);
    let pairs = samples.as_flattened().iter().zip(results.as_flattened());
    pairs.fold(0.0, |worst: f64, (&x, &y)| {
        let truth = truth(f64::from(x));
        let exponent = (truth.abs() as f32).max(f32::MIN_POSITIVE).to_bits() >> 23;
        let ulp = 2.0f64.powi(exponent as i32 - 150);
        worst.max((f64::from(y) - truth).abs() / ulp)
    })
}

#[test]
fn exp_is_within_one_ulp() {
    let worst = worst_ulp(run::exp, &samples(-103.0, 88.72, 509), f64::exp);
    assert!(worst <= 1.01, "{worst}");
}

#[test]
fn exp2_is_within_two_ulp_where_it_is_a_normal_number() {
    let worst = worst_ulp(run::exp2, &samples(-126.0, 0.0, 509), f64::exp2);
    assert!(worst <= 2.0, "{worst}");
}

#[test]
fn exp2_falls_to_zero_in_the_last_binade_and_passes_on_what_is_no_number() {
    for tier in Tier::available() {
        for (x, y) in [
            (f32::NEG_INFINITY, 0.0),
            (f32::MIN, 0.0),
            (-126.75, 0.0),
            (-126.0, f32::MIN_POSITIVE),
            (0.0, 1.0),
            (-0.0, 1.0),
        ] {
            assert_eq!(one(run::exp2, tier, x).to_bits(), y.to_bits(), "exp2({x}) in {}", tier.name());
        }
        for nan in [0x7fc0_0000, 0x7fc0_01ff, 0xffff_ffff] {
            assert!(one(run::exp2, tier, f32::from_bits(nan)).is_nan(), "{nan:x} in {}", tier.name());
        }
    }
}

#[test]
fn exp_is_exact_at_its_ends() {
    for tier in Tier::available() {
        for (x, y) in [
            (f32::NEG_INFINITY, 0.0),
            (f32::MIN, 0.0),
            (-104.0, 0.0),
            (0.0, 1.0),
            (-0.0, 1.0),
            (88.8, f32::INFINITY),
            (f32::MAX, f32::INFINITY),
            (f32::INFINITY, f32::INFINITY),
        ] {
            assert_eq!(one(run::exp, tier, x).to_bits(), y.to_bits(), "exp({x}) in {}", tier.name());
        }
        assert!(one(run::exp, tier, f32::NAN).is_nan());
        assert!(one(run::exp, tier, 88.72).is_finite());
        assert!(one(run::exp, tier, -103.0) > 0.0);
    }
}

#[test]
fn exp_never_falls_where_its_argument_rises() {
    // Every value of a few thousand around places where the power of two changes, and around both ends.
    for centre in [-103.9f32, -87.34, -0.346_573_6, -1.0e-7, 0.346_573_6, 1.039_720_8, 88.722_84] {
        let first = centre.to_bits() - 4096;
        let mut x: Vec<f32> = (first..first + 8192).map(f32::from_bits).collect();
        x.sort_unstable_by(f32::total_cmp);
        let mut y = x.as_chunks().0.to_vec();
        run::exp(best(), &mut y);
        // A polynomial may fall by its rounding error, not by more.
        for (y, x) in y.as_flattened().windows(2).zip(&x) {
            assert!(y[1] >= y[0] || y[0].to_bits() - y[1].to_bits() <= 1, "exp falls after {x}: {y:?}");
        }
    }
}

#[test]
fn the_derived_functions_are_near_the_truth() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh());
    assert!(worst_ulp(run::sigmoid, &samples(-87.0, 200.0, 4093), sigmoid) <= 3.0);
    assert!(worst_ulp(run::silu, &samples(-80.0, 200.0, 4093), |x| x * sigmoid(x)) <= 4.0);
    assert!(worst_ulp(run::tanh, &samples(-30.0, 30.0, 4093), f64::tanh) <= 4.0);
    // The argument of the exponential is rounded, and its size multiplies that error: some ulp at -3, more further out.
    assert!(worst_ulp(run::gelu_tanh, &samples(-3.0, 100.0, 4093), gelu) <= 20.0);
    let far = samples(-30.0, -3.0, 4093);
    let mut results = far.clone();
    run::gelu_tanh(best(), &mut results);
    for (&x, &y) in far.as_flattened().iter().zip(results.as_flattened()) {
        assert!((f64::from(y) - gelu(f64::from(x))).abs() < 1.0e-8, "gelu({x}) = {y}");
    }
}

#[test]
fn the_derived_functions_saturate() {
    for tier in Tier::available() {
        for (function, x, y) in [
            (run::sigmoid as Function, -1000.0, 0.0),
            (run::sigmoid, 1000.0, 1.0),
            (run::sigmoid, 0.0, 0.5),
            (run::silu, -1000.0, -0.0),
            (run::silu, 1000.0, 1000.0),
            (run::tanh, f32::NEG_INFINITY, -1.0),
            (run::tanh, 1000.0, 1.0),
            (run::tanh, -0.0, -0.0),
            (run::gelu_tanh, 1000.0, 1000.0),
            (run::gelu_tanh, -1000.0, -0.0),
        ] {
            let found = one(function, tier, x);
            assert_eq!(found.to_bits(), f32::to_bits(y), "f({x}) = {found} in {}, expected {y}", tier.name());
        }
        for function in [run::sigmoid as Function, run::silu, run::tanh, run::gelu_tanh] {
            assert!(one(function, tier, f32::NAN).is_nan());
        }
    }
}

#[test]
fn all_tiers_agree_in_every_bit_alone_and_beside_others() {
    let samples = samples(f32::MIN, f32::MAX, 100_003);
    let up_to_zero: Vec<[f32; 8]> = samples.iter().map(|x| x.map(|x| -x.abs())).collect();
    for (function, samples) in [
        (run::exp as Function, &samples),
        (run::exp2, &up_to_zero),
        (run::sigmoid, &samples),
        (run::silu, &samples),
        (run::gelu_tanh, &samples),
        (run::tanh, &samples),
    ] {
        let mut expected = samples.clone();
        for x in expected.chunks_mut(1) {
            function(Tier::named("scalar").unwrap(), x);
        }
        for tier in Tier::available() {
            let mut results = samples.clone();
            function(tier, &mut results);
            for ((x, y), expected) in
                samples.as_flattened().iter().zip(results.as_flattened()).zip(expected.as_flattened())
            {
                assert_eq!(y.to_bits(), expected.to_bits(), "f({x}) in {}", tier.name());
            }
        }
    }
}
