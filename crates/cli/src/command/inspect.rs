//! `muser inspect`: what a model file says.

#[cfg(test)]
mod broken_files;
mod json;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use muser_engine::{ModelFiles, with_header};
use muser_gguf::{Gguf, GgufSet, TensorInfo, Value};
use serde_json::json;

use self::json::{Document, Plain, Start};
use crate::args::InspectArgs;
use crate::terminal::{bytes, grouped, print};

pub fn run(args: &InspectArgs) -> Result<ExitCode> {
    let out = described(&args.model, |files, set, why_not| {
        if args.json {
            serde_json::to_string(&Document::new(files, set, why_not)).map(|line| line + "\n")
        } else {
            Ok(as_text(files, set, why_not, args.tensors))
        }
    })??;
    let _ = print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// What `describe` makes of the files of a model, and of the reason why they can't be run, if there is one.
fn described<T>(
    model: &Path,
    describe: impl FnOnce(&ModelFiles, &GgufSet<'_>, Option<&str>) -> T,
) -> Result<T, muser_engine::Error> {
    let why_not = muser_engine::check(model).err().map(|error| match error {
        muser_engine::Error::BadModel { source, .. } => source.to_string(),
        error => error.to_string(),
    });
    with_header(model, |files, set| Ok(describe(files, set, why_not.as_deref())))
}

fn as_text(files: &ModelFiles, set: &GgufSet<'_>, why_not: Option<&str>, with_tensors: bool) -> String {
    let mut out = String::new();
    let (version, size) = (set.files()[0].version(), size_bytes(set));
    let tensors: Vec<_> = set.tensors().collect();
    let parameters: u64 = tensors.iter().map(|(_, tensor)| tensor.n_elements()).sum();
    let is_one = set.files().len() == 1;
    let rows = [
        (
            if is_one { "file" } else { "files" },
            match set.files() {
                [_] => format!("GGUF version {version}, {} ({} B)", bytes(size), grouped(size)),
                all => format!("{}, GGUF version {version}, {} ({} B)", all.len(), bytes(size), grouped(size)),
            },
        ),
        ("tensors", format!("{} with {} parameters", grouped(tensors.len() as u64), grouped(parameters))),
        ("runs", why_not.map_or_else(|| "yes".to_owned(), |why| format!("no: {why}"))),
    ];
    for (name, value) in rows {
        let _ = writeln!(out, "{name:<8} {value}");
    }
    if !is_one {
        write_files(&mut out, files, set);
    }
    let mut types: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (_, tensor) in &tensors {
        let (n, size) = types.entry(tensor.tensor_type().name()).or_default();
        *n += 1;
        *size += tensor.size_bytes();
    }
    out.push_str("\ntype      tensors      bytes\n");
    for (ty, (n, size)) in types {
        let _ = writeln!(out, "{ty:<8} {n:>8} {:>10}", bytes(size));
    }
    out.push_str("\nmetadata\n");
    let metadata = set.metadata().iter();
    let keys: Vec<_> = metadata.map(|(key, value)| (key.escape_debug().to_string(), value)).collect();
    let width = keys.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in keys {
        let _ = writeln!(out, "  {key:<width$}  {}", shortened(value));
    }
    if with_tensors {
        write_tensors(&mut out, &tensors, is_one);
    }
    out
}

/// The files of a set, numbered from 1 as their names are.
fn write_files(out: &mut String, files: &ModelFiles, set: &GgufSet<'_>) {
    out.push_str("\nfile  tensors      bytes\n");
    for (number, (file, gguf)) in (1..).zip(files.files().iter().zip(set.files())) {
        let (n, size) = (gguf.tensors().len(), bytes(gguf.file_len()));
        let _ = writeln!(out, "{number:>4} {n:>8} {size:>10}  {}", shown(file.path()));
    }
}

fn write_tensors(out: &mut String, tensors: &[(usize, &TensorInfo<'_>)], is_one: bool) {
    let name = |tensor: &TensorInfo<'_>| tensor.name().escape_debug().to_string();
    let width = tensors.iter().map(|(_, tensor)| name(tensor).len()).max().unwrap_or(0);
    let file = if is_one { "" } else { "file  " };
    let _ = writeln!(out, "\n{file}{:<width$}  type     dimensions             offset        bytes", "tensor");
    for (file_no, tensor) in tensors {
        let dims = tensor.dims().iter().map(u64::to_string).collect::<Vec<_>>().join(" × ");
        let (ty, offset, size) = (tensor.tensor_type().name(), tensor.offset(), tensor.size_bytes());
        let file = if is_one { String::new() } else { format!("{:>4}  ", file_no + 1) };
        let _ = writeln!(out, "{file}{:<width$}  {ty:<8} {dims:<16} {offset:>12} {size:>12}", name(tensor));
    }
}

/// A path's file name, without anything that drives a terminal.
fn shown(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().escape_debug().to_string()
}

fn size_bytes(set: &GgufSet<'_>) -> u64 {
    set.files().iter().map(Gguf::file_len).sum()
}

/// A value on one line: long strings and arrays by their beginning, and how much there is of them.
fn shortened(value: &Value<'_>) -> String {
    const CHARS: usize = 60;
    const ENTRIES: usize = 4;
    match value {
        Value::Str(text) if text.chars().count() > CHARS => {
            let start: String = text.chars().take(CHARS).collect();
            format!("{start:?}… ({} bytes)", grouped(text.len() as u64))
        }
        Value::Array(array) => {
            let shown = json!(Start(array, ENTRIES));
            let shown: Vec<_> = shown.as_array().into_iter().flatten().map(ToString::to_string).collect();
            let more = if array.len() > ENTRIES { ", …" } else { "" };
            format!("[{}{more}] ({} × {})", shown.join(", "), grouped(array.len() as u64), array.elem_type().name())
        }
        value => json!(Plain(value)).to_string(),
    }
}
