//! How many tokens of each prompt go into a step.

/// Tokens of prompts in a step in which answers wait for their next token.
///
/// Without a limit, each token of an answer would wait for a whole batch; with too small a one, prompts would be processed
/// in pieces too small to share the reading of a weight.
pub(super) const PREFILL_BESIDE_DECODE: usize = 64;

/// Shares the rows of a step among prompts of which so many tokens are `left`; the first has waited longest. `n_decoding`
/// rows go to answers. Returns each one's rows.
///
/// Each gets an equal share; what a prompt near its end does not need, the others get. All get at least one.
pub(super) fn share(n_batch: usize, n_decoding: usize, left: &[usize]) -> Vec<usize> {
    let mut rows = n_batch - n_decoding;
    if n_decoding > 0 {
        rows = rows.min(PREFILL_BESIDE_DECODE.max(left.len()));
    }
    let mut shares = vec![0; left.len()];
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|&index| left[index]);
    for (n_served, &index) in order.iter().enumerate() {
        shares[index] = left[index].min(rows.div_ceil(left.len() - n_served));
        rows -= shares[index];
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_alone_fills_the_batch() {
        assert_eq!(share(256, 0, &[1000]), [256]);
        assert_eq!(share(256, 0, &[10]), [10]);
        assert!(share(256, 0, &[]).is_empty());
    }

    #[test]
    fn prompts_share_evenly_and_what_one_does_not_need_the_others_get() {
        assert_eq!(share(256, 0, &[1000, 1000]), [128, 128]);
        assert_eq!(share(256, 0, &[1000, 6, 1000]), [125, 6, 125]);
        assert_eq!(share(100, 0, &[1000, 1000, 1000]), [34, 33, 33]);
    }

    #[test]
    fn beside_answers_prompts_take_few_rows_but_each_one() {
        assert_eq!(share(256, 1, &[1000]), [PREFILL_BESIDE_DECODE]);
        assert_eq!(share(32, 4, &[1000, 3]), [25, 3]);
        assert_eq!(share(256, 1, &[1000; 100]), [1; 100]);
    }
}
