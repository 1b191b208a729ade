use super::*;
use crate::caps::Tier;
use crate::testing::{Random, assert_same_bits};

#[test]
fn a_quarter_turn_swaps_the_pair() {
    for tier in Tier::available() {
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0];
        rope_adjacent(tier, &mut x, &[0.0, 1.0], &[1.0, 0.0]);
        assert_same_bits(&x, &[-2.0, 1.0, 3.0, 4.0, 5.0]);
        let mut x = [1.0, 2.0, 3.0, 4.0, 5.0];
        rope_half(tier, &mut x, &[0.0, 1.0], &[1.0, 0.0]);
        assert_same_bits(&x, &[-3.0, 2.0, 1.0, 4.0, 5.0]);
    }
}

#[test]
fn all_tiers_give_the_fused_products_of_the_definition() {
    let mut random = Random::new(2);
    for (n_pair, head_dim) in [(1, 2), (3, 8), (8, 16), (13, 30), (32, 64), (48, 128)] {
        let (x, cos, sin) = (random.normal(head_dim), random.normal(n_pair), random.normal(n_pair));
        for adjacent in [true, false] {
            let mut expected = x.clone();
            for i in 0..n_pair {
                let (i0, i1) = if adjacent { (2 * i, 2 * i + 1) } else { (i, i + n_pair) };
                expected[i0] = x[i0].mul_add(cos[i], -(x[i1] * sin[i]));
                expected[i1] = x[i0].mul_add(sin[i], x[i1] * cos[i]);
            }
            for tier in Tier::available() {
                let mut out = x.clone();
                let rope = if adjacent { rope_adjacent } else { rope_half };
                rope(tier, &mut out, &cos, &sin);
                assert_same_bits(&out, &expected);
            }
        }
    }
}
