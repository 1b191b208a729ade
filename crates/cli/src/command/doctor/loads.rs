//! The load paths, measured: a model's weights brought to every device in every way that it offers.

use std::fmt::Write;
use std::num::NonZero;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::Result;
use muser_memory::{Device, LoadOptions, LoadPolicy, LoadProgress, LoadReport};
use serde::Serialize;

use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{bytes, counted};

#[derive(Serialize)]
pub struct Loads {
    model: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    device: String,
    asked: String,
    engaged: String,
    reason: String,
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
    /// Loads a model's weights by both policies on each device, and drops them again.
    ///
    /// # Errors
    /// When it is no model file, or the user interrupts. A device that can't load it has its error in its row.
    pub fn measure(path: &Path, devices: &[Device], n_thread: NonZero<usize>) -> Result<Self> {
        let _listener = interrupt::listen();
        let mut rows = Vec::new();
        for device in devices {
            for policy in [LoadPolicy::Map, LoadPolicy::Read] {
                let options = LoadOptions { policy, n_threads: n_thread.get(), resident: false, strict: false };
                let bar = OnceLock::new();
                let on_progress = |at: LoadProgress| {
                    let megabytes = |bytes: u64| (bytes / 1_000_000) as usize;
                    let what = format!("loading for {}", device.name());
                    bar.get_or_init(|| Progress::new(&what, "MB", megabytes(at.total_bytes)))
                        .at(megabytes(at.done_bytes));
                    interrupt::asked()
                };
                match muser_engine::load_weights(path, device, &options, &on_progress) {
                    Ok((_, report)) => rows.push(Row::of(&report)),
                    Err(muser_engine::Error::Memory(error)) if device.api() != muser_memory::Api::Host => {
                        rows.push(Row::failed(device, policy, error.to_string()));
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(Self { model: path.display().to_string(), rows })
    }

    pub fn to_text(&self) -> String {
        let size_bytes = self.rows.first().map_or(0, |row| row.bytes_mapped + row.bytes_copied);
        let mut out = format!("Loading {} of {}\n", bytes(size_bytes), self.model);
        let width = self.rows.iter().map(|row| row.device.chars().count()).max().unwrap_or_default().max(6);
        let _ = writeln!(
            out,
            "  {:<width$}  {:<5}  {:<7}  {:>8}  {:>6}  {:>8}  {:>8}  read back",
            "device", "asked", "engaged", "seconds", "GB/s", "mapped", "copied"
        );
        for row in &self.rows {
            if let Some(error) = &row.error {
                let _ = writeln!(out, "  {:<width$}  {:<5}  {error}", row.device, row.asked);
                continue;
            }
            let line = format!(
                "  {:<width$}  {:<5}  {:<7}  {:>8.3}  {:>6.1}  {:>8}  {:>8}  {}",
                row.device,
                row.asked,
                row.engaged,
                row.seconds,
                row.bytes_per_second / 1e9,
                bytes(row.bytes_mapped),
                bytes(row.bytes_copied),
                row.self_test_bytes.map(bytes).unwrap_or_default(),
            );
            let _ = writeln!(out, "{}", line.trim_end());
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

impl Row {
    fn of(report: &LoadReport) -> Self {
        Self {
            device: report.device.clone(),
            asked: report.asked.to_string(),
            engaged: report.engaged.to_string(),
            reason: report.reason.clone(),
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
            seconds: 0.0,
            bytes_per_second: 0.0,
            bytes_mapped: 0,
            bytes_copied: 0,
            self_test_bytes: None,
            error: Some(error),
        }
    }
}
