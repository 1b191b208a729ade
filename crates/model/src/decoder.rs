//! The one decoder: runs any list of layers over a batch of tokens.

mod activations;
mod output;

use std::sync::Arc;

use muser_memory::{Arena, Device, KvGeometry, KvPlane};
use muser_ops::{
    Add, Append, Attention, AttentionSpan, Backend, Checked, Embed, Gated, Gather, Heads, Norm, NormRows, Product,
    Project, Rope, Rows, RowsMut,
};

use crate::spec::{LayerSpec, RopeSpec};
use crate::taps::{Tap, TapPoint, TapSink};
use crate::weights::{LayerWeights, VectorRef};
use crate::{Error, KvCache, Model, ModelSpec};
use activations::{Activations, RopeTable};

/// Which tokens of a span are selected for [`Decoder::logits`] or [`Decoder::hidden`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitRows {
    /// None: the span only fills the cache.
    None,
    /// The last one.
    Last,
    /// All from this index of the span on, which is less than its length.
    From(usize),
}

/// A run of tokens of one sequence.
pub struct Span<'a> {
    /// The tokens, which follow those in the cache.
    pub tokens: &'a [u32],
    /// The sequence's keys and values.
    pub cache: &'a mut KvCache,
    /// Which of the tokens are selected.
    pub logits: LogitRows,
}

/// Bytes that a decoder allocates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderMemory {
    /// Activations and logits of a batch.
    pub activation_bytes: u64,
    /// Planes in which a window and a batch after it are laid out.
    pub staging_bytes: u64,
}

/// Runs a model over batches of at most `n_batch` tokens.
///
/// The result for a token depends on its sequence only: not on how the sequence was cut into batches, nor on what else was
/// in the batch.
pub struct Decoder {
    model: Arc<Model>,
    n_batch: usize,
    n_ctx: usize,
    activations: Activations,
    /// For each shape of sliding layer, a plane that holds a window and a whole batch after it.
    staging: Vec<(KvGeometry, KvPlane)>,
    tokens: Vec<u32>,
    /// Span and position of each token that gets logits, in the order of the batch.
    selected: Vec<(usize, usize)>,
    selected_rows: Vec<usize>,
}

impl Decoder {
    /// A decoder for batches of up to `n_batch` tokens and caches of up to `n_ctx`, whose buffers live on `device`.
    ///
    /// # Errors
    /// When the memory can't be had, or `n_batch` is zero.
    pub fn new(model: Arc<Model>, device: &Device, n_batch: usize, n_ctx: usize) -> Result<Self, Error> {
        if n_batch == 0 {
            return Err(Error::EmptyBatch);
        }
        let activations = Activations::new(&model, device, n_batch)?;
        let mut staging: Vec<(KvGeometry, KvPlane)> = Vec::new();
        for geometry in activations::staging_geometry(model.spec(), n_batch, n_ctx) {
            staging.push((geometry, KvPlane::zeros(device, geometry)?));
        }
        Ok(Self {
            model,
            n_batch,
            n_ctx,
            activations,
            staging,
            tokens: Vec::new(),
            selected: Vec::new(),
            selected_rows: Vec::new(),
        })
    }

    /// Bytes that [`new`](Self::new) allocates for a model of this spec.
    ///
    /// # Errors
    /// When a size has no representation.
    pub fn memory(spec: &ModelSpec, n_batch: usize, n_ctx: usize) -> Result<DecoderMemory, Error> {
        let mut staging_bytes = 0u64;
        for geometry in activations::staging_geometry(spec, n_batch, n_ctx) {
            staging_bytes = staging_bytes.saturating_add(geometry.size_bytes()?);
        }
        Ok(DecoderMemory { activation_bytes: activations::activation_bytes(spec, n_batch), staging_bytes })
    }

    /// Most tokens in one batch.
    pub fn n_batch(&self) -> usize {
        self.n_batch
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Runs the model over the spans' tokens and appends them to their caches. Returns how many tokens were selected for
    /// [`logits`](Self::logits) and [`hidden`](Self::hidden).
    ///
    /// # Errors
    /// When the batch is empty or too large, a token is not in the vocabulary, logits are asked of a token that is not
    /// there, or a cache has no room, is another model's or longer than the decoder's context: then nothing has changed.
    /// When the backend fails: then the caches are refused afterwards, until they are cleared. In both cases no token is
    /// selected.
    pub fn forward(
        &mut self,
        backend: &mut dyn Backend,
        spans: &mut [Span<'_>],
        taps: Option<&mut dyn TapSink>,
    ) -> Result<usize, Error> {
        self.selected.clear();
        self.check(spans)?;
        self.begin(spans);
        self.run(backend, spans, taps).inspect_err(|_| self.selected.clear())?;
        spans.iter_mut().for_each(|span| span.cache.finish());
        Ok(self.selected.len())
    }

    /// All layers, up to the rows that get logits.
    fn run(
        &mut self,
        backend: &mut dyn Backend,
        spans: &mut [Span<'_>],
        taps: Option<&mut dyn TapSink>,
    ) -> Result<(), Error> {
        let model = Arc::clone(&self.model);
        let (spec, arena) = (model.spec(), model.arena());
        let n = self.tokens.len();
        let mut pass = Pass { backend, spans, taps, arena, n, n_embd: spec.n_embd };

        pass.backend.embed(Checked::new(Embed {
            tokens: &self.tokens,
            table: model.weights().embedding.bind(arena)?,
            scale: spec.embedding.scale,
            norm: spec.embedding.norm_eps.map(|eps| Norm { weight: None, eps }),
            out: RowsMut::new(&mut self.activations.residual, n, spec.n_embd)?,
        })?)?;
        pass.record(Tap::Embd, None, Rows::new(&self.activations.residual, n, spec.n_embd)?)?;
        for (index, (spec, weights)) in spec.layers.iter().zip(&model.weights().layers).enumerate() {
            let layer = Layer { index, spec, weights };
            self.attention_block(&mut pass, layer)?;
            self.feed_forward_block(&mut pass, layer)?;
        }
        if !self.selected.is_empty() {
            pass.backend.gather(Checked::new(Gather {
                x: Rows::new(&self.activations.residual, n, spec.n_embd)?,
                rows: &self.selected_rows,
                out: RowsMut::new(&mut self.activations.selected, self.selected.len(), spec.n_embd)?,
            })?)?;
        }
        Ok(pass.backend.synchronize()?)
    }

    /// Checks everything that can be wrong with a batch.
    fn check(&self, spans: &[Span<'_>]) -> Result<(), Error> {
        let spec = self.model.spec();
        let n = spans.iter().map(|span| span.tokens.len()).sum();
        if n == 0 || spans.iter().any(|span| span.tokens.is_empty()) {
            return Err(Error::EmptyBatch);
        }
        if n > self.n_batch {
            return Err(Error::BatchTooLarge { n, n_batch: self.n_batch });
        }
        for Span { tokens, cache, logits } in spans {
            if let Some(&token) = tokens.iter().find(|&&token| token as usize >= spec.n_vocab) {
                return Err(Error::UnknownToken { token, n_vocab: spec.n_vocab });
            }
            if let LogitRows::From(index) = *logits
                && index >= tokens.len()
            {
                return Err(Error::LogitsPastSpan { index, n: tokens.len() });
            }
            if !cache.is_for(spec) {
                return Err(Error::ForeignCache);
            }
            if cache.n_ctx() > self.n_ctx {
                return Err(Error::CacheTooLong { n_ctx: cache.n_ctx(), max: self.n_ctx });
            }
            cache.check_room(tokens.len())?;
        }
        Ok(())
    }

    /// Lays out the tokens, selected rows and rotary angles of a checked batch, and claims its caches.
    fn begin(&mut self, spans: &mut [Span<'_>]) {
        self.tokens.clear();
        self.selected_rows.clear();
        for (index, span) in spans.iter().enumerate() {
            let first_row = self.tokens.len();
            let first_selected = match span.logits {
                LogitRows::None => span.tokens.len(),
                LogitRows::Last => span.tokens.len() - 1,
                LogitRows::From(first) => first,
            };
            for offset in first_selected..span.tokens.len() {
                self.selected.push((index, span.cache.end() + offset));
                self.selected_rows.push(first_row + offset);
            }
            self.tokens.extend_from_slice(span.tokens);
        }
        for table in &mut self.activations.rope {
            let positions = spans.iter().flat_map(|span| span.cache.end()..span.cache.end() + span.tokens.len());
            table.frequencies.fill(positions, &mut table.cos, &mut table.sin);
        }
        spans.iter_mut().for_each(|span| span.cache.begin());
    }

    /// `residual += post_norm(W_o · attention(norm(residual)))`.
    fn attention_block(&mut self, pass: &mut Pass<'_, '_, '_>, layer: Layer<'_>) -> Result<(), Error> {
        let Layer { spec, weights, .. } = layer;
        let (arena, n, n_embd) = (pass.arena, pass.n, pass.n_embd);
        let (q_width, kv_width) = (spec.q_width(), spec.kv_width());
        let a = &mut self.activations;
        let norm = Norm { weight: Some(weights.attn_norm.bind(arena)?), eps: spec.eps };
        if pass.taps.is_some() {
            // The products below norm their input themselves; for the record it is normed once more.
            let x = Rows::new(&a.residual, n, n_embd)?;
            pass.backend.norm(Checked::new(NormRows { x, norm, out: RowsMut::new(&mut a.branch, n, n_embd)? })?)?;
            pass.record(Tap::AttnNorm, Some(layer.index), Rows::new(&a.branch, n, n_embd)?)?;
        }

        let mut products = Vec::with_capacity(4);
        products.push(Product { weight: weights.q.bind(arena)?, out: RowsMut::new(&mut a.q, n, q_width)? });
        products.push(Product { weight: weights.k.bind(arena)?, out: RowsMut::new(&mut a.k, n, kv_width)? });
        products.push(Product { weight: weights.v.bind(arena)?, out: RowsMut::new(&mut a.v, n, kv_width)? });
        if let Some(gate) = &weights.gate {
            products.push(Product { weight: gate.bind(arena)?, out: RowsMut::new(&mut a.gate, n, q_width)? });
        }
        let x = Rows::new(&a.residual, n, n_embd)?;
        pass.backend.project(Checked::new(Project { x, norm: Some(norm), products: &mut products })?)?;

        let rope = spec.rope.map(|rope| rope_rows(&a.rope, &rope, n)).transpose()?;
        for (x, width, norm) in [(&mut a.q, q_width, &weights.q_norm), (&mut a.k, kv_width, &weights.k_norm)] {
            let weight = norm.as_ref().map(|norm| norm.bind(arena)).transpose()?;
            if weight.is_none() && rope.is_none() {
                continue;
            }
            let norm = weight.map(|weight| Norm { weight: Some(weight), eps: spec.eps });
            let x = RowsMut::new(x, n, width)?;
            pass.backend.heads(Checked::new(Heads { x, head_dim: spec.head_dim, norm, rope })?)?;
        }
        for (tap, buffer, width) in [(Tap::Q, &a.q, q_width), (Tap::K, &a.k, kv_width), (Tap::V, &a.v, kv_width)] {
            pass.record(tap, Some(layer.index), Rows::new(buffer, n, width)?)?;
        }

        self.attend(pass, layer)?;

        let a = &mut self.activations;
        let out = RowsMut::new(&mut a.branch, n, n_embd)?;
        pass.backend.project(Checked::new(Project {
            x: Rows::new(&a.attention, n, q_width)?,
            norm: None,
            products: &mut [Product { weight: weights.attn_output.bind(arena)?, out }],
        })?)?;
        pass.record(Tap::AttnOut, Some(layer.index), Rows::new(&a.branch, n, n_embd)?)?;
        self.join(pass, spec, weights.post_attention_norm.as_ref())
    }

    /// Appends keys and values to the caches, and attends to them.
    ///
    /// A sliding layer's plane holds one window. Appending a batch to it may overwrite rows that the batch's first tokens
    /// still see; then the window and the batch are laid out in a staging plane, which is attended to instead.
    fn attend(&mut self, pass: &mut Pass<'_, '_, '_>, layer: Layer<'_>) -> Result<(), Error> {
        let Layer { index, spec, .. } = layer;
        let (kv_width, q_width) = (spec.kv_width(), spec.q_width());
        let a = &mut self.activations;
        let (k, v) = (Rows::new(&a.k, pass.n, kv_width)?, Rows::new(&a.v, pass.n, kv_width)?);
        let q = Rows::new(&a.q, pass.n, q_width)?;
        let gate = if spec.gate { Some(Rows::new(&a.gate, pass.n, q_width)?) } else { None };

        // One call attends for as many spans as possible: a run of those that fit their planes, or one that does not.
        let (mut first_row, mut first_span) = (0, 0);
        while first_span < pass.spans.len() {
            let mut rows = 0;
            let mut attended: Vec<AttentionSpan<'_>> = Vec::with_capacity(1);
            let spans = &mut pass.spans[first_span..];
            let fitting =
                spans.iter().take_while(|span| fits(spec, span.cache.plane(index), span.tokens.len())).count();
            if fitting > 0 {
                for span in &mut spans[..fitting] {
                    let (plane, n) = (span.cache.plane_mut(index), span.tokens.len());
                    let (pos, row) = (plane.end(), first_row + rows);
                    let (k, v) = (k.slice(row, n)?, v.slice(row, n)?);
                    pass.backend.append(Checked::new(Append { plane, pos, k, v })?)?;
                    rows += n;
                }
                attended.extend(spans[..fitting].iter().map(|span| {
                    let (plane, n) = (span.cache.plane(index), span.tokens.len());
                    AttentionSpan { n, pos: plane.end() - n, plane }
                }));
            } else {
                let (plane, n) = (spans[0].cache.plane_mut(index), spans[0].tokens.len());
                let pos = plane.end();
                let (k, v) = (k.slice(first_row, n)?, v.slice(first_row, n)?);
                let window = spec.window.expect("only a sliding layer's plane can be too short");
                let staging = staging_plane(&mut self.staging, spec);
                staging.reset();
                staging.copy_tail_from(plane, (pos + 1).saturating_sub(window))?;
                pass.backend.append(Checked::new(Append { plane: staging, pos, k, v })?)?;
                pass.backend.append(Checked::new(Append { plane, pos, k, v })?)?;
                attended.push(AttentionSpan { n, pos, plane: staging });
                rows = n;
            }
            pass.backend.attention(Checked::new(Attention {
                q: q.slice(first_row, rows)?,
                spans: &attended,
                n_head: spec.n_head,
                window: spec.window,
                scale: spec.attn_scale,
                soft_cap: spec.attn_cap,
                gate: gate.map(|gate| gate.slice(first_row, rows)).transpose()?,
                out: RowsMut::new(&mut a.attention, pass.n, q_width)?.slice(first_row, rows)?,
            })?)?;
            first_row += rows;
            first_span += attended.len();
        }
        Ok(())
    }

    /// `residual += post_norm(W_down · (activation(W_gate · x) * (W_up · x)))` with `x = norm(residual)`.
    fn feed_forward_block(&mut self, pass: &mut Pass<'_, '_, '_>, layer: Layer<'_>) -> Result<(), Error> {
        let Layer { index, spec, weights } = layer;
        let (arena, n, n_embd) = (pass.arena, pass.n, pass.n_embd);
        let a = &mut self.activations;
        pass.backend.gated(Checked::new(Gated {
            x: Rows::new(&a.residual, n, n_embd)?,
            norm: Some(Norm { weight: Some(weights.ffn_norm.bind(arena)?), eps: spec.eps }),
            gate: weights.ffn_gate.bind(arena)?,
            up: weights.ffn_up.bind(arena)?,
            activation: spec.activation,
            out: RowsMut::new(&mut a.hidden, n, spec.n_ff)?,
        })?)?;
        let out = RowsMut::new(&mut a.branch, n, n_embd)?;
        pass.backend.project(Checked::new(Project {
            x: Rows::new(&a.hidden, n, spec.n_ff)?,
            norm: None,
            products: &mut [Product { weight: weights.ffn_down.bind(arena)?, out }],
        })?)?;
        pass.record(Tap::FfnOut, Some(index), Rows::new(&a.branch, n, n_embd)?)?;
        self.join(pass, spec, weights.post_ffw_norm.as_ref())?;
        pass.record(Tap::LOut, Some(index), Rows::new(&self.activations.residual, n, n_embd)?)
    }

    /// `residual += post_norm(branch)`.
    fn join(
        &mut self,
        pass: &mut Pass<'_, '_, '_>,
        spec: &LayerSpec,
        post_norm: Option<&VectorRef>,
    ) -> Result<(), Error> {
        let weight = post_norm.map(|norm| norm.bind(pass.arena)).transpose()?;
        let norm = spec.post_norm_eps.zip(weight).map(|(eps, weight)| Norm { weight: Some(weight), eps });
        let x = Rows::new(&self.activations.branch, pass.n, pass.n_embd)?;
        let residual = RowsMut::new(&mut self.activations.residual, pass.n, pass.n_embd)?;
        Ok(pass.backend.add(Checked::new(Add { x, norm, residual })?)?)
    }
}

/// One layer, as data and weights.
#[derive(Clone, Copy)]
struct Layer<'a> {
    index: usize,
    spec: &'a LayerSpec,
    weights: &'a LayerWeights,
}

/// What stays the same through one forward pass.
struct Pass<'a, 's, 't> {
    backend: &'a mut dyn Backend,
    spans: &'a mut [Span<'s>],
    taps: Option<&'t mut dyn TapSink>,
    arena: &'a Arena,
    n: usize,
    n_embd: usize,
}

impl Pass<'_, '_, '_> {
    /// Hands each row to the sink, if there is one.
    fn record(&mut self, tap: Tap, layer: Option<usize>, rows: Rows<'_>) -> Result<(), Error> {
        let Some(taps) = self.taps.as_deref_mut() else { return Ok(()) };
        self.backend.synchronize()?;
        let spans = self.spans.iter().enumerate();
        let points = spans.flat_map(|(span, Span { tokens, cache, .. })| {
            (0..tokens.len()).map(move |offset| TapPoint { tap, layer, span, pos: cache.begun() + offset })
        });
        for (row, point) in points.enumerate() {
            taps.record(point, rows.row(row));
        }
        Ok(())
    }
}

/// Whether `n` tokens can be appended to a layer's plane without overwriting a row that one of them sees.
fn fits(layer: &LayerSpec, plane: &KvPlane, n: usize) -> bool {
    let Some(window) = layer.window else { return true };
    let first_visible = (plane.end() + 1).saturating_sub(window);
    plane.end() + n - first_visible <= plane.capacity()
}

fn staging_plane<'a>(staging: &'a mut [(KvGeometry, KvPlane)], layer: &LayerSpec) -> &'a mut KvPlane {
    let matching = staging
        .iter_mut()
        .find(|(geometry, _)| (geometry.n_head_kv, geometry.head_dim) == (layer.n_head_kv, layer.head_dim));
    &mut matching.expect("a staging plane was made for every shape of sliding layer").1
}

/// The angles of `spec` for the batch.
fn rope_rows<'a>(tables: &'a [RopeTable], spec: &RopeSpec, n: usize) -> Result<Rope<'a>, Error> {
    let table = tables.iter().find(|table| table.frequencies.spec() == spec);
    let RopeTable { frequencies, cos, sin } = table.expect("a table was made for every layer's rotation");
    let n_pair = frequencies.n_pair();
    Ok(Rope { cos: Rows::new(cos, n, n_pair)?, sin: Rows::new(sin, n, n_pair)?, pairing: spec.pairing })
}
