//! `muser run`: an answer to a prompt, or a chat.

mod chat;

use std::io::Read;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use muser_engine::sampler::{Sampler, SamplerSpec};
use muser_engine::{Event, Finish, Generation, Session, chat_prompt};
use muser_text::template::{DateTime, Message, RenderOptions};
use muser_text::{Affixes, Special};
use serde::Serialize;

use crate::args::{RunArgs, SamplingArgs};
use crate::exit::Usage;
use crate::terminal::{self, INTERRUPTED_CODE, Progress, bytes, grouped, interrupted, print, rate};
use crate::wiring::{Context, Opened, open};

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
    prefill_seconds: f64,
    prefill_tokens_per_second: Option<f64>,
    decode_seconds: f64,
    decode_tokens_per_second: Option<f64>,
}

pub fn run(args: RunArgs) -> Result<ExitCode> {
    let prompt = match args.prompt.clone() {
        None if !terminal::stdin_is_terminal() => Some(read_prompt()?),
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
    let mut talk = Talk { session: opened.engine.session()?, opened, sampler, seed, max_tokens: args.max_tokens };
    match prompt {
        Some(prompt) => once(&args, &mut talk, prompt),
        None => chat::run(&args, &mut talk),
    }
}

/// A model and one conversation with it.
struct Talk {
    opened: Opened,
    session: Session,
    sampler: Sampler,
    seed: u64,
    max_tokens: Option<usize>,
}

fn once(args: &RunArgs, talk: &mut Talk, prompt: String) -> Result<ExitCode> {
    let tokens = if args.raw {
        talk.opened.tokenizer.encode(&prompt, Special::Plain, Affixes::Model)
    } else if talk.opened.template.is_some() {
        let system = args.system.iter().map(|system| Message::new("system", system.as_str()));
        let messages: Vec<_> = system.chain([Message::new("user", prompt)]).collect();
        talk.chat_tokens(&messages)?
    } else if args.system.is_some() {
        return Err(Usage(format!("{} has no chat template, so --system has no place", args.model.display())).into());
    } else {
        eprintln!("muser: {} has no chat template; the prompt is continued as it is", args.model.display());
        talk.opened.tokenizer.encode(&prompt, Special::Plain, Affixes::Model)
    };
    let (text, ids, generation) = talk.answer(&tokens, !args.json)?;
    if args.json {
        let _ = print(&(serde_json::to_string(&talk.report(&text, &ids, &generation))? + "\n"))?;
    } else {
        let _ = print("\n")?;
        eprintln!("{}", talk.summary(&generation));
    }
    Ok(match generation.finish {
        Finish::Interrupted => ExitCode::from(INTERRUPTED_CODE),
        _ => ExitCode::SUCCESS,
    })
}

impl Talk {
    /// The prompt of a conversation. The caller has seen to it that there is a template.
    fn chat_tokens(&self, messages: &[Message]) -> Result<Vec<u32>> {
        let template = self.opened.template.as_ref().context("the file has no chat template")?;
        let options = RenderOptions { add_generation_prompt: true, now: Some(utc_now()), ..RenderOptions::default() };
        Ok(chat_prompt(template, &self.opened.tokenizer, messages, &options)?)
    }

    /// Answers a prompt, streaming the text if asked.
    fn answer(&mut self, prompt: &[u32], stream: bool) -> Result<(String, Vec<u32>, Generation)> {
        let (mut text, mut ids) = (String::new(), Vec::new());
        let mut progress = Some(Progress::new("prompt", "tokens", prompt.len() as u64));
        let mut failed = None;
        let on_event = &mut |event: Event<'_>| {
            match event {
                Event::Prefill { done, .. } => progress.iter_mut().for_each(|progress| progress.at(done as u64, "")),
                Event::Token { id, text: piece } => {
                    progress = None;
                    ids.push(id);
                    text.push_str(piece);
                    match print(if stream { piece } else { "" }) {
                        Ok(ControlFlow::Continue(())) => {}
                        Ok(ControlFlow::Break(())) => return ControlFlow::Break(()),
                        Err(error) => {
                            failed = Some(error);
                            return ControlFlow::Break(());
                        }
                    }
                }
            }
            interrupted()
        };
        let Opened { engine, tokenizer, .. } = &mut self.opened;
        let generation =
            engine.generate(&mut self.session, tokenizer, prompt, &mut self.sampler, self.max_tokens, on_event)?;
        failed.map_or(Ok(()), Err).context("writing the answer")?;
        ids.truncate(generation.n_generated);
        Ok((text, ids, generation))
    }

    /// One line: load, prompt, answer.
    fn summary(&self, generation: &Generation) -> String {
        let load = &self.opened.report;
        let speed = |tokens, elapsed: Duration| {
            rate(tokens, elapsed).filter(|_| tokens > 0).map(|rate| format!(" at {rate:.1} tok/s")).unwrap_or_default()
        };
        let reused = match generation.n_reused {
            0 => String::new(),
            reused => format!(" ({} reused)", grouped(reused as u64)),
        };
        format!(
            "[loaded in {:.3} s, {} mapped, {} copied | prompt {} tokens{reused}{} | answer {} tokens{}, {} | seed {}]",
            load.elapsed.as_secs_f64(),
            bytes(load.bytes_mapped),
            bytes(load.bytes_copied),
            grouped(generation.n_prompt as u64),
            speed(generation.n_prefilled(), generation.prefill),
            grouped(generation.n_generated as u64),
            speed(generation.n_decoded(), generation.decode),
            match generation.finish {
                Finish::Stop => "complete",
                Finish::Length => "cut at the limit of -n",
                Finish::ContextFull => "cut because the context is full",
                Finish::Interrupted => "interrupted",
            },
            self.seed,
        )
    }

    fn report<'a>(&self, text: &'a str, ids: &'a [u32], generation: &Generation) -> Report<'a> {
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
            bytes_mapped: load.bytes_mapped,
            bytes_copied: load.bytes_copied,
            prefill_seconds: generation.prefill.as_secs_f64(),
            prefill_tokens_per_second: rate(generation.n_prefilled(), generation.prefill),
            decode_seconds: generation.decode.as_secs_f64(),
            decode_tokens_per_second: rate(generation.n_decoded(), generation.decode),
        }
    }
}

fn read_prompt() -> Result<String> {
    let mut prompt = String::new();
    std::io::stdin().read_to_string(&mut prompt).context("reading the prompt from standard input")?;
    // The newline that `echo` adds is not part of what was said.
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
