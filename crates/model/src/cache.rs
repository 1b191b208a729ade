//! The keys and values of one sequence, layer by layer.

use muser_memory::{Device, KvGeometry, KvLayer, KvPlane};

use crate::{Error, ModelSpec};

/// One sequence's keys and values: a [`KvPlane`] for each layer.
///
/// A global layer holds every position up to the context's end; a sliding layer holds its window.
#[derive(Debug)]
pub struct KvCache {
    planes: Vec<KvPlane>,
    /// Each layer's window.
    windows: Vec<Option<usize>>,
    n_ctx: usize,
    /// Position of the first token of the batch in progress, or of the last one.
    begun: usize,
    broken: bool,
}

impl KvCache {
    /// An empty cache for sequences of up to `n_ctx` tokens.
    ///
    /// # Errors
    /// When the memory can't be had.
    pub fn new(spec: &ModelSpec, device: &Device, n_ctx: usize) -> Result<Self, Error> {
        let planes = Self::layers(spec).map(|layer| KvPlane::zeros(device, layer.geometry(n_ctx)));
        let windows = spec.layers.iter().map(|layer| layer.window).collect();
        Ok(Self { planes: planes.collect::<Result<_, _>>()?, windows, n_ctx, begun: 0, broken: false })
    }

    /// The KV shape of each layer, first to last, whatever the context.
    pub fn layers(spec: &ModelSpec) -> impl Iterator<Item = KvLayer> {
        spec.layers.iter().map(|layer| KvLayer {
            n_head_kv: layer.n_head_kv,
            head_dim: layer.head_dim,
            max_rows: layer.window,
        })
    }

    /// Longest sequence it holds, in tokens.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Position of the next token, which is the number of tokens so far.
    pub fn end(&self) -> usize {
        self.planes.first().map_or(0, KvPlane::end)
    }

    /// Forgets all tokens.
    pub fn clear(&mut self) {
        self.planes.iter_mut().for_each(KvPlane::reset);
        self.broken = false;
    }

    /// Forgets the tokens from position `pos` on, if every layer still holds what the token at `pos` sees.
    ///
    /// A sliding layer has overwritten rows that left its window, so it can't go back far once it has wrapped. Returns
    /// whether the tokens were forgotten; if not, nothing has changed.
    ///
    /// # Errors
    /// When the last forward pass failed in the middle.
    pub fn truncate(&mut self, pos: usize) -> Result<bool, Error> {
        if self.broken {
            return Err(Error::BrokenCache);
        }
        if !self.reaches(pos) {
            return Ok(false);
        }
        for plane in &mut self.planes {
            plane.truncate(pos)?;
        }
        Ok(true)
    }

    /// Whether a sequence can go on from position `pos`: there are as many tokens, and every layer still holds what the
    /// token at `pos` sees.
    pub fn reaches(&self, pos: usize) -> bool {
        !self.broken && (self.reach()..=self.end()).contains(&pos)
    }

    /// The first position that a sequence can go on from: 0, unless a sliding layer has overwritten rows.
    pub fn reach(&self) -> usize {
        let reach = |(plane, window): (&KvPlane, &Option<usize>)| match (plane.origin_logical(), window) {
            (0, _) => 0,
            (origin, Some(window)) => origin + window - 1,
            // A global layer holds all, or the cache would be full.
            (_, None) => self.end(),
        };
        self.planes.iter().zip(&self.windows).map(reach).max().unwrap_or(0)
    }

    /// Becomes a copy of the first `pos` tokens of `other`, whose context may be longer or shorter, if
    /// [`other` reaches](Self::reaches) that far. Going on from here gives the bits that going on from there would.
    /// Returns whether it was copied; if not, nothing has changed.
    ///
    /// # Errors
    /// When `other` is another model's, or the context is too short. Nothing has changed then.
    pub fn copy_from(&mut self, other: &Self, pos: usize) -> Result<bool, Error> {
        let shape = |plane: &KvPlane| (plane.geometry().n_head_kv, plane.geometry().head_dim);
        let is_alike = self.windows == other.windows
            && self.planes.iter().zip(&other.planes).all(|(plane, other)| shape(plane) == shape(other));
        if !is_alike {
            return Err(Error::ForeignCache);
        }
        if pos > self.n_ctx {
            return Err(Error::ContextFull { held: 0, more: pos, n_ctx: self.n_ctx });
        }
        if !other.reaches(pos) {
            return Ok(false);
        }
        self.clear();
        self.broken = true;
        for (plane, other) in self.planes.iter_mut().zip(&other.planes) {
            let first = other.origin_logical().max(pos.saturating_sub(plane.capacity()));
            plane.copy_from(other, first..pos)?;
        }
        self.broken = false;
        Ok(true)
    }

    /// Bytes that a cache for `n_ctx` tokens takes.
    ///
    /// # Errors
    /// When a size has no representation.
    pub fn planned_bytes(spec: &ModelSpec, n_ctx: usize) -> Result<u64, Error> {
        let mut size_bytes = 0u64;
        for layer in Self::layers(spec) {
            size_bytes = size_bytes.saturating_add(layer.geometry(n_ctx).size_bytes()?);
        }
        Ok(size_bytes)
    }

    /// Bytes that it takes, in whole pages.
    pub fn size_bytes(&self) -> u64 {
        self.planes.iter().map(KvPlane::device_size_bytes).sum()
    }

    /// Bytes of the keys and values that it holds.
    pub fn held_bytes(&self) -> u64 {
        self.planes.iter().map(|plane| (plane.len() * plane.geometry().row_size_bytes()) as u64).sum()
    }

    /// The planes, first layer to last.
    pub fn planes(&self) -> &[KvPlane] {
        &self.planes
    }

    /// Whether it was made for a model of this shape.
    pub(crate) fn is_for(&self, spec: &ModelSpec) -> bool {
        self.planes.len() == spec.layers.len()
            && spec.layers.iter().zip(&self.planes).zip(&self.windows).all(|((layer, plane), window)| {
                let KvGeometry { n_head_kv, head_dim, .. } = plane.geometry();
                (n_head_kv, head_dim, *window) == (layer.n_head_kv, layer.head_dim, layer.window)
            })
    }

    /// Checks that the cache is whole and has room for `n` more tokens.
    pub(crate) fn check_room(&self, n: usize) -> Result<(), Error> {
        if self.broken {
            return Err(Error::BrokenCache);
        }
        let end = self.end();
        if n > self.n_ctx - end {
            return Err(Error::ContextFull { held: end, more: n, n_ctx: self.n_ctx });
        }
        Ok(())
    }

    /// Marks the cache as being written until [`finish`](Self::finish).
    ///
    /// A forward pass that fails in the middle has appended to some layers only. The mark stays, so that such a cache is
    /// refused from then on instead of giving text from torn state.
    pub(crate) fn begin(&mut self) {
        (self.begun, self.broken) = (self.end(), true);
    }

    pub(crate) fn finish(&mut self) {
        self.broken = false;
    }

    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    pub(crate) fn plane(&self, layer: usize) -> &KvPlane {
        &self.planes[layer]
    }

    pub(crate) fn plane_mut(&mut self, layer: usize) -> &mut KvPlane {
        &mut self.planes[layer]
    }
}
