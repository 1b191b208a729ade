//! The generator, fixed for good: texts are reproduced by their seed.

/// xoshiro256++ 1.0 by David Blackman and Sebastiano Vigna.
#[derive(Clone, Debug)]
pub(super) struct Xoshiro256PlusPlus {
    state: [u64; 4],
}

impl Xoshiro256PlusPlus {
    /// The state is the first four numbers of `SplitMix64` from `seed`, as its authors recommend.
    pub(super) fn seeded(seed: u64) -> Self {
        let mut seed = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut seed)) }
    }

    fn next(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s0.wrapping_add(*s3).rotate_left(23).wrapping_add(*s0);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A fraction from 0 up to but not including 1, in steps of 2^-53.
    pub(super) fn next_fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generators_are_the_published_ones() {
        // Reference outputs of the authors' C code.
        let mut seed = 1_234_567;
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([(); 3].map(|()| split_mix(&mut seed)), expected);
        let mut random = Xoshiro256PlusPlus { state: [1, 2, 3, 4] };
        let expected = [
            41_943_041,
            58_720_359,
            3_588_806_011_781_223,
            3_591_011_842_654_386,
            9_228_616_714_210_784_205,
            9_973_669_472_204_895_162,
        ];
        assert_eq!([(); 6].map(|()| random.next()), expected);
    }

    #[test]
    fn fractions_are_below_one_and_not_all_alike() {
        let mut random = Xoshiro256PlusPlus::seeded(7);
        let fractions: Vec<f64> = (0..10_000).map(|_| random.next_fraction()).collect();
        assert!(fractions.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = fractions.iter().sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }
}
