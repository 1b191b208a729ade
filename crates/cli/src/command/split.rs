//! `muser split`: a model as a set of smaller files.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use muser_engine::{Part, SplitProgress};
use serde_json::json;

use crate::args::SplitArgs;
use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{bytes, counted, grouped, print};

pub fn run(args: &SplitArgs) -> Result<ExitCode> {
    let parts = split(args)?;
    let out = if args.json {
        let files: Vec<_> = parts
            .iter()
            .map(|Part { path, size_bytes, n_tensors }| {
                json!({"path": path.to_string_lossy(), "size_bytes": size_bytes, "n_tensors": n_tensors})
            })
            .collect();
        json!({ "files": files }).to_string() + "\n"
    } else {
        let mut out = String::new();
        for Part { path, size_bytes, n_tensors } in &parts {
            let (size, exact) = (bytes(*size_bytes), grouped(*size_bytes));
            let _ = writeln!(out, "{}  {size} ({exact} B), {}", path.display(), counted(*n_tensors, "tensor"));
        }
        out
    };
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn split(args: &SplitArgs) -> Result<Vec<Part>> {
    let _listener = interrupt::listen_to_all();
    let megabytes = |bytes: u64| (bytes / 1_000_000) as usize;
    let mut progress = None;
    let on_progress = &mut |SplitProgress { done_bytes, total_bytes }| {
        progress
            .get_or_insert_with(|| Progress::new("splitting", "MB", megabytes(total_bytes)))
            .at(megabytes(done_bytes));
        interrupt::asked()
    };
    Ok(muser_engine::split(&args.model, &args.prefix, args.limit(), on_progress)?)
}
