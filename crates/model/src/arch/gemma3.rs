//! `gemma3`: sliding layers with a global one after every few, each kind with its own rotary base; norms before and after
//! each branch, q/k norms, GELU, embeddings scaled by the square root of their width.

use muser_gguf::GgufSet;
use muser_ops::{Activation, Pairing};

use super::Heads;
use crate::config::{Config, every_last_is_global};
use crate::spec::{EmbeddingSpec, HeadSpec, LayerSpec, ModelSpec, QkNorm, RopeScaling, RopeSpec};

pub(super) const NAME: &str = "gemma3";

/// Without a pattern in the file, one layer in so many is global.
const DEFAULT_PERIOD: usize = 6;

/// Rotary base of sliding layers where the file does not state one.
const SLIDING_ROPE_BASE: f32 = 10_000.0;

/// The one member of the family (27B) that scales scores by width per head instead of by head dimension.
const LAYERS_OF_27B: usize = 62;

pub(super) fn read(config: &mut Config<'_>, set: &GgufSet<'_>) -> ModelSpec {
    let (n_layer, n_embd) = (config.n_layer(), config.count("embedding_length"));
    let n_ctx_train = config.count("context_length");
    let eps = config.float("attention.layer_norm_rms_epsilon");
    let heads = Heads::read(config, n_layer, n_embd);
    let window = config.count("attention.sliding_window");
    let slides = config
        .sliding_pattern("attention.sliding_window_pattern", n_layer)
        .unwrap_or_else(|| every_last_is_global(DEFAULT_PERIOD, n_layer));
    let global_rope = RopeSpec {
        base: config.opt_float_above("rope.freq_base", 1.0).unwrap_or(1_000_000.0),
        n_rot: config.opt_count("rope.dimension_count").unwrap_or(heads.head_dim),
        pairing: Pairing::Half,
        scaling: config.rope_scaling(n_ctx_train),
        factors: false,
    };
    let sliding_rope = RopeSpec {
        base: config.opt_float_above("rope.freq_base_swa", 1.0).unwrap_or(SLIDING_ROPE_BASE),
        scaling: RopeScaling::None,
        ..global_rope
    };
    let score_width = if n_layer == LAYERS_OF_27B { n_embd / heads.n_head[0] } else { heads.head_dim };
    let attn_scale = config.opt_float("attention.scale").unwrap_or(1.0 / (score_width as f32).sqrt());
    let attn_cap = config.opt_cap("attn_logit_softcapping");
    config.unsupported(&["expert_count"]);
    let layers = (0..n_layer).map(|layer| LayerSpec {
        n_head: heads.n_head[layer],
        n_head_kv: heads.n_head_kv[layer],
        head_dim: heads.head_dim,
        n_ff: heads.n_ff[layer],
        window: slides[layer].then_some(window),
        rope: Some(if slides[layer] { sliding_rope } else { global_rope }),
        eps,
        qk_norm: QkNorm::Gains,
        gate: false,
        attn_scale,
        attn_cap,
        activation: Activation::GeluTanh,
        post_norm_eps: Some(eps),
    });
    ModelSpec {
        arch: NAME,
        n_embd,
        n_vocab: config.n_vocab(),
        n_ctx_train,
        embedding: EmbeddingSpec { scale: (n_embd as f32).sqrt(), norm_eps: None },
        layers: layers.collect(),
        output_eps: eps,
        head: if set.tensor("output.weight").is_some() { HeadSpec::Own } else { HeadSpec::Tied },
        logit_scale: 1.0,
        logit_cap: config.opt_cap("final_logit_softcapping"),
    }
}
