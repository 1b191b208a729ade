//! Rows 9, 10 and 13: short files, claims of what the file has no bytes for, other formats and versions.

use crate::child::{OnDisk, RUN, unreadable, unusable, usable};
use crate::raw::{ARRAY, F64, I64, Raw, STR, TENSOR_F32, U8, U16, U32, U64, array, str};

#[test]
fn the_files_that_the_other_tests_break_run() {
    usable(&Raw::byte_level());
    usable(&Raw::scored());
    usable(&Raw { version: 2_u32.to_le_bytes(), ..Raw::byte_level() });
}

#[test]
fn a_file_shorter_than_the_header_is_too_short() {
    let whole = Raw::byte_level().file();
    for len in [0, 1, 4, 8, 23] {
        let says = format!("too short for a GGUF file: {len} bytes, and the header alone has 24");
        unreadable(&whole[..len], &[&says]);
    }
    unreadable(&[0; 23], &["too short for a GGUF file: 23 bytes"]);
}

#[test]
fn a_file_that_ends_in_its_metadata_or_table_says_what_it_needs_and_has() {
    let whole = Raw::byte_level().file();
    for len in [24, 25, 40, 100, 600, 1200] {
        unreadable(&whole[..len], &["needs", "but the file has"]);
    }
}

#[test]
fn counts_of_keys_and_tensors_are_held_against_the_file() {
    for count in [1 << 20, 1 << 32, 1 << 60, u64::MAX] {
        let raw = Raw { n_metadata: Some(count), ..Raw::byte_level() };
        unreadable(&raw.file(), &[&format!("metadata of {count} keys needs")]);
        let raw = Raw { n_tensors: Some(count), ..Raw::byte_level() };
        unreadable(&raw.file(), &[&format!("table of {count} tensors needs")]);
    }
    // Counts that are wrong by one are found by what then stands in the wrong place.
    let (n_metadata, n_tensors) = (Raw::byte_level().metadata.len() as u64, Raw::byte_level().tensors.len() as u64);
    for count in [n_metadata - 1, n_metadata + 1] {
        unreadable(&Raw { n_metadata: Some(count), ..Raw::byte_level() }.file(), &[]);
    }
    for count in [0, n_tensors - 1, n_tensors + 1] {
        unreadable(&Raw { n_tensors: Some(count), ..Raw::byte_level() }.file(), &[]);
    }
}

#[test]
fn strings_and_arrays_are_held_against_the_file() {
    for len in [1 << 20, 1 << 40, u64::MAX] {
        let value = [&len.to_le_bytes()[..], b"llama"].concat();
        let raw = Raw::byte_level().with("general.name", STR, &value);
        unreadable(&raw.file(), &["\"general.name\"", &format!("needs {len} bytes")]);
        for elem_type in [U8, U16, U64, I64, F64, STR, ARRAY] {
            let raw = Raw::byte_level().with("general.tags", ARRAY, &array(elem_type, len, &[0; 64]));
            unreadable(&raw.file(), &["\"general.tags\"", "needs"]);
        }
    }
}

#[test]
fn arrays_nest_to_a_limit() {
    let nested = |levels: u32| (1..levels).fold(array(U8, 1, &[7]), |inner, _| array(ARRAY, 1, &inner));
    usable(&Raw::byte_level().with("general.deep", ARRAY, &nested(4)));
    for levels in [5, 10_000] {
        let raw = Raw::byte_level().with("general.deep", ARRAY, &nested(levels));
        unreadable(&raw.file(), &["\"general.deep\"", "levels of arrays", "at most 4"]);
    }
}

#[test]
fn what_takes_more_memory_than_bytes_of_the_file_is_limited() {
    // Arrays of nothing, tensors of a number: as many as are accepted, and one more.
    let arrays = |len: u32| array(ARRAY, len.into(), &array(ARRAY, 0, &[]).repeat(len as usize));
    usable(&Raw::byte_level().with("general.wide", ARRAY, &arrays(65_536)));
    let raw = Raw::byte_level().with("general.wide", ARRAY, &arrays(65_537));
    unreadable(&raw.file(), &["arrays in arrays up to the value of metadata key \"general.wide\": 65537"]);

    let mut raw = Raw { alignment: 8, ..Raw::byte_level() }.with("general.alignment", U32, &8_u32.to_le_bytes());
    for number in raw.tensors.len()..131_072 {
        raw = raw.tensor(&number.to_string(), &[1], TENSOR_F32);
    }
    OnDisk::new(&raw.file()).muser(&RUN).refused(4, &["tensors that this architecture does not use: \"11\", "]);
    let raw = raw.tensor("more", &[1], TENSOR_F32);
    unreadable(&raw.file(), &["tensors: 131073, expected at most 131072"]);
}

#[test]
fn other_formats_versions_and_byte_orders_are_refused_from_the_header() {
    unreadable(&Raw { magic: *b"\x7fELF", ..Raw::byte_level() }.file(), &["starts with \"\\x7fELF\"", "GGUF"]);
    for version in [0_u32, 1, 4, 99, u32::MAX] {
        let raw = Raw { version: version.to_le_bytes(), n_metadata: Some(u64::MAX), ..Raw::byte_level() };
        unreadable(&raw.file(), &[&format!("GGUF version {version} can't be read, expected 2 to 3")]);
    }
    unreadable(&Raw { version: 3_u32.to_be_bytes(), ..Raw::byte_level() }.file(), &["big-endian"]);
    unreadable(&Raw { magic: *b"FUGG", ..Raw::byte_level() }.file(), &["big-endian"]);
}

#[test]
fn an_unknown_architecture_is_refused_with_those_known() {
    for architecture in ["mamba", "", "llama4", "LLAMA"] {
        let raw = Raw::byte_level().with("general.architecture", STR, &str(architecture));
        unusable(&raw, &[&format!("architecture {architecture:?} can't be run"), "gemma3, llama, muse-glimmer"]);
    }
    unusable(&Raw::byte_level().without("general.architecture"), &["\"general.architecture\" is missing"]);
    let raw = Raw::byte_level().with("general.architecture", U8, &[1]);
    unusable(&raw, &["\"general.architecture\" is u8 1, expected str"]);
}
