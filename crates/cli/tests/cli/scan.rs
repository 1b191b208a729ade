//! The search for weights that are not finite: refused as they are loaded, with exit code 4, tensor and block.

use std::fs;
use std::path::{Path, PathBuf};

use muser_gguf::{Gguf, TensorType};
use muser_tests::model::MUSE;
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Muser, Place, Tiny, muser};

const V: &str = "blk.0.attn_v.weight";
const NORM: &str = "output_norm.weight";

fn run(path: &Path) -> Muser {
    muser(["run", "--raw", "-n", "2", "--temp", "0", "--json"]).args([path]).args(["hi"])
}

/// Writes `bytes` into a tensor, from one of its bytes on.
fn damage(path: &Path, tensor: &str, at: usize, bytes: &[u8]) {
    let mut file = fs::read(path).expect("it can be read");
    let gguf = Gguf::parse(&file, file.len() as u64).expect("a good file");
    let tensor = gguf.tensors().iter().find(|found| found.name() == tensor).expect("the tensor is there");
    let at = tensor.offset() as usize + at;
    file[at..at + bytes.len()].copy_from_slice(bytes);
    fs::write(path, file).expect("it can be written");
}

/// A tiny model with a last norm that begins with this value.
fn with_norm(place: &Place, value: f32) -> PathBuf {
    let path = place.holding_tiny(&Tiny::new());
    damage(&path, NORM, 0, &value.to_le_bytes());
    path
}

#[test]
fn a_block_of_any_type_is_refused_by_tensor_and_number() {
    let half_infinity = &[0x00, 0x7c][..];
    let half_nan = &[0x01, 0xfe][..];
    // Where in the block, what to write, and what that is.
    let cases = [
        (TensorType::Q8_0, 0, half_infinity, "inf"),
        (TensorType::Q4_0, 0, half_nan, "NaN"),
        (TensorType::Q4_1, 2, half_infinity, "inf"),
        (TensorType::Q5_0, 0, half_infinity, "inf"),
        (TensorType::Q5_1, 2, half_nan, "NaN"),
        (TensorType::Q4_K, 2, half_infinity, "inf"),
        (TensorType::Q5_K, 0, half_nan, "NaN"),
        (TensorType::Q6_K, 208, half_infinity, "inf"),
        (TensorType::IQ4_NL, 0, half_infinity, "inf"),
        (TensorType::IQ4_XS, 0, half_nan, "NaN"),
        (TensorType::MXFP4, 0, &[0xff][..], "NaN"),
        (TensorType::NVFP4, 3, &[0x7f][..], "NaN"),
        (TensorType::F32, 0, &[0x00, 0x00, 0x80, 0xff][..], "-inf"),
        (TensorType::F16, 0, &[0x00, 0xfc][..], "-inf"),
        (TensorType::BF16, 0, &[0xc0, 0x7f][..], "NaN"),
    ];
    let place = Place::new();
    for (ty, in_block, bytes, value) in cases {
        let path = place.holding_tiny(&Tiny::new().retyped(V, ty));
        run(&path).prints_json();
        let (len, size_bytes) = (ty.block_len(), ty.block_bytes() as usize);
        let last = (256 * 256 / len) as usize - 1;
        for block in [0, 129, last] {
            damage(&path, V, block * size_bytes + in_block, bytes);
            let unit = if len == 1 { "value" } else { "block" };
            let expected = format!(
                "{}: tensor {V:?} ({}): {unit} {block} holds {value}, expected finite values: the file is damaged",
                path.display(),
                ty.name()
            );
            assert_eq!(run(&path).fails(4), expected);
            damage(&path, V, block * size_bytes + in_block, &[0; 4][..bytes.len()]);
        }
        run(&path).prints_json();
    }
}

#[test]
fn every_command_that_loads_refuses_on_every_path_and_the_others_do_not_look() {
    let place = Place::new();
    let path = with_norm(&place, f32::NAN);
    let text = place.folder().join("text");
    fs::write(&text, "some words, and then some more").expect("it can be written");
    let loading = [
        run(&path),
        run(&path).args(["--load", "map"]),
        run(&path).args(["--load", "read"]),
        run(&path).args(["--load", "read", "--threads", "1"]),
        run(&path).args(["--reference"]),
        muser(["score"]).args([&path]).stdin("{\"ids\":[1],\"next\":[1]}"),
        muser(["perplexity", "--ctx", "8"]).args([&path, &text]),
        muser(["bench", "-p", "2", "-n", "0"]).args([&path]),
    ];
    for command in loading {
        let said = command.fails(4);
        assert!(said.contains("tensor \"output_norm.weight\" (F32): value 0 holds NaN"), "{said}");
    }
    for command in [muser(["tokenize"]).args([&path]).args(["hi"]), muser(["plan"]).args([&path])] {
        command.prints();
    }
    assert_eq!(muser(["inspect", "--json"]).args([&path]).prints_json()["runs"], true);
}

#[test]
fn a_damaged_file_of_a_set_is_named_whichever_was_given() {
    let place = Place::new();
    let path = |number: usize| place.folder().join(format!("tiny-{number:05}-of-00002.gguf"));
    Tiny::new().shard(0, 2, 11, 0..4).write(&path(1));
    Tiny::new().shard(1, 2, 11, 4..11).write(&path(2));
    run(&path(1)).prints_json();
    damage(&path(2), "blk.0.ffn_up.weight", 34 * 40, &[0x00, 0x7c]);
    for number in [1, 2] {
        for load in ["map", "read"] {
            let said = run(&path(number)).args(["--load", load]).fails(4);
            let expected = format!("{}: tensor \"blk.0.ffn_up.weight\" (Q8_0): block 40 holds inf", path(2).display());
            assert!(said.starts_with(&expected), "{said}");
        }
    }
}

#[test]
fn what_a_soft_cap_would_hide_is_refused_too() {
    let place = Place::new();
    let path = place.path();
    fs::copy(model_path(MUSE[0]), &path).expect("room for it");
    damage(&path, "output.weight", 4 * 12_345, &f32::INFINITY.to_le_bytes());
    let said = run(&path).fails(4);
    assert!(said.contains("tensor \"output.weight\" (F32): value 12345 holds inf"), "{said}");
    // The cap makes a number of it, so that nothing later can tell.
    let done = run(&path).args(["--no-scan"]).run();
    done.expect_code(0);
}

#[test]
fn a_load_without_the_search_says_so() {
    let place = Place::new();
    let path = with_norm(&place, f32::NAN);
    let done = run(&path).args(["--no-scan"]).run();
    done.expect_code(4);
    let expected = format!("muser: {}: not searched for weights that are not finite (--no-scan)", path.display());
    let lines: Vec<_> = done.stderr.lines().collect();
    assert_eq!(lines[0], expected);
    assert!(lines[1].contains("logits") && lines[1].contains("not finite") && lines.len() == 2, "{lines:?}");

    let path = with_norm(&place, 1.0);
    let done = run(&path).args(["--no-scan"]).run();
    done.expect_code(0);
    assert_eq!(done.stderr.trim_end(), expected);
    let document: Value = serde_json::from_str(&done.stdout).expect("it is JSON");
    assert_eq!(document.get("scan"), Some(&Value::Null), "{document}");
    let bench = muser(["bench", "--json", "--no-scan", "-p", "2", "-n", "0"]).args([&path]).prints_json();
    assert_eq!(bench["load"].get("scan"), Some(&Value::Null), "{bench}");
}

#[test]
fn the_documents_say_what_the_search_took() {
    let place = Place::new();
    let path = place.holding_tiny(&Tiny::new());
    let inspected = muser(["inspect", "--json"]).args([&path]).prints_json();
    let tensors = inspected["tensors"].as_array().expect("a list");
    let size_bytes: u64 = tensors.iter().map(|tensor| tensor["size_bytes"].as_u64().expect("a size")).sum();
    let bench = muser(["bench", "--json", "-p", "2", "-n", "0"]).args([&path]).prints_json();
    for scan in [&run(&path).prints_json()["scan"], &bench["load"]["scan"]] {
        assert_eq!(scan["size_bytes"], size_bytes, "{scan}");
        assert!(scan["thread_seconds"].as_f64() > Some(0.0), "{scan}");
    }
    let table = muser(["bench", "-p", "2", "-n", "0"]).args([&path]).prints();
    assert!(table.contains(", scanned in 0."), "{table}");
}
