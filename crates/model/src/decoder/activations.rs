//! The buffers of a forward pass: their sizes, before and when they are allocated.

use muser_memory::{Device, GpuBuffer, KvGeometry};

use crate::rope::Frequencies;
use crate::spec::{LayerSpec, ModelSpec, RopeSpec};
use crate::{Error, Model};

/// Logits are computed for as many tokens at once as fit in this many bytes.
const LOGITS_BYTES: usize = 16 << 20;

/// What lies between the operations of a forward pass. `each (n_batch, its width)`
pub(super) struct Activations {
    pub residual: GpuBuffer,  // (n_batch, n_embd)
    pub q: GpuBuffer,         // (n_batch, n_head * head_dim)
    pub k: GpuBuffer,         // (n_batch, n_head_kv * head_dim)
    pub v: GpuBuffer,         // (n_batch, n_head_kv * head_dim)
    pub gate: GpuBuffer,      // (n_batch, n_head * head_dim)
    pub attention: GpuBuffer, // (n_batch, n_head * head_dim)
    pub branch: GpuBuffer,    // (n_batch, n_embd)
    pub hidden: GpuBuffer,    // (n_batch, n_ff)
    pub selected: GpuBuffer,  // (n_batch, n_embd)
    pub logits: GpuBuffer,    // (n_logit_rows, n_vocab)
    pub n_logit_rows: usize,
    pub rope: Vec<RopeTable>,
}

/// The angles of one rotation for the batch.
pub(super) struct RopeTable {
    pub frequencies: Frequencies,
    pub cos: GpuBuffer, // (n_batch, n_rot / 2)
    pub sin: GpuBuffer, // (n_batch, n_rot / 2)
}

impl Activations {
    pub(super) fn new(model: &Model, device: &Device, n_batch: usize) -> Result<Self, Error> {
        let spec = model.spec();
        let widest = |width: fn(&LayerSpec) -> usize| spec.layers.iter().map(width).max().unwrap_or(0);
        let rows = |width: usize| GpuBuffer::zeros(device, n_batch * width);
        let n_logit_rows = (LOGITS_BYTES / (4 * spec.n_vocab)).clamp(1, n_batch);
        let mut rope = Vec::new();
        for layer_rope in distinct_ropes(spec) {
            let frequencies = model.frequencies(layer_rope)?;
            let (cos, sin) = (rows(frequencies.n_pair())?, rows(frequencies.n_pair())?);
            rope.push(RopeTable { frequencies, cos, sin });
        }
        Ok(Self {
            residual: rows(spec.n_embd)?,
            q: rows(widest(LayerSpec::q_width))?,
            k: rows(widest(LayerSpec::kv_width))?,
            v: rows(widest(LayerSpec::kv_width))?,
            gate: rows(widest(|layer| if layer.gate { layer.q_width() } else { 0 }))?,
            attention: rows(widest(LayerSpec::q_width))?,
            branch: rows(spec.n_embd)?,
            hidden: rows(widest(|layer| layer.n_ff))?,
            selected: rows(spec.n_embd)?,
            logits: GpuBuffer::zeros(device, n_logit_rows * spec.n_vocab)?,
            n_logit_rows,
            rope,
        })
    }
}

/// Each rotation that some layer uses, once.
fn distinct_ropes(spec: &ModelSpec) -> Vec<RopeSpec> {
    let mut ropes: Vec<RopeSpec> = Vec::new();
    for rope in spec.layers.iter().filter_map(|layer| layer.rope) {
        if !ropes.contains(&rope) {
            ropes.push(rope);
        }
    }
    ropes
}

/// For each shape of layer whose window is shorter than the context, a plane with room for the window but the query itself,
/// and a batch.
pub(super) fn staging_geometry(spec: &ModelSpec, n_batch: usize, n_ctx: usize) -> Vec<KvGeometry> {
    let mut planes: Vec<KvGeometry> = Vec::new();
    let windows = spec.layers.iter().filter_map(|layer| layer.window.map(|window| (layer, window)));
    for (layer, window) in windows.filter(|&(_, window)| window < n_ctx) {
        let (n_head_kv, head_dim, rows) = (layer.n_head_kv, layer.head_dim, (window - 1 + n_batch).min(n_ctx));
        match planes.iter_mut().find(|plane| (plane.n_head_kv, plane.head_dim) == (n_head_kv, head_dim)) {
            Some(plane) => plane.rows = plane.rows.max(rows),
            None => planes.push(KvGeometry { n_head_kv, head_dim, rows }),
        }
    }
    planes
}
