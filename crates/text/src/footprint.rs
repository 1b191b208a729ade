//! What a vocabulary takes in memory, before it is built.

use crate::Tokenizer;

impl Tokenizer {
    /// Bytes that a tokeniser of `n_token` tokens and `n_merge` merges takes, within a third: texts of eight bytes, where
    /// they begin, types and priorities; an index of ids; and the table of merges.
    pub fn planned_bytes(n_token: usize, n_merge: usize) -> u64 {
        const TEXT: u64 = 8 + 4 + 1 + 4;
        // Entries of the index are ids, those of the other a pair of ids with what they make; each has a control byte.
        const INDEX: u64 = 4 + 1;
        const MERGE: u64 = 16 + 1;
        (n_token as u64)
            .saturating_mul(TEXT)
            .saturating_add(buckets(n_token).saturating_mul(INDEX))
            .saturating_add(buckets(n_merge).saturating_mul(MERGE))
    }
}

/// Buckets of a hash table for `n` entries: a power of two, filled to seven eighths at most.
fn buckets(n: usize) -> u64 {
    if n == 0 { 0 } else { (n as u64).saturating_mul(8).div_ceil(7).checked_next_power_of_two().unwrap_or(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_vocabularies_are_planned_in_megabytes() {
        // Gemma 3 has no merges, SmolLM2 about as many as tokens.
        assert_eq!(Tokenizer::planned_bytes(262_144, 0), 262_144 * 17 + 524_288 * 5);
        assert_eq!(Tokenizer::planned_bytes(49_152, 48_900), 49_152 * 17 + 65_536 * 5 + 65_536 * 17);
        assert_eq!(Tokenizer::planned_bytes(0, 0), 0);
    }
}
