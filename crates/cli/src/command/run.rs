//! `muser run`: an answer to a prompt, or a chat.

mod chat;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use muser_engine::sampler::{Sampler, SamplerSpec};
use muser_engine::{Event, Finish, Generation, chat_prompt};
use muser_text::template::{DateTime, Message, RenderOptions};
use muser_text::{Affixes, Special};
use serde::Serialize;

use super::warn_of_lost_bytes;
use crate::args::{RunArgs, SamplingArgs};
use crate::exit::Usage;
use crate::interrupt;
use crate::progress::Progress;
use crate::terminal::{bytes, counted, grouped, print, rate, read_stdin, say, stdin_is_terminal, warn};
use crate::wiring::{Context, Opened, ScanReport, open};

/// One answer, as `--json` prints it.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    ids: &'a [u32],
    finish: &'static str,
    prompt_tokens: usize,
    reused_tokens: usize,
    seed: u64,
    n_ctx: usize,
    backend: String,
    load_seconds: f64,
    bytes_mapped: u64,
    bytes_copied: u64,
    /// `None`: it was turned off.
    scan: Option<ScanReport>,
    prefill_seconds: f64,
    prefill_tokens_per_second: Option<f64>,
    decode_seconds: f64,
    decode_tokens_per_second: Option<f64>,
}

pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let prompt = match args.prompt.clone() {
        None if !stdin_is_terminal() => Some(read_prompt()?),
        prompt => prompt,
    };
    if prompt.is_none() && (args.raw || args.json) {
        let flag = if args.raw { "--raw" } else { "--json" };
        return Err(Usage(format!("{flag} needs a PROMPT, or one on standard input")).into());
    }
    let seed = args.sampling.seed.unwrap_or_else(fresh_seed);
    // Settings out of range are found before a model is opened.
    let sampler = sampler(&args.sampling, seed)?;
    let opened = open(&args.model, &args.engine, Context::Asked(args.ctx))?;
    let mut talk = Talk { opened, sampler, seed, max_tokens: args.max_tokens };
    match prompt {
        Some(prompt) => once(args, &mut talk, prompt),
        None => chat::run(args, &mut talk),
    }
}

/// A model and one conversation with it.
struct Talk {
    opened: Opened,
    sampler: Sampler,
    seed: u64,
    max_tokens: Option<usize>,
}

fn once(args: &RunArgs, talk: &mut Talk, prompt: String) -> Result<ExitCode> {
    warn_of_lost_bytes(&talk.opened.tokenizer, &prompt);
    let tokens = if args.raw {
        talk.opened.tokenizer.encode(&prompt, Special::Plain, Affixes::Model)
    } else if talk.opened.template.is_some() {
        let system = args.system.iter().map(|system| Message::new("system", system.as_str()));
        let messages: Vec<_> = system.chain([Message::new("user", prompt)]).collect();
        talk.chat_tokens(&messages)?
    } else if args.system.is_some() {
        return Err(Usage(format!("{} has no chat template, so --system has no place", args.model.display())).into());
    } else {
        warn(format_args!("{} has no chat template; the prompt is continued as it is", args.model.display()));
        talk.opened.tokenizer.encode(&prompt, Special::Plain, Affixes::Model)
    };
    let answer = talk.answer(&tokens, !args.json)?;
    if args.json {
        let _ = print(&(serde_json::to_string(&talk.report(&answer))? + "\n"))?;
    } else if !answer.unread {
        let _ = print("\n")?;
        say(format_args!("[{} | {} | seed {}]", talk.loaded(), answer.summary(), talk.seed));
    }
    Ok(match answer.generation.finish {
        Finish::Interrupted if !answer.unread => ExitCode::from(interrupt::EXIT_CODE),
        _ => ExitCode::SUCCESS,
    })
}

/// What came of a prompt.
struct Answer {
    text: String,
    ids: Vec<u32>,
    generation: Generation,
    /// Whether standard output was closed before the end.
    unread: bool,
}

impl Talk {
    /// The prompt of a conversation. The caller has seen to it that there is a template.
    fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.opened.template.as_ref().context("the file has no chat template")?;
        let options = RenderOptions { add_generation_prompt: true, now: Some(utc_now()), ..RenderOptions::default() };
        Ok(chat_prompt(template, &self.opened.tokenizer, messages, &options)?)
    }

    /// Answers a prompt, streaming the text if asked.
    fn answer(&mut self, prompt: &[u32], stream: bool) -> Result<Answer> {
        let _listener = interrupt::listen();
        let (mut text, mut ids) = (String::new(), Vec::new());
        let mut progress = Some(Progress::new("prompt", "tokens", prompt.len()));
        let room = self.opened.engine.n_ctx().saturating_sub(prompt.len());
        let limit = self.max_tokens.map_or(room, |most| most.min(room));
        let mut written = Ok(ControlFlow::Continue(()));
        let on_event = &mut |event: Event<'_>| {
            match event {
                Event::Prefill { done, .. } => progress.iter().for_each(|progress| progress.at(done)),
                Event::Token { id, text: piece } => {
                    text.push_str(piece);
                    ids.push(id);
                    if stream {
                        progress = None;
                        written = print(piece);
                    } else {
                        if ids.len() == 1 {
                            progress = Some(Progress::new("answer", "tokens", limit));
                        }
                        progress.iter().for_each(|progress| progress.at(ids.len()));
                    }
                }
            }
            if matches!(written, Ok(ControlFlow::Continue(()))) { interrupt::asked() } else { ControlFlow::Break(()) }
        };
        let Opened { engine, session, tokenizer, .. } = &mut self.opened;
        let generation = engine.generate(session, tokenizer, prompt, &mut self.sampler, self.max_tokens, on_event)?;
        let unread = written?.is_break();
        // The end of the text may come in a piece without a token of its own.
        ids.truncate(generation.n_generated);
        Ok(Answer { text, ids, generation, unread })
    }

    /// How loading went, in words.
    fn loaded(&self) -> String {
        let report = &self.opened.report;
        format!(
            "loaded in {:.3} s, {} mapped, {} copied",
            report.elapsed.as_secs_f64(),
            bytes(report.weights.bytes_mapped),
            bytes(report.weights.bytes_copied)
        )
    }

    fn report<'a>(&self, Answer { text, ids, generation, .. }: &'a Answer) -> Report<'a> {
        let load = &self.opened.report;
        Report {
            text,
            ids,
            finish: generation.finish.name(),
            prompt_tokens: generation.n_prompt,
            reused_tokens: generation.n_reused,
            seed: self.seed,
            n_ctx: self.opened.engine.n_ctx(),
            backend: self.opened.engine.describe_backend(),
            load_seconds: load.elapsed.as_secs_f64(),
            bytes_mapped: load.weights.bytes_mapped,
            bytes_copied: load.weights.bytes_copied,
            scan: ScanReport::of(load),
            prefill_seconds: generation.prefill.as_secs_f64(),
            prefill_tokens_per_second: rate(generation.n_prefilled(), generation.prefill),
            decode_seconds: generation.decode.as_secs_f64(),
            decode_tokens_per_second: rate(generation.n_decoded(), generation.decode),
        }
    }
}

impl Answer {
    /// How it came about, in words.
    fn summary(&self) -> String {
        let generation = &self.generation;
        let speed =
            |tokens, elapsed| rate(tokens, elapsed).map(|rate| format!(" at {rate:.1} tok/s")).unwrap_or_default();
        let reused = match generation.n_reused {
            0 => String::new(),
            reused => format!(" ({} reused)", grouped(reused as u64)),
        };
        format!(
            "prompt {}{reused}{} | answer {}{}, {}",
            counted(generation.n_prompt, "token"),
            speed(generation.n_prefilled(), generation.prefill),
            counted(generation.n_generated, "token"),
            speed(generation.n_decoded(), generation.decode),
            match generation.finish {
                Finish::Stop | Finish::StopString(_) => "complete",
                Finish::Length => "cut at the limit of -n",
                Finish::ContextFull => "cut because the context is full",
                Finish::Interrupted => "interrupted",
            },
        )
    }
}

/// The prompt on standard input, without the newline that `echo` adds.
fn read_prompt() -> Result<String> {
    let mut prompt = read_stdin()?;
    if prompt.ends_with('\n') {
        prompt.pop();
    }
    if prompt.is_empty() { Err(Usage("the prompt on standard input is empty".into()).into()) } else { Ok(prompt) }
}

fn sampler(args: &SamplingArgs, seed: u64) -> Result<Sampler> {
    let spec = SamplerSpec {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repetition_penalty: args.repetition_penalty,
        presence_penalty: args.presence_penalty,
        frequency_penalty: args.frequency_penalty,
        penalty_last_n: args.penalty_last_n,
        seed,
    };
    Sampler::new(spec).map_err(|error| Usage(error.to_string()).into())
}

/// A seed from the clock: what matters is that it is shown, so that a text can be had again.
fn fresh_seed() -> u64 {
    since_epoch().subsec_nanos().into()
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn utc_now() -> DateTime {
    DateTime::from_unix(since_epoch().as_secs() as i64, 0)
}
