//! `llama`: pre-norm layers with grouped-query attention, rotary positions in adjacent pairs, `SiLU`.

use muser_gguf::GgufSet;
use muser_ops::{Activation, Pairing};

use super::Heads;
use crate::config::Config;
use crate::spec::{EmbeddingSpec, HeadSpec, LayerSpec, ModelSpec, QkNorm, RopeSpec};

pub(super) const NAME: &str = "llama";

pub(super) fn read(config: &mut Config<'_>, set: &GgufSet<'_>) -> ModelSpec {
    let (n_layer, n_embd) = (config.n_layer(), config.count("embedding_length"));
    let n_ctx_train = config.count("context_length");
    let eps = config.float("attention.layer_norm_rms_epsilon");
    let heads = Heads::read(config, n_layer, n_embd);
    let rope = RopeSpec {
        base: config.opt_float_above("rope.freq_base", 1.0).unwrap_or(10_000.0),
        n_rot: config.opt_count("rope.dimension_count").unwrap_or(heads.head_dim),
        pairing: Pairing::Adjacent,
        scaling: config.rope_scaling(n_ctx_train),
        factors: set.tensor("rope_freqs.weight").is_some(),
    };
    let attn_scale = config.opt_float("attention.scale").unwrap_or(1.0 / (heads.head_dim as f32).sqrt());
    config.unsupported(&[
        "attention.clamp_kqv",
        "attention.sliding_window",
        "embedding_scale",
        "expert_count",
        "expert_used_count",
        "logit_scale",
        "residual_scale",
    ]);
    let layers = (0..n_layer).map(|layer| LayerSpec {
        n_head: heads.n_head[layer],
        n_head_kv: heads.n_head_kv[layer],
        head_dim: heads.head_dim,
        n_ff: heads.n_ff[layer],
        window: None,
        rope: Some(rope),
        eps,
        qk_norm: QkNorm::None,
        gate: false,
        attn_scale,
        attn_cap: None,
        activation: Activation::Silu,
        post_norm_eps: None,
    });
    ModelSpec {
        arch: NAME,
        n_embd,
        n_vocab: config.n_vocab(),
        n_ctx_train,
        embedding: EmbeddingSpec { scale: 1.0, norm_eps: None },
        layers: layers.collect(),
        output_eps: eps,
        head: if set.tensor("output.weight").is_some() { HeadSpec::Own } else { HeadSpec::Tied },
        logit_scale: 1.0,
        logit_cap: None,
    }
}
