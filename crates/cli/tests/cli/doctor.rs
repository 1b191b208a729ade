//! `muser doctor`.

use muser_tests::model::MUSE;
use muser_tests::model_path;
use serde_json::Value;

use crate::support::{Tiny, muser};

#[test]
fn the_machine_its_memory_and_its_devices_are_listed() {
    let document = muser(["doctor", "--json"]).prints_json();
    let machine = &document["machine"];
    assert!(machine["page_size"].as_u64().is_some_and(|size| size >= 4096 && size.is_power_of_two()));
    assert!(machine["tiers"].as_array().expect("a list").contains(&machine["tier"]));
    let limits = machine["memory"].as_array().expect("a list");
    assert!(limits.iter().all(|limit| limit["available_bytes"].is_u64() && limit["source"].is_string()));
    let roof = &document["roof"];
    assert!(roof["one_thread"].as_f64() > Some(0.0) && roof["all_threads"].as_f64() > Some(0.0), "{roof}");
    let host = &document["devices"][0];
    assert_eq!(
        (&host["name"], &host["unified"], &host["imports_mappings"]),
        (&"host".into(), &true.into(), &true.into())
    );
    assert_eq!(host["max_buffer_bytes"], Value::Null);
    assert_eq!(document.get("loads"), None, "there was no model to load");
}

#[test]
fn a_model_is_loaded_for_every_device_by_every_path() {
    let document = muser(["doctor", "--json"]).args([model_path(MUSE[0])]).prints_json();
    let devices = document["devices"].as_array().expect("a list");
    let rows = document["loads"]["rows"].as_array().expect("a list");
    // The host loads twice by each path: from the disk, and from the page cache.
    let expected = devices.iter().flat_map(|device| {
        let n_each = if device["api"] == "host" { 2 } else { 1 };
        ["map", "read"].into_iter().flat_map(move |asked| std::iter::repeat_n((device, asked), n_each))
    });
    let expected: Vec<_> = expected.collect();
    assert_eq!(rows.len(), expected.len());
    for (row, (device, asked)) in rows.iter().zip(expected) {
        assert_eq!((&row["device"], &row["asked"]), (&device["name"], &asked.into()), "{row}");
        assert_eq!(row.get("error"), None, "{row}");
        let count = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{row}"));
        let mapped = row["engaged"] == "map";
        assert_eq!((count("bytes_mapped") > 0, count("bytes_copied") > 0), (mapped, !mapped), "{row}");
        let is_gpu = device["api"] != "host";
        assert_eq!(row["self_test_bytes"].as_u64().is_some_and(|bytes| bytes > 0), is_gpu, "{row}");
    }
}

#[test]
fn people_get_tables() {
    let text = muser(["doctor"]).args([model_path(MUSE[1])]).prints();
    for heading in ["Machine\n", "\nMemory, read\n", "\nDevices\n", "\nLoading "] {
        assert!(text.contains(heading), "{heading:?} is not in:\n{text}");
    }
    assert!(text.lines().all(|line| line == line.trim_end()), "{text}");
}

#[test]
fn a_bad_model_is_refused_as_elsewhere() {
    let place = Tiny::endless().place();
    std::fs::write(place.path(), b"GGUF").expect("it can be written");
    let line = muser(["doctor"]).args([place.path()]).fails(4);
    assert!(line.contains("model.gguf"), "{line}");
}
