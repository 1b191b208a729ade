//! How many tokens of each prompt go into a step.

use super::reuse::{LEAST_COPIED, common_to_reuse};

/// Tokens of prompts in a step in which answers wait for their next token.
///
/// Without a limit, each token of an answer would wait for a whole batch; with too small a one, prompts would be processed
/// in pieces too small to share the reading of a weight. Beside three answers of Gemma 3 270M, on two cores, a step with 16,
/// 32, 64, 128 and 253 rows of prompts took 0.12, 0.19, 0.32, 0.59 and 1.09 s and processed 57, 74, 85, 92 and 100 % as many
/// of them in the same time.
pub(super) const PREFILL_BESIDE_DECODE: usize = 64;

/// A prompt of which some tokens are processed.
#[derive(Clone, Copy)]
pub(super) struct Prompt<'a> {
    pub tokens: &'a [u32],
    pub n_held: usize,
    /// Whether each token has to be processed, whoever else has done so.
    pub needs_all: bool,
    /// A place to stop at, where a copy is kept.
    pub branch: Option<usize>,
}

/// How many tokens each prompt can make use of in the next step; the first has waited longest.
///
/// Of several that begin alike, only the first goes on. The others wait until it is where they part, and copy what it has:
/// so it stops there, since a sliding window that went on would have overwritten what they need.
pub(super) fn turns(prompts: &[Prompt<'_>]) -> Vec<usize> {
    let end = |prompt: &Prompt<'_>| prompt.branch.filter(|&pos| pos > prompt.n_held).unwrap_or(prompt.tokens.len());
    let mut most: Vec<usize> = prompts.iter().map(|prompt| end(prompt) - prompt.n_held).collect();
    for (index, waiting) in prompts.iter().enumerate().filter(|(_, prompt)| !prompt.needs_all) {
        for (ahead, first) in prompts[..index].iter().enumerate() {
            let common = common_to_reuse(first.tokens, waiting.tokens);
            if first.n_held < common && waiting.n_held + LEAST_COPIED <= common {
                most[ahead] = most[ahead].min(common - first.n_held);
                most[index] = 0;
            }
        }
    }
    most
}

/// Shares the rows of a step among prompts that can make use of so many, `n_decoding` rows going to answers. Returns each
/// one's rows.
///
/// Each gets an equal share; what one of them does not need, the others get. None that needs any gets none.
pub(super) fn share(n_batch: usize, n_decoding: usize, most: &[usize]) -> Vec<usize> {
    let mut rows = n_batch - n_decoding;
    if n_decoding > 0 {
        rows = rows.min(PREFILL_BESIDE_DECODE.max(most.len()));
    }
    let mut shares = vec![0; most.len()];
    let mut order: Vec<usize> = (0..most.len()).collect();
    order.sort_by_key(|&index| most[index]);
    for (n_served, &index) in order.iter().enumerate() {
        shares[index] = most[index].min(rows.div_ceil(most.len() - n_served));
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

    fn prompt(tokens: &[u32], n_held: usize) -> Prompt<'_> {
        Prompt { tokens, n_held, needs_all: false, branch: None }
    }

    #[test]
    fn of_prompts_that_begin_alike_one_goes_on_to_where_they_part() {
        let (a, b): (Vec<u32>, Vec<u32>) = ((0..100).collect(), (0..60).chain(200..240).collect());
        assert_eq!(turns(&[prompt(&a, 0), prompt(&b, 0)]), [60, 0]);
        assert_eq!(turns(&[prompt(&a, 40), prompt(&b, 0)]), [20, 0]);
        // There, the other has something to copy.
        assert_eq!(turns(&[prompt(&a, 60), prompt(&b, 0)]), [40, 100]);
        // Equal ones part at the last token, which each processes itself.
        assert_eq!(turns(&[prompt(&a, 0), prompt(&a, 0), prompt(&b, 0)]), [60, 0, 0]);
        assert_eq!(turns(&[prompt(&a, 60), prompt(&a, 60), prompt(&b, 60)]), [39, 0, 40]);
    }

    #[test]
    fn a_prompt_stops_where_a_copy_is_kept() {
        let a: Vec<u32> = (0..100).collect();
        let with_branch = |n_held| Prompt { branch: Some(40), ..prompt(&a, n_held) };
        assert_eq!(turns(&[with_branch(0)]), [40]);
        assert_eq!(turns(&[with_branch(40)]), [60]);
    }

    #[test]
    fn what_is_too_short_to_copy_or_needed_as_a_whole_is_not_waited_for() {
        let (a, b): (Vec<u32>, Vec<u32>) = ((0..100).collect(), (0..15).chain(200..240).collect());
        assert_eq!(turns(&[prompt(&a, 0), prompt(&b, 0)]), [100, 55]);
        assert_eq!(turns(&[prompt(&a, 50), prompt(&a, 84)]), [50, 16]);
        let whole = Prompt { needs_all: true, ..prompt(&a, 0) };
        assert_eq!(turns(&[prompt(&a, 0), whole]), [100, 100]);
        assert_eq!(turns(&[whole, prompt(&a, 0)]), [99, 0]);
    }
}
