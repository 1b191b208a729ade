//! Sets of files: any of them opens the whole, and a set with a fault is refused with exit code 4.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{Muser, Place, Tiny, muser};

/// Tensors of the tiny model.
const N: i32 = 11;

/// A folder with a set of three files.
struct Set(Place);

impl Set {
    /// The tiny model: the first file has no tensor, the others have four and seven.
    fn new() -> Self {
        Self::of(&[
            Tiny::new().shard(0, 3, N, 0..0),
            Tiny::new().shard(1, 3, N, 0..4),
            Tiny::new().shard(2, 3, N, 4..11),
        ])
    }

    fn of(shards: &[Tiny; 3]) -> Self {
        let set = Self(Place::new());
        shards.iter().zip(1..).for_each(|(shard, number)| shard.write(&set.path(number)));
        set
    }

    /// The file of that number, from 1.
    fn path(&self, number: usize) -> PathBuf {
        self.0.folder().join(format!("tiny-{number:05}-of-00003.gguf"))
    }

    /// Checks that every command refuses the set, whichever of its files it is given, and says the same of it.
    fn is_refused(&self, expected: &str) {
        for path in [1, 2, 3].map(|number| self.path(number)).into_iter().filter(|path| path.exists()) {
            for command in commands(&path) {
                let said = command.fails(4);
                assert!(said.contains(expected), "{said}");
            }
        }
    }
}

fn run(path: &Path) -> Muser {
    muser(["run", "--raw", "-n", "4", "--temp", "0", "--json"]).args([path]).args(["hi"])
}

/// The commands that read no more than the header, and those that load.
fn commands(path: &Path) -> [Muser; 7] {
    [
        run(path),
        muser(["score"]).args([path]).stdin("{\"ids\":[1],\"next\":[1]}"),
        muser(["perplexity"]).args([path, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))]),
        muser(["tokenize"]).args([path]).args(["hi"]),
        muser(["plan", "--json"]).args([path]),
        muser(["inspect"]).args([path]),
        muser(["split"]).args([path]).args([path.with_file_name("again")]),
    ]
}

#[test]
fn any_file_of_a_set_opens_the_whole() {
    let (set, place) = (Set::new(), Place::new());
    let whole = place.holding_tiny(&Tiny::new());
    let text = place.folder().join("text");
    fs::write(&text, "some words, and then some more").expect("it can be written");
    let same = |path: &Path| {
        let answer = run(path).prints_json();
        let score = muser(["score"]).args([path]).stdin("{\"ids\":[1,2],\"next\":[3,4]}").prints();
        let perplexity = muser(["perplexity"]).args([path, &text]).args(["--ctx", "8", "--json"]).prints();
        let tokens = muser(["tokenize"]).args([path]).args(["hi"]).prints();
        let mut plan = muser(["plan", "--json", "--ctx", "64"]).args([path]).prints_json();
        // Each file of a set has a header of its own.
        let rows = plan["rows"].as_array_mut().expect("a list");
        rows.retain(|row| row["what"] != "header and vocabulary");
        (answer["ids"].clone(), score, perplexity, tokens, plan["rows"].clone())
    };
    let expected = same(&whole);
    assert_eq!(expected.0.as_array().map(Vec::len), Some(4));
    for number in 1..=3 {
        assert_eq!(same(&set.path(number)), expected, "opened by file {number}");
    }
    for path in ["map", "read"] {
        assert_eq!(run(&set.path(2)).args(["--load", path]).prints_json()["ids"], expected.0);
    }
}

#[test]
fn a_set_is_shown_with_its_files_and_the_file_of_each_tensor() {
    let set = Set::new();
    let document = muser(["inspect", "--json"]).args([set.path(3)]).prints_json();
    assert_eq!(document["runs"], true, "{document}");
    let files = document["files"].as_array().expect("a list");
    let paths: Vec<_> = files.iter().map(|file| PathBuf::from(file["path"].as_str().expect("a path"))).collect();
    assert_eq!(paths, [1, 2, 3].map(|number| set.path(number)));
    let sizes: u64 = files.iter().map(|file| file["size_bytes"].as_u64().expect("a size")).sum();
    assert_eq!(document["size_bytes"], sizes);
    let tensors = document["tensors"].as_array().expect("a list");
    let in_files: Vec<_> = tensors.iter().map(|tensor| tensor["file"].as_u64().expect("a number")).collect();
    assert_eq!(in_files, [1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(document["metadata"]["general.architecture"]["value"], "llama");

    let text = muser(["inspect", "--tensors"]).args([set.path(1)]).prints();
    assert!(text.starts_with("files    3, GGUF version 3, "), "{text}");
    for (number, n_tensors) in [(1, 0), (2, 4), (3, 7)] {
        let name = format!("tiny-{number:05}-of-00003.gguf");
        let line = text.lines().find(|line| line.ends_with(&name)).expect("a line for each file");
        assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>(), [number.to_string(), n_tensors.to_string()]);
    }
    let line = |name: &str| text.lines().find(|line| line.contains(name)).expect("a line").trim_start().to_owned();
    assert!(line("token_embd.weight").starts_with("2 ") && line("output_norm.weight").starts_with("3 "), "{text}");
}

#[test]
fn a_missing_file_is_named() {
    for number in 1..=3 {
        let set = Set::new();
        fs::remove_file(set.path(number)).expect("it is there");
        let expected = format!("shard {number} of 3 of its set is missing, expected at {}", set.path(number).display());
        set.is_refused(&expected);
        // A link to nothing is no file.
        symlink("/no/such/file", set.path(number)).expect("a link");
        set.is_refused(&expected);
    }
}

#[test]
fn a_damaged_file_is_named_whichever_was_given() {
    let set = Set::new();
    let bytes = fs::read(set.path(2)).expect("it is there");
    for (len, expected) in [(0, "too short"), (30, " needs "), (bytes.len() - 100, "the file is cut short")] {
        fs::write(set.path(2), &bytes[..len]).expect("it can be written");
        set.is_refused(&format!("{}: ", set.path(2).display()));
        set.is_refused(expected);
    }
}

#[test]
fn files_of_two_sets_are_told_apart() {
    let first = || Tiny::new().shard(0, 3, N, 0..0);
    let third = || Tiny::new().shard(2, 3, N, 4..11);
    let shard = |n_tensors| Tiny::new().shard(1, 3, n_tensors, 0..4);

    let set = Set::of(&[first(), shard(20), third()]);
    set.is_refused("00002-of-00003.gguf: shard 2 of the set has split.tensors.count 20, expected 11");
    let set = Set::of(&[first(), shard(N).with("general.architecture", "gemma3"), third()]);
    set.is_refused(
        "has metadata key \"general.architecture\" as str \"gemma3\", where the first shard has str \"llama\"",
    );
    let set = Set::of(&[first(), shard(N).with("llama.block_count", 7u32), third()]);
    set.is_refused("00002-of-00003.gguf: shard 2 of the set has metadata key \"llama.block_count\" as u32 7, where");
    let set = Set::of(&[first(), shard(N).with("general.name", "another"), third()]);
    set.is_refused("\"general.name\" as str \"another\", where the first shard has nothing");
    // A whole model among the shards.
    let set = Set::of(&[first(), Tiny::new(), third()]);
    let said = run(&set.path(1)).fails(4);
    assert!(said.ends_with("shard 2 of the set has no split.* keys: it is a file of its own"), "{said}");
    assert_eq!(run(&set.path(2)).prints_json()["prompt_tokens"], 2, "and it is one");
}

#[test]
fn a_tensor_twice_and_a_wrong_total_are_refused() {
    let first = || Tiny::new().shard(0, 3, N, 0..0);
    let set = Set::of(&[first(), Tiny::new().shard(1, 3, N, 0..4), Tiny::new().shard(2, 3, N, 3..10)]);
    set.is_refused("tensor \"blk.0.attn_k.weight\" is there twice: in shard 2 and in shard 3 of the set");
    for (last, found) in [(4..10, 10), (3..11, 12)] {
        let set = Set::of(&[first(), Tiny::new().shard(1, 3, N, 0..4), Tiny::new().shard(2, 3, N, last)]);
        set.is_refused(&format!("the shards hold {found} tensors, expected 11 (split.tensors.count)"));
    }
    let set = Set::of(&[first(), Tiny::new().shard(1, 3, N, 0..0), Tiny::new().shard(2, 3, 5, 0..11)]);
    set.is_refused("the shards hold 11 tensors, expected 5 (split.tensors.count)");
}

#[test]
fn a_file_under_anothers_name_is_refused() {
    let set = Set::new();
    let aside = set.0.folder().join("aside");
    for (from, to) in [(set.path(2), aside.clone()), (set.path(3), set.path(2)), (aside, set.path(3))] {
        fs::rename(from, to).expect("it can be renamed");
    }
    for (number, says, suffix) in [(2, 3, "-00003-of-00003.gguf"), (3, 2, "-00002-of-00003.gguf")] {
        let said = run(&set.path(number)).fails(4);
        let expected = format!("it says that it is shard {says} of 3 of a set (split.no {}", says - 1);
        assert!(said.contains(&expected) && said.ends_with(&format!("its name must end in \"{suffix}\"")), "{said}");
    }
    let said = run(&set.path(1)).fails(4);
    assert!(said.ends_with("00002-of-00003.gguf: shard 2 of the set says it is shard 3 (split.no 2)"), "{said}");
}

#[test]
fn a_file_whose_name_does_not_lead_to_the_others_says_what_would() {
    let set = Set::new();
    for name in ["model.gguf", "tiny-1-of-3.gguf", "tiny-00001-of-00004.gguf", "tiny-00001-of-00003.bin"] {
        let path = set.0.folder().join(name);
        fs::copy(set.path(1), &path).expect("it can be copied");
        for command in commands(&path) {
            let said = command.fails(4);
            assert!(said.ends_with("its name must end in \"-00001-of-00003.gguf\""), "{name}: {said}");
        }
    }
}

#[test]
fn numbers_that_no_set_has_are_refused() {
    let place = Place::new();
    let path = place.folder().join("tiny-00001-of-00003.gguf");
    let keys = |no: Value, count: Value| {
        let int = |value: Value| value.as_i64().expect("an integer");
        let model = Tiny::new().with("split.no", int(no)).with("split.count", int(count));
        model.with("split.tensors.count", N).write(&path);
        run(&path).fails(4)
    };
    for (no, count, expected) in [
        (3, 3, "split.no is 3 (counted from 0) of 3 shards"),
        (-1, 3, "\"split.no\" has -1 at index 0, out of the range of u64"),
        (0, i64::MAX, "shard 1 of 9223372036854775807 of a set"),
        (i64::MAX - 1, i64::MAX, "shard 9223372036854775807 of 9223372036854775807 of a set"),
    ] {
        let said = keys(no.into(), count.into());
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_file_that_is_a_whole_set_needs_no_name() {
    let place = Place::new();
    run(&place.holding_tiny(&Tiny::new().shard(0, 1, N, 0..11))).prints();
    let said = run(&place.holding_tiny(&Tiny::new().shard(0, 1, 12, 0..11))).fails(4);
    assert!(said.ends_with("the shards hold 11 tensors, expected 12 (split.tensors.count)"), "{said}");
    // Merging leaves a count of 0 behind.
    run(&place.holding_tiny(&Tiny::new().shard(0, 0, N, 0..11))).prints();
}
