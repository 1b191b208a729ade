//! `muser bench`: how fast a model computes on this machine, and how near to its limits.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use muser_cpu::roof::{Bandwidth, Roof, read_roof};
use muser_engine::{BenchOptions, BenchProgress, Measurement, Phase, Spread};
use muser_memory::{Residency, large_page_bytes, peak_resident_bytes};
use serde::Serialize;

use crate::args::{BenchArgs, Ctx};
use crate::exit::Usage;
use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{bytes, counted, grouped, print, warn};
use crate::wiring::{Context, Opened, ScanReport, open, threads};

pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let context = args.ctx.map_or(Context::Tokens(options.n_ctx()), Context::Asked);
    let mut opened = open(&args.model, &args.engine, context)?;
    if opened.engine.n_ctx() < options.n_ctx() {
        return Err(too_short(opened.engine.n_ctx(), &options).into());
    }
    let measurements = measure(&mut opened, &options)?;
    // Before there is a buffer for the roof.
    let memory = Memory { peak_resident_bytes: peak_resident_bytes(), large_page_bytes: large_page_bytes() };
    // The machine's limit is measured with the engine's own number of threads, whichever backend uses them.
    let roof = read_roof(threads(&args.engine));
    let roof = roof.inspect_err(|error| warn(format_args!("the memory roof is not known: {error}"))).ok();
    let report = Report::new(args, &opened, &measurements, memory, roof.as_ref());
    let out = if args.json { serde_json::to_string(&report)? + "\n" } else { report.to_table() };
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// What the arguments ask for; what can't be measured is found before a model is opened.
fn options(args: &BenchArgs) -> Result<BenchOptions, Usage> {
    if args.prompt == 0 && args.tokens == 0 {
        return Err(Usage("-p 0 and -n 0 leave nothing to measure".into()));
    }
    let (n_prompt, n_decode, n_repeat) = (args.prompt, args.tokens, args.repeat.get());
    let options = BenchOptions { n_prompt, n_decode, depths: args.depth.clone(), n_repeat };
    match args.ctx {
        Some(Ctx::Tokens(n_ctx)) if n_ctx.get() < options.n_ctx() => Err(too_short(n_ctx.get(), &options)),
        _ => Ok(options),
    }
}

fn too_short(n_ctx: usize, options: &BenchOptions) -> Usage {
    let needed = options.n_ctx();
    Usage(format!("a context of {n_ctx} tokens is too short: the measurements need {needed} (--ctx, -d, -p, -n)"))
}

fn measure(opened: &mut Opened, options: &BenchOptions) -> Result<Vec<Measurement>> {
    let _listener = interrupt::listen();
    let mut shown: Option<(BenchProgress, Progress)> = None;
    let on_progress = &mut |at: BenchProgress| {
        let begun = BenchProgress { done: 0, ..at };
        if shown.as_ref().is_none_or(|(shown, _)| *shown != begun) {
            // The old bar goes before there is a new one.
            shown = None;
            let depth = grouped(at.depth as u64);
            let what = match at.phase {
                Phase::Fill => format!("filling to depth {depth}"),
                phase => format!("{} at depth {depth}, {} of {}", phase.name(), at.repeat + 1, options.n_repeat),
            };
            shown = Some((begun, Progress::new(&what, "tokens", at.total)));
        }
        shown.iter().for_each(|(_, progress)| progress.at(at.done));
        interrupt::asked()
    };
    let Opened { engine, session, .. } = opened;
    Ok(muser_engine::bench(engine, session, options, on_progress)?)
}

/// What was found, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    model: String,
    arch: &'static str,
    backend: String,
    n_thread: usize,
    n_batch: usize,
    n_ctx: usize,
    load: Load,
    measurements: Vec<Row>,
    #[serde(flatten)]
    memory: Memory,
    roof: Option<RoofReport>,
}

/// What the process had when all was measured. `None`: the system doesn't say.
#[derive(Serialize)]
struct Memory {
    /// The most so far, file pages included.
    peak_resident_bytes: Option<u64>,
    /// In large pages: weights, where they came in such.
    large_page_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Load {
    path: String,
    reason: String,
    /// From opening the file to being ready.
    seconds: f64,
    /// Of these, from the index to the last byte of weights.
    weight_seconds: f64,
    weight_bytes: u64,
    weight_bytes_per_second: f64,
    bytes_mapped: u64,
    bytes_copied: u64,
    /// `None`: it was turned off.
    scan: Option<ScanReport>,
    /// Whether the system was asked to keep the weights in memory, and does.
    resident: Option<bool>,
}

#[derive(Serialize)]
struct Row {
    phase: &'static str,
    depth: usize,
    tokens: usize,
    seconds: Vec<f64>,
    tokens_per_second: SpreadReport,
    /// Weights, keys and values that a decoded token needs once.
    bytes_per_token: Option<f64>,
    bytes_per_second: Option<f64>,
    share_of_roof: Option<f64>,
}

#[derive(Serialize)]
struct SpreadReport {
    median: f64,
    min: f64,
    max: f64,
}

/// Bytes a second.
#[derive(Serialize)]
struct RoofReport {
    one_thread: BandwidthReport,
    all_threads: BandwidthReport,
    n_thread: usize,
    buffer_bytes: u64,
}

#[derive(Serialize)]
struct BandwidthReport {
    best: f64,
    median: f64,
}

impl Report {
    fn new(
        args: &BenchArgs,
        opened: &Opened,
        measurements: &[Measurement],
        memory: Memory,
        roof: Option<&Roof>,
    ) -> Self {
        Self {
            model: args.model.display().to_string(),
            arch: opened.engine.model().spec().arch,
            backend: opened.engine.describe_backend(),
            n_thread: threads(&args.engine).get(),
            n_batch: args.engine.batch.get().min(opened.engine.n_ctx()),
            n_ctx: opened.engine.n_ctx(),
            load: Load::of(&opened.report),
            measurements: measurements.iter().map(|measurement| Row::new(measurement, roof)).collect(),
            memory,
            roof: roof.map(RoofReport::of),
        }
    }

    fn to_table(&self) -> String {
        let mut out = String::new();
        let Self { model, arch, backend, n_batch, n_ctx, load, .. } = self;
        let _ = writeln!(out, "{model}: {arch}, {}", bytes(load.weight_bytes));
        let (n_ctx, n_batch) = (counted(*n_ctx, "token"), counted(*n_batch, "token"));
        let _ = writeln!(out, "{backend}, context of {n_ctx}, batches of up to {n_batch}");
        let _ = writeln!(out, "{}\n", load.in_words());
        let _ = writeln!(
            out,
            "{:<8} {:>8} {:>7} {:>10} {:>21} {:>7} {:>8}",
            "", "depth", "tokens", "tok/s", "slowest to fastest", "GB/s", "of roof"
        );
        for row in &self.measurements {
            let SpreadReport { median, min, max } = row.tokens_per_second;
            let speed = row.bytes_per_second.map(|speed| format!("{:.1}", speed / 1e9)).unwrap_or_default();
            let share = row.share_of_roof.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default();
            let line = format!(
                "{:<8} {:>8} {:>7} {median:>10.1} {:>21} {speed:>7} {share:>8}",
                row.phase,
                grouped(row.depth as u64),
                grouped(row.tokens as u64),
                format!("{min:.1} to {max:.1}"),
            );
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out.push('\n');
        let Memory { peak_resident_bytes, large_page_bytes } = self.memory;
        if let Some(peak) = peak_resident_bytes {
            let large = large_page_bytes.map(|large| format!(", {} in large pages", bytes(large)));
            let _ = writeln!(out, "peak resident memory {}{}", bytes(peak), large.unwrap_or_default());
        }
        if let Some(roof) = &self.roof {
            let per_second = |bandwidth: &BandwidthReport| {
                format!("{:.1} GB/s (median {:.1})", bandwidth.best / 1e9, bandwidth.median / 1e9)
            };
            let _ = writeln!(
                out,
                "memory roof {} with {}, {} with one",
                per_second(&roof.all_threads),
                counted(roof.n_thread, "thread"),
                per_second(&roof.one_thread)
            );
        }
        out
    }
}

impl Load {
    fn of(report: &muser_engine::LoadReport) -> Self {
        let weights = &report.weights;
        Self {
            path: weights.engaged.to_string(),
            reason: weights.reason.clone(),
            seconds: report.elapsed.as_secs_f64(),
            weight_seconds: weights.duration.as_secs_f64(),
            weight_bytes: weights.bytes_mapped + weights.bytes_copied,
            weight_bytes_per_second: weights.bytes_per_second(),
            bytes_mapped: weights.bytes_mapped,
            bytes_copied: weights.bytes_copied,
            scan: ScanReport::of(report),
            resident: match weights.residency {
                Residency::NotAsked => None,
                Residency::Refused { .. } => Some(false),
                _ => Some(true),
            },
        }
    }

    fn in_words(&self) -> String {
        format!(
            "loaded in {:.3} s, weights by {} ({}) in {:.3} s, {:.1} GB/s{}",
            self.seconds,
            self.path,
            self.reason,
            self.weight_seconds,
            self.weight_bytes_per_second / 1e9,
            if self.resident == Some(true) { ", kept in memory" } else { "" }
        ) + &self.scan.as_ref().map_or_else(
            || ", not scanned".to_owned(),
            |scan| format!(", scanned in {:.3} s of its threads", scan.thread_seconds),
        )
    }
}

impl Row {
    fn new(measurement: &Measurement, roof: Option<&Roof>) -> Self {
        let Spread { median, min, max } = measurement.tokens_per_second();
        let bytes_per_second = measurement.bytes_per_token.map(|bytes| bytes * median);
        Self {
            phase: measurement.phase.name(),
            depth: measurement.depth,
            tokens: measurement.n_token,
            seconds: measurement.durations.iter().map(std::time::Duration::as_secs_f64).collect(),
            tokens_per_second: SpreadReport { median, min, max },
            bytes_per_token: measurement.bytes_per_token,
            bytes_per_second,
            share_of_roof: bytes_per_second.zip(roof).map(|(speed, roof)| speed / roof.all_threads.best),
        }
    }
}

impl RoofReport {
    fn of(roof: &Roof) -> Self {
        let bandwidth = |Bandwidth { best, median }| BandwidthReport { best, median };
        Self {
            one_thread: bandwidth(roof.one_thread),
            all_threads: bandwidth(roof.all_threads),
            n_thread: roof.n_threads.get(),
            buffer_bytes: roof.buffer_bytes,
        }
    }
}
