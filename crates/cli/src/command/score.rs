//! `muser score`: how likely a model finds given continuations.

use std::io::{self, BufRead, BufWriter};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use muser_engine::{OutputFile, Step, TapWriter};
use muser_model::TapSink;
use serde::{Deserialize, Serialize};

use crate::args::{Ctx, ScoreArgs};
use crate::exit::Usage;
use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::print;
use crate::wiring::{Context, Opened, open};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    ids: Vec<u32>,
    next: Vec<u32>,
    /// Line of standard input, from 1.
    #[serde(skip)]
    line: usize,
}

impl Request {
    /// Number of tokens.
    fn len(&self) -> usize {
        self.ids.len() + self.next.len()
    }
}

#[derive(Serialize)]
struct Answer {
    steps: Vec<AnswerStep>,
}

#[derive(Serialize)]
struct AnswerStep {
    id: u32,
    logprob: f64,
    top: Vec<(u32, f64)>,
}

impl From<Step> for AnswerStep {
    fn from(Step { id, logprob, top }: Step) -> Self {
        Self { id, logprob, top }
    }
}

pub fn run(args: &ScoreArgs) -> Result<ExitCode> {
    let requests = read_requests()?;
    let longest = requests.iter().map(Request::len).max().unwrap_or(1);
    let too_short = |n_ctx: usize| {
        Usage(format!("a context of {n_ctx} tokens is too short: the longest request has {longest} (--ctx)"))
    };
    if let Some(Ctx::Tokens(n_ctx)) = args.ctx
        && n_ctx.get() < longest
    {
        return Err(too_short(n_ctx.get()).into());
    }
    let context = args.ctx.map_or(Context::Tokens(longest), Context::Asked);
    let mut opened = open(&args.model, &args.engine, context)?;
    if opened.engine.n_ctx() < longest {
        return Err(too_short(opened.engine.n_ctx()).into());
    }
    let mut taps = args.taps.as_deref().map(|path| create_taps(path, args.taps_values)).transpose()?;

    let _listener = interrupt::listen();
    let progress = Progress::new("scoring", "tokens", requests.iter().map(Request::len).sum());
    let (mut done, mut unread) = (0, false);
    for request in &requests {
        let sink = taps.as_mut().map(|taps| taps as &mut dyn TapSink);
        let on_tokens = &mut |tokens| {
            progress.at(done + tokens);
            interrupt::asked()
        };
        let Opened { engine, session, .. } = &mut opened;
        let steps = engine.score(session, &request.ids, &request.next, args.top, sink, on_tokens);
        let steps = steps.with_context(|| format!("line {} of standard input", request.line))?;
        done += request.len();
        let answer = Answer { steps: steps.into_iter().map(AnswerStep::from).collect() };
        // The taps are asked for even when nobody reads the answers any more.
        if !unread && print(&(serde_json::to_string(&answer)? + "\n"))?.is_break() {
            unread = true;
        }
        if unread && taps.is_none() {
            break;
        }
        if let Some(taps) = &mut taps {
            taps.next_sequence();
        }
    }
    if let (Some(taps), Some(path)) = (taps, &args.taps) {
        let finished = taps.finish().and_then(|out| out.into_inner()?.finish());
        finished.with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn create_taps(path: &Path, values: bool) -> Result<TapWriter<BufWriter<OutputFile>>> {
    let file = OutputFile::create(path).with_context(|| format!("creating {}", path.display()))?;
    TapWriter::new(BufWriter::new(file), values).with_context(|| format!("writing {}", path.display()))
}

/// All requests: a line that is none is found before anything is computed.
fn read_requests() -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    for (line, text) in (1..).zip(io::stdin().lock().split(b'\n')) {
        let text = text.context("reading standard input")?;
        if text.trim_ascii().is_empty() {
            continue;
        }
        let mut request: Request = serde_json::from_slice(&text).map_err(|error| wrong(line, &error))?;
        if request.ids.is_empty() {
            return Err(
                Usage(format!("line {line} of standard input: \"ids\" has no tokens, expected at least one")).into()
            );
        }
        request.line = line;
        requests.push(request);
    }
    Ok(requests)
}

fn wrong(line: usize, error: &serde_json::Error) -> Usage {
    let said = error.to_string();
    // It counts lines in the one line that it was given.
    let what = said.split(" at line ").next().unwrap_or(&said);
    let column = error.column();
    Usage(format!("line {line} of standard input, column {column}: {what}; expected {{\"ids\":[…],\"next\":[…]}}"))
}
