//! Tests that span crates, in `tests/`; their data is in `data/`, and the tools that make and compare it in `tools/`.
//!
//! The library finds the models that tests of any crate open.
#![forbid(unsafe_code)]

use std::path::PathBuf;

/// File names of the models that `cargo xtask models` fetches or makes.
pub mod model {
    /// `llama`, with weights in `Q4_1` and `Q8_0`.
    pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
    /// `gemma3`, with weights in `Q5_0`, `Q4_K`, `Q6_K` and `Q8_0`.
    pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";
    /// Random `muse-glimmer` weights, one file for each of four types.
    pub const MUSE: [&str; 4] = ["muse-F32.gguf", "muse-Q8_0.gguf", "muse-Q4_K.gguf", "muse-Q6_K.gguf"];
}

/// Where a model lies in the cache folder: `$MUSER_CACHE`, else `$XDG_CACHE_HOME/muser`, else `~/.cache/muser`.
///
/// # Panics
/// When it is not there: tests that need a model fail without it.
pub fn model_path(file: &str) -> PathBuf {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = folder("MUSER_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("muser")))
        .or_else(|| Some(folder("HOME")?.join(".cache/muser")));
    let path = cache.expect("MUSER_CACHE, XDG_CACHE_HOME or HOME names the cache folder").join("models").join(file);
    assert!(path.exists(), "{} is missing: run `cargo xtask models`", path.display());
    path
}

/// Where a file of `data/golden` lies.
pub fn golden_path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/golden").join(file)
}
