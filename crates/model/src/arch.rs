//! The architectures: each reads its metadata keys into a [`ModelSpec`].
//!
//! Tensor names are the same in all of them (see `weights`), so a new architecture is one file here, and a golden file.

mod gemma3;
mod llama;
mod muse_glimmer;

use muser_gguf::GgufSet;

use crate::config::Config;
use crate::spec::LayerSpec;
use crate::{Error, ModelSpec};

/// Reads the metadata keys of one architecture.
struct Architecture {
    name: &'static str,
    read: fn(&mut Config<'_>, &GgufSet<'_>) -> ModelSpec,
}

const ARCHITECTURES: [Architecture; 3] = [
    Architecture { name: gemma3::NAME, read: gemma3::read },
    Architecture { name: llama::NAME, read: llama::read },
    Architecture { name: muse_glimmer::NAME, read: muse_glimmer::read },
];

/// Names of the architectures that can be run.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|architecture| architecture.name)
}

impl ModelSpec {
    /// Reads a model's shape from a file's metadata. Also returns keys of the architecture that were not understood.
    ///
    /// # Errors
    /// When the architecture is not known, or keys are missing or impossible: all of them at once.
    pub fn read(set: &GgufSet<'_>) -> Result<(Self, Vec<String>), Error> {
        let found = set.architecture()?;
        let Some(architecture) = ARCHITECTURES.iter().find(|architecture| architecture.name == found) else {
            let known = architectures().collect::<Vec<_>>().join(", ");
            return Err(Error::UnknownArchitecture { found: found.to_owned(), known });
        };
        let mut config = Config::new(set, architecture.name);
        let spec = (architecture.read)(&mut config, set);
        check_layers(&mut config, &spec.layers);
        Ok((spec, config.finish()?))
    }
}

/// Most values in the queries of a token: their number, and that of any matrix's values, then fits 64 bits.
const MAX_WIDTH: usize = 1 << 30;

/// The head geometry that all architectures state alike.
struct Heads {
    n_head: Vec<usize>,    // (n_layer)
    n_head_kv: Vec<usize>, // (n_layer)
    n_ff: Vec<usize>,      // (n_layer)
    head_dim: usize,
}

impl Heads {
    fn read(config: &mut Config<'_>, n_layer: usize, n_embd: usize) -> Self {
        let n_head = config.per_layer("attention.head_count", n_layer);
        let n_head_kv = if config.has("attention.head_count_kv") {
            config.per_layer("attention.head_count_kv", n_layer)
        } else {
            n_head.clone()
        };
        let key_length = config.opt_count("attention.key_length");
        let head_dim = key_length.unwrap_or_else(|| {
            if config.usable(&HEAD_DIM_KEYS) && !n_embd.is_multiple_of(n_head[0]) {
                let problem = format!("attention.head_count {} does not divide embedding_length {n_embd}", n_head[0]);
                config.refuse(problem);
            }
            (n_embd / n_head[0]).max(1)
        });
        if let Some(value_length) = config.opt_count("attention.value_length")
            && value_length != head_dim
            && config.usable(&HEAD_DIM_KEYS)
        {
            config.refuse(format!("attention.value_length is {value_length}, expected the key length {head_dim}"));
        }
        Self { n_head, n_head_kv, n_ff: config.per_layer("feed_forward_length", n_layer), head_dim }
    }
}

/// The keys that the head dimension follows from.
const HEAD_DIM_KEYS: [&str; 3] = ["attention.head_count", "attention.key_length", "embedding_length"];

/// Checks what several keys state together. Of layers with the same problem, the first is named.
fn check_layers(config: &mut Config<'_>, layers: &[LayerSpec]) {
    let unshared = |(_, layer): &(usize, &LayerSpec)| !layer.n_head.is_multiple_of(layer.n_head_kv);
    if config.usable(&["attention.head_count", "attention.head_count_kv"])
        && let Some((index, LayerSpec { n_head, n_head_kv, .. })) = layers.iter().enumerate().find(unshared)
    {
        config.refuse(format!("layer {index}: {n_head} heads can't share {n_head_kv} KV heads evenly"));
    }
    let too_wide = |(_, layer): &(usize, &LayerSpec)| {
        layer.n_head.checked_mul(layer.head_dim).is_none_or(|width| width > MAX_WIDTH)
    };
    if let Some((index, LayerSpec { n_head, head_dim, .. })) = layers.iter().enumerate().find(too_wide) {
        config.refuse(format!("layer {index}: {n_head} heads of {head_dim} are more than {MAX_WIDTH} values"));
    }
    let n_rot_and_head_dim = layers.iter().filter_map(|layer| Some((layer.rope?.n_rot, layer.head_dim)));
    if config.usable(&HEAD_DIM_KEYS)
        && config.usable(&["rope.dimension_count"])
        && let Some((n_rot, head_dim)) =
            { n_rot_and_head_dim }.find(|&(n_rot, head_dim)| n_rot % 2 != 0 || n_rot > head_dim)
    {
        config.refuse(format!("rope.dimension_count is {n_rot}, expected an even number up to the head's {head_dim}"));
    }
}
