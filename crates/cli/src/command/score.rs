//! `muser score`: how likely a model finds given continuations.

use std::fs::File;
use std::io::{self, BufRead, BufWriter};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use muser_engine::{Session, Step, TapWriter};
use muser_model::TapSink;
use serde::{Deserialize, Serialize};

use crate::args::ScoreArgs;
use crate::exit::Usage;
use crate::terminal::{Progress, interrupted, print};
use crate::wiring::{Context, open};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    ids: Vec<u32>,
    next: Vec<u32>,
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
    let longest = requests.iter().map(|request| request.ids.len() + request.next.len()).max().unwrap_or(1);
    let mut opened = open(&args.model, &args.engine, Context::Tokens(longest.max(1)))?;
    let mut taps = args.taps.as_ref().map(|path| {
        let file = File::create(path).with_context(|| format!("creating {}", path.display()))?;
        let writer = TapWriter::new(BufWriter::new(file), args.taps_values);
        writer.with_context(|| format!("writing {}", path.display()))
    });
    let mut taps = taps.take().transpose()?;

    let mut session: Session = opened.engine.session()?;
    let total: usize = requests.iter().map(|request| request.ids.len() + request.next.len()).sum();
    let mut progress = Progress::new("scoring", "tokens", total as u64);
    let mut done = 0;
    for (line, Request { ids, next }) in requests.iter().enumerate() {
        let sink = taps.as_mut().map(|taps| taps as &mut dyn TapSink);
        let steps = opened.engine.score(&mut session, ids, next, args.top, sink, &mut |tokens| {
            progress.at((done + tokens) as u64, "");
            interrupted()
        });
        let steps = steps.with_context(|| format!("line {} of standard input", line + 1))?;
        done += ids.len() + next.len();
        let answer = Answer { steps: steps.into_iter().map(AnswerStep::from).collect() };
        if print(&(serde_json::to_string(&answer)? + "\n"))?.is_break() {
            break;
        }
        if let Some(taps) = &mut taps {
            taps.next_sequence();
        }
    }
    if let (Some(taps), Some(path)) = (taps, &args.taps) {
        taps.finish().with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_requests() -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    for (index, line) in io::stdin().lock().lines().enumerate() {
        let line = line.context("reading standard input")?;
        if line.trim().is_empty() {
            continue;
        }
        let request = serde_json::from_str(&line).map_err(|error| {
            Usage(format!("line {} of standard input: {error}; expected {{\"ids\":[…],\"next\":[…]}}", index + 1))
        })?;
        requests.push(request);
    }
    Ok(requests)
}
