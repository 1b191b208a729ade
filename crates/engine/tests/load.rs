//! What loading refuses, and when.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use muser_engine::{BadModel, Error, LoadOptions, Loaded, PlanOptions, load};
use muser_memory::{Device, LoadPolicy};
use muser_tests::model::MUSE;
use muser_tests::model_path;

/// Loads a file, and counts how often its weights were said to have come nearer.
fn loaded(path: &Path) -> (Result<Loaded, Error>, usize) {
    let options = LoadOptions {
        weights: muser_memory::LoadOptions { policy: LoadPolicy::Map, n_threads: 1, resident: false, strict: false },
        plan: PlanOptions { n_ctx: Some(64), n_slot: 1, n_batch: 64 },
        force_pre: None,
    };
    let steps = AtomicUsize::new(0);
    let loaded = load(path, &Device::host(), &options, &|_| {
        steps.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    (loaded, steps.into_inner())
}

#[test]
fn a_file_without_a_tensor_is_refused_before_any_weight_is_brought_in() {
    let whole = model_path(MUSE[1]);
    let (model, steps) = loaded(&whole);
    assert!(model.is_ok() && steps > 0, "{steps} steps");

    let mut bytes = std::fs::read(&whole).expect("the model can be read");
    let name = b"blk.0.attn_q.weight";
    let at = bytes.windows(name.len()).position(|window| window == name).expect("the header names the tensor");
    bytes[at..at + name.len()].copy_from_slice(b"blk.0.attn_x.weight");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("room for a small file");
    let (model, steps) = loaded(&path);
    let Err(Error::BadModel { source, .. }) = model else { panic!("it was loaded") };
    assert!(matches!(*source, BadModel::Model(_)), "{source}");
    assert_eq!(steps, 0, "{source}");
}
