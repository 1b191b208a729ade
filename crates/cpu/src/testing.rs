//! What the tests of several modules share.

/// A small generator of repeatable values (`SplitMix64`).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// `n` values that look like activations: a sum of uniform ones, of variance 1.
    pub(crate) fn normal(&mut self, n: usize) -> Vec<f32> {
        let mut uniform = || (self.bits() >> 40) as f32 / 8_388_608.0 - 1.0;
        (0..n).map(|_| uniform() + uniform() + uniform()).collect()
    }
}

#[track_caller]
pub(crate) fn assert_same_bits(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.to_bits(), expected.to_bits(), "value {index}: {found} instead of {expected}");
    }
}
