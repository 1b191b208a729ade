//! One layer's K and V.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::geometry::{KV_LANES, KvGeometry};
use crate::{Device, Error, GpuHalfBuffer, Result};

/// One layer's K and V: a ring of f16 rows, addressed by token position.
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
    k: GpuHalfBuffer,        // (n_head_kv, cap / 8, head_dim, 8)
    v: GpuHalfBuffer,        // (n_head_kv, cap, head_dim)
    row_scratch: Box<[f16]>, // (n_head_kv, head_dim)
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
            row_scratch: vec![f16::ZERO; geometry.row_len()].into_boxed_slice(),
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

    /// K as f16 bits, `(n_head_kv, capacity / 8, head_dim, 8)`: rows are interleaved by eights.
    pub fn k_bits(&self) -> &[u16] {
        self.k.as_bits()
    }

    /// V as f16 bits, `(n_head_kv, capacity, head_dim)`.
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

    /// Appends rows of f32, `(n_rows, n_head_kv, head_dim)` each for K and V, rounded to the nearest f16 (ties to even).
    /// `pos` is the position of the first one, which is [`end`](Self::end).
    ///
    /// # Errors
    ///
    /// [`Error::KvGap`] when `pos` is not the next position, [`Error::KvRows`] when K and V are not the same whole number
    /// of rows.
    pub fn append(&mut self, pos: usize, k_rows: &[f32], v_rows: &[f32]) -> Result<()> {
        let n_rows = self.check_rows(pos, k_rows.len(), v_rows.len())?;
        let row_len = self.geometry.row_len();
        for i in self.make_room(n_rows)..n_rows {
            let (row, source) = (self.row_ahead(pos + i - self.origin_logical), i * row_len..(i + 1) * row_len);
            self.row_scratch.convert_from_f32_slice(&k_rows[source.clone()]);
            write_k_row(&self.geometry, self.k.as_bits_mut(), row, self.row_scratch.reinterpret_cast());
            self.row_scratch.convert_from_f32_slice(&v_rows[source]);
            write_v_row(&self.geometry, self.v.as_bits_mut(), row, self.row_scratch.reinterpret_cast());
        }
        Ok(())
    }

    /// Appends rows of f16 bits as [`export`](Self::export) gives them.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn install(&mut self, pos: usize, k_rows: &[u16], v_rows: &[u16]) -> Result<()> {
        let n_rows = self.check_rows(pos, k_rows.len(), v_rows.len())?;
        let row_len = self.geometry.row_len();
        for i in self.make_room(n_rows)..n_rows {
            let (row, source) = (self.row_ahead(pos + i - self.origin_logical), i * row_len..(i + 1) * row_len);
            write_k_row(&self.geometry, self.k.as_bits_mut(), row, &k_rows[source.clone()]);
            write_v_row(&self.geometry, self.v.as_bits_mut(), row, &v_rows[source]);
        }
        Ok(())
    }

    /// Writes the rows from position `pos` on as f16 bits, `(n_rows, n_head_kv, head_dim)` each for K and V: as many as
    /// the slices have room for.
    ///
    /// # Errors
    ///
    /// [`Error::KvNotHeld`] when not all of these positions are held, [`Error::KvRows`] when the slices are not the same
    /// whole number of rows.
    pub fn export(&self, pos: usize, k_rows: &mut [u16], v_rows: &mut [u16]) -> Result<()> {
        let n_rows = self.n_rows(k_rows.len(), v_rows.len())?;
        self.check_held(pos, pos.saturating_add(n_rows))?;
        let row_len = self.geometry.row_len();
        let rows = k_rows.chunks_exact_mut(row_len).zip(v_rows.chunks_exact_mut(row_len));
        for (i, (k_row, v_row)) in rows.enumerate() {
            let row = self.row_ahead(pos + i - self.origin_logical);
            read_k_row(&self.geometry, self.k.as_bits(), row, k_row);
            read_v_row(&self.geometry, self.v.as_bits(), row, v_row);
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
            zero_lanes(&self.geometry, self.k.as_bits_mut(), self.v.as_bits_mut(), row, n);
            start += n;
        }
    }

    /// Copies `n` rows of `other` that lie in one lane block to rows of the same lanes.
    fn copy_rows(&mut self, to_row: usize, other: &Self, from_row: usize, n: usize) {
        let head_dim = self.geometry.head_dim;
        for head in 0..self.geometry.n_head_kv {
            let to = self.geometry.k_start(head, to_row);
            let from = other.geometry.k_start(head, from_row);
            if n == KV_LANES {
                let block = head_dim * KV_LANES;
                self.k.as_bits_mut()[to..to + block].copy_from_slice(&other.k.as_bits()[from..from + block]);
            } else {
                let to_lanes = self.k.as_bits_mut()[to..].chunks_mut(KV_LANES);
                let from_lanes = other.k.as_bits()[from..].chunks(KV_LANES);
                for (to, from) in to_lanes.zip(from_lanes).take(head_dim) {
                    to[..n].copy_from_slice(&from[..n]);
                }
            }
            let to = self.geometry.v_range(head, to_row, n);
            let from = other.geometry.v_range(head, from_row, n);
            self.v.as_bits_mut()[to].copy_from_slice(&other.v.as_bits()[from]);
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

    fn n_rows(&self, k_len: usize, v_len: usize) -> Result<usize> {
        let row_len = self.geometry.row_len();
        if k_len != v_len || !k_len.is_multiple_of(row_len) {
            return Err(Error::KvRows { k_len, v_len, row_len });
        }
        Ok(k_len / row_len)
    }

    fn check_rows(&self, pos: usize, k_len: usize, v_len: usize) -> Result<usize> {
        let n_rows = self.n_rows(k_len, v_len)?;
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
}

/// Scatters one row `(n_head_kv, head_dim)` over its lane of K.
fn write_k_row(geometry: &KvGeometry, k: &mut [u16], row: usize, source: &[u16]) {
    for (head, source) in source.chunks_exact(geometry.head_dim).enumerate() {
        let lane = k[geometry.k_start(head, row)..].iter_mut().step_by(KV_LANES);
        lane.zip(source).for_each(|(to, &from)| *to = from);
    }
}

/// Gathers one row `(n_head_kv, head_dim)` from its lane of K.
fn read_k_row(geometry: &KvGeometry, k: &[u16], row: usize, target: &mut [u16]) {
    for (head, target) in target.chunks_exact_mut(geometry.head_dim).enumerate() {
        let lane = k[geometry.k_start(head, row)..].iter().step_by(KV_LANES);
        target.iter_mut().zip(lane).for_each(|(to, &from)| *to = from);
    }
}

/// Writes one row `(n_head_kv, head_dim)` of V.
fn write_v_row(geometry: &KvGeometry, v: &mut [u16], row: usize, source: &[u16]) {
    for (head, source) in source.chunks_exact(geometry.head_dim).enumerate() {
        v[geometry.v_range(head, row, 1)].copy_from_slice(source);
    }
}

/// Reads one row `(n_head_kv, head_dim)` of V.
fn read_v_row(geometry: &KvGeometry, v: &[u16], row: usize, target: &mut [u16]) {
    for (head, target) in target.chunks_exact_mut(geometry.head_dim).enumerate() {
        target.copy_from_slice(&v[geometry.v_range(head, row, 1)]);
    }
}

/// Zeroes `n` rows of K and V that lie in one lane block.
fn zero_lanes(geometry: &KvGeometry, k: &mut [u16], v: &mut [u16], row: usize, n: usize) {
    for head in 0..geometry.n_head_kv {
        let block = &mut k[geometry.k_start(head, row)..];
        if n == KV_LANES {
            block[..geometry.head_dim * KV_LANES].fill(0);
        } else {
            block.chunks_mut(KV_LANES).take(geometry.head_dim).for_each(|lanes| lanes[..n].fill(0));
        }
        v[geometry.v_range(head, row, n)].fill(0);
    }
}
