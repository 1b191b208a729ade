//! `muser perplexity`: how surprised a model is by a text.

use std::num::NonZero;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result};
use muser_engine::{PerplexityOptions, PerplexityProgress};
use serde::Serialize;

use super::warn_of_lost_bytes;
use crate::args::PerplexityArgs;
use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{counted, print, rate, text, warn};
use crate::wiring::{Context, Opened, open};

#[derive(Serialize)]
struct Report {
    ppl: f64,
    running: Vec<f64>,
    context: usize,
    chunks: usize,
}

pub fn run(args: &PerplexityArgs) -> Result<ExitCode> {
    let name = args.file.display().to_string();
    let text = text(&name, std::fs::read(&args.file).with_context(|| format!("reading {name}"))?)?;
    let mut opened = open(&args.model, &args.engine, Context::Tokens(args.ctx.get()))?;
    warn_of_lost_bytes(&opened.tokenizer, &text);
    let options = PerplexityOptions { chunk: args.ctx.get(), n_chunks: args.chunks.map(NonZero::get) };
    let started = Instant::now();
    let running = measure(&mut opened, &text, options)?;
    let elapsed = started.elapsed();

    let (chunks, context) = (running.len(), args.ctx.get());
    let ppl = *running.last().context("a measurement has at least one chunk")?;
    let out = if args.json {
        serde_json::to_string(&Report { ppl, running, context, chunks })? + "\n"
    } else {
        format!("perplexity {ppl:.4} over {} of {context} tokens\n", counted(chunks, "chunk"))
    };
    let _ = print(&out)?;
    let tokens = chunks * context;
    if let Some(rate) = rate(tokens, elapsed) {
        warn(format_args!("{} at {rate:.1} tok/s, {}", counted(tokens, "token"), opened.engine.describe_backend()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The perplexity after each chunk.
fn measure(opened: &mut Opened, text: &str, options: PerplexityOptions) -> Result<Vec<f64>> {
    let _listener = interrupt::listen();
    let mut progress = None;
    let on_progress = &mut |at: PerplexityProgress| {
        let progress = progress.get_or_insert_with(|| Progress::new("perplexity", "tokens", at.total));
        progress.at(at.tokens);
        at.ppl.iter().for_each(|ppl| progress.note(&format!("{ppl:.4}")));
        interrupt::asked()
    };
    let Opened { engine, session, tokenizer, .. } = opened;
    Ok(muser_engine::perplexity(engine, session, tokenizer, text, options, on_progress)?)
}
