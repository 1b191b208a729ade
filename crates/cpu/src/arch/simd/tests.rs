use super::Simd;
use crate::caps::Tier;
use crate::dispatch::kernel;

kernel! {
    fn bits_of_every_operation(a: &[f32; 8], b: &[f32; 8], halves: &[u16; 8]) -> Vec<u32> = every_operation;
}

#[inline(always)]
fn every_operation<S: Simd>(s: S, a: &[f32; 8], b: &[f32; 8], halves: &[u16; 8]) -> Vec<u32> {
    let (x, y) = (s.load(a), s.load(b));
    let (i, j) = (s.to_bits(x), s.to_bits(y));
    let results = [
        s.add(x, y),
        s.sub(x, y),
        s.mul(x, y),
        s.div(x, y),
        s.fma(x, y, y),
        s.max(x, y),
        s.min(x, y),
        s.select_lt(x, y, s.splat(1.0), y),
        s.load_f16(halves),
        s.of_bits(s.add_int(i, j)),
        s.of_bits(s.sub_int(i, j)),
        s.of_bits(s.and(i, j)),
        s.of_bits(s.or(i, s.splat_int(7))),
        s.of_bits(s.shl::<23>(i)),
        s.of_bits(s.sar::<1>(i)),
    ];
    let mut bits = vec![s.fold(x).to_bits(), s.largest(x).to_bits()];
    for result in results {
        let mut lanes = [0.0; 8];
        s.store(result, &mut lanes);
        bits.extend(lanes.map(f32::to_bits));
    }
    bits
}

#[test]
fn all_tiers_agree_in_every_bit_of_every_operation() {
    let a = [1.5, -0.0, 3.0e38, 1.0e-42, -7.25, f32::INFINITY, 0.1, 16_777_217.0];
    let b = [0.3, 0.0, 3.0e38, -3.0e-40, 7.25, 2.0, -0.7, 3.0];
    let halves = [0, 0x8000, 1, 0x3ff, 0x400, 0x7bff, 0xfc00, 0x3555];
    for (a, b) in [(a, b), (b, a)] {
        let expected = bits_of_every_operation(Tier::named("scalar").unwrap(), &a, &b, &halves);
        for tier in Tier::available() {
            assert_eq!(bits_of_every_operation(tier, &a, &b, &halves), expected, "{}", tier.name());
        }
    }
}

#[test]
fn a_comparison_with_nan_takes_the_second_operand() {
    #[inline(always)]
    fn extremes<S: Simd>(s: S) -> [f32; 4] {
        let (nan, one) = (s.splat(f32::NAN), s.splat(1.0));
        let mut lanes = [[0.0; 8]; 4];
        for (result, lanes) in
            [s.max(nan, one), s.min(nan, one), s.max(one, nan), s.min(one, nan)].into_iter().zip(&mut lanes)
        {
            s.store(result, lanes);
        }
        lanes.map(|lanes| lanes[0])
    }
    kernel! { fn run() -> [f32; 4] = extremes; }
    for tier in Tier::available() {
        let [a, b, c, d] = run(tier);
        assert!((a, b) == (1.0, 1.0) && c.is_nan() && d.is_nan(), "{}", tier.name());
    }
}

#[test]
fn halves_convert_exactly_in_every_tier() {
    #[inline(always)]
    fn convert<S: Simd>(s: S, halves: &[u16; 8]) -> [f32; 8] {
        let mut lanes = [0.0; 8];
        s.store(s.load_f16(halves), &mut lanes);
        lanes
    }
    kernel! { fn run(halves: &[u16; 8]) -> [f32; 8] = convert; }
    for tier in Tier::available() {
        for first in (0..=u16::MAX).step_by(8) {
            let halves = std::array::from_fn(|i| first + i as u16);
            for (half, value) in halves.into_iter().zip(run(tier, &halves)) {
                let expected = half::f16::from_bits(half).to_f32();
                assert!(
                    value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(),
                    "{}: half {half:#06x} became {value}, expected {expected}",
                    tier.name()
                );
            }
        }
    }
}
