//! Counts instructions of the release binary under callgrind and holds them against recorded ones, so that a slower
//! kernel fails a check without a clock: counts repeat to a fraction of a percent on whatever machine.
//!
//! What is counted is a difference of two runs of `muser score` that differ in the work of interest alone, so that
//! start-up and loading cancel. All runs have one thread, whose work is not shared, and the AVX2 tier, which valgrind
//! emulates.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::build;
use crate::cache::Cache;
use crate::catalog;
use crate::fetch;
use crate::process;
use crate::progress::Progress;
use crate::workspace_root;

/// Models whose steps are counted: small ones, since valgrind runs vector code a hundred times slower, with one scale for
/// 32 weights and for 256.
const MODELS: [&str; 3] = ["muse-Q8_0", "muse-Q4_K", "muse-Q6_K"];

/// The tier whose kernels are counted.
const TIER: &str = "avx2";

/// How much more than recorded passes, and how much less is worth recording: what the hash maps' seeds and progress bars
/// change is a hundredth of that.
const MARGIN: f64 = 0.03;

/// Tokens of the counted prefill.
const N_PREFILL: usize = 64;

/// Decode steps in the difference of two runs, which evens out what else differs.
const N_DECODE: u64 = 8;

/// The work whose instructions are counted, by its name in the recorded file.
#[derive(Clone, Copy)]
enum Work {
    Prefill,
    Decode,
}

impl Work {
    const ALL: [Self; 2] = [Self::Prefill, Self::Decode];

    fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill of 64 tokens",
            Self::Decode => "decode step",
        }
    }
}

/// Counts, and writes them down; of the release binary, where no other is given.
///
/// # Errors
/// The binary or valgrind does not run, or the file can't be written.
pub fn record(cache: &Cache, muser: Option<PathBuf>) -> Result<()> {
    let muser = muser.map_or_else(build::release_binary, Ok)?;
    let mut counts = Map::new();
    for (model, path) in models(cache)? {
        let counter = Counter { muser: &muser, model: &path };
        for work in Work::ALL {
            let count = counter.count(work)?;
            println!("{model}, {}: {count}", work.name());
            counts.entry(model).or_insert_with(|| json!({}))[work.name()] = count.into();
        }
    }
    let document = json!({ "compiler": build::compiler()?, "tier": TIER, "instructions": counts });
    let path = recorded_path();
    fs::write(&path, format!("{document:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

/// Counts, and holds the counts against those written down; of the release binary, where no other is given.
///
/// # Errors
/// A count is higher than recorded by more than the margin; the record is another compiler's; the binary or valgrind does
/// not run.
pub fn check(cache: &Cache, muser: Option<PathBuf>) -> Result<()> {
    let path = recorded_path();
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let recorded: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
    let compiler = build::compiler()?;
    if recorded["compiler"] != *compiler {
        bail!(
            "the recorded counts are of {}, and this is {compiler}: record anew with `cargo xtask counts --record`",
            recorded["compiler"]
        );
    }
    let muser = muser.map_or_else(build::release_binary, Ok)?;
    let mut failed = 0;
    for (model, path) in models(cache)? {
        let counter = Counter { muser: &muser, model: &path };
        for work in Work::ALL {
            let before = recorded["instructions"][model][work.name()].as_u64();
            let before = before.with_context(|| format!("no count of {model}, {} is recorded", work.name()))?;
            let verdict = Verdict::of(counter.count(work)?, before);
            failed += usize::from(verdict.is_failure());
            println!("{}, {}: {}", model, work.name(), verdict.in_words());
        }
    }
    if failed > 0 {
        bail!("{failed} counts are more than {:.0} % above what was recorded", MARGIN * 100.0);
    }
    Ok(())
}

/// A count beside the recorded one.
struct Verdict {
    count: u64,
    before: u64,
}

impl Verdict {
    fn of(count: u64, before: u64) -> Self {
        Self { count, before }
    }

    /// Share of the recorded count by which this one differs.
    fn change(&self) -> f64 {
        self.count as f64 / self.before as f64 - 1.0
    }

    fn is_failure(&self) -> bool {
        self.change() > MARGIN
    }

    fn in_words(&self) -> String {
        let Self { count, before } = self;
        let said = format!("{count} instructions, {:+.2} % of the recorded {before}", self.change() * 100.0);
        if self.is_failure() {
            said + ": too many"
        } else if self.change() < -MARGIN {
            said + ": fewer, which `cargo xtask counts --record` would keep"
        } else {
            said
        }
    }
}

fn models(cache: &Cache) -> Result<Vec<(&'static str, PathBuf)>> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the counts are those of the {TIER} tier, which this processor does not have");
    }
    let models = catalog::select(&MODELS.map(str::to_owned))?;
    Ok(MODELS.into_iter().zip(fetch::models(cache, &models)?).collect())
}

fn recorded_path() -> PathBuf {
    workspace_root().join("tests/data/instructions.json")
}

/// Runs the binary on one model under callgrind.
struct Counter<'a> {
    muser: &'a Path,
    model: &'a Path,
}

impl Counter<'_> {
    /// Instructions of some work.
    fn count(&self, work: Work) -> Result<u64> {
        let ids = |n: usize| (0..n).map(|index| index % 200 + 1).collect::<Vec<_>>();
        let request = |n_ids: usize, n_next: usize| format!("{}\n", json!({ "ids": ids(n_ids), "next": ids(n_next) }));
        let (less, more, times, n_batch) = match work {
            // One request, or two of the same.
            Work::Prefill => (request(N_PREFILL, 1), request(N_PREFILL, 1).repeat(2), 1, N_PREFILL),
            // Batches of one token take the way of a decode step.
            Work::Decode => (request(1, 1), request(1, 1 + N_DECODE as usize), N_DECODE, 1),
        };
        let progress = Progress::spinner(&format!("{}, {}", self.model.display(), work.name()));
        let total = |requests: &str| self.total(requests, n_batch, &progress);
        let (less, more) = (total(&less)?, total(&more)?);
        more.checked_sub(less).map(|count| count / times).context("more work took fewer instructions")
    }

    /// Instructions of a whole run.
    fn total(&self, requests: &str, n_batch: usize, progress: &Progress) -> Result<u64> {
        let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
        let (requests_path, counts_path) = (folder.path().join("requests"), folder.path().join("counts"));
        let context = || format!("cannot use {}", folder.path().display());
        fs::write(&requests_path, requests).with_context(context)?;
        let requests = File::open(&requests_path).with_context(context)?;
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts_path.display()));
        command.arg(self.muser).arg("score").arg(self.model).args(["--top", "1", "--threads", "1", "--load", "map"]);
        command.args(["--tier", TIER, "--batch"]).arg(n_batch.to_string());
        let output = process::output_of(&mut command, Stdio::from(requests), || progress.at(0));
        process::succeeded(&command, output.context("valgrind is needed; it has a package of that name")?)?;
        total_of(&fs::read_to_string(&counts_path).with_context(context)?)
    }
}

/// The sum in a file that callgrind wrote.
fn total_of(counts: &str) -> Result<u64> {
    let total = counts.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.context("callgrind's file has no total")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_margin_fails_and_less_is_told() {
        let verdict = |count| Verdict::of(count, 1000);
        assert!(verdict(1031).is_failure() && !verdict(1029).is_failure() && !verdict(500).is_failure());
        assert!(verdict(1031).in_words().ends_with("+3.10 % of the recorded 1000: too many"));
        assert!(verdict(960).in_words().contains("--record"));
        assert!(verdict(1000).in_words().ends_with("recorded 1000"));
    }

    #[test]
    fn the_total_is_read_from_callgrinds_file() {
        let file = "# callgrind format\nevents: Ir\n\nfn=(1) main\n1 20\ntotals: 1234567\n";
        assert_eq!(total_of(file).unwrap(), 1_234_567);
        assert!(total_of("events: Ir\n").is_err());
    }

    #[test]
    fn every_counted_model_and_work_is_recorded() {
        let recorded: Value = serde_json::from_str(include_str!("../../tests/data/instructions.json")).unwrap();
        for model in MODELS {
            for work in Work::ALL {
                assert!(recorded["instructions"][model][work.name()].is_u64(), "{model}, {}", work.name());
            }
        }
        assert_eq!(recorded["tier"], TIER);
    }
}
