use super::*;
use crate::caps::Tier;
use crate::testing::{Random, assert_same_bits};

type TwoOperands = fn(Tier, &mut [f32], &[f32]);

#[test]
fn all_tiers_agree_in_every_bit_at_every_length() {
    let mut random = Random::new(3);
    let scalar = Tier::named("scalar").unwrap();
    for n in (0..40).chain([576, 1537]) {
        let (x, y) = (random.normal(n), random.normal(n));
        for function in [silu_gate as TwoOperands, gelu_tanh_gate, sigmoid_gate, add] {
            let mut expected = x.clone();
            function(scalar, &mut expected, &y);
            for tier in Tier::available() {
                let mut out = x.clone();
                function(tier, &mut out, &y);
                assert_same_bits(&out, &expected);
            }
        }
        let (mut capped, mut scaled) = (x.clone(), x.clone());
        scale_and_cap(scalar, &mut capped, 3.7, 1.5);
        scale(scalar, &mut scaled, 0.3);
        for tier in Tier::available() {
            let mut out = x.clone();
            scale_and_cap(tier, &mut out, 3.7, 1.5);
            assert_same_bits(&out, &capped);
            out.copy_from_slice(&x);
            scale(tier, &mut out, 0.3);
            assert_same_bits(&out, &scaled);
        }
    }
}

#[test]
fn gates_multiply_the_activation_of_one_operand_with_the_other() {
    let (gate, up) = (1.25f32, -3.0f32);
    let sigmoid = 1.0 / (1.0 + (-gate).exp());
    let inner = (2.0 / std::f32::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
    for (function, expected) in [
        (silu_gate as TwoOperands, gate * sigmoid * up),
        (gelu_tanh_gate, 0.5 * gate * (1.0 + inner.tanh()) * up),
        (add, gate + up),
    ] {
        let mut x = [gate];
        function(Tier::detect(), &mut x, &[up]);
        assert!((x[0] - expected).abs() < 1.0e-6, "{} {expected}", x[0]);
    }
    let mut x = [up];
    sigmoid_gate(Tier::detect(), &mut x, &[gate]);
    assert!((x[0] - up * sigmoid).abs() < 1.0e-6);
}

#[test]
fn a_cap_bounds_what_it_is_given() {
    let mut x = [1.0e30, -1.0e30, 0.25];
    scale_and_cap(Tier::detect(), &mut x, 2.0, 20.0);
    assert_eq!(x[..2], [20.0, -20.0]);
    assert!((x[2] - 20.0 * (0.025f32).tanh()).abs() < 1.0e-6);
}
