//! `muser taps`: files of taps compared.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use muser_engine::{Difference, DifferenceKind, TapFile, TapFileError};
use serde_json::json;

use crate::args::{TapsArgs, TapsCommand, TapsDiffArgs};
use crate::terminal::{grouped, print};

pub fn run(args: &TapsArgs) -> Result<ExitCode> {
    let TapsCommand::Diff(args) = &args.command;
    diff(args)
}

fn diff(args: &TapsDiffArgs) -> Result<ExitCode> {
    let (first, second) = (read(&args.first)?, read(&args.second)?);
    let difference = first.first_difference(&second);
    let out = match (&difference, args.json) {
        (None, true) => json!({"equal": true, "records": first.len()}).to_string() + "\n",
        (None, false) => format!("equal: {} taps\n", grouped(first.len() as u64)),
        (Some(difference), true) => as_json(difference).to_string() + "\n",
        (Some(difference), false) => as_text(difference, args),
    };
    let _ = print(&out)?;
    Ok(ExitCode::from(u8::from(difference.is_some())))
}

fn read(path: &Path) -> Result<TapFile> {
    let file = File::open(path).map_err(TapFileError::from).with_context(|| format!("opening {}", path.display()))?;
    TapFile::read(BufReader::new(file)).with_context(|| format!("reading {}", path.display()))
}

fn as_text(Difference { key, kind }: &Difference, args: &TapsDiffArgs) -> String {
    let layer = key.layer().map(|layer| format!(", layer {layer}")).unwrap_or_default();
    let place = format!("{}{layer}, token {} of sequence {}", key.tap().name(), key.pos, key.sequence);
    let (first, second) = (args.first.display(), args.second.display());
    let how = match kind {
        DifferenceKind::OnlyInFirst => format!("only in {first}"),
        DifferenceKind::OnlyInSecond => format!("only in {second}"),
        DifferenceKind::Changed(None) => "other values (save both with --taps-values to see by how much)".to_owned(),
        DifferenceKind::Changed(Some(distance)) => {
            let gap = (f64::from(distance.first) - f64::from(distance.second)).abs();
            format!(
                "{} of {} values, most by {gap:e} at index {}: {:e} and {:e}",
                distance.n_changed, distance.n, distance.worst_index, distance.first, distance.second
            )
        }
    };
    format!("first difference: {place}: {how}\n")
}

fn as_json(Difference { key, kind }: &Difference) -> serde_json::Value {
    let mut document = json!({
        "equal": false,
        "tap": key.tap().name(),
        "layer": key.layer(),
        "sequence": key.sequence,
        "pos": key.pos,
        "kind": match kind {
            DifferenceKind::OnlyInFirst => "only_in_first",
            DifferenceKind::OnlyInSecond => "only_in_second",
            DifferenceKind::Changed(_) => "changed",
        },
    });
    if let DifferenceKind::Changed(Some(distance)) = kind {
        document["n_changed"] = json!(distance.n_changed);
        document["n"] = json!(distance.n);
        document["worst_index"] = json!(distance.worst_index);
        document["first"] = json!(distance.first);
        document["second"] = json!(distance.second);
    }
    document
}
