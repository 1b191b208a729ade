//! `muser plan`.

use muser_tests::model::{GEMMA3, SMOLLM2};
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Muser, muser};

fn plan(args: &[&str]) -> Muser {
    muser(["plan"]).args([model_path(SMOLLM2)]).args(args)
}

fn count(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("{key} of {document}"))
}

#[test]
fn a_plan_lists_what_it_adds_up() {
    let document = plan(&["--json", "--ctx", "2048"]).prints_json();
    let rows = document["rows"].as_array().expect("a list");
    let sum: u64 = rows.iter().map(|row| count(row, "size_bytes")).sum();
    assert_eq!(sum, count(&document, "total_bytes"), "{document}");
    assert!(count(&rows[0], "size_bytes") > 96_000_000, "{document}");
    // K and V of 30 layers: 3 heads of 64 values and a scale, of two bytes. Each is filled up to whole pages.
    let kv_bytes = 2048 * 2 * 30 * 3 * (64 + 1) * 2;
    assert!((kv_bytes..kv_bytes + 2 * 30 * 65_536).contains(&count(&document, "kv_bytes_per_slot")), "{document}");
    assert_eq!((count(&document, "n_ctx"), count(&document, "n_slot")), (2048, 1));
}

#[test]
fn slots_multiply_the_planes_and_nothing_else() {
    let total = |slots| count(&plan(&["--json", "--ctx", "1024", "--slots", slots]).prints_json(), "total_bytes");
    let kv = count(&plan(&["--json", "--ctx", "1024"]).prints_json(), "kv_bytes_per_slot");
    assert_eq!(total("3") - total("1"), 2 * kv);
}

#[test]
fn a_run_has_the_context_that_was_planned() {
    let planned = plan(&["--json"]).prints_json();
    let document = muser(["run", "--json", "-n", "0"]).args([model_path(SMOLLM2)]).args(["hi"]).prints_json();
    assert_eq!(document["n_ctx"], planned["n_ctx"]);
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let said = plan(&["--ctx", "1000000000"]).fails(3);
    assert!(said.contains("1000000000") && said.contains("would fit"), "{said}");
}

#[test]
fn a_refusal_is_a_document_too() {
    let done = plan(&["--ctx", "1000000000", "--slots", "2", "--json"]).run();
    done.expect_code(3);
    let document: Value = serde_json::from_str(&done.stdout).expect("the output is JSON");
    assert_eq!((&document["fits"], &document["n_slot"]), (&false.into(), &2.into()), "{document}");
    assert!(count(&document, "total_bytes") > count(&document, "available_bytes"), "{document}");
    assert!(count(&document, "largest_ctx") < 1_000_000_000, "{document}");
}

#[test]
#[cfg(target_os = "linux")]
fn m28_a_session_takes_what_was_planned_within_5_percent() {
    for model in [SMOLLM2, GEMMA3] {
        // Prompt and answer fill the context, so that every planned row of the planes is written.
        let planned = muser(["plan", "--json", "--ctx", "528"]).args([model_path(model)]).prints_json();
        let bench =
            muser(["bench", "--json", "-p", "512", "-n", "16", "-r", "1", "--ctx", "528"]).args([model_path(model)]);
        let (planned, measured) = (count(&planned, "total_bytes"), count(&bench.prints_json(), "peak_resident_bytes"));
        let ratio = measured as f64 / planned as f64;
        assert!((0.95..=1.05).contains(&ratio), "{model}: {measured} bytes, planned {planned}: {ratio:.3}");
    }
}
