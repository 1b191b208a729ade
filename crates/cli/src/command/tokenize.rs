//! `muser tokenize`: the tokens of a text.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use muser_engine::LoadOptions;
use muser_gguf::Gguf;
use muser_memory::ModelFile;
use muser_text::{Affixes, Special};
use serde::Serialize;

use crate::args::TokenizeArgs;
use crate::exit::BadFile;
use crate::terminal::print;

#[derive(Serialize)]
struct Report {
    ids: Vec<u32>,
    /// The text of each token; what is not UTF-8 by itself is shown as U+FFFD.
    pieces: Vec<String>,
}

pub fn run(args: TokenizeArgs) -> Result<ExitCode> {
    let text = match args.text {
        Some(text) => text,
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading the text from standard input")?;
            text
        }
    };
    let file = ModelFile::open(&args.model)?;
    let mapping = Arc::clone(file.mapping());
    let path = args.model.display();
    let bad = |error: &dyn std::error::Error| BadFile(format!("{path}: {error}"));
    let gguf = Gguf::parse(mapping.as_slice(), mapping.as_slice().len() as u64).map_err(|error| bad(&error))?;
    let options = LoadOptions { force_pre: args.force_pre };
    let tokenizer = muser_engine::read_tokenizer(&gguf, &options).map_err(|error| bad(&error))?;
    let special = if args.special { Special::Parse } else { Special::Plain };
    let affixes = if args.bos { Affixes::Model } else { Affixes::None };
    let ids = tokenizer.encode(&text, special, affixes);
    let piece = |&id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned();
    let pieces = ids.iter().map(piece).collect();
    let report = Report { ids, pieces };
    let out = if args.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        let width = report.ids.iter().max().map_or(1, |id| id.to_string().len());
        report.ids.iter().zip(&report.pieces).map(|(id, piece)| format!("{id:>width$}  {piece:?}\n")).collect()
    };
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}
