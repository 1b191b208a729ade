//! `muser serve`: the model behind HTTP.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use muser_engine::service::{Service, ServiceOptions};
use muser_memory::{Availability, Residency};
use muser_server::{GRAMMAR_BYTES_PER_TOKEN, Keys, Options, Served, Server, Stop};
use serde_json::{Map, Value, json};
use tracing_subscriber::filter::LevelFilter;

use crate::args::{Ctx, HttpArgs, LogFormat, ServeArgs};
use crate::exit::{DoesNotFit, Usage};
use crate::interrupt;
use crate::terminal::{bytes, print, warn};
use crate::wiring::{Context, Prepared, Room, ScanReport, prepare};

/// Which part of the available memory the prefix cache may take where nobody says.
const PREFIX_CACHE_PART: u64 = 8;

pub fn run(args: &ServeArgs) -> Result<ExitCode> {
    start_log(args.http.log_format);
    check_slots(args)?;
    // An address that can't be had is found before a model is loaded.
    let server = Server::bind(options(args)?)?;
    let (prepared, prefix_cache_bytes) = prepare_slots(args)?;
    let facts = facts(&prepared);
    let fallbacks = fallbacks(&prepared, args.ctx);
    let Prepared { engine, tokenizer, template, .. } = prepared;
    if engine.n_ctx() == 1 {
        warn(format_args!(
            "a context of 1 token has no room for an answer: all that is served are embeddings of one token"
        ));
    }
    let n_slot = args.slots.get();
    let options = ServiceOptions { n_slot, max_queue: args.max_queue, prefix_cache_bytes };
    let service = Service::start(engine, tokenizer.clone(), options);
    let service = service.with_context(|| format!("making room for {n_slot} slots (--slots)"))?;
    let stop = Stop::new();
    let begin = stop.clone();
    interrupt::on_stop(move || begin.begin());
    // Whoever started it may not care where it listens.
    let _ = print(&format!("http://{}\n", server.address()))?;
    let names = names(&args.model, &args.http);
    server.run(Served { service, tokenizer, template, names, facts, fallbacks }, &stop)?;
    Ok(ExitCode::SUCCESS)
}

/// A step works on all slots at once.
fn check_slots(args: &ServeArgs) -> Result<(), Usage> {
    let (n_slot, n_batch) = (args.slots, args.engine.batch);
    if n_slot <= n_batch {
        return Ok(());
    }
    Err(Usage(format!("--slots: {n_slot} slots, expected at most {n_batch}, a token of a batch (--batch) for each")))
}

fn start_log(format: LogFormat) {
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(LevelFilter::INFO).with_ansi(false);
    match format {
        LogFormat::Text => log.with_target(false).init(),
        LogFormat::Json => log.json().flatten_event(true).with_span_list(false).init(),
    }
}

fn options(args: &ServeArgs) -> Result<Options, muser_server::Error> {
    let HttpArgs { max_connections, read_timeout, write_timeout, shutdown_timeout, .. } = args.http;
    Ok(Options {
        address: args.http.address(),
        keys: args.http.api_key_file.as_deref().map(Keys::read).transpose()?,
        allowed_hosts: args.http.allow_host.clone(),
        strict: args.engine.strict,
        max_body_bytes: usize::try_from(args.http.max_body).unwrap_or(usize::MAX),
        max_connections,
        header_timeout: read_timeout,
        body_timeout: read_timeout,
        write_timeout,
        shutdown_timeout,
    })
}

/// Opens the model, with room for all slots and the prefix cache. Returns the cache's bytes too.
fn prepare_slots(args: &ServeArgs) -> Result<(Prepared, u64)> {
    let prepare = |prefix_cache_bytes| {
        let room = Room {
            context: Context::Asked(args.ctx),
            n_slot: args.slots.get(),
            prefix_cache_bytes,
            table_bytes_per_token: GRAMMAR_BYTES_PER_TOKEN,
        };
        prepare(&args.model, &args.engine, room)
    };
    let available = Availability::observe().least().map_or(0, |limit| limit.available_bytes);
    if let Some(asked) = args.prefix_cache {
        if asked > available {
            let (asked, available) = (bytes(asked), bytes(available));
            let message = format!("--prefix-cache: {asked} do not fit into memory, of which {available} are available");
            return Err(DoesNotFit(message).into());
        }
        return Ok((prepare(asked)?, asked));
    }
    let part = available / PREFIX_CACHE_PART;
    match prepare(part) {
        Err(error) if is_too_large(&error) => {
            // Nobody asked for the cache, so it makes way for what was asked for.
            let prepared = prepare(0)?;
            warn(format_args!("no prefix cache: the {} that it would have do not fit beside the slots", bytes(part)));
            Ok((prepared, 0))
        }
        prepared => Ok((prepared?, part)),
    }
}

fn is_too_large(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<muser_engine::Error>();
    matches!(cause, Some(muser_engine::Error::Memory(muser_memory::Error::DoesNotFit(_))))
}

/// The model's names: its file's without the ending, then those that were given.
fn names(model: &Path, http: &HttpArgs) -> Vec<String> {
    let own = model.file_stem().unwrap_or(model.as_os_str()).to_string_lossy().into_owned();
    [own].into_iter().chain(http.alias.iter().cloned()).collect()
}

/// What `/props` says of the model, where it lies and how it came there.
fn facts(prepared: &Prepared) -> Map<String, Value> {
    let Prepared { engine, plan, report, .. } = prepared;
    let weights = &report.weights;
    let rows: Vec<_> = plan.rows.iter().map(|row| json!({"what": row.what, "size_bytes": row.size_bytes})).collect();
    let residency = match &weights.residency {
        Residency::Refused { locked_bytes, wanted_bytes, reason } => {
            json!({"locked_bytes": locked_bytes, "wanted_bytes": wanted_bytes, "reason": reason})
        }
        _ => Value::Null,
    };
    let facts = json!({
        "n_ctx_train": engine.model().spec().n_ctx_train,
        "n_embd": engine.model().spec().n_embd,
        "placement": {"api": weights.api.to_string(), "device": weights.device},
        "load": {
            "seconds": report.elapsed.as_secs_f64(),
            "path": weights.engaged.to_string(),
            "reason": weights.reason,
            "bytes_mapped": weights.bytes_mapped,
            "bytes_copied": weights.bytes_copied,
            "scan": ScanReport::of(report),
            "residency_refused": residency,
            "unknown_keys": report.unknown_keys,
        },
        "plan": {"rows": rows, "total_bytes": plan.total_bytes, "kv_bytes_per_slot": plan.kv_bytes_per_slot},
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

/// What was done otherwise than asked.
fn fallbacks(prepared: &Prepared, ctx: Ctx) -> Vec<(&'static str, u64)> {
    let is_unlocked = matches!(prepared.report.weights.residency, Residency::Refused { .. });
    let is_shorter = ctx == Ctx::Auto && prepared.engine.n_ctx() < prepared.engine.model().spec().n_ctx_train;
    vec![("residency", is_unlocked.into()), ("context_below_training", is_shorter.into())]
}
