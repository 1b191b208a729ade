//! `muser doctor`: what this machine offers, and what Muser will use of it.

mod loads;
mod machine;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use muser_cpu::pool::physical_cores;
use muser_cpu::roof::{Roof, read_roof};
use muser_memory::{Capabilities, Device, MemoryLimit};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::progress::Progress;
use crate::terminal::{bytes, counted, grouped, print, warn};
use loads::Loads;
use machine::Machine;

pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let n_thread = args.threads.unwrap_or_else(physical_cores);
    // A file that is no model is found before devices are opened.
    args.model
        .as_deref()
        .map(muser_engine::ModelFiles::open)
        .transpose()?
        .map(|files| files.parse().map(drop))
        .transpose()?;
    let devices = devices();
    let loads = args.model.as_deref().map(|path| Loads::measure(path, &devices, n_thread)).transpose()?;
    let roof = {
        let _bar = Progress::new("reading memory", "pass", 1);
        read_roof(n_thread)
    };
    let roof = roof.inspect_err(|error| warn(format_args!("the memory roof is not known: {error}"))).ok();
    let report = Report {
        machine: Machine::observe(n_thread),
        roof: roof.as_ref().map(RoofReport::of),
        devices: devices.iter().map(DeviceReport::of).collect(),
        loads,
    };
    let out = if args.json { serde_json::to_string(&report)? + "\n" } else { report.to_text() };
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The host, and every GPU that opens.
fn devices() -> Vec<Device> {
    let mut devices = vec![Device::host()];
    #[cfg(feature = "gpu")]
    for nth in 0..muser_memory::gpus().len() {
        match Device::gpu(&muser_memory::GpuOptions { nth, ..Default::default() }) {
            Ok(device) => devices.push(device),
            Err(error) => warn(format_args!("{error}")),
        }
    }
    devices
}

/// What was found, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    machine: Machine,
    roof: Option<RoofReport>,
    devices: Vec<DeviceReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loads: Option<Loads>,
}

/// Read bandwidth in bytes a second.
#[derive(Serialize)]
struct RoofReport {
    one_thread: f64,
    all_threads: f64,
    n_thread: usize,
}

#[derive(Serialize)]
struct DeviceReport {
    name: String,
    api: String,
    unified: bool,
    imports_mappings: bool,
    page_size: usize,
    offset_alignment: usize,
    max_buffer_bytes: Option<u64>,
    max_binding_bytes: Option<u64>,
    available_bytes: Option<u64>,
}

impl Report {
    fn to_text(&self) -> String {
        let mut out = self.machine.to_text();
        if let Some(RoofReport { one_thread, all_threads, n_thread }) = self.roof {
            let _ = writeln!(out, "\nMemory, read");
            let _ = writeln!(out, "  {:<14} {:.1} GB/s", "1 thread", one_thread / 1e9);
            if n_thread > 1 {
                let _ = writeln!(out, "  {:<14} {:.1} GB/s", counted(n_thread, "thread"), all_threads / 1e9);
            }
        }
        let _ = writeln!(out, "\nDevices");
        let width = self.devices.iter().map(|device| device.name.chars().count()).max().unwrap_or_default().max(4);
        let _ = writeln!(
            out,
            "  {:<width$}  {:<6}  {:<6}  {:<7}  {:>14}  {:>15}  {:>9}",
            "name", "api", "memory", "imports", "largest buffer", "largest binding", "alignment"
        );
        for device in &self.devices {
            let limit = |limit: Option<u64>| limit.map_or("none".into(), bytes);
            let _ = writeln!(
                out,
                "  {:<width$}  {:<6}  {:<6}  {:<7}  {:>14}  {:>15}  {:>9}",
                device.name,
                device.api,
                if device.unified { "shared" } else { "own" },
                if device.imports_mappings { "files" } else { "nothing" },
                limit(device.max_buffer_bytes),
                limit(device.max_binding_bytes),
                format!("{} B", grouped(device.offset_alignment as u64)),
            );
        }
        if self.devices.len() > 1 {
            let _ = writeln!(out, "  Models are computed on the host; GPUs load them and read them back, here only.");
        }
        if let Some(loads) = &self.loads {
            let _ = write!(out, "\n{}", loads.to_text());
        }
        out
    }
}

impl RoofReport {
    fn of(roof: &Roof) -> Self {
        let (one_thread, all_threads) = (roof.one_thread.best, roof.all_threads.best);
        Self { one_thread, all_threads, n_thread: roof.n_threads.get() }
    }
}

impl DeviceReport {
    fn of(device: &Device) -> Self {
        let Capabilities {
            unified,
            imports_mappings,
            page_size,
            offset_alignment,
            max_buffer_bytes,
            max_binding_bytes,
            ..
        } = device.capabilities();
        Self {
            name: device.name().to_owned(),
            api: device.api().to_string(),
            unified,
            imports_mappings,
            page_size,
            offset_alignment,
            max_buffer_bytes,
            max_binding_bytes,
            available_bytes: device.memory_limit().map(|MemoryLimit { available_bytes, .. }| available_bytes),
        }
    }
}
