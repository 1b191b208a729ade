//! `muse-glimmer`: sliding layers with rotary positions, global layers without any; normed embeddings, q/k norms of one
//! constant gain, an output gate on attention, norms before and after each branch with two epsilons, capped logits.

use muser_gguf::GgufSet;
use muser_ops::{Activation, Pairing};

use super::Heads;
use crate::config::Config;
use crate::spec::{EmbeddingSpec, HeadSpec, LayerSpec, ModelSpec, QkNorm, RopeSpec};

pub(super) const NAME: &str = "muse-glimmer";

/// Epsilon of the norms after each branch. A constant of the architecture: no key states it.
const POST_NORM_EPS: f32 = 1e-8;

pub(super) fn read(config: &mut Config<'_>, _: &GgufSet<'_>) -> ModelSpec {
    let (n_layer, n_embd) = (config.n_layer(), config.count("embedding_length"));
    let n_ctx_train = config.count("context_length");
    let eps = config.float("attention.layer_norm_rms_epsilon");
    let heads = Heads::read(config, n_layer, n_embd);
    let window = config.count("attention.sliding_window");
    let pattern = "attention.sliding_window_pattern";
    let slides = config.sliding_pattern(pattern, n_layer).unwrap_or_else(|| {
        config.refuse(format!("{NAME}.{pattern} is missing, expected a period or an array of truth values"));
        vec![false; n_layer]
    });
    let base = config.float_above("rope.freq_base", 1.0);
    let rope = RopeSpec {
        base: config.opt_float_above("rope.freq_base_swa", 1.0).unwrap_or(base),
        n_rot: config.opt_count("rope.dimension_count").unwrap_or(heads.head_dim),
        pairing: Pairing::Adjacent,
        scaling: config.rope_scaling(n_ctx_train),
        factors: false,
    };
    config.unsupported(&["attention.scale", "attn_logit_softcapping", "expert_count"]);
    let layers = (0..n_layer).map(|layer| LayerSpec {
        n_head: heads.n_head[layer],
        n_head_kv: heads.n_head_kv[layer],
        head_dim: heads.head_dim,
        n_ff: heads.n_ff[layer],
        window: slides[layer].then_some(window),
        rope: slides[layer].then_some(rope),
        eps,
        qk_norm: QkNorm::ConstantGains,
        gate: true,
        attn_scale: 1.0 / (heads.head_dim as f32).sqrt(),
        attn_cap: None,
        activation: Activation::Silu,
        post_norm_eps: Some(POST_NORM_EPS),
    });
    ModelSpec {
        arch: NAME,
        n_embd,
        n_vocab: config.n_vocab(),
        n_ctx_train,
        embedding: EmbeddingSpec { scale: 1.0, norm_eps: Some(eps) },
        layers: layers.collect(),
        output_eps: eps,
        // Never tied: a file without `output.weight` is refused when weights are bound.
        head: HeadSpec::Own,
        logit_scale: config.float("logit_scale"),
        logit_cap: Some(config.float("final_logit_softcapping")),
    }
}
