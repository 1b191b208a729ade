//! Every small change to valid files is refused, or means what it says.
//!
//! Each file here differs from a valid one in one place: a bit, a length, or a value that is now an extreme. What
//! `muser inspect --json` prints is what a file means. A changed file may be refused. It may be another valid file: then
//! the document differs in the very field that was changed, and nowhere else. Padding means nothing, so there it does not
//! differ at all. Lengths, counts and the magic have one right value, so any other is refused.
//!
//! Whether the file can be run, and if not why, is the document's answer to all of the file, and may change with any part
//! of it. The weights themselves are left alone: their bytes are any numbers, and other bytes are other weights.

mod layout;
mod samples;

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, iter, thread};

use muser_gguf::Gguf;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::described;
use super::json::Document;
use layout::{Field, Kind, fields};

/// Fewest broken files that the tests here try, all together.
const AT_LEAST: usize = 100_000;

#[test]
fn a_changed_file_is_refused_or_shows_the_change_where_it_was_made_and_nowhere_else() {
    let mut tally = Tally::default();
    for sample in samples::all() {
        let file = sample.bytes().expect("a sample is valid");
        let tried = try_all(&file, sample.name);
        for (outcome, n) in tried {
            *tally.entry(outcome).or_default() += n;
        }
    }
    let total: usize = tally.values().sum();
    assert!(total >= AT_LEAST, "{total} broken files: {tally:?}");
    // Each way to end is met, or the test would not tell them apart.
    for outcome in [Outcome::Refused, Outcome::Shown, Outcome::ShownAndCanNotRun, Outcome::Same] {
        assert!(tally.get(&outcome) > Some(&100), "{outcome:?}: {tally:?}");
    }
}

#[test]
fn every_sample_runs_and_is_walked_to_its_data() {
    let bench = Bench::new();
    for sample in samples::all() {
        let file = sample.bytes().expect("a sample is valid");
        let document = bench.document(&file).expect("a sample is valid");
        assert_eq!(document["why_not"], Value::Null, "{}", sample.name);
        let fields = fields(&file);
        assert!(fields.windows(2).all(|two| two[0].bytes.end == two[1].bytes.start));
        let data_offset = Gguf::parse(&file, file.len() as u64).expect("a sample is valid").data_offset();
        assert_eq!(fields.last().map(|field| field.bytes.end as u64), Some(data_offset));
        for path in fields.iter().flat_map(|field| &field.shown_at) {
            let is_there = shown(&document, path);
            // A key has an element type only where it is an array, and a number of parts always.
            assert!(is_there || ["/key", "/elem_type", "/len"].iter().any(|end| path.ends_with(end)), "{path}");
        }
    }
}

#[test]
fn a_file_longer_or_shorter_by_less_than_its_padding_is_the_same() {
    let bench = Bench::new();
    for sample in samples::all() {
        let file = sample.bytes().expect("a sample is valid");
        let document = bench.document(&file).expect("a sample is valid");
        let gguf = Gguf::parse(&file, file.len() as u64).expect("a sample is valid");
        let (padding, alignment) = (gguf.trailing_bytes() as usize, gguf.alignment() as usize);
        let data_end = file.len() - padding;
        for len in data_end - 1..=data_end + alignment {
            let mut other = file.clone();
            other.resize(len, 0);
            match bench.document(&other) {
                Ok(found) => {
                    let expected: &[&str] =
                        if len == file.len() { &[] } else { &["/size_bytes", "/files/0/size_bytes"] };
                    assert_eq!(differences(&document, &found), expected, "{}: {len} bytes", sample.name);
                    assert!((data_end..data_end + alignment).contains(&len), "{}: {len} bytes", sample.name);
                }
                Err(error) => assert!(!(data_end..data_end + alignment).contains(&len), "{len} bytes: {error}"),
            }
        }
    }
}

/// How a broken file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Shown,
    ShownAndCanNotRun,
    Same,
}

type Tally = BTreeMap<Outcome, usize>;

/// Tries all changes of a valid file, on all processors.
fn try_all(file: &[u8], name: &str) -> Tally {
    let fields = fields(file);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let expected = Bench::new().document(file).expect("a sample is valid");
    let (fields, expected) = (&fields, &expected);
    thread::scope(|scope| {
        let work = |worker: usize| {
            let bench = Bench::new();
            let mut tally = Tally::new();
            for field in fields.iter().skip(worker).step_by(workers) {
                for change in changes(&file[field.bytes.clone()], field.kind) {
                    let mut broken = file.to_vec();
                    broken[field.bytes.clone()].copy_from_slice(&change);
                    let outcome = bench.outcome(expected, &broken, field);
                    let outcome = outcome.unwrap_or_else(|wrong| {
                        panic!("{name}: {field:?} from {:?} to {change:?}: {wrong}", &file[field.bytes.clone()])
                    });
                    *tally.entry(outcome).or_default() += 1;
                }
            }
            tally
        };
        let handles: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        let mut all = Tally::new();
        for handle in handles {
            for (outcome, n) in handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                *all.entry(outcome).or_default() += n;
            }
        }
        all
    })
}

/// Each single bit of a field changed, and a number off by one or at an extreme.
fn changes(bytes: &[u8], kind: Kind) -> impl Iterator<Item = Vec<u8>> {
    let original = bytes.to_vec();
    let flips = (0..bytes.len() * 8).map({
        let original = original.clone();
        move |bit| {
            let mut changed = original.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            changed
        }
    });
    let mut numbers = Vec::new();
    if matches!(kind, Kind::Structure | Kind::Number) && bytes.len() <= 8 {
        let number = original.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        numbers.extend([number.wrapping_add(1), number.wrapping_sub(1), 0, 1, u64::MAX, u64::MAX - 1]);
        numbers.extend([7, 31, 63].map(|bit| 1_u64 << bit));
        numbers.extend([i8::MAX as u64, i32::MAX as u64, i64::MAX as u64, u32::MAX.into()]);
        let floats = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -f32::MIN_POSITIVE, 1e-45, -0.0];
        numbers.extend(floats.map(|float| match bytes.len() {
            8 => f64::from(float).to_bits(),
            _ => float.to_bits().into(),
        }));
    }
    let extremes = numbers.into_iter().map({
        let len = bytes.len();
        move |number: u64| number.to_le_bytes()[..len].to_vec()
    });
    flips.chain(extremes).filter(move |changed| *changed != original)
}

/// A place for files.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    /// What `muser inspect --json` prints about a file.
    fn document(&self, file: &[u8]) -> Result<Value, muser_engine::Error> {
        let path = self.0.path().join("model.gguf");
        fs::write(&path, file).expect("room for it");
        let mut document =
            described(Path::new(&path), |files, set, why_not| json!(Document::new(files, set, why_not)))?;
        // Each bench has a folder of its own.
        document["files"][0]["path"] = Value::Null;
        Ok(document)
    }

    /// How a file ends that differs from a valid one in `field`, or what is wrong with that.
    fn outcome(&self, expected: &Value, broken: &[u8], field: &Field) -> Result<Outcome, String> {
        // Most are refused here, without a file on disk.
        if let Err(error) = Gguf::parse(broken, broken.len() as u64) {
            let message = error.to_string();
            return if message.len() < 1000 { Ok(Outcome::Refused) } else { Err(message) };
        }
        let Ok(found) = self.document(broken) else { return Ok(Outcome::Refused) };
        if found["runs"] != found["why_not"].is_null() {
            return Err(format!("whether it runs contradicts {}", found["why_not"]));
        }
        let differences = differences(expected, &found);
        let is_own = |path: &String| field.shown_at.iter().any(|own| is_within(path, own));
        match (field.kind, differences.iter().find(|path| !is_own(path)), &differences[..]) {
            (Kind::Structure, ..) => Err("accepted".to_owned()),
            (_, Some(elsewhere), _) => Err(format!("changes {elsewhere}")),
            (Kind::Padding, None, []) => Ok(Outcome::Same),
            (_, None, []) => Err("is not shown".to_owned()),
            (_, None, _) if found["runs"] == true => Ok(Outcome::Shown),
            (_, None, _) => Ok(Outcome::ShownAndCanNotRun),
        }
    }
}

/// Whether a path is `own`, or leads on from it.
fn is_within(path: &str, own: &str) -> bool {
    path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether there is a value at a path.
fn shown(document: &Value, path: &str) -> bool {
    let step = |at: &Value, name: &str| -> Option<Value> {
        match at {
            Value::Object(map) => map.get(name).or_else(|| map.values().nth(name.parse().ok()?)).cloned(),
            Value::Array(list) => list.get(name.parse::<usize>().ok()?).cloned(),
            _ => None,
        }
    };
    path.split('/').skip(1).try_fold(document.clone(), |at, name| step(&at, name)).is_some()
}

/// The paths at which two documents differ, but for whether the file can be run.
fn differences(a: &Value, b: &Value) -> Vec<String> {
    let mut out = Vec::new();
    collect(&mut String::new(), a, b, &mut out);
    out.retain(|path| path != "/runs" && path != "/why_not");
    out
}

fn collect(path: &mut String, a: &Value, b: &Value, out: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            if a.len() != b.len() {
                out.push(format!("{path}/len"));
            }
            for (index, ((key, a), (other_key, b))) in iter::zip(a, b).enumerate() {
                let name = if path == "/metadata" { &index.to_string() } else { key };
                let part = format!("/{name}");
                if key != other_key {
                    out.push(format!("{path}{part}/key"));
                }
                within(path, &part, a, b, out);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                out.push(format!("{path}/len"));
            }
            for (index, (a, b)) in iter::zip(a, b).enumerate() {
                if a != b || a.is_f64() {
                    within(path, &format!("/{index}"), a, b, out);
                }
            }
        }
        // 0.0 and -0.0 are equal, and not the same.
        _ if a != b || a.is_f64() && bits(a) != bits(b) => out.push(path.clone()),
        _ => {}
    }
}

fn bits(float: &Value) -> Option<u64> {
    float.as_f64().map(f64::to_bits)
}

fn within(path: &mut String, part: &str, a: &Value, b: &Value, out: &mut Vec<String>) {
    let len = path.len();
    path.push_str(part);
    collect(path, a, b, out);
    path.truncate(len);
}
