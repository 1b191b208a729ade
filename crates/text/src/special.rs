//! Finds special tokens in text: user-defined ones always, markers (control, unknown) where the caller allows.
//!
//! At each place the longest token wins, and what it covers is taken. The only other order in use, longest token first
//! over the whole text, differs where one special token ends with what another begins with.

use crate::pieces::Pieces;
use std::collections::VecDeque;

const NONE: u32 = u32::MAX;

/// A trie over the texts of special tokens.
#[derive(Debug)]
pub(crate) struct SpecialTrie {
    nodes: Vec<Node>,
    /// Edges by node, each a byte and the node it leads to.
    edges: Vec<(u8, u32)>,
    /// The root's edges by byte, as nearly every byte of a text is looked up there only.
    root: Box<[u32; 256]>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    edges_start: u32,
    edges_len: u32,
    /// The token that ends here.
    token: u32,
}

impl SpecialTrie {
    /// A trie over the pieces `ids`.
    ///
    /// # Errors
    ///
    /// Two ids whose pieces are equal.
    pub(crate) fn new(pieces: &Pieces, mut ids: Vec<u32>) -> Result<Self, (u32, u32)> {
        // What isn't UTF-8 can't occur in text, and would cut it inside a character.
        ids.retain(|&id| !pieces.of(id).is_empty() && std::str::from_utf8(pieces.of(id)).is_ok());
        ids.sort_by_key(|&id| (pieces.of(id), id));
        if let Some(pair) = ids.windows(2).find(|pair| pieces.of(pair[0]) == pieces.of(pair[1])) {
            return Err((pair[0], pair[1]));
        }
        let mut trie = Self { nodes: Vec::new(), edges: Vec::new(), root: Box::new([NONE; 256]) };
        // Nodes are numbered as they enter the queue, each with its range of sorted ids and the length they share.
        let mut queue = VecDeque::from([(0, ids.len(), 0)]);
        let mut n_queued = 1;
        while let Some((mut lo, hi, depth)) = queue.pop_front() {
            let ends_here = lo < hi && pieces.of(ids[lo]).len() == depth;
            let token = if ends_here { ids[lo] } else { NONE };
            lo += usize::from(ends_here);
            let edges_start = trie.edges.len();
            while lo < hi {
                let byte = pieces.of(ids[lo])[depth];
                let len = ids[lo..hi].iter().take_while(|&&id| pieces.of(id)[depth] == byte).count();
                trie.edges.push((byte, n_queued));
                if depth == 0 {
                    trie.root[usize::from(byte)] = n_queued;
                }
                n_queued += 1;
                queue.push_back((lo, lo + len, depth + 1));
                lo += len;
            }
            let edges_len = (trie.edges.len() - edges_start) as u32;
            trie.nodes.push(Node { edges_start: edges_start as u32, edges_len, token });
        }
        Ok(trie)
    }

    fn edges_of(&self, node: u32) -> &[(u8, u32)] {
        let Node { edges_start, edges_len, .. } = self.nodes[node as usize];
        &self.edges[edges_start as usize..][..edges_len as usize]
    }

    /// The longest token at byte `pos` of `text` that `allow(id, end)` lets through, and where it ends.
    pub(crate) fn longest_at(
        &self,
        text: &[u8],
        pos: usize,
        allow: impl Fn(u32, usize) -> bool,
    ) -> Option<(u32, usize)> {
        let mut node = self.root[usize::from(*text.get(pos)?)];
        let mut end = pos + 1;
        let mut longest = None;
        while node != NONE {
            let token = self.nodes[node as usize].token;
            if token != NONE && allow(token, end) {
                longest = Some((token, end));
            }
            let Some(byte) = text.get(end) else { break };
            let next = self.edges_of(node).iter().find(|(other, _)| other == byte);
            node = next.map_or(NONE, |&(_, node)| node);
            end += 1;
        }
        longest
    }

    /// The token whose text is exactly `text`.
    pub(crate) fn find(&self, text: &[u8]) -> Option<u32> {
        self.longest_at(text, 0, |_, end| end == text.len()).map(|(id, _)| id)
    }
}
