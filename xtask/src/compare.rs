//! Runs Muser and another engine on the same files in turn, pair by pair, and prints how they compare.
//!
//! Each engine runs in a process of its own and alone, so that both find the machine in the same state; what else the
//! machine does meanwhile falls on both, and the ratio of a pair is steadier than either figure. How much that was is
//! measured too.

mod busy;
mod peer;

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use crate::build;
use crate::cache::Cache;
use crate::catalog;
use crate::fetch;
use crate::progress::Progress;
use busy::Ticks;
use peer::{ContextLen, Load, Muser, Run};

pub use peer::{Peer, PeerName};

/// What to compare.
#[derive(Debug)]
pub struct Options {
    /// Muser's binary; `None` builds the release binary.
    pub muser: Option<PathBuf>,
    /// With whom.
    pub peer: PeerName,
    /// On which models.
    pub models: Vec<String>,
    /// How many runs of each engine; `None` for three, or one where it is to be quick.
    pub n_pair: Option<usize>,
    /// Threads; `None` for as many as Muser takes by itself.
    pub n_thread: Option<usize>,
    /// Leaves out the deepest depth, and shortens answers.
    pub quick: bool,
    /// Prints one JSON document.
    pub json: bool,
}

/// Share of the processors that others may have without a warning.
const QUIET: f64 = 0.05;

/// Models that are compared where none are named.
const MODELS: [&str; 2] = ["smollm2", "gemma3"];

/// What is run: the depth of the answer, which is the length of the prompt too, and the context.
type Point = (usize, ContextLen);
const START: Point = (0, ContextLen::Needed);
const SHORT: Point = (512, ContextLen::Needed);
const DEEP: Point = (4096, ContextLen::Needed);
const WHOLE: Point = (0, ContextLen::Trained);
const POINTS: [Point; 4] = [START, WHOLE, SHORT, DEEP];

/// One line of the table.
struct Metric {
    name: &'static str,
    unit: &'static str,
    /// The run that it is taken from.
    at: Point,
    value: fn(&Run) -> Option<f64>,
    /// What the ratio of ours to theirs is to reach, for each of [`MODELS`]. Below 1, less is better.
    targets: [Option<f64>; 2],
}

const METRICS: [Metric; 9] = [
    Metric { name: "prefill 512", unit: "tok/s", at: SHORT, value: |run| run.prefill, targets: [Some(4.0), Some(3.0)] },
    Metric {
        name: "prefill 4,096",
        unit: "tok/s",
        at: DEEP,
        value: |run| run.prefill,
        targets: [Some(5.0), Some(3.0)],
    },
    Metric {
        name: "decode, depth 0",
        unit: "tok/s",
        at: START,
        value: |run| Some(run.decode),
        targets: [Some(1.7), Some(1.35)],
    },
    Metric {
        name: "decode, depth 512",
        unit: "tok/s",
        at: SHORT,
        value: |run| Some(run.decode),
        targets: [None, None],
    },
    Metric {
        name: "decode, depth 4,096",
        unit: "tok/s",
        at: DEEP,
        value: |run| Some(run.decode),
        targets: [Some(3.0), Some(1.4)],
    },
    Metric {
        name: "start to first token",
        unit: "s",
        at: START,
        value: |run| Some(run.first_token_seconds),
        targets: [Some(1.0 / 3.0), Some(1.0 / 3.0)],
    },
    Metric {
        name: "peak memory, whole context",
        unit: "MB",
        at: WHOLE,
        value: |run| Some(run.peak_bytes / 1e6),
        targets: [Some(0.5), Some(0.7)],
    },
    // Contexts no longer than prompt and answer: what is left is weights, which either engine maps, and the same keys
    // and values.
    Metric {
        name: "peak memory, depth 0",
        unit: "MB",
        at: START,
        value: |run| Some(run.peak_bytes / 1e6),
        targets: [None, None],
    },
    Metric {
        name: "peak memory, depth 4,096",
        unit: "MB",
        at: DEEP,
        value: |run| Some(run.peak_bytes / 1e6),
        targets: [None, None],
    },
];

/// Makes the comparison and prints its table.
///
/// # Errors
/// An engine can't be had or does not run.
pub fn compare(cache: &Cache, options: &Options) -> Result<()> {
    let names = if options.models.is_empty() { MODELS.map(str::to_owned).to_vec() } else { options.models.clone() };
    let models = catalog::select(&names)?;
    let paths = fetch::models(cache, &models)?;
    let muser = Muser(options.muser.clone().map_or_else(build::release_binary, Ok)?);
    let peer = Peer::prepare(options.peer, cache)?;
    let n_thread = match options.n_thread {
        Some(n_thread) => n_thread,
        None => muser.default_threads(&paths[0])?,
    };
    let mut documents = Vec::new();
    for (model, path) in models.iter().zip(&paths) {
        let comparison = Comparison { muser: &muser, peer: &peer, model: path, n_thread, options };
        muser.settle(path)?;
        let before = Ticks::now();
        let pairs = comparison.pairs()?;
        let others = Ticks::now().zip(before).map(|(now, before)| now.others_since(&before));
        // The targets are ratios to llama.cpp.
        let rows = rows((options.peer == PeerName::LlamaCpp).then_some(model.name), &pairs);
        if options.json {
            documents
                .push(json!({ "model": model.file, "n_thread": n_thread, "busy_with_others": others, "rows": rows }));
        } else {
            print_table(model.file, n_thread, pairs.len(), options.peer, &rows);
        }
        if let Some(others) = others.filter(|&others| others > QUIET) {
            eprintln!(
                "warning: other processes had {:.0} % of the processors meanwhile. Threads that wait for each other \
                 by spinning suffer most from that, so these ratios say little.",
                others * 100.0
            );
        }
    }
    if options.json {
        println!("{}", Value::Array(documents));
    }
    Ok(())
}

struct Comparison<'a> {
    muser: &'a Muser,
    peer: &'a Peer,
    model: &'a Path,
    n_thread: usize,
    options: &'a Options,
}

/// Both engines' runs.
struct Pair(Vec<(Point, Run, Run)>);

impl Comparison<'_> {
    fn pairs(&self) -> Result<Vec<Pair>> {
        let (n_pair, n_answer) = if self.options.quick { (1, 32) } else { (3, 128) };
        let points = if self.options.quick { &POINTS[..3] } else { &POINTS[..] };
        let n_pair = self.options.n_pair.unwrap_or(n_pair);
        let mut pairs = Vec::new();
        for index in 0..n_pair {
            let runs = points.iter().map(|&point| {
                let (depth, context) = point;
                let what = format!("{}, depth {depth}, pair {} of {n_pair}", self.model.display(), index + 1);
                let progress = Progress::spinner(&what);
                let tick = || progress.at(0);
                let load = Load { model: self.model, n_thread: self.n_thread, depth, n_answer, context };
                // Neither always comes after the other.
                if index % 2 == 0 {
                    let ours = self.muser.run(&load, &tick)?;
                    Ok((point, ours, self.peer.run(&load, &tick)?))
                } else {
                    let theirs = self.peer.run(&load, &tick)?;
                    Ok((point, self.muser.run(&load, &tick)?, theirs))
                }
            });
            pairs.push(Pair(runs.collect::<Result<_>>()?));
        }
        Ok(pairs)
    }
}

/// A line for each metric that was measured, with the targets of a model, if it has any.
fn rows(model: Option<&str>, pairs: &[Pair]) -> Vec<Value> {
    let model = MODELS.iter().position(|&name| Some(name) == model);
    let rows = METRICS.iter().filter_map(|metric| {
        let runs = pairs.iter().flat_map(|pair| pair.0.iter().filter(|(point, ..)| *point == metric.at));
        let values = runs.filter_map(|(_, ours, theirs)| Some(((metric.value)(ours)?, (metric.value)(theirs)?)));
        let values: Vec<(f64, f64)> = values.collect();
        let ratios: Vec<f64> = values.iter().map(|(ours, theirs)| ours / theirs).collect();
        let ratio = median(ratios.clone())?;
        let target = model.and_then(|model| metric.targets[model]);
        Some(json!({
            "metric": metric.name,
            "unit": metric.unit,
            "ours": median(values.iter().map(|value| value.0).collect()),
            "theirs": median(values.iter().map(|value| value.1).collect()),
            "ratio": ratio,
            "ratios": ratios,
            "target": target,
            "reached": target.map(|target| if target < 1.0 { ratio <= target } else { ratio >= target }),
        }))
    });
    rows.collect()
}

/// The value in the middle, or the mean of the two there.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

fn print_table(file: &str, n_thread: usize, n_pair: usize, peer: PeerName, rows: &[Value]) {
    let theirs = match peer {
        PeerName::LlamaCpp => "llama.cpp",
        PeerName::Candle => "candle",
    };
    println!("{file}, threads: {n_thread}, pairs: {n_pair}");
    println!("{:<30} {:>9} {theirs:>9} {:>6} {:>19} {:>10}", "", "muser", "ratio", "of the pairs", "target");
    for row in rows {
        let number = |key: &str| row[key].as_f64();
        let value = |key: &str| match number(key) {
            Some(value) if value < 10.0 => format!("{value:.3}"),
            Some(value) => format!("{value:.1}"),
            None => String::new(),
        };
        let ratios: Vec<f64> = row["ratios"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let (least, most) =
            (ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max));
        let target = number("target").map_or(String::new(), |target| {
            let sign = if target < 1.0 { '≤' } else { '≥' };
            let missed = if row["reached"] == true { "" } else { " missed" };
            format!("{sign} {target:.2}{missed}")
        });
        let (name, unit) = (row["metric"].as_str().unwrap_or_default(), row["unit"].as_str().unwrap_or_default());
        println!(
            "{:<30} {:>9} {:>9} {:>6.2} {:>19} {target}",
            format!("{name}, {unit}"),
            value("ours"),
            value("theirs"),
            number("ratio").unwrap_or(f64::NAN),
            format!("{least:.2} to {most:.2}"),
        );
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(speed: f64) -> Run {
        Run { prefill: Some(10.0 * speed), decode: speed, first_token_seconds: 1.0 / speed, peak_bytes: 1e6 }
    }

    #[test]
    fn the_ratio_is_that_in_the_middle_of_the_pairs_and_not_of_the_figures() {
        // A machine that was slow in the second pair, for both.
        let pairs =
            [(6.0, 3.0), (2.0, 1.0), (9.0, 3.0)].map(|(ours, theirs)| Pair(vec![(SHORT, run(ours), run(theirs))]));
        let rows = rows(Some("smollm2"), &pairs);
        assert_eq!(rows.len(), 2, "what has no run has no line");
        assert_eq!((&rows[0]["metric"], &rows[0]["ratio"]), (&"prefill 512".into(), &2.0.into()));
        assert_eq!((&rows[0]["ours"], &rows[0]["theirs"]), (&60.0.into(), &30.0.into()));
        assert_eq!((&rows[0]["target"], &rows[0]["reached"]), (&4.0.into(), &false.into()));
        assert_eq!(rows[1]["reached"], Value::Null);
    }

    #[test]
    fn less_time_and_less_memory_are_better() {
        let rows = rows(Some("gemma3"), &[Pair(vec![(START, run(8.0), run(2.0)), (WHOLE, run(1.0), run(1.0))])]);
        let row = |name: &str| rows.iter().find(|row| row["metric"] == name).expect("a line");
        assert_eq!(row("start to first token")["ratio"], 0.25);
        assert_eq!(row("start to first token")["reached"], true);
        assert_eq!(row("peak memory, whole context")["reached"], false);
    }

    #[test]
    fn the_middle_of_nothing_is_nothing() {
        assert_eq!((median(vec![]), median(vec![4.0, 1.0]), median(vec![3.0, 1.0, 2.0])), (None, Some(2.5), Some(2.0)));
    }
}
