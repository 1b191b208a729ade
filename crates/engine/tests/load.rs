//! What loading refuses, and when.

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use muser_engine::{BadModel, Error, LoadOptions, Loaded, PlanOptions, load, with_header};
use muser_gguf::{TensorInfo, TensorType};
use muser_memory::{Device, LoadPolicy};
use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;

/// Loads a file, and counts how often its weights were said to have come nearer.
fn loaded(path: &Path) -> (Result<Loaded, Error>, usize) {
    let options = LoadOptions {
        weights: muser_memory::LoadOptions { policy: LoadPolicy::Map, n_threads: 1, resident: false, strict: false },
        scan: true,
        plan: PlanOptions { n_ctx: Some(64), n_slot: 1, n_batch: 64, prefix_cache_bytes: 0, table_bytes_per_token: 0 },
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

#[test]
fn a_block_on_the_seam_of_two_pieces_of_a_load_is_searched_and_has_its_number() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("model.gguf");
    std::fs::copy(model_path(SMOLLM2), &path).expect("room for a copy");
    let page_size = muser_memory::page_size() as u64;
    let (tensor, block, at) = with_header(&path, |_, set| {
        let tensors = || set.tensors().map(|(_, tensor)| tensor);
        let first = tensors().map(TensorInfo::offset).min().expect("it has tensors");
        // Pieces of 8 MiB are counted from the page that the first tensor begins on.
        let seam = |number: u64| first / page_size * page_size + number * (8 << 20);
        let torn = (1..).map(seam).find_map(|seam| {
            let tensor =
                tensors().find(|tensor| (tensor.offset()..tensor.offset() + tensor.size_bytes()).contains(&seam))?;
            let block_bytes = tensor.tensor_type().block_bytes();
            let block = (seam - tensor.offset()) / block_bytes;
            let at = tensor.offset() + block * block_bytes;
            // The scale of a Q4_1 block comes first.
            (at < seam && tensor.tensor_type() == TensorType::Q4_1).then(|| (tensor.name().to_owned(), block, at))
        });
        Ok(torn.expect("a seam tears a block"))
    })
    .expect("a good model");
    let file = std::fs::File::options().write(true).open(&path).expect("it is ours");
    file.write_all_at(&0x7c00_u16.to_le_bytes(), at).expect("it can be written");
    let (model, _) = loaded(&path);
    let Err(Error::BadModel { path: bad, source }) = model else { panic!("it was loaded") };
    assert_eq!(bad, path);
    let BadModel::NotFinite { tensor: found, unit, index, value, .. } = *source else { panic!("{source}") };
    assert_eq!((found, unit, index as u64, value), (tensor, "block", block, f32::INFINITY));
}
