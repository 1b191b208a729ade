//! `muser split`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use muser_gguf::{Array, TensorType};
use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};
use muser_tests::model_path;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Muser, Place, Tiny, muser};

fn split(model: &Path, prefix: &Path) -> Muser {
    muser(["split"]).args([model, prefix])
}

/// Splits a model, and returns the files.
fn files(model: &Path, prefix: &Path, limit: [&str; 2]) -> Vec<PathBuf> {
    let document = split(model, prefix).args(limit).args(["--json"]).prints_json();
    let files = document["files"].as_array().expect("a list");
    files.iter().map(|file| PathBuf::from(file["path"].as_str().expect("a path"))).collect()
}

fn inspect(path: &Path) -> Value {
    muser(["inspect", "--json"]).args([path]).prints_json()
}

/// Names, types and dimensions of a model's tensors, with their bytes.
fn tensors(model: &Path) -> Vec<(Value, Vec<u8>)> {
    let document = inspect(model);
    let paths = document["files"].as_array().expect("a list").iter();
    let files: Vec<_> =
        paths.map(|file| fs::read(file["path"].as_str().expect("a path")).expect("it is there")).collect();
    let number = |value: &Value| value.as_u64().expect("a number") as usize;
    let tensor = |tensor: &Value| {
        let start = number(&tensor["offset"]);
        let bytes = &files[number(&tensor["file"])][start..start + number(&tensor["size_bytes"])];
        (serde_json::json!([tensor["name"], tensor["type"], tensor["dims"]]), bytes.to_vec())
    };
    document["tensors"].as_array().expect("a list").iter().map(tensor).collect()
}

/// Checks that the files are a set with the model's tensors and metadata.
fn joins_to(model: &Path, files: &[PathBuf]) {
    let any = &files[files.len() / 2];
    // Without a diff of megabytes.
    assert!(tensors(any) == tensors(model), "the tensors of {} changed", model.display());
    let (mut joined, whole) = (inspect(any)["metadata"].clone(), inspect(model)["metadata"].clone());
    let keys = joined.as_object_mut().expect("an object");
    for (key, value) in [("no", 0), ("count", files.len()), ("tensors.count", tensors(model).len())] {
        assert_eq!(keys.remove(&format!("split.{key}")).expect("it is there")["value"], value);
    }
    assert!(keys.remove("split.set").is_some_and(|set| set["value"].is_u64()), "what tells the set from others");
    assert!(joined == whole, "the metadata of {} changed", model.display());
}

fn names(folder: &Path) -> Vec<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("UTF-8");
    let mut names: Vec<_> = fs::read_dir(folder).expect("a folder").map(name).collect();
    names.sort();
    names
}

#[test]
fn real_models_score_the_same_bits_from_a_set() {
    for (model, size, most) in [(SMOLLM2, "40M", 40_000_000), (GEMMA3, "179MB", 179_000_000)] {
        let (place, model) = (Place::new(), model_path(model));
        let files = files(&model, &place.folder().join("part"), ["--max-size", size]);
        assert!(files.len() >= 2, "{} files", files.len());
        for file in &files {
            assert!(fs::metadata(file).expect("it is there").len() <= most, "{}", file.display());
        }
        joins_to(&model, &files);
        let score = |path: &Path| {
            let requests =
                "{\"ids\":[504,3575,282,4649,314,260],\"next\":[282,4649,1]}\n{\"ids\":[9],\"next\":[8,7]}\n";
            muser(["score", "--top", "50"]).args([path]).stdin(requests).prints()
        };
        let expected = score(&model);
        assert_eq!(score(&files[0]), expected);
        assert_eq!(score(&files[files.len() - 1]), expected);
        let text = |path: &Path| {
            let call = muser(["run", "--raw", "--temp", "0", "-n", "12", "--json"]).args([path]);
            call.args(["The quick brown fox"]).prints_json()["text"].clone()
        };
        assert_eq!(text(&files[1]), text(&model));
    }
}

#[test]
fn any_limit_gives_a_set_that_joins_to_the_model() {
    let place = Place::new();
    let model = place.holding_tiny(&Tiny::new());
    for most in [1, 4, 5, 11, 12] {
        let folder = Place::new();
        let files = files(&model, &folder.folder().join("tiny"), ["--max-tensors", &most.to_string()]);
        assert_eq!(files.len(), 11_usize.div_ceil(most));
        joins_to(&model, &files);
        let expected: Vec<_> = (1..=files.len()).map(|i| format!("tiny-{i:05}-of-{:05}.gguf", files.len())).collect();
        assert_eq!(names(folder.folder()), expected, "nothing is left beside the set");
    }
    for file in &MUSE[1..] {
        let (folder, model) = (Place::new(), model_path(file));
        joins_to(&model, &files(&model, &folder.folder().join("muse"), ["--max-size", "3MiB"]));
    }
}

#[test]
fn a_set_can_be_split_again() {
    let place = Place::new();
    let model = place.holding_tiny(&Tiny::new().with("general.alignment", 64u32));
    let once = files(&model, &place.folder().join("once"), ["--max-tensors", "3"]);
    let again = files(&once[2], &place.folder().join("again"), ["--max-tensors", "5"]);
    assert_eq!((once.len(), again.len()), (4, 3));
    joins_to(&model, &again);
    let one = files(&again[1], &place.folder().join("one"), ["--max-size", "1G"]);
    assert_eq!(one.len(), 1);
    joins_to(&model, &one);
}

#[test]
fn what_was_written_is_said() {
    let place = Place::new();
    let model = place.holding_tiny(&Tiny::new());
    let text = split(&model, &place.folder().join("tiny")).args(["--max-tensors", "10"]).prints();
    let lines: Vec<_> = text.lines().collect();
    let path = place.folder().join("tiny-00002-of-00002.gguf");
    assert_eq!(lines.len(), 2);
    assert!(lines[1].starts_with(&format!("{}  ", path.display())) && lines[1].ends_with(" B), 1 tensor"), "{text}");
    // Where there is no folder, files go to the one that the command runs in.
    let default = split(&model, &place.folder().join("default")).args(["--json"]).prints_json();
    assert_eq!(default["files"].as_array().map(Vec::len), Some(1));
}

#[test]
fn nothing_is_overwritten() {
    let place = Place::new();
    let model = place.holding_tiny(&Tiny::new());
    let taken = place.folder().join("tiny-00002-of-00003.gguf");
    fs::write(&taken, "precious").expect("it can be written");
    let said = split(&model, &place.folder().join("tiny")).args(["--max-tensors", "4"]).fails(2);
    assert_eq!(said, format!("{}: there is such a file already, and nothing is overwritten", taken.display()));
    assert_eq!(fs::read(&taken).expect("it is there"), b"precious");
    assert_eq!(names(place.folder()), ["model.gguf", "tiny-00002-of-00003.gguf"]);
    // A link is in the way as well, wherever it leads.
    let link = place.folder().join("link-00001-of-00003.gguf");
    std::os::unix::fs::symlink("/no/such/file", &link).expect("a link");
    split(&model, &place.folder().join("link")).args(["--max-tensors", "4"]).fails(2);
    assert!(link.is_symlink());
}

#[test]
fn a_limit_that_can_not_be_kept_is_refused_with_what_it_takes() {
    let place = Place::new();
    let model = place.holding_tiny(&Tiny::new());
    let prefix = place.folder().join("tiny");
    let said = split(&model, &prefix).args(["--max-size", "60K"]).fails(2);
    assert!(said.starts_with("the model can't be split so: a file with tensor \"token_embd.weight\" needs "), "{said}");
    assert!(said.ends_with(" bytes, and a shard may have at most 60000"), "{said}");
    let said = split(&model, &prefix).args(["--max-size", "3kB"]).fails(2);
    assert!(said.contains("a file with all metadata needs "), "{said}");
    let many = vec![0u64; 1 << 17];
    let model = place.holding_tiny(&Tiny::new().with("a.long", Array::from(&many[..])));
    assert_eq!(names(place.folder()), ["model.gguf"]);
    // The first file holds more than is asked of the others.
    let files = files(&model, &prefix, ["--max-size", "1100K"]);
    assert_eq!(inspect(&files[0])["tensors"][0]["file"], 1, "the metadata leave no room for the first tensor");
}

#[test]
fn flags_that_make_no_sense_are_refused_with_their_value() {
    let call = |args: &[&str]| muser(["split"]).args(args).refuses();
    for size in ["0", "1.5G", "-1M", "12X", "", "99999999T"] {
        let said = call(&["model", "prefix", &format!("--max-size={size}")]);
        assert!(said.contains(&format!("'{size}'")) && said.contains("--max-size"), "{said}");
    }
    assert!(call(&["model", "prefix", "--max-tensors", "0"]).contains("'0'"));
    assert!(call(&["model", "prefix", "--max-tensors", "1", "--max-size", "1G"]).contains("cannot be used with"));
    for prefix in ["folder/", "..", "/"] {
        assert!(call(&["model", prefix]).contains(&format!("'{prefix}'")), "{prefix}");
    }
    call(&["model"]);
}

#[test]
fn a_bad_model_and_a_bad_place_are_told_apart() {
    let place = Place::new();
    let prefix = place.folder().join("tiny");
    assert!(split(&place.holding(b"GGUF"), &prefix).fails(4).contains("too short"));
    let model = place.holding_tiny(&Tiny::new());
    let said = split(&model, Path::new("/no/such/folder/tiny")).fails(1);
    let path = "/no/such/folder/tiny-00001-of-00001.gguf";
    assert_eq!(said, format!("{path}: could not write the file: No such file or directory (os error 2)"));
    // What can't be run can be split.
    let model = place.holding_tiny(&Tiny::new().retyped("blk.0.ffn_up.weight", TensorType::Q2_K));
    assert_eq!(files(&model, &prefix, ["--max-tensors", "6"]).len(), 2);
}

#[test]
fn a_split_that_is_asked_to_end_leaves_nothing_behind() {
    let model = model_path(GEMMA3);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut n_over = 0;
        loop {
            let folder = tempfile::tempdir().expect("a folder");
            let running = split(&model, &folder.path().join("part")).args(["--max-tensors", "1"]).start();
            let started = Instant::now();
            while names(folder.path()).is_empty() {
                assert!(started.elapsed() < Duration::from_mins(1), "it writes nothing");
                thread::yield_now();
            }
            running.signal(signal);
            let done = running.end();
            if done.status.success() {
                // One that was over before the signal came says nothing about it.
                n_over += 1;
                assert!(n_over < 20, "it does not end by {signal:?}, which is ignored under `nohup`");
                continue;
            }
            done.expect_code(code);
            assert_eq!(names(folder.path()), [""; 0], "{signal:?}");
            break;
        }
    }
}
