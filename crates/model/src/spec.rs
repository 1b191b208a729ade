//! What a model is, as data: one [`LayerSpec`] for each layer, and what stands before and after them.

use muser_ops::{Activation, Pairing};

/// A model's shape and switches, read from a file's metadata and checked.
#[derive(Clone, Debug)]
pub struct ModelSpec {
    /// The architecture's name in the file, for example `llama`.
    pub arch: &'static str,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Number of tokens in the vocabulary.
    pub n_vocab: usize,
    /// Longest context the model was trained for, in tokens.
    pub n_ctx_train: usize,
    /// What happens to a looked-up embedding.
    pub embedding: EmbeddingSpec,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// Epsilon of the norm before the head.
    pub output_eps: f32,
    /// Where the output matrix comes from.
    pub head: HeadSpec,
    /// Factor on the logits, before the cap.
    pub logit_scale: f32,
    /// Logits `z` become `cap * tanh(z / cap)`.
    pub logit_cap: Option<f32>,
}

/// What happens to a looked-up embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingSpec {
    /// Factor on every value.
    pub scale: f32,
    /// Epsilon of a norm without gains, applied after the scale.
    pub norm_eps: Option<f32>,
}

/// Where the output matrix comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSpec {
    /// The embedding table serves as output matrix.
    Tied,
    /// `output.weight`.
    Own,
}

/// One layer: attention, then a gated feed-forward block, each with its norms.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Number of query heads.
    pub n_head: usize,
    /// Number of key and value heads; divides `n_head`.
    pub n_head_kv: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Hidden values of the feed-forward block.
    pub n_ff: usize,
    /// Number of positions a query sees, its own included; `None` sees all before it.
    pub window: Option<usize>,
    /// Rotation of queries and keys; `None` leaves them as they are.
    pub rope: Option<RopeSpec>,
    /// Epsilon of the norms before attention and feed-forward, and of the query and key norms.
    pub eps: f32,
    /// Queries and keys are normed head by head, with gains from the file.
    pub qk_norm: QkNorm,
    /// The attention's result is multiplied by the sigmoid of a projection of its input.
    pub gate: bool,
    /// Factor on the attention scores.
    pub attn_scale: f32,
    /// Attention scores `s` become `cap * tanh(s / cap)`.
    pub attn_cap: Option<f32>,
    /// Activation of the feed-forward block.
    pub activation: Activation,
    /// Epsilon of norms applied to the results of attention and feed-forward before they join the residual stream.
    pub post_norm_eps: Option<f32>,
}

impl LayerSpec {
    /// Width of the queries.
    pub fn q_width(&self) -> usize {
        self.n_head * self.head_dim
    }

    /// Width of the keys, and of the values.
    pub fn kv_width(&self) -> usize {
        self.n_head_kv * self.head_dim
    }
}

/// The norm of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// None.
    None,
    /// With gains from the file.
    Gains,
    /// With gains that the architecture says are all equal; a file in which they are not is refused.
    ConstantGains,
}

/// A rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the frequencies.
    pub base: f32,
    /// Values of a head that are rotated, from its first on; even.
    pub n_rot: usize,
    /// Which two values are rotated together.
    pub pairing: Pairing,
    /// How the angles are stretched beyond the trained context.
    pub scaling: RopeScaling,
    /// Each frequency is divided by its entry in `rope_freqs.weight`.
    pub factors: bool,
}

/// How rotary angles are stretched beyond the trained context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
    /// Low frequencies are divided by a factor, high ones kept, with a ramp between (arXiv 2309.00071).
    Yarn {
        /// The factor.
        factor: f32,
        /// Context before stretching, in tokens.
        n_ctx_original: usize,
        /// Rotations over the original context above which a frequency is kept.
        beta_fast: f32,
        /// Rotations below which a frequency is divided by the whole factor.
        beta_slow: f32,
        /// Factor on the magnitude, beside the one that follows from `factor`.
        attn_factor: f32,
    },
}
