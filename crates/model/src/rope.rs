//! Angles of rotary position embeddings.

use muser_memory::GpuBuffer;

use crate::spec::{RopeScaling, RopeSpec};

/// The frequencies of one [`RopeSpec`], ready to give the angles of any position.
///
/// Angles are computed in f64 and rounded once, so that they hold at any position a model is trained for.
#[derive(Debug)]
pub(crate) struct Frequencies {
    spec: RopeSpec,
    radians: Vec<f64>, // (n_rot / 2), per position
    magnitude: f64,
}

impl Frequencies {
    /// `factors` divide the frequencies one by one; their number is `n_rot / 2`.
    pub(crate) fn new(spec: RopeSpec, factors: Option<&[f32]>) -> Self {
        let n_pair = spec.n_rot / 2;
        let base = f64::from(spec.base);
        let plain = (0..n_pair).map(|pair| {
            let frequency = base.powf(-2.0 * pair as f64 / spec.n_rot as f64);
            frequency / factors.map_or(1.0, |factors| f64::from(factors[pair]))
        });
        let (radians, magnitude) = match spec.scaling {
            RopeScaling::None => (plain.collect(), 1.0),
            RopeScaling::Linear { factor } => (plain.map(|radians| radians / f64::from(factor)).collect(), 1.0),
            RopeScaling::Yarn { factor, n_ctx_original, beta_fast, beta_slow, attn_factor } => {
                let factor = f64::from(factor);
                // The pair that turns `rotations` times over the original context.
                let pair_of = |rotations: f32| {
                    let turns = n_ctx_original as f64 / (f64::from(rotations) * std::f64::consts::TAU);
                    spec.n_rot as f64 * turns.ln() / (2.0 * base.ln())
                };
                let low = pair_of(beta_fast).floor().max(0.0);
                let high = pair_of(beta_slow).ceil().min(spec.n_rot as f64 - 1.0);
                let stretched = plain.enumerate().map(|(pair, radians)| {
                    let ramp = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                    radians / factor * ramp + radians * (1.0 - ramp)
                });
                (stretched.collect(), f64::from(attn_factor) * (1.0 + 0.1 * factor.ln()))
            }
        };
        Self { spec, radians, magnitude }
    }

    pub(crate) fn spec(&self) -> &RopeSpec {
        &self.spec
    }

    pub(crate) fn n_pair(&self) -> usize {
        self.radians.len()
    }

    /// Fills one row of each table for each position. `(n, n_rot / 2)`
    pub(crate) fn fill(&self, positions: impl Iterator<Item = usize>, cos: &mut GpuBuffer, sin: &mut GpuBuffer) {
        let n_pair = self.radians.len();
        let cos = cos.as_mut_slice().chunks_exact_mut(n_pair);
        let sin = sin.as_mut_slice().chunks_exact_mut(n_pair);
        for ((pos, cos), sin) in positions.zip(cos).zip(sin) {
            for ((radians, cos), sin) in self.radians.iter().zip(cos).zip(sin) {
                let (s, c) = (pos as f64 * radians).sin_cos();
                (*sin, *cos) = ((s * self.magnitude) as f32, (c * self.magnitude) as f32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muser_memory::Device;
    use muser_ops::Pairing;

    fn angles(scaling: RopeScaling, factors: Option<&[f32]>, pos: usize) -> Vec<(f32, f32)> {
        let spec = RopeSpec { base: 10_000.0, n_rot: 8, pairing: Pairing::Half, scaling, factors: factors.is_some() };
        let mut tables = [0, 1].map(|_| GpuBuffer::zeros(&Device::host(), 4).expect("four values"));
        let [cos, sin] = &mut tables;
        Frequencies::new(spec, factors).fill(std::iter::once(pos), cos, sin);
        cos.as_slice().iter().copied().zip(sin.as_slice().iter().copied()).collect()
    }

    fn assert_close(found: &[(f32, f32)], angles: [f64; 4], magnitude: f64) {
        for (&(cos, sin), angle) in found.iter().zip(angles) {
            assert!((f64::from(cos) - magnitude * angle.cos()).abs() < 1e-6, "cos {cos} of {angle}");
            assert!((f64::from(sin) - magnitude * angle.sin()).abs() < 1e-6, "sin {sin} of {angle}");
        }
    }

    #[test]
    fn frequencies_fall_by_the_base_from_one_pair_to_the_next() {
        assert_close(&angles(RopeScaling::None, None, 7), [7.0, 0.7, 0.07, 0.007], 1.0);
    }

    #[test]
    fn linear_scaling_divides_positions() {
        assert_close(&angles(RopeScaling::Linear { factor: 4.0 }, None, 8), [2.0, 0.2, 0.02, 0.002], 1.0);
    }

    #[test]
    fn factors_divide_each_frequency() {
        assert_close(&angles(RopeScaling::None, Some(&[1.0, 2.0, 4.0, 8.0]), 8), [8.0, 0.4, 0.02, 0.001], 1.0);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_divides_slow_ones() {
        // Over 628 tokens pair 0 turns 100 times, pair 1 ten times, pair 2 once: with betas of 50 and 2 the ramp runs from
        // pair floor(0.30) = 0 to pair ceil(1.70) = 2, so pair 1 lies in its middle.
        let scaling =
            RopeScaling::Yarn { factor: 4.0, n_ctx_original: 628, beta_fast: 50.0, beta_slow: 2.0, attn_factor: 1.0 };
        let middle = 0.1 * (0.5 / 4.0 + 0.5);
        let expected = [3.0, 3.0 * middle, 3.0 * 0.01 / 4.0, 3.0 * 0.001 / 4.0];
        assert_close(&angles(scaling, None, 3), expected, 1.0 + 0.1 * 4.0f64.ln());
    }

    #[test]
    fn a_far_position_keeps_its_angle() {
        let pos = 131_071;
        assert_close(&angles(RopeScaling::None, None, pos), [1.0, 0.1, 0.01, 0.001].map(|f| f * pos as f64), 1.0);
    }
}
