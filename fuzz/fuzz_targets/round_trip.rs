//! What was read from a file and written again says the same.
#![no_main]

use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};
use muser_fuzz::broken;
use muser_gguf::{Gguf, Writer};

fuzz_target!(|data: &[u8]| {
    let Ok(file) = broken(&mut Unstructured::new(data)) else { return };
    let Ok(first) = Gguf::parse(&file, file.len() as u64) else { return };
    let written = write(&first, &file);
    let second = Gguf::parse(&written, written.len() as u64).expect("what was written is valid");
    assert_eq!(first.metadata(), second.metadata());
    assert_eq!(first.alignment(), second.alignment());
    assert_eq!(first.tensors().len(), second.tensors().len());
    for (a, b) in first.tensors().iter().zip(second.tensors()) {
        assert_eq!((a.name(), a.dims(), a.tensor_type()), (b.name(), b.dims(), b.tensor_type()));
        assert_eq!(bytes_of(&file, a.byte_range()), bytes_of(&written, b.byte_range()));
    }
    // A written file is in normal form: written again it is the same, byte for byte.
    assert_eq!(write(&second, &written), written);
});

fn write(gguf: &Gguf<'_>, file: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer.metadata(key, value.clone());
    }
    for tensor in gguf.tensors() {
        let bytes = bytes_of(file, tensor.byte_range());
        writer.tensor(tensor.name(), tensor.dims(), tensor.tensor_type(), bytes).expect("it was read");
    }
    let mut out = Vec::new();
    writer.write_to(&mut out).expect("it was read");
    out
}

fn bytes_of(file: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &file[range.start as usize..range.end as usize]
}
