//! `muser perplexity`: how surprised a model is by a text.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use muser_engine::PerplexityOptions;
use serde::Serialize;

use crate::args::PerplexityArgs;
use crate::terminal::{Progress, grouped, interrupted, print, rate};
use crate::wiring::{Context, open};

#[derive(Serialize)]
struct Report {
    ppl: f64,
    running: Vec<f64>,
    context: usize,
    chunks: usize,
}

pub fn run(args: &PerplexityArgs) -> Result<ExitCode> {
    let text = std::fs::read_to_string(&args.file).with_context(|| format!("reading {}", args.file.display()))?;
    let mut opened = open(&args.model, &args.engine, Context::Tokens(args.ctx.max(1)))?;
    let mut session = opened.engine.session()?;
    let options = PerplexityOptions { chunk: args.ctx, n_chunks: args.chunks };
    let started = Instant::now();
    let mut progress = None;
    let mut tokens = 0;
    let on_progress = &mut |at: muser_engine::PerplexityProgress| {
        tokens = at.total;
        let progress = progress.get_or_insert_with(|| Progress::new("perplexity", "tokens", at.total as u64));
        let note = at.ppl.map(|ppl| format!("{ppl:.4}")).unwrap_or_default();
        progress.at(at.tokens as u64, &note);
        interrupted()
    };
    let running =
        muser_engine::perplexity(&mut opened.engine, &mut session, &opened.tokenizer, &text, options, on_progress)?;
    drop(progress);
    let ppl = *running.last().context("a measurement has at least one chunk")?;
    let chunks = running.len();
    let out = if args.json {
        serde_json::to_string(&Report { ppl, running, context: args.ctx, chunks })? + "\n"
    } else {
        format!("perplexity {ppl:.4} over {chunks} chunks of {} tokens\n", args.ctx)
    };
    let _ = print(&out)?;
    if let Some(rate) = rate(tokens, started.elapsed()) {
        eprintln!("muser: {} tokens at {rate:.1} tok/s, {}", grouped(tokens as u64), opened.engine.describe_backend());
    }
    Ok(ExitCode::SUCCESS)
}
