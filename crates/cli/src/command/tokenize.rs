//! `muser tokenize`: the tokens of a text.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use muser_engine::{read_tokenizer, with_header};
use muser_text::{Affixes, Special};
use serde::Serialize;

use super::warn_of_lost_bytes;
use crate::args::TokenizeArgs;
use crate::exit;
use crate::terminal::{print, read_stdin};

#[derive(Serialize)]
struct Report {
    ids: Vec<u32>,
    /// The text of each token; what is not UTF-8 by itself is shown as U+FFFD.
    pieces: Vec<String>,
}

pub fn run(args: TokenizeArgs) -> Result<ExitCode> {
    let text = args.text.map_or_else(read_stdin, Ok)?;
    let force_pre = args.force_pre.as_deref();
    let tokenizer = with_header(&args.model, |_, set| read_tokenizer(set.metadata(), force_pre));
    let tokenizer = tokenizer.map_err(|error| exit::of_opening(error, force_pre.is_some()))?;
    let special = if args.special { Special::Parse } else { Special::Plain };
    let affixes = if args.bos { Affixes::Model } else { Affixes::None };
    warn_of_lost_bytes(&tokenizer, &text);
    let ids = tokenizer.encode(&text, special, affixes);
    let piece = |&id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned();
    let pieces = ids.iter().map(piece).collect();
    let report = Report { ids, pieces };
    let out = if args.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        let width = report.ids.iter().max().map_or(1, |id| id.to_string().len());
        let mut out = String::new();
        for (id, piece) in report.ids.iter().zip(&report.pieces) {
            let _ = writeln!(out, "{id:>width$}  {piece:?}");
        }
        out
    };
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}
