//! The shape of a plane and the layout of its elements.

use std::ops::Range;

use crate::page::round_up_to_page;
use crate::{Error, Result};

/// Rows that stand together in a plane, so that a kernel reads a pair of elements of as many keys with one vector load.
pub const KV_LANES: usize = 8;

/// A head's elements fill up to a multiple of this many, those after the last being zero, so that a kernel reads whole vectors.
pub const KV_COMPONENTS: usize = 16;

/// The largest length of a key as a vector of integers. The products with a query that is not longer can be summed in 32 bits,
/// in any order.
pub const KV_NORM_OF_K: f32 = 46_000.0;

/// The largest magnitude of V's integers. The products with weights whose sum is not more than 2¹⁷ can be summed in 32 bits.
pub const KV_MOST_OF_V: u16 = 16_383;

/// The shape of a KV plane.
///
/// Elements are 16-bit integers, with a scale for each head of each row that is the upper half of an f32. With `cap` the
/// [`capacity`](Self::capacity) and `width` the [`head_width`](Self::head_width), they lie so:
///
/// | | Shape | Element `d` of head `h` in row `r` |
/// | --- | --- | --- |
/// | K | `(n_head_kv, cap / 8, width / 2, 8, 2)` | `(h * cap + r / 8 * 8) * width + d / 2 * 16 + r % 8 * 2 + d % 2` |
/// | V | `(n_head_kv, cap / 8, width / 16, 4, 16, 2)` | `(h * cap + r / 8 * 8) * width + d / 16 * 128 + r % 8 / 2 * 32 + d % 16 * 2 + r % 2` |
/// | scales of each | `(n_head_kv, cap)` | `n_head_kv * cap * width + h * cap + r` |
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

    /// Elements of one row of K, and of one row of V, each head followed by its scale: as rows are exported.
    pub const fn exported_len(&self) -> usize {
        self.n_head_kv * (self.head_dim + 1)
    }

    /// Elements that a head takes in a plane: those of a head, rounded up to a multiple of [`KV_COMPONENTS`].
    pub const fn head_width(&self) -> usize {
        self.head_dim.next_multiple_of(KV_COMPONENTS)
    }

    /// Bytes of a row of the plane, K and V together, with their scales.
    pub const fn row_size_bytes(&self) -> usize {
        2 * size_of::<u16>() * self.n_head_kv * (self.head_width() + 1)
    }

    /// Bytes of the plane, K and V together, with their scales: each is an allocation of whole pages.
    ///
    /// # Errors
    ///
    /// When a dimension is zero or the size has no representation.
    pub fn size_bytes(&self) -> Result<u64> {
        let n_elements = self.n_elements()?;
        let size_bytes = n_elements.checked_mul(size_of::<u16>()).and_then(round_up_to_page);
        let both = size_bytes.and_then(|size_bytes| (size_bytes as u64).checked_mul(2));
        both.ok_or(Error::TooLarge { what: "KV plane", len: n_elements as u64, element_bytes: 2 * size_of::<u16>() })
    }

    /// Elements of K, and of V, with their scales.
    pub(super) fn n_elements(&self) -> Result<usize> {
        let &Self { n_head_kv, head_dim, rows } = self;
        if n_head_kv == 0 || head_dim == 0 || rows == 0 {
            return Err(Error::EmptyKvGeometry { n_head_kv, head_dim, rows });
        }
        let width = head_dim.checked_next_multiple_of(KV_COMPONENTS).and_then(|width| width.checked_add(1));
        rows.checked_next_multiple_of(KV_LANES)
            .and_then(|capacity| capacity.checked_mul(n_head_kv)?.checked_mul(width?))
            .ok_or(Error::TooLarge { what: "KV plane", len: rows as u64, element_bytes: size_of::<u16>() })
    }

    /// The integers of a head.
    pub(super) fn head_range(&self, head: usize) -> Range<usize> {
        let len = self.capacity() * self.head_width();
        head * len..(head + 1) * len
    }

    /// The scales of a head.
    pub(super) fn scales_range(&self, head: usize) -> Range<usize> {
        let start = self.head_range(self.n_head_kv).start + head * self.capacity();
        start..start + self.capacity()
    }

    /// The integers of a head in the eight rows among which row `row` is.
    pub(super) fn block_range(&self, head: usize, row: usize) -> Range<usize> {
        let start = (head * self.capacity() + row / KV_LANES * KV_LANES) * self.head_width();
        start..start + KV_LANES * self.head_width()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::page_size;

    #[test]
    fn the_asked_rows_round_up_to_whole_lanes() {
        for (rows, capacity) in [(1, 8), (8, 8), (9, 16), (2047, 2048), (2048, 2048)] {
            assert_eq!(KvGeometry { n_head_kv: 2, head_dim: 4, rows }.capacity(), capacity);
        }
    }

    #[test]
    fn m27_a_row_of_two_heads_of_128_takes_1032_bytes() {
        let geometry = KvGeometry { n_head_kv: 2, head_dim: 128, rows: 2048 };
        assert_eq!(geometry.row_size_bytes(), 1032);
        assert_eq!(geometry.size_bytes().unwrap(), 2 * (2048_u64 * 516).next_multiple_of(page_size() as u64));
    }

    #[test]
    fn heads_fill_up_to_whole_vectors() {
        for (head_dim, width) in [(1, 16), (16, 16), (17, 32), (64, 64), (80, 80)] {
            let geometry = KvGeometry { n_head_kv: 3, head_dim, rows: 8 };
            assert_eq!((geometry.head_width(), geometry.row_size_bytes()), (width, 2 * 2 * 3 * (width + 1)));
        }
    }

    #[test]
    fn k_and_v_are_whole_pages_each() {
        let geometry = KvGeometry { n_head_kv: 1, head_dim: 1, rows: 1 };
        assert_eq!(geometry.size_bytes().unwrap(), 2 * page_size() as u64);
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
