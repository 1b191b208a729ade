//! Many clients at one server: nothing lost, nothing wrong, and how fast.
//!
//! Every request is asked alone first, of a server with one slot and nothing kept from one request to the next. Then all of
//! them are asked of a server with several slots, many at a time, and each answer has to be the one that it got alone. The
//! peer gets the same requests the same way; its answers may differ from run to run, so only their number is checked.

mod client;
mod requests;
mod server;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::build;
use crate::cache::Cache;
use crate::catalog;
use crate::compare::Peer;
use crate::fetch;
use crate::progress::Progress;
use client::{Answer, Client};
use requests::{Request, requests};
use server::Server;

/// What to put on the server.
#[derive(Debug)]
pub struct Options {
    /// Muser's binary; `None` builds the release binary.
    pub muser: Option<PathBuf>,
    /// Requests in all.
    pub n_request: usize,
    /// Requests at a time.
    pub n_connection: usize,
    /// Sequences that the server works on at once.
    pub n_slot: usize,
    /// Threads that compute; `None` for as many as Muser takes by itself.
    pub n_thread: Option<usize>,
    /// How many of the requests the peer gets; 0 leaves it out.
    pub n_peer_request: usize,
    /// Prints one JSON document.
    pub json: bool,
}

/// The model under load.
const MODEL: &str = "smollm2";

/// Context of a slot in tokens: more than the longest request needs.
const N_CTX: usize = 2048;

/// What the server keeps of ended requests: soon full, so that whatever grows later is a leak.
const PREFIX_CACHE: &str = "134217728";

/// Share of its memory by which a server may grow over the second half of the requests; that much is noise.
const MAX_GROWTH: f64 = 0.01;

/// Total tokens a second, ours to the peer's.
const TARGET: f64 = 1.5;

/// Runs the load and prints what it showed.
///
/// # Errors
/// A server does not run; an answer was lost or wrong; memory grew.
pub fn load(cache: &Cache, options: &Options) -> Result<()> {
    let model = &fetch::models(cache, &catalog::select(&[MODEL.to_owned()])?)?[0];
    let muser = options.muser.clone().map_or_else(build::release_binary, Ok)?;
    let requests = requests(options.n_request);

    let alone = Server::muser(&muser, model, 1, N_CTX, options.n_thread, &["--prefix-cache", "0"])?;
    let expected = ask_one_by_one(&alone, &requests)?;
    drop(alone);

    let server =
        Server::muser(&muser, model, options.n_slot, N_CTX, options.n_thread, &["--prefix-cache", PREFIX_CACHE])?;
    let ours = run(&server, &requests, options.n_connection, "muser")?;
    drop(server);
    check(&ours, &expected)?;

    let mut report = json!({
        "model": catalog::select(&[MODEL.to_owned()])?[0].file,
        "n_request": options.n_request, "n_connection": options.n_connection, "n_slot": options.n_slot,
        "ours": ours.report(),
    });
    if options.n_peer_request > 0 {
        let peer = Peer::server(cache)?;
        let server = Server::peer(&peer, model, options.n_slot, N_CTX, options.n_thread)?;
        let asked = &requests[..options.n_peer_request.min(requests.len())];
        let theirs = run(&server, asked, options.n_connection, "llama.cpp")?;
        report["ratio"] = json!(ours.tokens_per_second() / theirs.tokens_per_second());
        report["theirs"] = theirs.report();
    }
    if options.json {
        println!("{report}");
    } else {
        print(&report);
    }
    Ok(())
}

/// Every request was answered, as it was alone, and in memory that does not grow.
fn check(outcome: &Outcome, expected: &[Answer]) -> Result<()> {
    if let Some((index, error)) = outcome.first_lost() {
        bail!("{} answers were lost; the first, of request {index}: {error:#}", outcome.n_lost());
    }
    let wrong = outcome.answered().zip(expected).enumerate().filter(|(_, (got, alone))| !got.says_the_same(alone));
    let wrong: Vec<_> = wrong.collect();
    if let Some((index, (got, alone))) = wrong.first() {
        bail!(
            "{} answers differ from those that the requests got alone; the first, of request {index}: {:?}, not {:?}",
            wrong.len(),
            got.text,
            alone.text
        );
    }
    let growth = outcome.growth();
    if growth > MAX_GROWTH {
        bail!("memory grew by {:.1} % over the second half of the requests", growth * 100.0);
    }
    eprintln!("{} answers, each the one that its request got alone", outcome.answers.len());
    Ok(())
}

fn ask_one_by_one(server: &Server, requests: &[Request]) -> Result<Vec<Answer>> {
    let progress = Progress::count("asking each request alone", requests.len() as u64);
    let client = Client::new(server.address());
    requests
        .iter()
        .enumerate()
        .map(|(index, request)| {
            progress.at(index as u64);
            client.ask(request)
        })
        .collect()
}

/// What a load of requests showed.
struct Outcome {
    elapsed: Duration,
    answers: Vec<Result<Answer>>,
    /// Requests answered so far, and bytes resident then.
    memory: Vec<(usize, u64)>,
}

fn run(server: &Server, requests: &[Request], n_connection: usize, name: &str) -> Result<Outcome> {
    let progress = Progress::count(&format!("{name} answers {n_connection} requests at a time"), requests.len() as u64);
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let answers = Mutex::new((0..requests.len()).map(|_| None).collect::<Vec<_>>());
    let started = Instant::now();
    let mut memory = Vec::new();
    thread::scope(|scope| {
        for _ in 0..n_connection {
            scope.spawn(|| {
                let client = Client::new(server.address());
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(request) = requests.get(index) else { break };
                    let answer = client.ask(request);
                    answers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[index] = Some(answer);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        loop {
            let n_done = done.load(Ordering::Relaxed);
            progress.at(n_done as u64);
            memory.push((n_done, server.resident_bytes()?));
            if n_done == requests.len() {
                return Ok::<_, anyhow::Error>(());
            }
            thread::sleep(Duration::from_millis(100));
        }
    })?;
    let elapsed = started.elapsed();
    let answers = answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(Outcome { elapsed, answers: answers.into_iter().flatten().collect(), memory })
}

impl Outcome {
    fn answered(&self) -> impl Iterator<Item = &Answer> {
        self.answers.iter().flatten()
    }

    fn n_lost(&self) -> usize {
        self.answers.iter().filter(|answer| answer.is_err()).count()
    }

    fn first_lost(&self) -> Option<(usize, &anyhow::Error)> {
        self.answers.iter().enumerate().find_map(|(index, answer)| Some((index, answer.as_ref().err()?)))
    }

    /// Tokens of prompts and answers a second.
    fn tokens_per_second(&self) -> f64 {
        self.answered().map(|answer| answer.n_prompt + answer.n_generated).sum::<usize>() as f64
            / self.elapsed.as_secs_f64()
    }

    /// By which share of itself the memory grew over the second half of the requests: the slope of a line through it, so
    /// that one peak does not count for a trend.
    fn growth(&self) -> f64 {
        let half = self.answers.len() / 2;
        let points: Vec<(f64, f64)> =
            self.memory.iter().filter(|(n, _)| *n >= half).map(|&(n, bytes)| (n as f64, bytes as f64)).collect();
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / points.len().max(1) as f64;
        let (n, bytes) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - n).powi(2)).sum();
        let together: f64 = points.iter().map(|point| (point.0 - n) * (point.1 - bytes)).sum();
        if spread == 0.0 { 0.0 } else { together / spread * half as f64 / bytes }
    }

    fn report(&self) -> Value {
        let mut first: Vec<f64> = self.answered().map(|answer| answer.first_token.as_secs_f64()).collect();
        first.sort_by(f64::total_cmp);
        let quantile = |share: f64| first.get(((first.len() as f64 - 1.0) * share).round() as usize).copied();
        let sum = |value: fn(&Answer) -> usize| self.answered().map(value).sum::<usize>();
        json!({
            "n_answered": self.answered().count(),
            "n_lost": self.n_lost(),
            "seconds": self.elapsed.as_secs_f64(),
            "prompt_tokens": sum(|answer| answer.n_prompt),
            "reused_tokens": sum(|answer| answer.n_reused),
            "generated_tokens": sum(|answer| answer.n_generated),
            "tokens_per_second": self.tokens_per_second(),
            "generated_per_second": sum(|answer| answer.n_generated) as f64 / self.elapsed.as_secs_f64(),
            "first_token_p50": quantile(0.5),
            "first_token_p95": quantile(0.95),
            "peak_resident_bytes": self.memory.iter().map(|(_, bytes)| *bytes).max(),
            "growth_over_second_half": self.growth(),
        })
    }
}

fn print(report: &Value) {
    println!(
        "{}: {} requests from {} connections on {} slots",
        report["model"].as_str().unwrap_or_default(),
        report["n_request"],
        report["n_connection"],
        report["n_slot"]
    );
    println!(
        "{:<10} {:>8} {:>6} {:>8} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8}",
        "", "requests", "lost", "seconds", "tok/s", "answers'", "TTFT p50", "TTFT p95", "peak MB", "growth"
    );
    for (name, key) in [("muser", "ours"), ("llama.cpp", "theirs")] {
        let Some(outcome) = report.get(key) else { continue };
        let number = |key: &str| outcome[key].as_f64().unwrap_or(f64::NAN);
        println!(
            "{name:<10} {:>8} {:>6} {:>8.1} {:>9.1} {:>9.1} {:>7.2} s {:>7.2} s {:>8.1} {:>6.2} %",
            number("n_answered"),
            number("n_lost"),
            number("seconds"),
            number("tokens_per_second"),
            number("generated_per_second"),
            number("first_token_p50"),
            number("first_token_p95"),
            number("peak_resident_bytes") / 1e6,
            number("growth_over_second_half") * 100.0,
        );
    }
    if let Some(ratio) = report["ratio"].as_f64() {
        let missed = if ratio >= TARGET { "" } else { ", missed" };
        println!("ratio of tok/s {ratio:.2} (target ≥ {TARGET:.1}{missed})");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(memory: Vec<(usize, u64)>) -> Outcome {
        let answer = || {
            let (n_prompt, n_reused, n_generated) = (30, 10, 20);
            let (text, finish, first_token) = (String::new(), String::from("stop"), Duration::from_secs(1));
            Ok(Answer { text, finish, n_prompt, n_reused, n_generated, first_token })
        };
        Outcome { elapsed: Duration::from_secs(10), answers: (0..4).map(|_| answer()).collect(), memory }
    }

    #[test]
    fn memory_that_grows_only_at_the_start_has_no_slope() {
        assert!(outcome(vec![(0, 10), (1, 1000), (2, 2000), (3, 2000), (4, 2000)]).growth().abs() < 1e-9);
    }

    #[test]
    fn memory_that_grows_with_every_request_is_a_share_of_itself() {
        let growth = outcome(vec![(0, 600), (1, 800), (2, 900), (3, 1000), (4, 1100)]).growth();
        assert!((growth - 0.2).abs() < 1e-9, "{growth}");
    }

    #[test]
    fn tokens_of_prompts_and_answers_count() {
        assert!((outcome(Vec::new()).tokens_per_second() - 20.0).abs() < 1e-9);
    }
}
