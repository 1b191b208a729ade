//! The buffers of a forward pass: their sizes, before and when they are allocated.

use muser_memory::{Device, GpuBuffer, KvGeometry};

use crate::rope::Frequencies;
use crate::spec::{LayerSpec, ModelSpec, RopeSpec};
use crate::{Error, Model};

/// Logits are computed for as many tokens at once as fit in this many bytes.
const LOGITS_BYTES: usize = 16 << 20;

/// What lies between the operations of a forward pass.
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

/// Widths of the buffers: each as wide as the widest layer needs.
struct Widths {
    n_embd: usize,
    q: usize,
    kv: usize,
    gate: usize,
    hidden: usize,
}

impl Widths {
    fn of(spec: &ModelSpec) -> Self {
        let widest = |width: fn(&LayerSpec) -> usize| spec.layers.iter().map(width).max().unwrap_or(0);
        Self {
            n_embd: spec.n_embd,
            q: widest(LayerSpec::q_width),
            kv: widest(LayerSpec::kv_width),
            gate: widest(|layer| if layer.gate { layer.q_width() } else { 0 }),
            hidden: widest(|layer| layer.n_ff),
        }
    }
}

impl Activations {
    pub(super) fn new(model: &Model, device: &Device, n_batch: usize) -> Result<Self, Error> {
        let spec = model.spec();
        let Widths { n_embd, q, kv, gate, hidden } = Widths::of(spec);
        let rows = |width: usize| GpuBuffer::zeros(device, n_batch.saturating_mul(width));
        let n_logit_rows = n_logit_rows(spec, n_batch);
        let mut rope = Vec::new();
        for layer_rope in distinct_ropes(spec) {
            let frequencies = model.frequencies(layer_rope)?;
            let (cos, sin) = (rows(frequencies.n_pair())?, rows(frequencies.n_pair())?);
            rope.push(RopeTable { frequencies, cos, sin });
        }
        Ok(Self {
            residual: rows(n_embd)?,
            q: rows(q)?,
            k: rows(kv)?,
            v: rows(kv)?,
            gate: rows(gate)?,
            attention: rows(q)?,
            branch: rows(n_embd)?,
            hidden: rows(hidden)?,
            selected: rows(n_embd)?,
            logits: GpuBuffer::zeros(device, n_logit_rows.saturating_mul(spec.n_vocab))?,
            n_logit_rows,
            rope,
        })
    }
}

/// Bytes of [`Activations`] for a batch of `n_batch` tokens.
pub(super) fn activation_bytes(spec: &ModelSpec, n_batch: usize) -> u64 {
    let Widths { n_embd, q, kv, gate, hidden } = Widths::of(spec);
    let rope: usize = distinct_ropes(spec).iter().map(|rope| rope.n_rot).sum();
    let row = 3 * n_embd + 2 * q + 2 * kv + gate + hidden + rope;
    let logits = n_logit_rows(spec, n_batch) as u64 * spec.n_vocab as u64;
    4 * (n_batch as u64).saturating_mul(row as u64).saturating_add(logits)
}

fn n_logit_rows(spec: &ModelSpec, n_batch: usize) -> usize {
    (LOGITS_BYTES / (4 * spec.n_vocab)).clamp(1, n_batch)
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
