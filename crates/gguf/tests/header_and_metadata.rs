//! Hostile headers and metadata, and the same ones made right.

mod common;

use common::{ARRAY, BOOL, F32, F64, I32, Raw, STR, U8, U32, U64, array, assert_refused, parse, refusal, str};
use muser_gguf::{Error, Gguf, ValueType, caps};

#[test]
fn a_file_shorter_than_the_header_is_too_short_whatever_it_begins_with() {
    let valid = Raw::new().file();
    for len in [0, 1, 3, 4, 8, 16, 23] {
        for file in [&valid[..len], &vec![0; len]] {
            let error = parse(file).unwrap_err();
            assert!(
                matches!(error, Error::TooShort { present_bytes, needed_bytes: 24 } if present_bytes == len as u64)
            );
            assert!(error.to_string().contains(&format!("{len} bytes")), "{error}");
        }
    }
}

#[test]
fn an_empty_file_of_exactly_the_header_is_read() {
    for version in [2, 3] {
        let file = Raw { version, ..Raw::new() }.head();
        assert_eq!(file.len(), 24);
        let gguf = parse(&file).unwrap();
        assert_eq!((gguf.version(), gguf.tensors().len(), gguf.metadata().len()), (version, 0, 0));
    }
}

#[test]
fn another_kind_of_file_is_refused_by_its_first_bytes() {
    assert_refused(&Raw { magic: *b"PK\x03\x04", ..Raw::new() }, &["PK\\x03\\x04", "GGUF"]);
}

#[test]
fn versions_other_than_2_and_3_are_refused_with_their_number() {
    for version in [0, 1, 4, 5, 77, u32::MAX] {
        assert_refused(&Raw { version, ..Raw::new() }, &[&format!("version {version} "), "2 to 3"]);
    }
}

#[test]
fn a_big_endian_file_is_named_as_such() {
    for version in [1_u32, 2, 3, 4] {
        assert_refused(&Raw { version: version.swap_bytes(), ..Raw::new() }, &["big-endian"]);
        for version in [version, version.swap_bytes()] {
            assert_refused(&Raw { magic: *b"FUGG", version, ..Raw::new() }, &["big-endian"]);
        }
    }
}

#[test]
fn the_header_is_refused_before_the_counts_are_believed() {
    let raw = Raw { version: 9, n_tensors: Some(u64::MAX), n_metadata: Some(u64::MAX), ..Raw::new() };
    assert_refused(&raw, &["version 9"]);
}

#[test]
fn counts_that_the_file_has_no_bytes_for_are_refused() {
    for count in [2, 1 << 32, 1 << 60, u64::MAX] {
        let raw = Raw { n_metadata: Some(count), ..Raw::new() }.entry("a", U8, &[1]);
        assert_refused(&raw, &[&format!("metadata of {count} keys"), "left"]);
        let raw = Raw { n_tensors: Some(count), ..Raw::new() };
        assert_refused(&raw, &[&format!("table of {count} tensors"), "left"]);
    }
}

#[test]
fn counts_over_their_caps_are_refused_even_if_the_bytes_are_there() {
    let mut file = Raw { n_metadata: Some(caps::N_METADATA + 1), ..Raw::new() }.head();
    file.resize(4 << 20, 0);
    assert!(matches!(parse(&file).unwrap_err(), Error::OverCap { found: 65_537, cap: 65_536, .. }));
    let mut file = Raw { n_tensors: Some(caps::N_TENSORS + 1), ..Raw::new() }.head();
    file.resize(16 << 20, 0);
    assert!(matches!(parse(&file).unwrap_err(), Error::OverCap { found: 131_073, cap: 131_072, .. }));
}

#[test]
fn a_string_or_key_longer_than_the_file_is_refused() {
    for len in [6_u64, 1 << 31, 1 << 40, u64::MAX] {
        let value = [&len.to_le_bytes()[..], b"hello"].concat();
        assert_refused(&Raw::new().entry("k", STR, &value), &["\"k\"", &format!("needs {len} bytes"), "left"]);
        assert_refused(&Raw::new().entry_bytes(&value), &["metadata key 0", "left"]);
    }
}

#[test]
fn an_array_longer_than_the_file_is_refused_for_every_element_type() {
    for elem_type in 0..=12 {
        for len in [1_u64 << 20, 1 << 31, 1 << 61, u64::MAX] {
            let raw = Raw::new().entry("k", ARRAY, &array(elem_type, len, &[0; 16]));
            assert_refused(&raw, &["\"k\"", "left"]);
        }
    }
}

#[test]
fn more_strings_than_any_vocabulary_has_are_refused_even_if_the_bytes_are_there() {
    let strings = |len: u64| array(STR, len, &vec![0; len as usize * 8]);
    let half = caps::STRINGS_IN_ARRAYS / 2;
    let raw = Raw::new().entry("a", ARRAY, &strings(half)).entry("b", ARRAY, &strings(half));
    assert!(parse(&raw.file()).is_ok());
    // All arrays of a file count together.
    assert_refused(&raw.entry("c", ARRAY, &strings(1)), &["strings in arrays", "\"c\"", "2097153", "2097152"]);
    let raw = Raw::new().entry("k", ARRAY, &strings(caps::STRINGS_IN_ARRAYS + 1));
    assert_refused(&raw, &["strings in arrays", "\"k\"", "2097153", "2097152"]);
}

#[test]
fn more_arrays_in_arrays_than_any_file_has_are_refused_even_if_the_bytes_are_there() {
    let arrays = |len: u64| array(ARRAY, len, &array(U8, 0, &[]).repeat(len as usize));
    assert!(parse(&Raw::new().entry("k", ARRAY, &arrays(caps::ARRAYS_IN_ARRAYS)).file()).is_ok());
    let raw = Raw::new().entry("k", ARRAY, &arrays(40_000)).entry("l", ARRAY, &arrays(25_537));
    assert_refused(&raw, &["arrays in arrays", "\"l\"", "65537", "65536"]);
}

#[test]
fn nested_arrays_are_read_to_the_cap_and_refused_beyond() {
    let nested = |levels: u32| {
        let innermost = array(U8, 2, &[7, 8]);
        (1..levels).fold(innermost, |inner, _| array(ARRAY, 1, &inner))
    };
    let file = Raw::new().entry("deep", ARRAY, &nested(caps::ARRAY_DEPTH)).file();
    let gguf = parse(&file).unwrap();
    let mut level = gguf.metadata().value("deep").unwrap().as_array().unwrap();
    while level.elem_type() == ValueType::Array {
        level = &level.arrays().unwrap()[0];
    }
    assert_eq!(level.ints().unwrap().collect::<Vec<_>>(), [7, 8]);

    for levels in [caps::ARRAY_DEPTH + 1, 10_000] {
        assert_refused(&Raw::new().entry("deep", ARRAY, &nested(levels)), &["deep", "levels of arrays", "at most 4"]);
    }
}

#[test]
fn a_nested_array_is_held_against_the_fewest_bytes_its_arrays_take() {
    let raw = Raw::new().entry("k", ARRAY, &array(ARRAY, 1000, &array(U8, 0, &[])));
    assert_refused(&raw, &["\"k\"", "needs 12000 bytes", "12 left"]);
}

#[test]
fn nested_arrays_that_each_claim_the_rest_of_the_file_are_refused() {
    let inner = array(ARRAY, 1 << 40, &array(U8, 1 << 40, &[]));
    assert_refused(&Raw::new().entry("k", ARRAY, &array(ARRAY, 1, &inner)), &["\"k\"", "left"]);
}

#[test]
fn a_key_that_is_there_twice_is_refused_even_with_the_same_value() {
    let raw = Raw::new().entry("a.b", U8, &[1]).entry("c", U8, &[2]).entry("a.b", U8, &[1]);
    assert_refused(&raw, &["\"a.b\"", "twice"]);
}

#[test]
fn empty_overlong_and_ill_encoded_keys_are_refused() {
    assert_refused(&Raw::new().entry("", U8, &[1]), &["metadata key 0", "empty"]);
    assert_refused(&Raw::new().entry(&"k".repeat(65_536), U8, &[1]), &["65536", "65535"]);
    assert!(parse(&Raw::new().entry(&"k".repeat(65_535), U8, &[1]).file()).is_ok());
    let bad_key = [&2_u64.to_le_bytes()[..], b"a\xff", &U8.to_le_bytes(), &[1]].concat();
    assert_refused(&Raw::new().entry_bytes(&bad_key), &["metadata key 0", "UTF-8", "1 of 2"]);
}

#[test]
fn ill_encoded_strings_are_refused_alone_and_in_arrays() {
    let bad = [&3_u64.to_le_bytes()[..], b"ab\x80"].concat();
    assert_refused(&Raw::new().entry("s", STR, &bad), &["\"s\"", "UTF-8"]);
    let elems = [str("fine"), bad].concat();
    assert_refused(&Raw::new().entry("s", ARRAY, &array(STR, 2, &elems)), &["\"s\"", "UTF-8"]);
}

#[test]
fn unknown_value_types_are_refused_alone_and_in_arrays() {
    for id in [13, 255, u32::MAX] {
        assert_refused(&Raw::new().entry("k", id, &[0; 8]), &["\"k\"", &format!("type {id}")]);
        assert_refused(&Raw::new().entry("k", ARRAY, &array(id, 1, &[0; 8])), &["\"k\"", &format!("type {id}")]);
    }
}

#[test]
fn bools_are_0_or_1() {
    assert_refused(&Raw::new().entry("b", BOOL, &[2]), &["\"b\"", "bool of 2"]);
    assert_refused(&Raw::new().entry("b", ARRAY, &array(BOOL, 3, &[0, 1, 255])), &["\"b\"", "bool of 255"]);
    let file = Raw::new().entry("b", ARRAY, &array(BOOL, 3, &[0, 1, 0])).file();
    assert_eq!(parse(&file).unwrap().metadata().bools("b").unwrap(), [false, true, false]);
}

#[test]
fn floats_that_are_not_finite_are_refused_alone_and_in_arrays() {
    for float in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_refused(&Raw::new().entry("f", F32, &float.to_le_bytes()), &["\"f\"", "finite"]);
        assert_refused(&Raw::new().entry("f", F64, &f64::from(float).to_le_bytes()), &["\"f\"", "finite"]);
        let elems = [1.0_f32.to_le_bytes(), float.to_le_bytes()].concat();
        assert_refused(&Raw::new().entry("f", ARRAY, &array(F32, 2, &elems)), &["\"f\"", "index 1"]);
    }
}

#[test]
fn every_cut_of_the_metadata_says_what_is_missing() {
    let file = Raw::new()
        .entry("name", STR, &str("muse"))
        .entry("tokens", ARRAY, &array(STR, 2, &[str("a"), str("b")].concat()))
        .entry("x", U64, &[0; 8])
        .head();
    for len in 24..file.len() {
        let error = parse(&file[..len]).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{len}: {error}");
    }
    assert!(parse(&file).is_ok());
}

#[test]
fn a_head_too_short_is_told_from_a_file_too_short() {
    let file = Raw::new().entry("name", STR, &str("muse")).tensor("t", &[8], 0, 0).data(32).file();
    let head_len = Raw::new().entry("name", STR, &str("muse")).tensor("t", &[8], 0, 0).head().len();
    for len in 0..head_len {
        match Gguf::parse(&file[..len], file.len() as u64).unwrap_err() {
            Error::HeadTooShort { needed_bytes, head_bytes, file_bytes, .. } => {
                assert_eq!((head_bytes, file_bytes), (len as u64, file.len() as u64));
                assert!(needed_bytes > head_bytes && needed_bytes <= head_len as u64);
            }
            error => panic!("{len}: {error}"),
        }
    }
    for len in head_len..=file.len() {
        assert_eq!(Gguf::parse(&file[..len], file.len() as u64).unwrap(), parse(&file).unwrap());
    }
    // What is missing ends exactly with the file.
    let file = Raw::new().entry("x", U64, &[0; 8]).file();
    let error = Gguf::parse(&file[..file.len() - 8], file.len() as u64).unwrap_err();
    assert!(matches!(error, Error::HeadTooShort { needed_bytes, .. } if needed_bytes == file.len() as u64));
    assert!(matches!(Gguf::parse(&file, 40).unwrap_err(), Error::HeadLongerThanFile { file_bytes: 40, .. }));
}

#[test]
fn integers_of_every_width_answer_for_each_other_within_range() {
    let file = Raw::new()
        .entry("u8", U8, &[200])
        .entry("i32", I32, &(-5_i32).to_le_bytes())
        .entry("u64", U64, &(1_u64 << 40).to_le_bytes())
        .entry("ints", ARRAY, &array(I32, 2, &[3_i32.to_le_bytes(), (-4_i32).to_le_bytes()].concat()))
        .file();
    let gguf = parse(&file).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.u32("u8").unwrap(), 200);
    assert_eq!(metadata.u64("u64").unwrap(), 1 << 40);
    assert_eq!(metadata.opt_u32("none").unwrap(), None);
    assert_eq!(metadata.ints::<i8>("ints").unwrap(), [3, -4]);
    let message = metadata.u32("i32").unwrap_err().to_string();
    assert!(message.contains("\"i32\" has -5") && message.contains("u32"), "{message}");
    let message = metadata.u32("u64").unwrap_err().to_string();
    assert!(message.contains("1099511627776"), "{message}");
    let message = metadata.ints::<u32>("ints").unwrap_err().to_string();
    assert!(message.contains("-4 at index 1"), "{message}");
}

#[test]
fn a_value_of_another_type_is_refused_naming_both_types() {
    let file = Raw::new()
        .entry("s", STR, &str("12"))
        .entry("u", U32, &[1, 0, 0, 0])
        .entry("f", F64, &1e300_f64.to_le_bytes())
        .file();
    let gguf = parse(&file).unwrap();
    let metadata = gguf.metadata();
    let says = |error: Error, parts: [&str; 2]| {
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    says(metadata.u32("s").unwrap_err(), ["is str \"12\"", "expected u32"]);
    says(metadata.opt_u32("s").unwrap_err(), ["is str \"12\"", "expected u32"]);
    says(metadata.str("u").unwrap_err(), ["is u32 1", "expected str"]);
    says(metadata.f32("u").unwrap_err(), ["is u32 1", "expected f32"]);
    says(metadata.bool("u").unwrap_err(), ["is u32 1", "expected bool"]);
    says(metadata.strs("u").unwrap_err(), ["is u32 1", "expected an array of str"]);
    says(metadata.f32("f").unwrap_err(), ["\"f\"", "range of f32"]);
    says(metadata.str("none").unwrap_err(), ["\"none\" is missing", "expected str"]);
}

#[test]
fn arrays_beside_a_vocabulary_are_held_to_its_type_and_length() {
    let file = Raw::new()
        .entry("tokens", ARRAY, &array(STR, 2, &[str("a"), str("b")].concat()))
        .entry("bytes", ARRAY, &array(U8, 2, &[1, 1]))
        .entry("scores", ARRAY, &array(F32, 1, &[0; 4]))
        .file();
    let gguf = parse(&file).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.strs("tokens").unwrap(), ["a", "b"]);
    let message = metadata.floats("bytes").unwrap_err().to_string();
    assert!(message.contains("an array of 2 u8, expected an array of f32"), "{message}");
    let message = metadata.i32s("bytes").unwrap_err().to_string();
    assert!(message.contains("an array of 2 u8, expected an array of i32"), "{message}");
    let message = metadata.expect_len("scores", 2).unwrap_err().to_string();
    assert!(message.contains("array of 1, expected 2"), "{message}");
    assert!(metadata.expect_len("tokens", 2).is_ok() && metadata.expect_len("none", 2).is_ok());
}

#[test]
fn names_from_the_file_are_escaped_and_cut_in_messages() {
    let message = refusal(&Raw::new().entry(&format!("\x1b[2J{}", "k".repeat(1000)), U8, &[]));
    assert!(!message.contains('\x1b') && message.len() < 300, "{message:?}");
}
