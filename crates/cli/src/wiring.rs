//! Wires a backend to an engine: the one place that chooses what computes.

use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use anyhow::{Context as _, Result};
use muser_cpu::CpuBackend;
use muser_cpu::pool::physical_cores;
use muser_engine::{Engine, LoadOptions, LoadReport, Loaded, PlanOptions, Session};
use muser_memory::{Device, LoadProgress, Plan, Residency};
use muser_ops::{Backend, Reference};
use muser_text::Tokenizer;
use muser_text::template::ChatTemplate;
use serde::Serialize;

use crate::args::{Ctx, EngineArgs};
use crate::exit;
use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{counted, warn};

/// A model, opened, with an engine that runs it.
pub struct Opened {
    pub engine: Engine,
    pub session: Session,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub report: LoadReport,
}

/// What the search for weights that are not finite took, as `--json` prints it.
#[derive(Serialize)]
pub struct ScanReport {
    /// Of all loading threads together.
    pub thread_seconds: f64,
    pub size_bytes: u64,
}

impl ScanReport {
    /// `None` when it was turned off.
    pub fn of(report: &LoadReport) -> Option<Self> {
        let inspected = report.weights.inspected?;
        Some(Self { thread_seconds: inspected.thread_time.as_secs_f64(), size_bytes: inspected.size_bytes })
    }
}

/// How long a context a command needs.
#[derive(Clone, Copy)]
pub enum Context {
    /// What the user asked for.
    Asked(Ctx),
    /// So many tokens.
    Tokens(usize),
}

/// What a command needs memory for, besides the model.
#[derive(Clone, Copy)]
pub struct Room {
    pub context: Context,
    /// Sessions.
    pub n_slot: usize,
    /// Bytes of ended sessions.
    pub prefix_cache_bytes: u64,
    /// Bytes for each token of the vocabulary, of what the command makes of it.
    pub table_bytes_per_token: u64,
}

/// A model, opened, with an engine that has no session yet.
pub struct Prepared {
    pub engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Option<ChatTemplate>,
    pub plan: Plan,
    pub report: LoadReport,
}

/// Opens a model and makes an engine with one session for it.
pub fn open(path: &Path, args: &EngineArgs, context: Context) -> Result<Opened> {
    let room = Room { context, n_slot: 1, prefix_cache_bytes: 0, table_bytes_per_token: 0 };
    let Prepared { engine, tokenizer, template, report, .. } = prepare(path, args, room)?;
    let session = engine.session().with_context(|| making_room(engine.n_ctx()))?;
    Ok(Opened { engine, session, tokenizer, template, report })
}

/// Opens a model and makes an engine for it.
pub fn prepare(path: &Path, args: &EngineArgs, room: Room) -> Result<Prepared> {
    let Room { context, n_slot, prefix_cache_bytes, table_bytes_per_token } = room;
    let n_ctx = match context {
        Context::Asked(Ctx::Auto) => None,
        Context::Asked(Ctx::Tokens(tokens)) => Some(tokens.get()),
        Context::Tokens(tokens) => Some(tokens),
    };
    let n_batch = args.batch.get();
    let threads = threads(args);
    if let Ok(processors) = available_parallelism()
        && threads > processors
    {
        warn(format_args!("{threads} threads share {}, which is slower", counted(processors.get(), "processor")));
    }
    // A backend that can't be had is found before a model is loaded.
    let backend = backend(args, threads)?;
    let options = LoadOptions {
        weights: muser_memory::LoadOptions {
            policy: args.load.into(),
            n_threads: threads.get(),
            resident: args.resident,
            strict: args.strict,
        },
        scan: !args.no_scan,
        plan: PlanOptions { n_ctx, n_slot, n_batch, prefix_cache_bytes, table_bytes_per_token },
        force_pre: args.force_pre.clone(),
    };
    let loaded = load(path, &options).map_err(|error| exit::of_opening(error, args.force_pre.is_some()));
    let Loaded { model, tokenizer, template, n_ctx, plan, report } = loaded?;
    for key in &report.unknown_keys {
        warn(format_args!("{}: metadata key {key:?} is not known to this version and has no effect", path.display()));
    }
    if args.no_scan {
        warn(format_args!("{}: not searched for weights that are not finite (--no-scan)", path.display()));
    }
    let n_ctx_train = model.spec().n_ctx_train;
    if n_ctx > n_ctx_train {
        warn(format_args!("a context of {n_ctx} tokens is longer than the {n_ctx_train} the model was trained for"));
    } else if matches!(context, Context::Asked(Ctx::Auto)) && n_ctx < n_ctx_train {
        warn(format_args!(
            "a context of {n_ctx} tokens fits into memory, of the {n_ctx_train} the model was trained for"
        ));
    }
    if let Residency::Refused { locked_bytes, wanted_bytes, reason } = &report.weights.residency {
        warn(format_args!("{locked_bytes} of {wanted_bytes} bytes are locked into memory: {reason}"));
    }
    let engine = Engine::for_slots(model, backend, n_batch, n_ctx, n_slot).with_context(|| making_room(n_ctx))?;
    Ok(Prepared { engine, tokenizer, template, plan, report })
}

fn making_room(n_ctx: usize) -> String {
    format!("making room for a context of {} (--ctx)", counted(n_ctx, "token"))
}

/// How many threads compute.
pub fn threads(args: &EngineArgs) -> NonZero<usize> {
    args.threads.unwrap_or_else(physical_cores)
}

fn load(path: &Path, options: &LoadOptions) -> Result<Loaded, muser_engine::Error> {
    let _listener = interrupt::listen();
    let progress = OnceLock::new();
    let on_progress = |at: LoadProgress| {
        let megabytes = |bytes: u64| (bytes / 1_000_000) as usize;
        progress.get_or_init(|| Progress::new("loading", "MB", megabytes(at.total_bytes))).at(megabytes(at.done_bytes));
        interrupt::asked()
    };
    let loaded = muser_engine::load(path, &Device::host(), options, &on_progress)?;
    // Not all of loading looks at it.
    if interrupt::asked().is_break() { Err(muser_engine::Error::Interrupted) } else { Ok(loaded) }
}

fn backend(args: &EngineArgs, threads: NonZero<usize>) -> Result<Box<dyn Backend>> {
    if args.reference {
        return Ok(Box::new(Reference::new(threads)));
    }
    Ok(Box::new(CpuBackend::new(Device::host(), threads, args.tier)?))
}
