//! `muser score --taps` and `muser taps diff`.

use std::fs;
use std::path::{Path, PathBuf};

use muser_tests::model::{MUSE, SMOLLM2};
use muser_tests::model_path;
use tempfile::TempDir;

use crate::support::{Muser, muser};

const REQUESTS: &str = "{\"ids\":[5,6,7,8,9],\"next\":[1,2,3]}\n{\"ids\":[7],\"next\":[4]}\n";

/// A folder for files of taps.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Saves the taps of one run.
    fn save(&self, name: &str, model: &str, args: &[&str]) -> PathBuf {
        let path = self.path(name);
        let call = muser(["score"]).args([model_path(model)]).args(["--taps"]).args([&path]).args(args);
        assert_eq!(call.stdin(REQUESTS).prints().lines().count(), 2);
        path
    }
}

fn diff(first: &Path, second: &Path) -> Muser {
    muser(["taps", "diff"]).args([first, second])
}

#[test]
fn runs_are_equal_however_they_are_cut_and_on_any_number_of_threads() {
    let folder = Folder::new();
    let first = folder.save("first", SMOLLM2, &[]);
    let cases =
        [&[][..], &["--batch", "1"], &["--batch", "3", "--threads", "3"], &["--threads", "1", "--tier", "scalar"]];
    for args in cases {
        let second = folder.save("second", SMOLLM2, args);
        // 8 tokens: in each of 30 layers 7 taps, and embd and logits of the steps that were asked for.
        let said = diff(&first, &second).prints();
        assert!(said.starts_with("equal: ") && said.ends_with(" taps\n"), "{args:?}: {said}");
    }
    let document = diff(&first, &first).args(["--json"]).prints_json();
    assert_eq!(document["equal"], true);
    assert!(document["records"].as_u64().expect("a count") > 8 * 30 * 7);
}

#[test]
fn the_first_difference_is_named_with_tap_layer_and_token() {
    let folder = Folder::new();
    let (first, second) = (folder.save("first", MUSE[1], &[]), folder.save("second", MUSE[1], &["--reference"]));
    let done = diff(&first, &second).run();
    done.expect_code(1);
    assert_eq!(done.stderr, "");
    let expected = "first difference: q, layer 0, token 0 of sequence 0: other values (save both with --taps-values";
    assert!(done.stdout.starts_with(expected), "{}", done.stdout);
    let done = diff(&first, &second).args(["--json"]).run();
    done.expect_code(1);
    let expected = "{\"equal\":false,\"tap\":\"q\",\"layer\":0,\"sequence\":0,\"pos\":0,\"kind\":\"changed\"}\n";
    assert_eq!(done.stdout, expected);
}

#[test]
fn saved_values_show_by_how_much() {
    let folder = Folder::new();
    let values = ["--taps-values"];
    let first = folder.save("first", MUSE[1], &values);
    let second = folder.save("second", MUSE[1], &[&values[..], &["--reference"]].concat());
    assert!(diff(&first, &second).run().stdout.contains(" of 256 values, most by "));
    let done = diff(&first, &second).args(["--json"]).run();
    done.expect_code(1);
    let document: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    let number = |key: &str| document[key].as_f64().unwrap_or_else(|| panic!("{key} of {document}"));
    assert_eq!(document["n"], 256);
    assert!((1.0..=256.0).contains(&number("n_changed")) && (0.0..256.0).contains(&number("worst_index")));
    assert!((number("first") - number("second")).abs() > 0.0);
    // Hashes are all that two files need to be equal.
    let third = folder.save("third", MUSE[1], &[]);
    assert!(diff(&first, &third).prints().starts_with("equal: "));
}

#[test]
fn a_run_of_fewer_tokens_lacks_the_others() {
    let folder = Folder::new();
    let (first, second) = (folder.save("first", MUSE[1], &[]), folder.path("second"));
    let call = muser(["score"]).args([model_path(MUSE[1])]).args(["--taps"]).args([&second]);
    call.stdin(REQUESTS.lines().next().expect("a line")).prints();
    let done = diff(&first, &second).run();
    done.expect_code(1);
    let expected = format!("embd, token 0 of sequence 1: only in {}\n", first.display());
    assert!(done.stdout.ends_with(&expected), "{}", done.stdout);
    assert!(diff(&second, &first).run().stdout.contains(&format!("only in {}", first.display())));
}

#[test]
fn what_is_no_whole_file_of_taps_is_refused_by_name() {
    let folder = Folder::new();
    let good = folder.save("good", MUSE[1], &[]);
    let bytes = fs::read(&good).expect("it was saved");
    let mut newer = bytes.clone();
    newer[8] = 9;
    let mut damaged = bytes.clone();
    damaged[16] = 0xee;
    let cases: [(&[u8], &str); 6] = [
        (&[], "cut short"),
        (&bytes[..12], "cut short"),
        (&bytes[..bytes.len() - 3], "cut short"),
        (b"GGUF\x03\0\0\0 and so on", "not a file of taps: it starts with \"GGUF\\x03"),
        (&newer, "version 9 can't be read, expected 1"),
        (&damaged, "record 0 is damaged"),
    ];
    let bad = folder.path("bad");
    for (bytes, expected) in cases {
        fs::write(&bad, bytes).expect("it can be written");
        // Not 1, which says that two files differ.
        for said in [diff(&bad, &good).fails(4), diff(&good, &bad).fails(4)] {
            assert!(said.starts_with(&format!("reading {}: ", bad.display())) && said.contains(expected), "{said}");
        }
    }
    let missing = folder.path("missing");
    let said = diff(&good, &missing).fails(4);
    assert_eq!(said, format!("opening {}: No such file or directory (os error 2)", missing.display()));
}

#[test]
fn taps_that_can_not_be_saved_are_an_error() {
    let call = |path: &str| muser(["score"]).args([model_path(MUSE[1])]).args(["--taps", path]).stdin(REQUESTS);
    let said = call("/no/such/folder/taps").fails(1);
    assert_eq!(said, "creating /no/such/folder/taps: No such file or directory (os error 2)");
    let done = call("/dev/full").run();
    done.expect_code(1);
    assert_eq!(done.stderr, "muser: writing /dev/full: No space left on device (os error 28)\n");
    muser(["score", "/no/such/file", "--taps-values"]).refuses();
    muser(["taps", "diff", "one"]).refuses();
}

#[test]
fn taps_of_a_run_that_fails_leave_what_was_there() {
    let folder = Folder::new();
    let old = folder.save("taps", MUSE[1], &[]);
    let before = fs::read(&old).expect("it was saved");
    let call = |taps: &Path, requests: &str| {
        muser(["score"]).args([model_path(MUSE[1])]).args(["--taps"]).args([taps]).stdin(requests)
    };
    let failing = REQUESTS.to_owned() + "{\"ids\":[1],\"next\":[4000000000]}\n";
    for taps in [&old, &folder.path("new")] {
        call(taps, &failing).run().expect_code(2);
    }
    assert_eq!(fs::read(&old).expect("it is there"), before);
    assert_eq!(fs::read_dir(folder.0.path()).expect("a folder").count(), 1, "and nothing else is");

    // Through a link, it is the file that is written.
    let link = folder.path("link");
    std::os::unix::fs::symlink(&old, &link).expect("a link");
    call(&link, REQUESTS.lines().next().expect("a line")).prints();
    assert!(link.is_symlink() && fs::read(&old).expect("it is there").len() < before.len());
}

#[test]
fn taps_are_whole_even_if_nobody_reads_the_answers() {
    let folder = Folder::new();
    let (whole, unread) = (folder.save("whole", MUSE[1], &[]), folder.path("unread"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let call = muser(["score"]).args([model_path(MUSE[1])]).args(["--taps"]).args([&unread]).stdin(REQUESTS);
    call.stdout(writer).run().expect_code(0);
    assert!(diff(&whole, &unread).prints().starts_with("equal: "));
}
