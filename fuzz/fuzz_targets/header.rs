//! Any bytes as a file: refused, or what was read holds together.
#![no_main]

use libfuzzer_sys::{arbitrary::Unstructured, fuzz_target};
use muser_fuzz::broken;
use muser_gguf::{Error, Gguf};

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let (Ok(cut), Ok(file)) = (u.arbitrary::<u16>(), broken(&mut u)) else { return };
    let len = file.len() as u64;
    let whole = Gguf::parse(&file, len);

    // A part of the file gives the same answer, or asks for more.
    let head = &file[..usize::from(cut).min(file.len())];
    match (Gguf::parse(head, len), &whole) {
        (Err(Error::HeadTooShort { needed_bytes, .. }), _) => {
            assert!(needed_bytes > head.len() as u64 && needed_bytes <= len);
        }
        (Ok(part), Ok(whole)) => assert_eq!(part, *whole),
        (Err(part), Err(whole)) => assert_eq!(part.to_string(), whole.to_string()),
        (part, whole) => panic!("the head gives {part:?}, the whole {whole:?}"),
    }

    let gguf = match whole {
        Ok(gguf) => gguf,
        Err(error) => return assert!(error.to_string().len() < 1000, "{error}"),
    };
    let mut ranges: Vec<_> = gguf.tensors().iter().map(|tensor| tensor.byte_range()).collect();
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.iter().all(|range| range.start >= gguf.data_offset() && range.end <= len));
    assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start));
    for tensor in gguf.tensors() {
        assert!(tensor.offset().is_multiple_of(gguf.alignment().into()));
        assert_eq!(gguf.tensor(tensor.name()), Some(tensor));
        assert_eq!(tensor.row_len() * tensor.n_rows(), tensor.n_elements());
    }
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        assert_eq!(metadata.value(key), Some(value));
        let _ = (metadata.u32(key), metadata.u64(key), metadata.f32(key), metadata.bool(key), metadata.str(key));
        let _ = (metadata.ints::<i8>(key), metadata.i32s(key), metadata.floats(key));
        let _ = (metadata.bools(key), metadata.strs(key), metadata.expect_len(key, 1));
    }
    let _ = (gguf.shard(), gguf.architecture());
});
