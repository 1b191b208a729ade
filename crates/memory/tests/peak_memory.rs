//! Peak memory of a load. Alone in its process, whose peak is what counts.

#![cfg(target_os = "linux")]

use std::ops::ControlFlow;

use muser_memory::{Arena, Device, LoadOptions, LoadPolicy, ModelFile, Observer, RegionSpec, peak_resident_bytes};

#[test]
fn m20_either_path_peaks_within_the_weights_and_one_staging_buffer() {
    const WEIGHT_BYTES: u64 = 192 << 20;
    const STAGING_BYTES: u64 = 64 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights");
    std::fs::File::create(&path).unwrap().set_len(WEIGHT_BYTES).unwrap();
    for policy in [LoadPolicy::Read, LoadPolicy::Map] {
        // Lets the peak begin anew at what is resident now.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = peak_resident_bytes().unwrap();
        let region =
            RegionSpec { name: "all".into(), file_no: 0, offset: 0, size_bytes: WEIGHT_BYTES, unit_bytes: None };
        let options = LoadOptions { policy, n_threads: 4, resident: false, strict: false };
        let files = vec![ModelFile::open(&path).unwrap()];
        let load =
            Arena::load(&Device::host(), files, [region], &options, &Observer::new(&|_| ControlFlow::Continue(())));
        let (arena, report) = load.unwrap();
        let peak = report.peak_resident_bytes.unwrap() - before;
        assert!(peak >= WEIGHT_BYTES * 95 / 100, "{policy}: {peak}: the weights are in memory");
        assert!(peak <= WEIGHT_BYTES + STAGING_BYTES, "{policy}: {peak}");
        drop(arena);
    }
}
