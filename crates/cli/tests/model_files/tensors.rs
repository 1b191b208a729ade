//! Rows 1 to 5, 12 and 16: what the tensor table claims.

use crate::child::{unreadable, unusable, usable};
use crate::raw::{I32, N_EMBD, NARROW, Raw, STR, TENSOR_F32, TENSOR_Q8_0, U32, U64, str};

const NAME: &str = "blk.0.attn_v.weight";

#[test]
fn a_dimension_of_0_is_refused_naming_tensor_and_dimension() {
    for (dims, dim) in [(vec![0], 0), (vec![256, 0], 1), (vec![0, 0], 0), (vec![256, 32, 0], 2), (vec![1, 1, 1, 0], 3)]
    {
        let raw = Raw::byte_level().changed(NAME, |tensor| tensor.dims.clone_from(&dims));
        unreadable(&raw.file(), &[&format!("tensor {NAME:?} has dimension {dim} of 0 in {dims:?}")]);
    }
}

#[test]
fn the_number_of_dimensions_is_1_to_4() {
    for n_dims in [0, 5, 300] {
        let raw = Raw::byte_level().changed(NAME, |tensor| tensor.dims = vec![1; n_dims]);
        unreadable(&raw.file(), &[&format!("tensor {NAME:?} has {n_dims} dimensions, expected 1 to 4")]);
    }
}

#[test]
fn sizes_that_wrap_are_refused_whichever_product_does() {
    for dims in [
        vec![1 << 22, (1 << 42) + 1],
        vec![256, (1 << 56) + 1],
        vec![1 << 32, 1 << 32],
        vec![1 << 63, 2],
        vec![32, 1 << 20, 1 << 20, 1 << 20],
        vec![1 << 62, 1 << 1, 1 << 1],
    ] {
        for ty in [TENSOR_F32, TENSOR_Q8_0] {
            let raw = Raw::byte_level().changed(NAME, |tensor| (tensor.dims, tensor.ty) = (dims.clone(), ty));
            unreadable(&raw.file(), &[&format!("tensor {NAME:?} of {dims:?} has a size that overflows")]);
        }
    }
    // No product wraps: there are only too many of them for the file.
    let raw = Raw::byte_level().changed(NAME, |tensor| tensor.dims = vec![256, (1 << 42) + 1]);
    unreadable(&raw.file(), &[&format!("tensor {NAME:?} has"), "needs a file of", "cut short"]);
}

#[test]
fn a_file_cut_short_says_what_it_needs_and_has() {
    let whole = Raw::byte_level().file();
    for cut in [1, 1000, 20_000, 60_000] {
        let len = whole.len() - cut;
        let says = format!("needs a file of {} bytes, but it has {len}: the file is cut short", whole.len());
        unreadable(&whole[..len], &["tensor \"output_norm.weight\"", &says]);
    }
}

#[test]
fn an_offset_past_the_end_is_refused_also_where_its_sum_wraps() {
    for offset in [1 << 20, 1 << 40, 1 << 63, u64::MAX - 31] {
        let raw = Raw::byte_level().changed(NAME, |tensor| tensor.offset = Some(offset));
        unreadable(&raw.file(), &[&format!("tensor {NAME:?}"), "needs a file of", "cut short"]);
    }
}

#[test]
fn a_tensor_that_is_there_twice_is_refused_also_with_the_same_bytes() {
    let raw = Raw::byte_level().tensor(NAME, &[N_EMBD, NARROW], TENSOR_Q8_0);
    unreadable(&raw.file(), &[&format!("tensor {NAME:?} is there twice")]);
    let raw = Raw::byte_level().tensor(NAME, &[1], TENSOR_F32);
    unreadable(&raw.file(), &[&format!("tensor {NAME:?} is there twice")]);
}

#[test]
fn a_key_that_is_there_twice_is_refused() {
    let raw = Raw::byte_level().entry("llama.block_count", U32, &1_u32.to_le_bytes());
    unreadable(&raw.file(), &["metadata key \"llama.block_count\" is there twice"]);
}

#[test]
fn any_multiple_of_8_is_an_alignment_and_nothing_else_is() {
    for alignment in [8_u32, 16, 24, 40, 4096] {
        let raw = Raw { alignment: alignment.into(), ..Raw::byte_level() };
        usable(&raw.with("general.alignment", U32, &alignment.to_le_bytes()));
    }
    for alignment in [0, 1, 4, 12, 33, 1 << 22, 1 << 31, u32::MAX] {
        let raw = Raw::byte_level().with("general.alignment", U32, &alignment.to_le_bytes());
        unreadable(&raw.file(), &[&format!("general.alignment is u32 {alignment}, expected a u32, a multiple of 8")]);
    }
    for (ty, value, shown) in [
        (I32, (-32_i32).to_le_bytes().to_vec(), "i32 -32"),
        (I32, 32_i32.to_le_bytes().to_vec(), "i32 32"),
        (U64, 32_u64.to_le_bytes().to_vec(), "u64 32"),
        (STR, str("32"), "str \"32\""),
    ] {
        let raw = Raw::byte_level().with("general.alignment", ty, &value);
        unreadable(&raw.file(), &[&format!("general.alignment is {shown}, expected a u32")]);
    }
    // The data lie as another alignment would have them.
    let raw = Raw { alignment: 64, ..Raw::byte_level() };
    unreadable(&raw.file(), &[]);
}

#[test]
fn tensors_that_overlap_leave_holes_or_start_misaligned_are_refused() {
    let at = |offset: u64| Raw::byte_level().changed("blk.0.attn_norm.weight", |tensor| tensor.offset = Some(offset));
    let embd_bytes = Raw::byte_level().tensors[0].size_bytes.next_multiple_of(32);
    usable(&at(embd_bytes));
    unreadable(&at(embd_bytes - 32).file(), &["\"token_embd.weight\" and \"blk.0.attn_norm.weight\" overlap"]);
    unreadable(&at(0).file(), &["\"blk.0.attn_norm.weight\"", "overlap"]);
    unreadable(&at(embd_bytes + 32).file(), &["48 unused bytes before tensor \"blk.0.attn_norm.weight\""]);
    for off in [1, 8, 31] {
        let offset = embd_bytes + off;
        unreadable(&at(offset).file(), &[&format!("starts at data offset {offset}, expected a multiple of 32")]);
    }
    // Bytes that no tensor has: between two, before the first, after the last.
    let with_hole = |before: &str, bytes: u64| Raw::byte_level().changed(before, |tensor| tensor.size_bytes += bytes);
    unreadable(
        &with_hole("blk.0.attn_q.weight", 64).file(),
        &["64 unused bytes before tensor \"blk.0.attn_k.weight\""],
    );
    unreadable(&with_hole("output_norm.weight", 32).file(), &["32 bytes after the end of the last tensor"]);
    let mut raw = Raw::byte_level();
    raw.tensors.remove(0);
    let raw = raw.changed("blk.0.attn_norm.weight", |tensor| tensor.offset = Some(64));
    unreadable(&raw.file(), &["64 unused bytes before tensor \"blk.0.attn_norm.weight\""]);
}

#[test]
fn every_type_that_can_not_be_computed_is_refused_by_tensor_and_type() {
    // (id, name, elements of a block, bytes of a block)
    for (id, name, len, bytes) in [
        (9, "Q8_1", 32, 36),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (41, "Q1_0", 128, 18),
        (42, "Q2_0", 64, 18),
    ] {
        let raw = Raw::byte_level().changed(NAME, |tensor| {
            (tensor.ty, tensor.size_bytes) = (id, N_EMBD / len * bytes * NARROW);
        });
        unusable(&raw, &[&format!("tensor {NAME:?} is {name}, a type that can't be computed")]);
    }
    for id in [4, 5, 31, 36, 43, 1000, u32::MAX] {
        let raw = Raw::byte_level().changed(NAME, |tensor| tensor.ty = id);
        unreadable(&raw.file(), &[&format!("tensor {NAME:?} has type {id}")]);
    }
    // A norm has to be F32, whatever else could be computed.
    let raw = Raw::byte_level().changed("output_norm.weight", |tensor| (tensor.ty, tensor.size_bytes) = (1, 512));
    unusable(&raw, &["tensor \"output_norm.weight\" is F16, expected F32"]);
}
