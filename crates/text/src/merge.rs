//! Merging of neighbours in order of priority, the core of both tokenisers.
//!
//! Always the pair with the best priority is merged, the leftmost among equals. A word of `n` symbols takes
//! `O(n log n)`: each merge makes at most two new pairs, and pairs that a merge has overtaken are recognised when they
//! surface.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// Words of up to this many symbols are merged by looking for the best pair anew each time, which costs less than a
/// heap for them.
const SHORT: usize = 24;

/// The most bytes merged as one word, so that positions fit 32 bits with room; longer words are cut here.
pub(crate) const MAX_WORD_BYTES: usize = 1 << 30;

/// A piece of the word: first a character or byte, then what merges made of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// Its first byte in the word.
    pub(crate) start: u32,
    /// Its length in bytes; 0 once it is part of its left neighbour.
    pub(crate) len: u32,
    /// Its token, or [`NO_TOKEN`].
    pub(crate) id: u32,
    prev: u32,
    next: u32,
}

/// The id of a symbol that is no token, or not known to be one.
pub(crate) const NO_TOKEN: u32 = NONE;

/// What two neighbours make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merged {
    /// Lower is merged sooner.
    pub(crate) priority: u32,
    /// The token they make.
    pub(crate) id: u32,
}

/// A pair in the heap. The order is by `key` alone: priority, then place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    key: u64,
    len: u32,
    id: u32,
}

/// The symbols of a word, with storage that is kept from word to word.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Pair>>,
    pairs: Vec<Option<Merged>>,
}

impl Merger {
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
    }

    /// Appends a symbol of `len` bytes.
    pub(crate) fn push(&mut self, len: usize, id: u32) {
        let start = self.symbols.last().map_or(0, |last| last.start + last.len);
        let index = self.symbols.len() as u32;
        self.symbols.push(Symbol { start, len: len as u32, id, prev: index.wrapping_sub(1), next: index + 1 });
    }

    /// Merges all symbols as far as `pair` goes and yields what is left, in order.
    pub(crate) fn merge(
        &mut self,
        pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>,
    ) -> impl Iterator<Item = Symbol> + '_ {
        if let Some(last) = self.symbols.last_mut() {
            last.next = NONE;
        }
        if self.symbols.len() <= SHORT {
            self.merge_short(pair);
        } else {
            self.merge_long(pair);
        }
        self.symbols.iter().filter(|symbol| symbol.len > 0).copied()
    }

    fn merge_short(&mut self, pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>) {
        let Self { symbols, pairs, .. } = self;
        pairs.clear();
        pairs.extend(symbols.windows(2).map(|two| pair(&two[0], &two[1])));
        loop {
            let found = pairs.iter().enumerate().filter_map(|(at, merged)| merged.map(|merged| (at, merged)));
            // `min_by_key` returns the first of equals.
            let Some((at, merged)) = found.min_by_key(|(_, merged)| merged.priority) else { return };
            symbols[at].len += symbols[at + 1].len;
            symbols[at].id = merged.id;
            symbols.remove(at + 1);
            pairs.remove(at);
            if at > 0 {
                pairs[at - 1] = pair(&symbols[at - 1], &symbols[at]);
            }
            if at < pairs.len() {
                pairs[at] = pair(&symbols[at], &symbols[at + 1]);
            }
        }
    }

    fn merge_long(&mut self, pair: impl Fn(&Symbol, &Symbol) -> Option<Merged>) {
        let Self { symbols, heap, .. } = self;
        let entry = |symbols: &[Symbol], left: u32| {
            let a = symbols[left as usize];
            let b = symbols.get(a.next as usize)?;
            let merged = pair(&a, b)?;
            let key = u64::from(merged.priority) << 32 | u64::from(left);
            Some(Reverse(Pair { key, len: a.len + b.len, id: merged.id }))
        };
        // From a vector: linear, where pushing one by one is not. The last word left it empty.
        let mut pairs = std::mem::take(heap).into_vec();
        pairs.extend((0..symbols.len() as u32).filter_map(|left| entry(symbols, left)));
        *heap = BinaryHeap::from(pairs);
        while let Some(Reverse(best)) = heap.pop() {
            let left = best.key as u32;
            let Symbol { len, next, prev, .. } = symbols[left as usize];
            // A symbol only grows, by taking its right neighbour, so equal lengths mean the pair is as it was.
            let Some(&right) = symbols.get(next as usize) else { continue };
            if len == 0 || len + right.len != best.len {
                continue;
            }
            symbols[next as usize].len = 0;
            if let Some(after) = symbols.get_mut(right.next as usize) {
                after.prev = left;
            }
            let symbol = &mut symbols[left as usize];
            symbol.len = best.len;
            symbol.id = best.id;
            symbol.next = right.next;
            if prev != NONE {
                heap.extend(entry(symbols, prev));
            }
            heap.extend(entry(symbols, left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Some rules over few tokens: many pairs with equal priorities, and some with better ones than their parts had.
    fn rule(a: u32, b: u32) -> Option<Merged> {
        let mixed = (a * 31 + b * 17 + a * b) % 23;
        (mixed < 15).then(|| Merged { priority: mixed % 5, id: (a + 2 * b + mixed) % 11 })
    }

    /// The definition: while any pair merges, merge the leftmost of the best.
    fn merged_by_definition(mut ids: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
        loop {
            let pairs = ids.windows(2).enumerate().filter_map(|(at, two)| Some((rule(two[0].0, two[1].0)?, at)));
            let Some((merged, at)) = pairs.min_by_key(|&(merged, at)| (merged.priority, at)) else { return ids };
            ids[at] = (merged.id, ids[at].1 + ids[at + 1].1);
            ids.remove(at + 1);
        }
    }

    fn merged(merger: &mut Merger, ids: &[(u32, u32)]) -> Vec<(u32, u32)> {
        merger.clear();
        for &(id, len) in ids {
            merger.push(len as usize, id);
        }
        merger.merge(|a, b| rule(a.id, b.id)).map(|symbol| (symbol.id, symbol.len)).collect()
    }

    proptest! {
        #[test]
        fn short_and_long_words_merge_by_the_definition(
            words in proptest::collection::vec(proptest::collection::vec((0..11_u32, 1..4_u32), 0..120), 1..4),
        ) {
            // One merger for all words: nothing of one may reach the next.
            let mut merger = Merger::default();
            for ids in words {
                prop_assert_eq!(merged(&mut merger, &ids), merged_by_definition(ids.clone()));
                let short = &ids[..ids.len().min(SHORT)];
                prop_assert_eq!(merged(&mut merger, short), merged_by_definition(short.to_vec()));
            }
        }
    }

    #[test]
    fn among_equals_the_leftmost_pair_is_merged() {
        for n in [3, SHORT + 1] {
            let ids = vec![(0, 1); n];
            assert!(rule(0, 0).is_some());
            assert_eq!(merged(&mut Merger::default(), &ids), merged_by_definition(ids));
        }
    }
}
