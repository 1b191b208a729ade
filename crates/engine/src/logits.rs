//! Passes over a row of logits. A vocabulary has hundreds of thousands of entries, so these go in lanes, a block at a time,
//! and look closer only at the block that matters.

/// Logits in a block.
const BLOCK: usize = 1024;
/// Logits that are compared side by side.
const LANES: usize = 16;

/// Index of the first logit that is infinite or not a number.
pub(crate) fn first_not_finite(logits: &[f32]) -> Option<usize> {
    let is_bad = |logit: &f32| !logit.is_finite();
    let block = logits.chunks(BLOCK).position(|block| !all_finite(block))?;
    let at = logits[block * BLOCK..].iter().position(is_bad)?;
    Some(block * BLOCK + at)
}

/// What one pass over a row of logits finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Survey {
    /// The largest, NaN aside; minus infinity if there is none.
    pub max: f32,
    /// Whether one of them is NaN.
    pub has_nan: bool,
    /// Where the block with the first largest begins.
    block: usize,
}

impl Survey {
    /// Looks at all of `logits`.
    pub(crate) fn of(logits: &[f32]) -> Self {
        let mut survey = Self { max: f32::NEG_INFINITY, has_nan: false, block: 0 };
        for (block, logits) in logits.chunks(BLOCK).enumerate() {
            let max = largest(logits);
            if max > survey.max {
                (survey.max, survey.block) = (max, block * BLOCK);
            }
            survey.has_nan |= any_nan(logits);
        }
        survey
    }

    /// Index of the first of the largest of `logits`, the ones that were surveyed; 0 if all are minus infinity.
    pub(crate) fn first_largest(&self, logits: &[f32]) -> usize {
        let at = logits[self.block..].iter().position(|&logit| logit >= self.max);
        self.block + at.unwrap_or_default()
    }
}

/// The largest of a few logits, NaN aside; minus infinity if there is none.
fn largest(logits: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = larger(logit, *lane);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |max, &logit| larger(logit, max))
}

/// Whether none of a few logits is infinite or not a number. Sums of zeros are NaN if one of those is among the factors.
fn all_finite(logits: &[f32]) -> bool {
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane += logit * 0.0;
        }
    }
    !lanes.iter().any(|lane| lane.is_nan()) && rest.iter().all(|logit| logit.is_finite())
}

/// Whether one of a few logits is NaN.
fn any_nan(logits: &[f32]) -> bool {
    let (chunks, rest) = logits.as_chunks::<LANES>();
    let mut lanes = [false; LANES];
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane |= logit.is_nan();
        }
    }
    lanes.contains(&true) || rest.iter().any(|logit| logit.is_nan())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(len: usize) -> Vec<f32> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 12) as f32 / 1e5 - 9.0).collect()
    }

    /// Around the ends of lanes and blocks.
    const LENS: [usize; 9] = [1, 15, 16, 17, 1023, 1024, 1025, 2048, 5003];

    #[test]
    fn the_first_that_is_not_finite_is_found_wherever_it_lies() {
        for len in LENS {
            assert_eq!(first_not_finite(&row(len)), None, "{len}");
            for at in [0, len / 2, len - 1] {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut logits = row(len);
                    logits[at] = bad;
                    logits[len - 1] = f32::NAN;
                    assert_eq!(first_not_finite(&logits), Some(at), "{bad} at {at} of {len}");
                }
            }
        }
        assert_eq!(first_not_finite(&[]), None);
    }

    #[test]
    fn the_first_of_the_largest_is_found_wherever_it_lies() {
        for len in LENS {
            for at in [0, len / 2, len - 1] {
                let mut logits = row(len);
                logits[at] = 1e6;
                logits[len - 1] = 1e6;
                let survey = Survey::of(&logits);
                assert_eq!((survey.max.to_bits(), survey.has_nan), (1e6f32.to_bits(), false));
                assert_eq!(survey.first_largest(&logits), at, "{at} of {len}");
            }
        }
    }

    #[test]
    fn a_nan_is_noticed_and_does_not_hide_the_largest() {
        for len in LENS {
            for at in [0, len / 2, len - 1] {
                let mut logits = vec![f32::NEG_INFINITY; len + 1];
                logits[at] = f32::NAN;
                logits[len] = -3.0;
                let survey = Survey::of(&logits);
                assert!(survey.has_nan, "{at} of {len}");
                assert_eq!(survey.first_largest(&logits), len);
            }
        }
    }

    #[test]
    fn rows_with_nothing_to_choose_have_no_largest() {
        for logits in [vec![], vec![f32::NEG_INFINITY; 3000]] {
            let survey = Survey::of(&logits);
            assert!(survey.max.is_infinite() && survey.max < 0.0 && !survey.has_nan);
            assert_eq!(survey.first_largest(&logits), 0);
        }
    }
}
