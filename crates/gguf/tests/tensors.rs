//! Hostile tensor tables, and the same ones made right.

mod common;

use common::{I32, Raw, STR, U32, U64, assert_refused, parse, str};
use muser_gguf::{Error, TensorType, caps};

const F32: u32 = 0;
const Q8_0: u32 = 8;
const Q4_K: u32 = 12;

#[test]
fn a_tensor_says_what_it_is_and_where() {
    let file = Raw::new().tensor("a", &[256, 3, 2], Q4_K, 0).tensor("b", &[5], F32, 864).data(884).file();
    let gguf = parse(&file).unwrap();
    let a = gguf.tensor("a").unwrap();
    assert_eq!((a.dims(), a.tensor_type(), a.size_bytes()), (&[256, 3, 2][..], TensorType::Q4_K, 864));
    assert_eq!((a.row_len(), a.n_rows(), a.n_elements()), (256, 6, 1536));
    let b = gguf.tensor("b").unwrap();
    assert_eq!((b.offset(), b.byte_range()), (gguf.data_offset() + 864, b.offset()..b.offset() + 20));
    assert_eq!(b.byte_range().end, file.len() as u64);
    assert!(gguf.tensor("c").is_none());
}

#[test]
fn a_dimension_of_0_is_refused_naming_tensor_and_dimension() {
    for (dims, dim) in [(&[0][..], 0), (&[32, 0], 1), (&[32, 2, 0], 2), (&[32, 2, 2, 0], 3), (&[0, 0], 0)] {
        let raw = Raw::new().tensor("blk.0.w", dims, F32, 0).data(64);
        assert_refused(&raw, &["\"blk.0.w\"", &format!("dimension {dim} of 0")]);
    }
}

#[test]
fn dimensions_are_1_to_4() {
    for n_dims in [0, 5, 1000] {
        let raw = Raw::new().tensor("t", &vec![1; n_dims], F32, 0).data(64);
        assert_refused(&raw, &["\"t\"", &format!("{n_dims} dimensions"), "1 to 4"]);
    }
    let mut file = Raw::new().tensor("t", &[1], F32, 0).data(64).file();
    file[33..37].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(parse(&file).unwrap_err(), Error::BadDimCount { n_dims: u32::MAX, .. }));
}

#[test]
fn sizes_that_overflow_are_refused_whichever_product_does() {
    for dims in [
        &[1 << 22, (1 << 42) + 1][..],
        &[32, (1 << 59) + 1],
        &[1 << 63, 2],
        &[1 << 62, 1],
        &[32, 1 << 32, 1 << 32],
        &[32, 1 << 20, 1 << 20, 1 << 20],
        &[u64::MAX / 32 * 32, 32],
    ] {
        let raw = Raw::new().tensor("t", dims, F32, 0).data(64);
        assert_refused(&raw, &["\"t\"", "overflows"]);
    }
    // Only the elements overflow: Q4_K has fewer bytes than elements.
    assert_refused(&Raw::new().tensor("t", &[1 << 32, 1 << 32], Q4_K, 0).data(64), &["\"t\"", "overflows"]);
    // Fits 64 bits in elements and bytes: refused by the file's length instead.
    assert_refused(&Raw::new().tensor("t", &[32, (1 << 42) + 1], F32, 0).data(64), &["\"t\"", "cut short"]);
}

#[test]
fn a_tensor_past_the_end_of_the_file_is_refused_with_both_lengths() {
    let raw = Raw::new().tensor("a", &[8], F32, 0).tensor("b", &[64], Q8_0, 32).data(100);
    let file = raw.file();
    assert_eq!(parse(&file).unwrap().trailing_bytes(), 0);
    for cut in 1..=100 {
        let message = parse(&file[..file.len() - cut]).unwrap_err().to_string();
        let lengths = [format!("of {} bytes", file.len()), format!("has {}", file.len() - cut)];
        assert!(lengths.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn offsets_that_overflow_are_past_the_end() {
    // The data starts at 64: the sum with the start overflows, then the sum with the size, then neither.
    for offset in [u64::MAX - 31, u64::MAX - 31 - 64, 1 << 63, 1 << 40] {
        assert_refused(&Raw::new().tensor("t", &[8], F32, offset).data(64), &["\"t\"", "cut short"]);
    }
}

#[test]
fn a_tensor_that_is_there_twice_is_refused() {
    let raw = Raw::new().tensor("t", &[8], F32, 0).tensor("u", &[8], F32, 32).tensor("t", &[8], F32, 64).data(96);
    assert_refused(&raw, &["\"t\"", "twice"]);
}

#[test]
fn tensors_that_overlap_are_refused_in_any_order_of_the_table() {
    let raw = Raw::new().tensor("a", &[16], F32, 0).tensor("b", &[8], F32, 32).data(64);
    assert_refused(&raw, &["\"a\"", "\"b\"", "overlap"]);
    let raw = Raw::new().tensor("b", &[8], F32, 32).tensor("a", &[16], F32, 0).data(64);
    assert_refused(&raw, &["\"a\" and \"b\"", "overlap"]);
    assert_refused(&Raw::new().tensor("a", &[8], F32, 0).tensor("b", &[8], F32, 0).data(64), &["overlap"]);
    let inside = Raw::new().tensor("a", &[64], F32, 0).tensor("b", &[1], F32, 32).tensor("c", &[1], F32, 256);
    assert_refused(&inside.data(260), &["\"a\" and \"b\"", "overlap"]);
}

#[test]
fn the_table_may_be_in_another_order_than_the_data() {
    let file = Raw::new().tensor("b", &[8], F32, 32).tensor("a", &[8], F32, 0).data(64).file();
    let gguf = parse(&file).unwrap();
    assert_eq!(gguf.tensors()[0].name(), "b");
    assert_eq!(gguf.tensor("a").unwrap().offset(), gguf.data_offset());
}

#[test]
fn a_tensor_off_the_alignment_is_refused() {
    for offset in [1, 8, 31, 33] {
        let raw = Raw::new().tensor("t", &[8], F32, offset).data(128);
        assert_refused(&raw, &["\"t\"", &format!("offset {offset}"), "multiple of 32"]);
    }
}

#[test]
fn padding_up_to_one_alignment_unit_is_accepted_and_a_hole_beyond_is_refused() {
    let file = |first_len, second: u64| {
        Raw::new().tensor("a", &[first_len], F32, 0).tensor("b", &[8], F32, second).data(second as usize + 32)
    };
    let with_hole = |second| file(1, second);
    assert!(parse(&with_hole(32).file()).is_ok());
    assert_refused(&with_hole(64), &["60 unused bytes", "\"b\"", "at most 32"]);
    // A writer that always pads leaves a whole unit after a tensor that needs none.
    let whole_unit = |second| file(8, second);
    assert!(parse(&whole_unit(64).file()).is_ok());
    assert_refused(&whole_unit(96), &["64 unused bytes"]);
    assert_refused(&Raw::new().tensor("a", &[8], F32, 64).data(200), &["64 unused bytes", "\"a\""]);
}

#[test]
fn padding_after_the_last_tensor_is_counted_and_a_whole_unit_of_it_refused() {
    let file = |len| Raw::new().tensor("a", &[1], F32, 0).data(len);
    for len in [4, 5, 32, 35] {
        assert_eq!(parse(&file(len).file()).unwrap().trailing_bytes(), len as u64 - 4);
    }
    for len in [36_usize, 64, 4096] {
        let trailing = format!("{} bytes after the end of the last tensor", len - 4);
        assert_refused(&file(len), &[&trailing, "one alignment unit of 32"]);
    }
    let mut file = Raw::new().entry("a", U32, &[0; 4]).head();
    file.resize(file.len().next_multiple_of(32) + 31, 0);
    assert!(parse(&file).is_ok());
    file.push(0);
    assert!(matches!(parse(&file).unwrap_err(), Error::TrailingBytes { trailing_bytes: 32, alignment: 32, .. }));
}

#[test]
fn a_tensor_that_the_count_leaves_out_is_missed_at_the_end_of_the_file() {
    // The table is one entry shorter, so all data would start earlier.
    for names in [["a", "b"], ["blk.0.attn_q.weight", "rope_freqs.weight"]] {
        let raw = Raw { n_tensors: Some(1), ..Raw::new() };
        let raw = raw.tensor(names[0], &[8], F32, 0).tensor(names[1], &[8], F32, 32).data(64);
        assert_refused(&raw, &["bytes after the end of the last tensor"]);
    }
}

#[test]
fn an_alignment_halved_is_found_out_by_the_end_of_the_file() {
    let raw = |alignment: u32| {
        let raw = Raw { alignment: 64, ..Raw::new() }.entry("general.alignment", U32, &alignment.to_le_bytes());
        raw.tensor("token_embd", &[16], F32, 0).tensor("b", &[16], F32, 64).data(128)
    };
    // The table ends in the first half of a unit of 64.
    assert!((1..=32).contains(&(raw(64).head().len() % 64)));
    assert!(parse(&raw(64).file()).is_ok());
    assert_refused(&raw(32), &["32 bytes after the end of the last tensor"]);
}

#[test]
fn types_that_are_unknown_or_withdrawn_are_refused_with_their_number() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 142, u32::MAX] {
        let raw = Raw::new().tensor("t", &[256], id, 0).data(4096);
        assert_refused(&raw, &["\"t\"", &format!("type {id}")]);
    }
}

#[test]
fn every_type_of_the_table_is_read_and_rows_must_be_whole_blocks() {
    for ty in TensorType::all() {
        let size = (ty.block_bytes() * 6) as usize;
        let file = Raw::new().tensor("t", &[ty.block_len() * 2, 3], ty.id(), 0).data(size).file();
        let gguf = parse(&file).unwrap();
        assert_eq!((gguf.tensors()[0].tensor_type(), gguf.tensors()[0].size_bytes()), (ty, size as u64));
        if ty.block_len() > 1 {
            let raw = Raw::new().tensor("t", &[ty.block_len() + 1, ty.block_len()], ty.id(), 0).data(1 << 20);
            assert_refused(&raw, &["\"t\"", ty.name(), &format!("rows of {}", ty.block_len() + 1)]);
        }
    }
}

#[test]
fn the_table_agrees_with_the_published_block_sizes() {
    // (id, elements, bytes) of the types whose layouts are written down for decoding.
    for (id, len, bytes) in [
        (0, 1, 4),
        (1, 1, 2),
        (2, 32, 18),
        (3, 32, 20),
        (6, 32, 22),
        (7, 32, 24),
        (8, 32, 34),
        (10, 256, 84),
        (11, 256, 110),
        (12, 256, 144),
        (13, 256, 176),
        (14, 256, 210),
        (20, 32, 18),
        (23, 256, 136),
        (30, 1, 2),
        (39, 32, 17),
        (40, 64, 36),
    ] {
        let ty = TensorType::from_id(id).unwrap();
        assert_eq!((ty.id(), ty.block_len(), ty.block_bytes()), (id, len, bytes), "{ty}");
    }
}

#[test]
fn any_multiple_of_8_is_an_alignment() {
    for alignment in [8_u32, 16, 24, 40, 64, 4096, 2_097_152] {
        let raw = Raw { alignment: alignment as usize, ..Raw::new() }
            .entry("general.alignment", U32, &alignment.to_le_bytes())
            .tensor("a", &[1], F32, 0)
            .tensor("b", &[1], F32, alignment.into());
        let file = raw.data(alignment as usize + 4).file();
        let gguf = parse(&file).unwrap();
        assert_eq!(gguf.alignment(), alignment);
        assert!(gguf.tensors().iter().all(|tensor| tensor.offset().is_multiple_of(alignment.into())));
        assert_eq!(gguf.tensor("b").unwrap().byte_range().end, file.len() as u64);
    }
}

#[test]
fn an_alignment_that_is_0_odd_huge_negative_or_no_u32_is_refused() {
    for alignment in [0, 1, 4, 12, 33, caps::ALIGNMENT_MAX + 8, 1 << 31, u32::MAX - 7, u32::MAX] {
        let raw = Raw::new().entry("general.alignment", U32, &alignment.to_le_bytes());
        assert_refused(&raw, &["general.alignment", &format!("u32 {alignment}"), "multiple of 8"]);
    }
    let raw = Raw::new().entry("general.alignment", I32, &(-32_i32).to_le_bytes());
    assert_refused(&raw, &["general.alignment", "i32 -32", "u32"]);
    let raw = Raw::new().entry("general.alignment", U64, &32_u64.to_le_bytes());
    assert_refused(&raw, &["general.alignment", "u64 32", "u32"]);
    let raw = Raw::new().entry("general.alignment", STR, &str("32"));
    assert_refused(&raw, &["general.alignment", "str \"32\"", "u32"]);
}

#[test]
fn tensor_names_are_neither_empty_nor_overlong() {
    assert_refused(&Raw::new().tensor("", &[1], F32, 0).data(4), &["the name of tensor 0", "empty"]);
    assert!(parse(&Raw::new().tensor(&"n".repeat(255), &[1], F32, 0).data(4).file()).is_ok());
    assert_refused(&Raw::new().tensor(&"n".repeat(256), &[1], F32, 0).data(4), &["tensor 0", "256", "255"]);
}

#[test]
fn a_file_without_tensors_needs_no_padding() {
    let file = Raw::new().entry("a", U32, &[0; 4]).head();
    let gguf = parse(&file).unwrap();
    assert!(gguf.data_offset() > file.len() as u64);
    assert_eq!(gguf.trailing_bytes(), 0);
}
