//! The shape of a plane and the layout of its elements.

use std::ops::Range;

use crate::{Error, Result};

/// Rows of K that are interleaved, so that a kernel reads one element of as many keys with one vector load.
pub const KV_LANES: usize = 8;

/// The shape of a KV plane.
///
/// With `cap` the [`capacity`](Self::capacity), elements lie so:
///
/// | | Shape | Element `d` of head `h` in row `r` |
/// | --- | --- | --- |
/// | K | `(n_head_kv, cap / 8, head_dim, 8)` | `((h * cap / 8 + r / 8) * head_dim + d) * 8 + r % 8` |
/// | V | `(n_head_kv, cap, head_dim)` | `(h * cap + r) * head_dim + d` |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGeometry {
    /// KV heads.
    pub n_head_kv: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Rows wanted; a plane has this many rounded up to a multiple of [`KV_LANES`].
    pub rows: usize,
}

impl KvGeometry {
    /// Rows of a plane: `rows` rounded up to a multiple of [`KV_LANES`].
    ///
    /// # Panics
    ///
    /// When that has no representation.
    pub const fn capacity(&self) -> usize {
        self.rows.next_multiple_of(KV_LANES)
    }

    /// Elements of one row of K, and of one row of V.
    pub const fn row_len(&self) -> usize {
        self.n_head_kv * self.head_dim
    }

    /// Bytes of the plane, K and V together, in f16.
    ///
    /// # Errors
    ///
    /// When a dimension is zero or the size has no representation.
    pub fn size_bytes(&self) -> Result<u64> {
        let n_elements = self.n_elements()? as u64;
        n_elements.checked_mul(2 * size_of::<u16>() as u64).ok_or(Error::TooLarge {
            what: "KV plane",
            len: n_elements,
            element_bytes: 2 * size_of::<u16>(),
        })
    }

    /// Elements of K, and of V.
    pub(super) fn n_elements(&self) -> Result<usize> {
        let &Self { n_head_kv, head_dim, rows } = self;
        if n_head_kv == 0 || head_dim == 0 || rows == 0 {
            return Err(Error::EmptyKvGeometry { n_head_kv, head_dim, rows });
        }
        rows.checked_next_multiple_of(KV_LANES)
            .and_then(|capacity| capacity.checked_mul(n_head_kv)?.checked_mul(head_dim))
            .ok_or(Error::TooLarge { what: "KV plane", len: rows as u64, element_bytes: size_of::<u16>() })
    }

    /// Where element 0 of head `head` in row `row` lies in K; element `d` is `d * KV_LANES` further on.
    pub(super) fn k_start(&self, head: usize, row: usize) -> usize {
        let block = head * (self.capacity() / KV_LANES) + row / KV_LANES;
        block * self.head_dim * KV_LANES + row % KV_LANES
    }

    /// Where the elements of head `head` in `rows` consecutive rows from `row` on lie in V.
    pub(super) fn v_range(&self, head: usize, row: usize, rows: usize) -> Range<usize> {
        let start = (head * self.capacity() + row) * self.head_dim;
        start..start + rows * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asked_rows_round_up_to_whole_lanes() {
        for (rows, capacity) in [(1, 8), (8, 8), (9, 16), (2047, 2048), (2048, 2048)] {
            assert_eq!(KvGeometry { n_head_kv: 2, head_dim: 4, rows }.capacity(), capacity);
        }
    }

    #[test]
    fn m27_a_row_of_two_heads_of_128_takes_1024_bytes() {
        let geometry = KvGeometry { n_head_kv: 2, head_dim: 128, rows: 2048 };
        assert_eq!(geometry.size_bytes().unwrap(), 2048 * 1024);
    }

    #[test]
    fn elements_lie_where_the_table_says() {
        let geometry = KvGeometry { n_head_kv: 3, head_dim: 5, rows: 16 };
        assert_eq!(geometry.k_start(0, 0), 0);
        assert_eq!(geometry.k_start(0, 9), 5 * 8 + 1);
        assert_eq!(geometry.k_start(2, 15), (2 * 2 + 1) * 5 * 8 + 7);
        assert_eq!(geometry.v_range(0, 1, 1), 5..10);
        assert_eq!(geometry.v_range(2, 15, 1), (2 * 16 + 15) * 5..3 * 16 * 5);
    }

    #[test]
    fn a_geometry_without_elements_or_past_the_address_space_is_refused() {
        for (n_head_kv, head_dim, rows) in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
            let refused = KvGeometry { n_head_kv, head_dim, rows }.size_bytes().unwrap_err();
            assert!(matches!(refused, Error::EmptyKvGeometry { .. }));
        }
        for (head_dim, rows) in [(1, usize::MAX), (usize::MAX, 8), (1, usize::MAX / 4)] {
            let refused = KvGeometry { n_head_kv: 1, head_dim, rows }.size_bytes().unwrap_err();
            assert!(matches!(refused, Error::TooLarge { .. }));
        }
    }
}
