//! `muser plan`: what memory a model takes.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use muser_engine::{Footprint, PlanOptions, with_header};
use muser_memory::{Availability, Refusal};
use muser_model::ModelSpec;
use serde_json::json;

use crate::args::{Ctx, PlanArgs};
use crate::terminal::{bytes, grouped, print};

pub fn run(args: &PlanArgs) -> Result<ExitCode> {
    let (spec, footprint) =
        with_header(&args.model, |files, set| Ok((ModelSpec::read(set)?.0, Footprint::of(files, set)?)))?;
    let n_ctx = match args.ctx {
        Ctx::Auto => None,
        Ctx::Tokens(tokens) => Some(tokens.get()),
    };
    let options = PlanOptions {
        n_ctx,
        n_slot: args.slots.get(),
        n_batch: args.batch.get(),
        prefix_cache_bytes: 0,
        table_bytes_per_token: 0,
    };
    let planned = muser_engine::plan(&spec, footprint, args.load.into(), options);
    if let Err(muser_engine::Error::Memory(muser_memory::Error::DoesNotFit(refusal))) = &planned
        && args.json
    {
        let _ = print(&refused(refusal))?;
    }
    let (n_ctx, plan) = planned?;
    let available = Availability::observe();
    let available = available.least();
    let out = if args.json {
        let rows: Vec<_> =
            plan.rows.iter().map(|row| json!({"what": row.what, "size_bytes": row.size_bytes})).collect();
        let document = json!({
            "fits": true,
            "n_ctx": n_ctx,
            "n_slot": options.n_slot,
            "n_batch": options.n_batch,
            "rows": rows,
            "kv_bytes_per_slot": plan.kv_bytes_per_slot,
            "total_bytes": plan.total_bytes,
            "available_bytes": available.map(|limit| limit.available_bytes),
            "available_source": available.map(|limit| &limit.source),
        });
        document.to_string() + "\n"
    } else {
        let mut out = String::new();
        let slots = if options.n_slot == 1 { "slot" } else { "slots" };
        let _ = writeln!(out, "{} {slots} with a context of {} tokens each\n", options.n_slot, grouped(n_ctx as u64));
        let mut row = |what: &str, size: u64| {
            let _ = writeln!(out, "{what:<26} {:>20} B {:>10}", grouped(size), bytes(size));
        };
        plan.rows.iter().for_each(|planned| row(planned.what, planned.size_bytes));
        row("total", plan.total_bytes);
        if options.n_slot > 1 {
            row("KV planes of one slot", plan.kv_bytes_per_slot);
        }
        if let Some(limit) = available {
            row("available", limit.available_bytes);
            let _ = writeln!(out, "\nAvailable according to {}.", limit.source);
        }
        out
    };
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The refusal as one JSON document.
fn refused(refusal: &Refusal) -> String {
    let document = json!({
        "fits": false,
        "n_ctx": refusal.n_ctx,
        "n_slot": refusal.n_slot,
        "total_bytes": refusal.needed_bytes,
        "available_bytes": refusal.available_bytes,
        "available_source": refusal.source,
        "largest_ctx": refusal.largest_ctx,
        "most_slots": refusal.most_slots,
    });
    document.to_string() + "\n"
}
