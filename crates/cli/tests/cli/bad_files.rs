//! Files that are no models, or can't be run: refused with exit code 4 and by name, before anything is computed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use muser_gguf::TensorType;
use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;

use crate::support::{Muser, Place, Tiny, muser};

fn run(path: &Path) -> Muser {
    muser(["run", "--raw", "-n", "1", "--json"]).args([path]).args(["hi"])
}

/// The commands that read no more than the header, and those that load.
fn commands(path: &Path) -> [Muser; 6] {
    [
        run(path),
        muser(["score"]).args([path]).stdin("{\"ids\":[1],\"next\":[1]}"),
        muser(["perplexity"]).args([path, path]),
        muser(["tokenize"]).args([path]).args(["hi"]),
        muser(["plan"]).args([path]),
        muser(["inspect"]).args([path]),
    ]
}

#[test]
fn the_tiny_model_runs_as_it_is() {
    let place = Place::new();
    let document = run(&place.holding_tiny(&Tiny::new())).prints_json();
    assert_eq!((&document["prompt_tokens"], &document["n_ctx"]), (&2.into(), &128.into()));
}

#[test]
fn a_file_too_short_for_a_header_says_both_lengths() {
    let place = Place::new();
    let mut head = Vec::new();
    fs::File::open(model_path(MUSE[1])).expect("it opens").take(23).read_to_end(&mut head).expect("it can be read");
    for len in [0, 4, 8, 23] {
        let path = place.holding(&head[..len]);
        for command in [run(&path), muser(["inspect"]).args([&path]), muser(["tokenize"]).args([&path]).args(["hi"])] {
            let said = command.fails(4);
            let expected = format!("too short for a GGUF file: {len} bytes, and the header alone has 24");
            assert_eq!(said, format!("{}: {expected}", path.display()));
        }
    }
}

#[test]
fn another_kind_of_file_is_refused_by_its_first_bytes() {
    let place = Place::new();
    let path = place.holding(&b"\x7fELF, but not really, and then some more".repeat(9));
    for command in commands(&path) {
        let said = command.fails(4);
        assert!(said.ends_with("it starts with \"\\x7fELF\", expected \"GGUF\""), "{said}");
    }
}

#[test]
fn a_file_cut_anywhere_says_what_it_needs_and_has() {
    let mut bytes = fs::read(model_path(MUSE[1])).expect("it can be read");
    let place = Place::new();
    let whole = bytes.len();
    let cuts = [24, 100, 1000, 10_000, whole / 2, whole - 1];
    for len in cuts.into_iter().rev() {
        bytes.truncate(len);
        let path = place.holding(&bytes);
        for command in [run(&path), muser(["inspect"]).args([&path]), muser(["plan"]).args([&path])] {
            let said = command.fails(4);
            assert!(said.starts_with(&format!("{}: ", path.display())) && said.contains(" needs "), "{said}");
            let has = if said.contains("tensor \"") {
                format!("needs a file of {whole} bytes, but it has {len}: the file is cut short")
            } else {
                "but the file has ".to_owned()
            };
            assert!(said.contains(&has), "cut at {len}: {said}");
        }
    }
    // In the middle of the weights, it is a tensor that is missed.
    let path = place.holding(&fs::read(model_path(MUSE[1])).expect("it can be read")[..whole / 2]);
    assert!(run(&path).fails(4).contains("tensor \""));
}

#[test]
fn an_unknown_architecture_version_and_byte_order_are_refused() {
    let place = Place::new();
    let said = run(&place.holding_tiny(&Tiny::new().with("general.architecture", "mamba"))).fails(4);
    assert!(said.contains("architecture \"mamba\" can't be run, expected one of: "), "{said}");
    for architecture in ["llama", "gemma3", "muse-glimmer"] {
        assert!(said.contains(architecture), "{said}");
    }
    let mut bytes = fs::read(place.holding_tiny(&Tiny::new())).expect("it can be read");
    for (version, expected) in [(99u32.to_le_bytes(), "99"), (0u32.to_le_bytes(), "0"), (3u32.to_be_bytes(), "endian")]
    {
        bytes[4..8].copy_from_slice(&version);
        let path = place.holding(&bytes);
        for command in [run(&path), muser(["inspect"]).args([&path])] {
            let said = command.fails(4);
            assert!(said.contains("version") || said.contains("endian"), "{said}");
            assert!(said.contains(expected), "{said}");
        }
    }
}

#[test]
fn a_missing_or_unknown_pre_tokenizer_is_refused_unless_one_is_forced() {
    let place = Place::new();
    let missing = Tiny::new().without("tokenizer.ggml.pre");
    let unknown = Tiny::new().with("tokenizer.ggml.pre", "klingon");
    for (model, expected) in [(missing, "names no pre-tokeniser"), (unknown, "pre-tokeniser \"klingon\"")] {
        let path = place.holding_tiny(&model);
        let said = run(&path).fails(4);
        assert!(said.contains(expected) && said.contains("gpt-2"), "{said}");
        assert!(muser(["tokenize"]).args([&path]).args(["hi"]).fails(4).contains(expected));
        assert_eq!(run(&path).args(["--force-pre", "gpt-2"]).prints_json()["prompt_tokens"], 2);
        // The flag, and not the file, is then to blame for a name that nobody knows.
        let said = run(&path).args(["--force-pre", "vulcan"]).fails(2);
        assert!(said.starts_with("--force-pre: ") && said.contains("\"vulcan\""), "{said}");
    }
}

#[test]
fn a_type_that_can_not_be_computed_is_refused_by_tensor_and_type() {
    let place = Place::new();
    let types =
        [TensorType::Q2_K, TensorType::Q3_K, TensorType::IQ2_XXS, TensorType::TQ1_0, TensorType::I8, TensorType::F64];
    for ty in types {
        let path = place.holding_tiny(&Tiny::new().retyped("blk.0.attn_v.weight", ty));
        let expected = format!("tensor \"blk.0.attn_v.weight\" is {}, a type that can't be computed", ty.name());
        let said = run(&path).fails(4);
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn everything_that_is_wrong_with_the_keys_is_said_at_once() {
    let place = Place::new();
    let model = Tiny::new()
        .without("llama.block_count")
        .without("llama.embedding_length")
        .with("llama.attention.head_count", 0u32);
    let said = run(&place.holding_tiny(&model)).fails(4);
    for key in ["llama.block_count", "llama.embedding_length", "llama.attention.head_count"] {
        assert!(said.contains(key), "{key}: {said}");
    }
}

#[test]
fn random_bytes_after_a_good_start_are_refused() {
    let place = Place::new();
    let good = fs::read(place.holding_tiny(&Tiny::new())).expect("it can be read");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(100_000)
    .collect();
    for kept in [4, 8, 16, 24, 60, 400, 2000] {
        let path = place.holding(&[&good[..kept], &noise[..]].concat());
        let said = run(&path).fails(4);
        assert!(said.starts_with(&format!("{}: ", path.display())), "{said}");
        assert!(said.len() < 1000, "{} bytes of message", said.len());
    }
}

#[test]
fn a_path_that_holds_no_file_is_a_failure_that_names_it() {
    let place = Place::new();
    let folder = place.folder();
    let missing = folder.join("missing.gguf");
    let dangling = folder.join("dangling.gguf");
    symlink(&missing, &dangling).expect("a link");
    for path in [missing, dangling] {
        for command in commands(&path) {
            let said = command.fails(1);
            assert!(said.contains(&path.display().to_string()) && said.contains("No such file"), "{said}");
        }
    }
    let said = run(folder).fails(1);
    assert_eq!(said, format!("{}: not a regular file", folder.display()));
    assert!(run(Path::new("/dev/null")).fails(1).ends_with("not a regular file"));
}

#[test]
fn a_file_without_the_right_to_read_is_a_failure() {
    let place = Place::new();
    let path = place.holding(b"GGUF");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).expect("it is ours");
    // To the superuser every file is open.
    if fs::File::open(&path).is_err() {
        assert!(run(&path).fails(1).contains("Permission denied"));
    } else {
        assert!(run(&path).fails(4).contains("too short"));
    }
}

#[test]
fn a_model_may_be_a_link_and_have_any_name() {
    let place = Place::new();
    let path = place.folder().join("mödel with spaces");
    symlink(model_path(SMOLLM2), &path).expect("a link");
    assert_eq!(muser(["tokenize"]).args([&path]).args(["hi", "--json"]).prints_json()["pieces"][0], "hi");
}

#[test]
fn a_template_that_leaves_out_what_was_said_is_refused() {
    let place = Place::new();
    for template in ["", "fixed text"] {
        let model = Tiny::new().with("tokenizer.chat_template", template);
        let said = muser(["run", "-n", "1"]).args([place.holding_tiny(&model)]).args(["hi"]).fails(4);
        assert_eq!(said, "the chat template leaves out all that was said; --raw continues a text without it");
    }
}

#[test]
fn a_megabyte_of_one_character_is_a_text_like_any_other() {
    let place = Place::new();
    let path = place.holding_tiny(&Tiny::new());
    for unit in ["x", " ", "\t", "😀", "7", "<|end|>"] {
        let text = unit.repeat((1 << 20) / unit.len());
        // The vocabulary has a token for each byte, and no merges.
        let document = muser(["tokenize", "--json"]).args([&path]).stdin(&text).prints_json();
        assert_eq!(document["ids"].as_array().expect("a list").len(), text.len(), "{unit:?}");
        let said = muser(["run", "--raw"]).args([&path]).stdin(&text).fails(2);
        assert!(said.contains(&format!("the prompt has {} tokens, and the context holds 128", text.len())), "{said}");
    }
}
