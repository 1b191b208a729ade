//! What Prometheus reads.
#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::http::Conversation;
use crate::place::{endless, smollm2};

/// Reads a page as strictly as its format is defined, and returns the value of each sample.
fn parse(page: &str) -> BTreeMap<String, f64> {
    assert!(page.ends_with('\n'), "the last line has no end");
    let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
    let mut current = String::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("a name and a text");
            assert!(!text.is_empty() && !kinds.contains_key(name), "{name} twice, or without a text");
            name.clone_into(&mut current);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a kind");
            assert_eq!(name, current, "a type without its help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            kinds.insert(name.to_owned(), kind.to_owned());
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a series and a value");
            let name = series.split('{').next().expect("a name");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            let family = kinds.get(&current).expect("a type comes first");
            let suffixes: &[&str] = if family == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.iter().any(|suffix| name == format!("{current}{suffix}")), "{name} in {current}");
            assert_eq!(family == "counter", name.ends_with("_total"), "{line}");
            let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
        }
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| *kind == "histogram") {
        let buckets = samples.iter().filter(|(series, _)| series.starts_with(&format!("{name}_bucket")));
        let all = samples[&format!("{name}_bucket{{le=\"+Inf\"}}")];
        assert_eq!(samples[&format!("{name}_count")], all);
        assert!(buckets.into_iter().all(|(_, count)| *count <= all), "{name}");
    }
    samples
}

#[test]
fn the_first_page_is_valid_and_has_every_series_that_can_be_known() {
    let server = endless(&["--ctx", "64", "--slots", "2"]);
    let reply = server.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let samples = parse(&reply.text());
    let families: BTreeSet<_> = samples.keys().map(|series| series.split('{').next().expect("a name")).collect();
    for family in [
        "muser_requests_total",
        "muser_refusals_total",
        "muser_queue_depth",
        "muser_prefill_tokens_total",
        "muser_decode_tokens_total",
        "muser_time_to_first_token_seconds_bucket",
        "muser_time_between_tokens_seconds_bucket",
        "muser_prefix_hit_tokens_total",
        "muser_prefix_misses_total",
        "muser_kv_used_bytes",
        "muser_kv_planned_bytes",
        "muser_batch_rows_bucket",
        "muser_fallbacks_total",
    ] {
        assert!(families.contains(family), "{family} is missing");
    }
    let planned = server.get("/props").expect(200)["kv"]["planned_bytes"].as_f64();
    assert_eq!(Some(samples["muser_kv_planned_bytes"]), planned);
    assert_eq!(samples["muser_http_connections"], 1.0);
}

#[test]
fn open_metrics_are_given_to_those_who_ask_for_them() {
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    let accept = [("Accept", "application/openmetrics-text; version=1.0.0")];
    let reply = Conversation::open(&server).send("GET", "/metrics", &accept, "").reply();
    assert!(reply.header("content-type").is_some_and(|kind| kind.starts_with("application/openmetrics-text")));
    let page = reply.text();
    assert!(page.ends_with("\n# EOF\n") && page.contains("# TYPE muser_steps counter\nmuser_steps_total "), "{page}");
}

#[test]
fn work_is_counted_where_it_was_done() {
    let server = smollm2(&["--ctx", "256", "--slots", "1"]);
    let ids: Vec<_> = (100..140).collect();
    let body = json!({"prompt": ids, "max_tokens": 6, "temperature": 0, "ignore_eos": true});
    for _ in 0..2 {
        server.ask("/v1/completions", &body);
    }
    server.post("/v1/completions", &json!({"prompt": []})).refusal(400);
    server.get("/no/such/path").refusal(404);
    let samples = parse(&server.get("/metrics").text());
    let expect = |series: &str, value: f64| assert_eq!(samples.get(series), Some(&value), "{series}");
    expect("muser_requests_total{outcome=\"length\"}", 2.0);
    expect("muser_prefill_tokens_total", 41.0);
    expect("muser_prefix_hit_tokens_total", 39.0);
    expect("muser_prefix_hits_total", 1.0);
    expect("muser_generated_tokens_total", 12.0);
    expect("muser_decode_tokens_total", 10.0);
    expect("muser_time_to_first_token_seconds_count", 2.0);
    expect("muser_time_between_tokens_seconds_count", 10.0);
    expect("muser_http_replies_total{route=\"/v1/completions\",status=\"200\"}", 2.0);
    expect("muser_http_replies_total{route=\"/v1/completions\",status=\"400\"}", 1.0);
    expect("muser_http_replies_total{route=\"none\",status=\"404\"}", 1.0);
    assert!(samples["muser_kv_used_bytes"] > 0.0);
}

#[test]
fn the_dashboard_shows_series_that_there_are() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana.json");
    let dashboard = std::fs::read_to_string(path).expect("it is there");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let server = endless(&["--ctx", "64", "--slots", "1"]);
    // What is counted by reply has no series before the first.
    server.get("/health").expect(200);
    let samples = parse(&server.get("/metrics").text());
    let mut shown = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            for name in expression.split(|c| !is_of_name(c)).filter(|word| word.starts_with("muser_")) {
                let is_there = samples.keys().any(|series| series.split('{').next() == Some(name));
                assert!(is_there, "{name} of {expression}");
                shown += 1;
            }
        }
    }
    assert!(shown > 20, "{shown} series");
}
