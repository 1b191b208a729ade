//! `muser bench`: what is measured, and how it is told. How fast anything is, no test says.

use muser_tests::model::{GEMMA3, MUSE, SMOLLM2};
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Muser, muser};

fn bench(model: &str, args: &[&str]) -> Muser {
    muser(["bench"]).args([model_path(model)]).args(args)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

#[test]
fn every_phase_is_measured_at_every_depth_as_often_as_asked() {
    let document = bench(MUSE[1], &["-p", "5", "-n", "3", "-d", "0,7", "-r", "2", "--json"]).prints_json();
    let rows = document["measurements"].as_array().expect("a list");
    let found: Vec<_> = rows.iter().map(|row| (&row["phase"], &row["depth"], &row["tokens"])).collect();
    let expected = [("prefill", 0, 5), ("decode", 0, 3), ("prefill", 7, 5), ("decode", 7, 3)];
    let expected = expected.map(|(phase, depth, tokens)| (Value::from(phase), Value::from(depth), Value::from(tokens)));
    assert_eq!(found, expected.iter().map(|(phase, depth, tokens)| (phase, depth, tokens)).collect::<Vec<_>>());
    for row in rows {
        let speed = &row["tokens_per_second"];
        let [median, min, max] = ["median", "min", "max"].map(|key| number(&speed[key]));
        assert!(0.0 < min && min <= median && median <= max, "{row}");
        let seconds: Vec<f64> = row["seconds"].as_array().expect("a list").iter().map(number).collect();
        assert_eq!(seconds.len(), 2, "{row}");
        let fastest = seconds.iter().copied().fold(f64::MAX, f64::min);
        assert!((number(&row["tokens"]) / fastest / max - 1.0).abs() < 1e-9, "{row}");
    }
    assert_eq!(document["n_ctx"], 12);
}

#[test]
fn the_document_says_what_engaged_and_what_bounds_it() {
    let args = ["-p", "0", "-n", "2", "--threads", "1", "--tier", "scalar", "--load", "read", "--json"];
    let document = bench(MUSE[1], &args).prints_json();
    let keys: Vec<_> = document.as_object().expect("an object").keys().collect();
    let expected = ["model", "arch", "backend", "n_thread", "n_batch", "n_ctx", "load", "measurements"];
    assert_eq!(keys, [&expected[..], &["peak_resident_bytes", "large_page_bytes", "roof"]].concat());
    assert_eq!((&document["backend"], &document["n_thread"]), (&"cpu (scalar, 1 thread)".into(), &1.into()));
    let load = &document["load"];
    assert_eq!((&load["path"], &load["bytes_mapped"]), (&"read".into(), &0.into()), "{load}");
    assert!(number(&load["seconds"]) >= number(&load["weight_seconds"]), "{load}");
    let roof = &document["roof"];
    assert_eq!(roof["n_thread"], 1);
    let row = &document["measurements"][0];
    let speed = number(&row["bytes_per_token"]) * number(&row["tokens_per_second"]["median"]);
    assert!((number(&row["bytes_per_second"]) / speed - 1.0).abs() < 1e-9, "{row}");
    let share = speed / number(&roof["all_threads"]["best"]);
    assert!((number(&row["share_of_roof"]) / share - 1.0).abs() < 1e-9, "{row}");
    let peak = number(&document["peak_resident_bytes"]);
    assert!(peak > number(&load["weight_bytes"]) && peak < 200e6, "the buffer of the roof is none of it: {peak}");
}

#[test]
fn a_decoded_token_needs_all_weights_once_and_the_keys_and_values_that_it_sees() {
    let bytes = |model, depth: &str| {
        let document = bench(model, &["-p", "0", "-n", "2", "-r", "1", "-d", depth, "--json"]).prints_json();
        (number(&document["measurements"][0]["bytes_per_token"]), number(&document["load"]["weight_bytes"]))
    };
    // 30 layers with 3 heads of 64 keys and values of two bytes; two tokens see 1.5 positions in the mean.
    let position = 30.0 * 3.0 * 64.0 * 2.0 * 2.0;
    let (shallow, weights) = bytes(SMOLLM2, "0");
    assert!((shallow - weights - 1.5 * position).abs() < 0.001 * weights, "{shallow} and {weights}");
    let (deep, _) = bytes(SMOLLM2, "10");
    assert!((deep - shallow - 10.0 * position).abs() < 1.0, "{deep} and {shallow}");
    // Of 18 layers with one head of 256, three see everything, and the others 512 positions.
    let position = 256.0 * 2.0 * 2.0;
    let (full, _) = bytes(GEMMA3, "520");
    let (fuller, _) = bytes(GEMMA3, "530");
    assert!((fuller - full - 3.0 * 10.0 * position).abs() < 1.0, "{fuller} and {full}");
}

#[test]
fn a_person_reads_a_table_whose_columns_line_up() {
    let said = bench(MUSE[2], &["-p", "4", "-n", "2", "-d", "0,1", "-r", "1"]).prints();
    let table: Vec<_> =
        said.lines().skip_while(|line| !line.contains("tok/s")).take_while(|it| !it.is_empty()).collect();
    assert_eq!(table.len(), 5, "{said}");
    let column = |name: &str| table[0].find(name).expect("a column") + name.len();
    for (row, (phase, depth)) in
        table[1..].iter().zip([("prefill", '0'), ("decode", '0'), ("prefill", '1'), ("decode", '1')])
    {
        assert!(row.starts_with(phase), "{said}");
        assert_eq!(row[..column("depth")].chars().last(), Some(depth), "{said}");
        assert!(row[..column("tok/s")].chars().last().expect("a digit").is_ascii_digit(), "{said}");
    }
    for fact in ["cpu (", "context of 5 tokens", "loaded in ", "GB/s", "peak resident memory ", "memory roof "] {
        assert!(said.contains(fact), "{fact} is not in {said}");
    }
}

#[test]
fn what_can_not_be_measured_is_wrong_usage() {
    assert_eq!(bench(MUSE[1], &["-p", "0", "-n", "0"]).fails(2), "-p 0 and -n 0 leave nothing to measure");
    let said = bench(MUSE[1], &["-d", "3", "-p", "4", "-n", "9", "--ctx", "11"]).fails(2);
    assert!(said.starts_with("a context of 11 tokens is too short: the measurements need 12"), "{said}");
    for args in [["-r", "0"], ["-d", "-1"], ["-d", "1,,2"], ["-p", "many"]] {
        bench(MUSE[1], &args).refuses();
    }
    let said = bench(MUSE[1], &["-d", "18446744073709551615"]).fails(3);
    assert!(said.contains("18446744073709551615"), "{said}");
}
