//! One layer's K and V.

use std::ops::Range;

use super::fixed::{key_to_fixed, to_scale, value_to_fixed};
use super::geometry::{KV_COMPONENTS, KV_LANES, KvGeometry};
use crate::{Device, Error, GpuHalfBuffer, Result};

/// One layer's K and V: a ring of rows, addressed by token position.
///
/// A head of a row is held as 16-bit integers with one scale: an element is its integer times the scale. The integers are as
/// large as they can be for kernels to sum products exactly ([`KV_NORM_OF_K`](crate::KV_NORM_OF_K) and
/// [`KV_MOST_OF_V`](crate::KV_MOST_OF_V) say how large), so that sums are the same in any order. Numbers that are not finite make
/// the scale not a number.
///
/// The plane holds the positions `origin_logical..end`, at most [`capacity`](Self::capacity) of them. Position
/// `origin_logical` sits in row `origin_physical`, the next one in the row after it, and so on around the ring. Appending
/// past the capacity drops the oldest positions, whose rows are written over.
///
/// Three things hold after every call:
///
/// - **Rotation**: `origin_physical` is `origin_logical % capacity`, so a position sits in the same row (and, the capacity
///   being a multiple of [`KV_LANES`], in the same lane of K) whether it was appended, copied or installed. Attention sums
///   in physical order, so another rotation would change the bits of its result.
/// - **Zeros**: rows that hold no position are zero, in K and V. A kernel reads rows in whole blocks and masks those that
///   don't count, and a mask does not help against what is no number: 0 × Inf is NaN.
/// - **All or nothing**: a call that returns an error changed nothing.
///
/// Positions that went out of a full ring are gone: after [`truncate`](Self::truncate), fewer positions before the end are
/// held than before, until as many have been appended again. Whoever rolls back n rows of a sliding window needs n rows
/// more than the window has; [`origin_logical`](Self::origin_logical) says what is there.
#[derive(Debug)]
pub struct KvPlane {
    geometry: KvGeometry,
    k: GpuHalfBuffer, // (n_head_kv, cap / 8, width / 2, 8, 2), and scales (n_head_kv, cap)
    v: GpuHalfBuffer, // (n_head_kv, cap / 8, width / 16, 4, 16, 2), and scales (n_head_kv, cap)
    /// Integers of one head.
    scratch: Box<[u16]>, // (head_width), zeros after head_dim
    origin_logical: usize,
    origin_physical: usize,
    len: usize,
}

impl KvPlane {
    /// Allocates an empty plane, all rows zero, that begins at position 0.
    ///
    /// # Errors
    ///
    /// When the geometry has no rows or no representation, or the system has no memory.
    pub fn zeros(device: &Device, geometry: KvGeometry) -> Result<Self> {
        Self::over(geometry, |len| GpuHalfBuffer::zeros(device, len))
    }

    /// Allocates an empty plane of uninitialised rows, to be filled or [zeroed](Self::zero_rows_not_held) before it is live.
    pub(super) fn uninitialized(device: &Device, geometry: KvGeometry) -> Result<Self> {
        Self::over(geometry, |len| GpuHalfBuffer::uninitialized(device, len))
    }

    fn over(geometry: KvGeometry, allocate: impl Fn(usize) -> Result<GpuHalfBuffer>) -> Result<Self> {
        let n_elements = geometry.n_elements()?;
        Ok(Self {
            geometry,
            k: allocate(n_elements)?,
            v: allocate(n_elements)?,
            scratch: vec![0; geometry.head_width()].into_boxed_slice(),
            origin_logical: 0,
            origin_physical: 0,
            len: 0,
        })
    }

    /// The shape that was asked for.
    pub fn geometry(&self) -> KvGeometry {
        self.geometry
    }

    /// Rows: those asked for, rounded up to a multiple of [`KV_LANES`].
    pub fn capacity(&self) -> usize {
        self.geometry.capacity()
    }

    /// Bytes that the plane takes, K and V together, in whole pages.
    pub fn device_size_bytes(&self) -> u64 {
        (self.k.device_size_bytes() + self.v.device_size_bytes()) as u64
    }

    /// Positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First position still held.
    pub fn origin_logical(&self) -> usize {
        self.origin_logical
    }

    /// The row that [`origin_logical`](Self::origin_logical) sits in.
    pub fn origin_physical(&self) -> usize {
        self.origin_physical
    }

    /// The next position: one past the last that is held.
    pub fn end(&self) -> usize {
        self.origin_logical + self.len
    }

    /// The row in which `pos` sits, if it is held.
    pub fn row_of(&self, pos: usize) -> Option<usize> {
        let ahead = pos.checked_sub(self.origin_logical)?;
        (ahead < self.len).then(|| self.row_ahead(ahead))
    }

    /// Integers of K of one head, `(capacity / 8, head_width / 2, 8, 2)`: pairs of elements of eight rows side by side.
    pub fn keys(&self, head: usize) -> &[u16] {
        &self.k.as_bits()[self.geometry.head_range(head)]
    }

    /// Scales of K of one head, each the upper half of an f32. `(capacity)`
    pub fn key_scales(&self, head: usize) -> &[u16] {
        &self.k.as_bits()[self.geometry.scales_range(head)]
    }

    /// Integers of V of one head, `(capacity / 8, head_width / 16, 4, 16, 2)`: sixteen elements of two rows side by side.
    pub fn values(&self, head: usize) -> &[u16] {
        &self.v.as_bits()[self.geometry.head_range(head)]
    }

    /// Scales of V of one head, as [`key_scales`](Self::key_scales).
    pub fn value_scales(&self, head: usize) -> &[u16] {
        &self.v.as_bits()[self.geometry.scales_range(head)]
    }

    /// Writes the key and the value of a head in a row as numbers. `k, v (head_dim)`
    ///
    /// # Panics
    ///
    /// When there is no such row or head.
    pub fn read(&self, head: usize, row: usize, k: &mut [f32], v: &mut [f32]) {
        let scale = to_scale(self.key_scales(head)[row]);
        k.iter_mut().zip(self.k_row(head, row)).for_each(|(to, &x)| *to = f32::from(x.cast_signed()) * scale);
        let scale = to_scale(self.value_scales(head)[row]);
        v.iter_mut().zip(self.v_row(head, row)).for_each(|(to, &x)| *to = f32::from(x.cast_signed()) * scale);
    }

    /// K with its scales as bits.
    pub fn k_bits(&self) -> &[u16] {
        self.k.as_bits()
    }

    /// V with its scales as bits.
    pub fn v_bits(&self) -> &[u16] {
        self.v.as_bits()
    }

    /// Lets an empty plane begin at `pos`.
    ///
    /// # Errors
    ///
    /// [`Error::KvNotEmpty`].
    pub fn anchor(&mut self, pos: usize) -> Result<()> {
        self.check_empty()?;
        self.origin_logical = pos;
        self.origin_physical = pos % self.capacity();
        Ok(())
    }

    /// Appends rows of f32, `(n_rows, n_head_kv, head_dim)` each for K and V, rounded to the nearest integers times a scale.
    /// `pos` is the position of the first one, which is [`end`](Self::end).
    ///
    /// # Errors
    ///
    /// [`Error::KvGap`] when `pos` is not the next position, [`Error::KvRows`] when K and V are not the same whole number
    /// of rows.
    pub fn append(&mut self, pos: usize, k_rows: &[f32], v_rows: &[f32]) -> Result<()> {
        let KvGeometry { head_dim, .. } = self.geometry;
        let row_len = self.geometry.row_len();
        let n_rows = self.check_rows(pos, k_rows.len(), v_rows.len(), row_len)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        for i in self.make_room(n_rows)..n_rows {
            let row = self.row_ahead(pos + i - self.origin_logical);
            let (k_row, v_row) = (&k_rows[i * row_len..][..row_len], &v_rows[i * row_len..][..row_len]);
            for (head, (k, v)) in k_row.chunks_exact(head_dim).zip(v_row.chunks_exact(head_dim)).enumerate() {
                let scale = key_to_fixed(k, &mut scratch[..head_dim]);
                self.write_k(head, row, &scratch, scale);
                let scale = value_to_fixed(v, &mut scratch[..head_dim]);
                self.write_v(head, row, &scratch, scale);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Appends rows as [`export`](Self::export) gives them.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn install(&mut self, pos: usize, k_rows: &[u16], v_rows: &[u16]) -> Result<()> {
        let (head_dim, row_len) = (self.geometry.head_dim, self.geometry.exported_len());
        let n_rows = self.check_rows(pos, k_rows.len(), v_rows.len(), row_len)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        for i in self.make_room(n_rows)..n_rows {
            let row = self.row_ahead(pos + i - self.origin_logical);
            let (k_row, v_row) = (&k_rows[i * row_len..][..row_len], &v_rows[i * row_len..][..row_len]);
            for (head, (k, v)) in k_row.chunks_exact(head_dim + 1).zip(v_row.chunks_exact(head_dim + 1)).enumerate() {
                scratch[..head_dim].copy_from_slice(&k[..head_dim]);
                self.write_k(head, row, &scratch, k[head_dim]);
                scratch[..head_dim].copy_from_slice(&v[..head_dim]);
                self.write_v(head, row, &scratch, v[head_dim]);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Writes the rows from position `pos` on, `(n_rows, n_head_kv, head_dim + 1)` each for K and V: the integers of a head
    /// and its scale, of as many rows as the slices have room for.
    ///
    /// # Errors
    ///
    /// [`Error::KvNotHeld`] when not all of these positions are held, [`Error::KvRows`] when the slices are not the same
    /// whole number of rows.
    pub fn export(&self, pos: usize, k_rows: &mut [u16], v_rows: &mut [u16]) -> Result<()> {
        let (head_dim, row_len) = (self.geometry.head_dim, self.geometry.exported_len());
        let n_rows = n_rows(k_rows.len(), v_rows.len(), row_len)?;
        self.check_held(pos, pos.saturating_add(n_rows))?;
        let rows = k_rows.chunks_exact_mut(row_len).zip(v_rows.chunks_exact_mut(row_len));
        for (i, (k_row, v_row)) in rows.enumerate() {
            let row = self.row_ahead(pos + i - self.origin_logical);
            let heads = k_row.chunks_exact_mut(head_dim + 1).zip(v_row.chunks_exact_mut(head_dim + 1));
            for (head, (k, v)) in heads.enumerate() {
                let (k, v) = (k.split_at_mut(head_dim), v.split_at_mut(head_dim));
                k.0.iter_mut().zip(self.k_row(head, row)).for_each(|(to, &x)| *to = x);
                v.0.iter_mut().zip(self.v_row(head, row)).for_each(|(to, &x)| *to = x);
                k.1.copy_from_slice(&self.key_scales(head)[row..=row]);
                v.1.copy_from_slice(&self.value_scales(head)[row..=row]);
            }
        }
        Ok(())
    }

    /// Rolls back to hold only the positions before `pos`, the next one to append. The freed rows are zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::KvNotHeld`] when `pos` lies before the first position held or after the end.
    pub fn truncate(&mut self, pos: usize) -> Result<()> {
        self.check_held(pos, self.end())?;
        self.release_from(pos);
        Ok(())
    }

    /// Empties the plane, zeroes it, and lets it begin at position 0.
    pub fn reset(&mut self) {
        self.release_from(self.origin_logical);
        self.origin_logical = 0;
        self.origin_physical = 0;
    }

    /// Fills this empty plane with the rows of `other` from `from_pos` to its end. A batch behind a sliding window is staged
    /// so.
    ///
    /// # Errors
    ///
    /// As [`copy_from`](Self::copy_from).
    pub fn copy_tail_from(&mut self, other: &Self, from_pos: usize) -> Result<()> {
        self.copy_from(other, from_pos..other.end())
    }

    /// Fills this empty plane with the rows of `other` at `positions`. They sit at row `pos % capacity` of this plane, whose
    /// capacity may differ.
    ///
    /// # Errors
    ///
    /// [`Error::KvNotEmpty`], [`Error::KvShape`] when heads differ, [`Error::KvNotHeld`] when `other` doesn't hold all of
    /// these positions, [`Error::KvOverCapacity`] when there are more rows than this plane has.
    pub fn copy_from(&mut self, other: &Self, positions: Range<usize>) -> Result<()> {
        let Range { start, end } = positions;
        self.check_empty()?;
        self.check_same_heads(other)?;
        other.check_held(start, end)?;
        let n_rows = end - start;
        if n_rows > self.capacity() {
            return Err(Error::KvOverCapacity { n_rows, capacity: self.capacity() });
        }
        self.anchor(start)?;
        self.len = n_rows;

        let mut pos = start;
        while pos < end {
            // Up to the end of a lane block, in which neither ring wraps: capacities are whole blocks, and a position has
            // the same lane in both.
            let n = (KV_LANES - pos % KV_LANES).min(end - pos);
            let from_row = other.row_ahead(pos - other.origin_logical);
            let to_row = self.row_ahead(pos - self.origin_logical);
            self.copy_rows(to_row, other, from_row, n);
            pos += n;
        }
        Ok(())
    }

    /// Zeroes and forgets the positions from `pos` on, which is held or the end.
    fn release_from(&mut self, pos: usize) {
        let kept = pos - self.origin_logical;
        self.zero_rows(kept..self.len);
        self.len = kept;
    }

    /// Zeroes every row that holds no position.
    pub(super) fn zero_rows_not_held(&mut self) {
        self.zero_rows(self.len..self.capacity());
    }

    /// Zeroes the rows that lie so many rows after the origin's.
    fn zero_rows(&mut self, ahead: Range<usize>) {
        let Range { mut start, end } = ahead;
        while start < end {
            let row = self.row_ahead(start);
            // Up to the end of a lane block, in which the ring does not wrap.
            let n = (KV_LANES - row % KV_LANES).min(end - start);
            self.zero_lanes(row, n);
            start += n;
        }
    }

    /// Zeroes `n` rows of K and V that lie in one lane block.
    fn zero_lanes(&mut self, row: usize, n: usize) {
        let mut zeros = std::mem::take(&mut self.scratch);
        zeros.fill(0);
        for head in 0..self.geometry.n_head_kv {
            if n == KV_LANES {
                let (block, scales) = (self.geometry.block_range(head, row), self.geometry.scales_range(head));
                for bits in [self.k.as_bits_mut(), self.v.as_bits_mut()] {
                    bits[block.clone()].fill(0);
                    bits[scales.clone()][row..row + n].fill(0);
                }
            } else {
                for row in row..row + n {
                    self.write_k(head, row, &zeros, 0);
                    self.write_v(head, row, &zeros, 0);
                }
            }
        }
        self.scratch = zeros;
    }

    /// Copies `n` rows of `other` that lie in one lane block to rows of the same lanes.
    fn copy_rows(&mut self, to_row: usize, other: &Self, from_row: usize, n: usize) {
        for head in 0..self.geometry.n_head_kv {
            let (to, from) = (self.geometry.block_range(head, to_row), other.geometry.block_range(head, from_row));
            let (to_k, from_k) = (&mut self.k.as_bits_mut()[to.clone()], &other.k.as_bits()[from.clone()]);
            let (to_v, from_v) = (&mut self.v.as_bits_mut()[to], &other.v.as_bits()[from]);
            if n == KV_LANES {
                to_k.copy_from_slice(from_k);
                to_v.copy_from_slice(from_v);
            } else {
                for row in to_row..to_row + n {
                    key_lane_mut(to_k, row).zip(key_lane(from_k, row)).for_each(|(to, &from)| *to = from);
                    value_lane_mut(to_v, row).zip(value_lane(from_v, row)).for_each(|(to, &from)| *to = from);
                }
            }
            let to = self.geometry.scales_range(head).start + to_row;
            self.k.as_bits_mut()[to..to + n].copy_from_slice(&other.key_scales(head)[from_row..from_row + n]);
            self.v.as_bits_mut()[to..to + n].copy_from_slice(&other.value_scales(head)[from_row..from_row + n]);
        }
    }

    /// Counts `n_rows` more positions as held, dropping the oldest where there is no room. Returns how many of the new
    /// ones are dropped at once, because newer ones fill the ring.
    fn make_room(&mut self, n_rows: usize) -> usize {
        let capacity = self.capacity();
        let dropped = (self.len + n_rows).saturating_sub(capacity);
        let dropped_of_new = dropped.saturating_sub(self.len);
        self.origin_logical += dropped;
        self.origin_physical = (self.origin_physical + dropped) % capacity;
        self.len = self.len + n_rows - dropped;
        debug_assert_eq!(self.origin_physical, self.origin_logical % capacity, "rotation");
        dropped_of_new
    }

    /// The row `ahead` (less than the capacity) rows after the origin's.
    fn row_ahead(&self, ahead: usize) -> usize {
        let row = self.origin_physical + ahead;
        if row < self.capacity() { row } else { row - self.capacity() }
    }

    fn check_rows(&self, pos: usize, k_len: usize, v_len: usize, row_len: usize) -> Result<usize> {
        let n_rows = n_rows(k_len, v_len, row_len)?;
        if pos != self.end() || pos.checked_add(n_rows).is_none() {
            return Err(Error::KvGap { pos, end: self.end() });
        }
        Ok(n_rows)
    }

    fn check_held(&self, from: usize, to: usize) -> Result<()> {
        let (origin, end) = (self.origin_logical, self.end());
        if origin <= from && from <= to && to <= end {
            return Ok(());
        }
        Err(Error::KvNotHeld { from, to, origin, end })
    }

    fn check_empty(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::KvNotEmpty { origin: self.origin_logical, end: self.end() })
    }

    fn check_same_heads(&self, other: &Self) -> Result<()> {
        let KvGeometry { n_head_kv, head_dim, .. } = self.geometry;
        let KvGeometry { n_head_kv: found_n_head_kv, head_dim: found_head_dim, .. } = other.geometry;
        if (n_head_kv, head_dim) == (found_n_head_kv, found_head_dim) {
            return Ok(());
        }
        Err(Error::KvShape { found_n_head_kv, found_head_dim, n_head_kv, head_dim })
    }

    /// The integers of a head's key in a row, and what fills it up.
    fn k_row(&self, head: usize, row: usize) -> impl Iterator<Item = &u16> {
        key_lane(&self.k.as_bits()[self.geometry.block_range(head, row)], row)
    }

    /// The integers of a head's value in a row, and what fills it up.
    fn v_row(&self, head: usize, row: usize) -> impl Iterator<Item = &u16> {
        value_lane(&self.v.as_bits()[self.geometry.block_range(head, row)], row)
    }

    /// Writes a head's key. `integers (head_width)`
    fn write_k(&mut self, head: usize, row: usize, integers: &[u16], scale: u16) {
        let (block, scales) = (self.geometry.block_range(head, row), self.geometry.scales_range(head));
        let lane = row % KV_LANES;
        let block = self.k.as_bits_mut()[block].as_chunks_mut::<{ 2 * KV_LANES }>().0;
        for (to, pair) in block.iter_mut().zip(integers.as_chunks::<2>().0) {
            to.as_chunks_mut().0[lane] = *pair;
        }
        self.k.as_bits_mut()[scales][row] = scale;
    }

    /// Writes a head's value. `integers (head_width)`
    fn write_v(&mut self, head: usize, row: usize, integers: &[u16], scale: u16) {
        let (block, scales) = (self.geometry.block_range(head, row), self.geometry.scales_range(head));
        let (rows, lane) = (row % KV_LANES / 2, row % 2);
        let block = self.v.as_bits_mut()[block].as_chunks_mut::<{ KV_LANES * KV_COMPONENTS }>().0;
        for (to, integers) in block.iter_mut().zip(integers.as_chunks::<KV_COMPONENTS>().0) {
            let pairs = &mut to.as_chunks_mut::<2>().0.as_chunks_mut::<KV_COMPONENTS>().0[rows];
            for (pair, &x) in pairs.iter_mut().zip(integers) {
                pair[lane] = x;
            }
        }
        self.v.as_bits_mut()[scales][row] = scale;
    }
}

/// The key of a row in a block. `block (head_width / 2, 8, 2)`
fn key_lane(block: &[u16], row: usize) -> impl Iterator<Item = &u16> {
    block.chunks_exact(2 * KV_LANES).flat_map(move |pairs| &pairs[row % KV_LANES * 2..][..2])
}

fn key_lane_mut(block: &mut [u16], row: usize) -> impl Iterator<Item = &mut u16> {
    block.chunks_exact_mut(2 * KV_LANES).flat_map(move |pairs| &mut pairs[row % KV_LANES * 2..][..2])
}

/// The value of a row in a block. `block (head_width / 16, 4, 16, 2)`
fn value_lane(block: &[u16], row: usize) -> impl Iterator<Item = &u16> {
    let panels = block.chunks_exact(KV_LANES * KV_COMPONENTS);
    panels.flat_map(move |panel| {
        panel[row % KV_LANES / 2 * 2 * KV_COMPONENTS..][row % 2..].iter().step_by(2).take(KV_COMPONENTS)
    })
}

fn value_lane_mut(block: &mut [u16], row: usize) -> impl Iterator<Item = &mut u16> {
    let panels = block.chunks_exact_mut(KV_LANES * KV_COMPONENTS);
    panels.flat_map(move |panel| {
        panel[row % KV_LANES / 2 * 2 * KV_COMPONENTS..][row % 2..].iter_mut().step_by(2).take(KV_COMPONENTS)
    })
}

/// The rows that these lengths are.
fn n_rows(k_len: usize, v_len: usize, row_len: usize) -> Result<usize> {
    if k_len != v_len || !k_len.is_multiple_of(row_len) {
        return Err(Error::KvRows { k_len, v_len, row_len });
    }
    Ok(k_len / row_len)
}
