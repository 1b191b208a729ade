//! Changed models: their keys make a spec and their tensors are bound to a mapped file, or they are refused.
#![no_main]

use std::io::{Seek, SeekFrom, Write};
use std::sync::{Mutex, OnceLock};

use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};
use muser_fuzz::changed;
use muser_gguf::{Gguf, GgufSet};
use muser_memory::{Arena, Device, ModelFile};
use muser_model::{Model, ModelSpec, regions};
use tempfile::NamedTempFile;

fuzz_target!(|data: &[u8]| {
    let Ok(sample) = changed(&mut Unstructured::new(data)) else { return };
    let Ok(bytes) = sample.bytes() else { return };
    let gguf = Gguf::parse(&bytes, bytes.len() as u64).expect("what was written is valid");
    // Keys of a set may be wrong, or say that the file is one of several.
    let set = match GgufSet::new(vec![gguf]) {
        Ok(set) => set,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let spec = match ModelSpec::read(&set) {
        Ok((spec, _)) => spec,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(spec.n_embd > 0 && spec.n_vocab > 0 && !spec.layers.is_empty());
    for layer in &spec.layers {
        assert!(layer.n_head_kv > 0 && layer.n_head.is_multiple_of(layer.n_head_kv) && layer.head_dim > 0);
        assert!(layer.eps.is_finite() && layer.eps > 0.0 && layer.attn_scale.is_finite());
    }
    let file = mapped(&bytes);
    let arena = Arena::new(&Device::host(), vec![file], regions(&set)).expect("every tensor is in the file");
    match Model::new(spec, &set, arena) {
        // Every weight that was bound lies in the file as the table says.
        Ok(model) => assert_eq!(model.arena().regions().len(), set.tensors().count()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

/// One temporary file, written anew each time.
fn mapped(bytes: &[u8]) -> ModelFile {
    static FILE: OnceLock<Mutex<NamedTempFile>> = OnceLock::new();
    let file = FILE.get_or_init(|| Mutex::new(NamedTempFile::new().expect("a temporary file")));
    let mut file = file.lock().expect("one thread");
    file.as_file().set_len(0).expect("it can be cut");
    file.seek(SeekFrom::Start(0)).expect("it has a start");
    file.write_all(bytes).expect("room for it");
    ModelFile::open(file.path()).expect("it is a file")
}
