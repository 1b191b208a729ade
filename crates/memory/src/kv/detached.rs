//! A second generation of planes: filled off to the side, swapped in whole.

use std::ops::Range;

use super::{KvGeometry, KvPlane};
use crate::{Device, Error, Result};

/// A set of planes being filled, layer by layer and tile by tile, while the live planes stay as they are.
///
/// The planes are allocated uninitialised, since every row is either installed or zeroed before anybody else sees it.
/// Dropping the generation at any point frees it and leaves no trace. [`complete`](Self::complete) is the only way out:
///
/// ```
/// # use muser_memory::{DetachedGeneration, Device, KvGeometry, KvPlane};
/// # let device = Device::host();
/// # let geometry = KvGeometry { n_head_kv: 1, head_dim: 2, rows: 8 };
/// let mut live = vec![KvPlane::zeros(&device, geometry)?];
///
/// let mut detached = DetachedGeneration::new(&device, [(geometry, 100..102)])?;
/// // Two integers and a scale of each.
/// detached.install(0, 100, &[1, 2, 0x3f80], &[3, 4, 0x3f80])?;
/// detached.install(0, 101, &[5, 6, 0x3f80], &[7, 8, 0x3f80])?;
/// let old = detached.complete()?.swap_into(&mut live);
///
/// assert_eq!((live[0].origin_logical(), live[0].end()), (100, 102));
/// assert!(old[0].is_empty());
/// # Ok::<(), muser_memory::Error>(())
/// ```
#[derive(Debug)]
pub struct DetachedGeneration {
    planes: Vec<KvPlane>,
    /// The positions that each plane is to hold; as many as planes.
    spans: Vec<Range<usize>>,
    /// The plane being filled. All before it are complete.
    layer: usize,
}

/// A generation whose planes hold all that they were to hold.
#[derive(Debug)]
pub struct CompleteGeneration {
    planes: Vec<KvPlane>,
}

impl DetachedGeneration {
    /// Allocates one plane for each layer, to hold the given positions.
    ///
    /// # Errors
    ///
    /// When a geometry holds nothing, a span has more positions than its plane has rows, or the system has no memory.
    pub fn new(device: &Device, layers: impl IntoIterator<Item = (KvGeometry, Range<usize>)>) -> Result<Self> {
        let (mut planes, mut spans) = (Vec::new(), Vec::new());
        for (geometry, span) in layers {
            let mut plane = KvPlane::uninitialized(device, geometry)?;
            if span.len() > plane.capacity() {
                return Err(Error::KvOverCapacity { n_rows: span.len(), capacity: plane.capacity() });
            }
            plane.anchor(span.start)?;
            planes.push(plane);
            spans.push(span.start..span.end.max(span.start));
        }
        let mut generation = Self { planes, spans, layer: 0 };
        generation.finish_full_layers();
        Ok(generation)
    }

    /// The layer and position that the next tile begins at; `None` when all are filled.
    pub fn cursor(&self) -> Option<(usize, usize)> {
        self.planes.get(self.layer).map(|plane| (self.layer, plane.end()))
    }

    /// Installs a tile: rows as [`KvPlane::export`] gives them, of one layer from position `pos` on.
    ///
    /// # Errors
    ///
    /// [`Error::KvOutOfOrder`] when the tile isn't the next one or passes the layer's last position, [`Error::KvRows`] when
    /// K and V are not the same whole number of rows. Nothing is installed then.
    pub fn install(&mut self, layer: usize, pos: usize, k_rows: &[u16], v_rows: &[u16]) -> Result<()> {
        let cursor = self.cursor();
        let Some(plane) = self.planes.get_mut(self.layer).filter(|_| cursor == Some((layer, pos))) else {
            return Err(Error::KvOutOfOrder { layer, pos, cursor });
        };
        let end = self.spans[layer].end;
        let n_rows = k_rows.len() / plane.geometry().exported_len();
        if n_rows > end - pos {
            return Err(Error::KvPastSpan { layer, pos, n_rows, end });
        }
        plane.install(pos, k_rows, v_rows)?;
        self.finish_full_layers();
        Ok(())
    }

    /// Hands over the planes, once every layer holds all of its positions.
    ///
    /// # Errors
    ///
    /// [`Error::KvIncomplete`] with the layer and position that are missing. The generation is dropped.
    pub fn complete(self) -> Result<CompleteGeneration> {
        match self.cursor() {
            None => Ok(CompleteGeneration { planes: self.planes }),
            Some((layer, pos)) => Err(Error::KvIncomplete { layer, pos, end: self.spans[layer].end }),
        }
    }

    /// Moves past the layers that hold all of their positions, zeroing what is left of their planes.
    fn finish_full_layers(&mut self) {
        while let Some(plane) = self.planes.get_mut(self.layer)
            && plane.end() == self.spans[self.layer].end
        {
            plane.zero_rows_not_held();
            self.layer += 1;
        }
    }
}

impl CompleteGeneration {
    /// Makes these planes the live ones and returns the old. Can't fail, so the live set is the old or the new one, never
    /// some of each.
    pub fn swap_into(self, live: &mut Vec<KvPlane>) -> Vec<KvPlane> {
        std::mem::replace(live, self.planes)
    }
}
