//! The load paths, measured: a model's weights brought to every device in every way that it offers, and to the host also from
//! the disk.

use std::fmt::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::Result;
use muser_engine::ModelFiles;
use muser_memory::{
    Api, Availability, Device, LoadOptions, LoadPolicy, LoadProgress, LoadReport, MemoryLimit, ModelFile,
    drop_from_page_cache,
};
use serde::Serialize;

use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{bytes, counted};

#[derive(Serialize)]
pub struct Loads {
    model: String,
    /// From opening the files to having looked at the first byte of the first tensor, through its index.
    index_seconds: f64,
    n_tensor: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    device: String,
    asked: String,
    engaged: String,
    reason: String,
    /// Share of the files that was in the page cache before. `None`: the system doesn't say.
    cached_share: Option<f64>,
    /// Whether reads were asked to go past the page cache.
    direct: bool,
    seconds: f64,
    bytes_per_second: f64,
    bytes_mapped: u64,
    bytes_copied: u64,
    /// Bytes that a GPU read back and that were the host's. `None` for the host.
    self_test_bytes: Option<u64>,
    /// Why there is no measurement: then all numbers are 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Loads {
    /// Loads a model's weights by both policies on each device, and drops them again. For the host, each policy finds the
    /// files on the disk first and then in the page cache, where the system lets go of them.
    ///
    /// # Errors
    /// When it is no model file, or the user interrupts. A device that can't load it has its error in its row.
    pub fn measure(path: &Path, devices: &[Device], n_thread: NonZero<usize>) -> Result<Self> {
        let _listener = interrupt::listen();
        let started = Instant::now();
        let arena = muser_engine::index_weights(path)?;
        let first = arena.regions().first().map(|region| arena.view(region.id()).as_slice().first().copied());
        std::hint::black_box(first);
        let index_seconds = started.elapsed().as_secs_f64();
        let n_tensor = arena.regions().len();
        let weight_bytes = arena.regions().iter().map(|region| region.size_bytes() as u64).sum();
        drop(arena);
        let host = Device::host();
        let measure_one = |device, policy| measure_one(path, weight_bytes, device, policy, n_thread);
        let mut rows = Vec::new();
        for device in devices {
            for policy in [LoadPolicy::Map, LoadPolicy::Read] {
                if device.api() == Api::Host {
                    for path in paths(path)? {
                        drop_from_page_cache(&path)?;
                    }
                    rows.push(measure_one(device, policy)?);
                }
                // Into the page cache, as far as that has room, and by a mapping, for which they come in large pages.
                measure_one(&host, LoadPolicy::Map)?;
                rows.push(measure_one(device, policy)?);
            }
        }
        Ok(Self { model: path.display().to_string(), index_seconds, n_tensor, rows })
    }

    pub fn to_text(&self) -> String {
        let size_bytes = self.rows.first().map_or(0, |row| row.bytes_mapped + row.bytes_copied);
        let mut out = format!("Loading {} of {}\n", bytes(size_bytes), self.model);
        let tensors = counted(self.n_tensor, "tensor");
        let milliseconds = self.index_seconds * 1e3;
        let _ = writeln!(out, "  opened, {tensors} indexed, first byte seen in {milliseconds:.1} ms; 0 B copied");
        let width = self.rows.iter().map(|row| row.device.chars().count()).max().unwrap_or_default().max(6);
        let _ = writeln!(
            out,
            "  {:<width$}  {:<5}  {:<7}  {:>6}  {:>8}  {:>6}  {:>8}  {:>8}  read back",
            "device", "asked", "engaged", "cached", "seconds", "GB/s", "mapped", "copied"
        );
        for row in &self.rows {
            if let Some(error) = &row.error {
                let _ = writeln!(out, "  {:<width$}  {:<5}  {error}", row.device, row.asked);
                continue;
            }
            let line = format!(
                "  {:<width$}  {:<5}  {:<7}  {:>6}  {:>8.3}  {:>6.1}  {:>8}  {:>8}  {}",
                row.device,
                row.asked,
                row.engaged,
                row.cached_share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
                row.seconds,
                row.bytes_per_second / 1e9,
                bytes(row.bytes_mapped),
                bytes(row.bytes_copied),
                row.self_test_bytes.map(bytes).unwrap_or_default(),
            );
            let _ = writeln!(out, "{}", line.trim_end());
        }
        if self.rows.iter().any(|row| row.direct) {
            let _ = writeln!(out, "  What is not cached is read past the page cache.");
        }
        let differing = self.rows.iter().filter(|row| row.error.is_none() && row.asked != row.engaged);
        for Row { device, asked, engaged, reason, .. } in differing {
            let _ = writeln!(out, "  {device}: {engaged} rather than {asked}, because {reason}");
        }
        let n_read_back = self.rows.iter().filter(|row| row.self_test_bytes.is_some()).count();
        if n_read_back > 0 {
            let _ = writeln!(out, "  {} read back: the checksums are the host's.", counted(n_read_back, "load"));
        }
        out
    }
}

/// All files of a model.
fn paths(path: &Path) -> Result<Vec<PathBuf>, muser_engine::Error> {
    Ok(ModelFiles::open(path)?.files().iter().map(|file| file.path().to_owned()).collect())
}

fn measure_one(
    path: &Path,
    weight_bytes: u64,
    device: &Device,
    policy: LoadPolicy,
    n_thread: NonZero<usize>,
) -> Result<Row> {
    let options = LoadOptions { policy, n_threads: n_thread.get(), resident: false, strict: false };
    let bar = OnceLock::new();
    let on_progress = |at: LoadProgress| {
        let megabytes = |bytes: u64| (bytes / 1_000_000) as usize;
        let what = format!("loading for {}", device.name());
        bar.get_or_init(|| Progress::new(&what, "MB", megabytes(at.total_bytes))).at(megabytes(at.done_bytes));
        interrupt::asked()
    };
    let shares: Option<Vec<_>> = ModelFiles::open(path)?.files().iter().map(ModelFile::cached_share).collect();
    let cached_share = shares.map(|shares| shares.iter().sum::<f64>() / shares.len() as f64);
    // A copy that does not fit would end the process, or others.
    let copies = policy == LoadPolicy::Read || !device.capabilities().imports_mappings;
    if let Some(limit) = Availability::of(device).least()
        && copies
        && limit.available_bytes < weight_bytes
    {
        let MemoryLimit { source, available_bytes, .. } = limit;
        let (needed, left) = (bytes(weight_bytes), bytes(*available_bytes));
        return Ok(Row::failed(device, policy, format!("not tried: a copy takes {needed}, {source} leaves {left}")));
    }
    match muser_engine::load_weights(path, device, &options, &on_progress) {
        Ok((_, report)) => Ok(Row::of(&report, cached_share)),
        Err(muser_engine::Error::Memory(error)) if device.api() != Api::Host => {
            Ok(Row::failed(device, policy, error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

impl Row {
    fn of(report: &LoadReport, cached_share: Option<f64>) -> Self {
        Self {
            device: report.device.clone(),
            asked: report.asked.to_string(),
            engaged: report.engaged.to_string(),
            reason: report.reason.clone(),
            cached_share,
            direct: report.direct,
            seconds: report.duration.as_secs_f64(),
            bytes_per_second: report.bytes_per_second(),
            bytes_mapped: report.bytes_mapped,
            bytes_copied: report.bytes_copied,
            self_test_bytes: report.self_test.map(|passed| passed.size_bytes),
            error: None,
        }
    }

    fn failed(device: &Device, policy: LoadPolicy, error: String) -> Self {
        Self {
            device: device.name().to_owned(),
            asked: policy.to_string(),
            engaged: String::new(),
            reason: String::new(),
            cached_share: None,
            direct: false,
            seconds: 0.0,
            bytes_per_second: 0.0,
            bytes_mapped: 0,
            bytes_copied: 0,
            self_test_bytes: None,
            error: Some(error),
        }
    }
}
