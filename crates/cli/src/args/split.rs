//! The arguments of `muser split`.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use muser_gguf::ShardLimit;

/// Bytes that a size's unit stands for. Units are read in upper and lower case.
const UNITS: [(&str, u64); 13] = [
    ("", 1),
    ("B", 1),
    ("K", 1000),
    ("KB", 1000),
    ("KiB", 1 << 10),
    ("M", 1_000_000),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("G", 1_000_000_000),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("T", 1_000_000_000_000),
    ("TB", 1_000_000_000_000),
];

#[derive(Debug, Args)]
pub struct SplitArgs {
    /// A GGUF file, or any file of a set
    pub model: PathBuf,
    /// What the paths of the new files begin with: `-00001-of-0000N.gguf` and so on follow
    #[arg(value_name = "OUT_PREFIX", value_parser = OsStringValueParser::new().try_map(parse_prefix))]
    pub prefix: PathBuf,
    /// Most bytes of a file, with a unit from K to T (powers of 1000) or KiB to GiB
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size)]
    pub max_size: u64,
    /// Most tensors in a file, instead of a size
    #[arg(long, value_name = "N", value_parser = super::parse_count, conflicts_with = "max_size")]
    pub max_tensors: Option<NonZero<usize>>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl SplitArgs {
    /// How large a file may be.
    pub fn limit(&self) -> ShardLimit {
        match self.max_tensors.and_then(|most| NonZero::new(most.get() as u64)) {
            Some(most) => ShardLimit::Tensors(most),
            None => ShardLimit::SizeBytes(self.max_size),
        }
    }
}

fn parse_prefix(prefix: OsString) -> Result<PathBuf, String> {
    let is_folder = prefix.as_encoded_bytes().ends_with(b"/");
    let prefix = PathBuf::from(prefix);
    // Names of shards are read as text.
    match prefix.file_name().and_then(|name| name.to_str()) {
        Some(_) if !is_folder => Ok(prefix),
        _ => Err("expected what the names of files can begin with, in UTF-8".to_owned()),
    }
}

pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || "expected a number of bytes above 0, such as 500M, 2G or 64MiB".to_owned();
    let (_, factor) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(wrong)?;
    if number.is_empty() || number.bytes().all(|digit| digit == b'0') {
        return Err(wrong());
    }
    let size = number.parse().ok().and_then(|number: u64| number.checked_mul(*factor));
    size.ok_or_else(|| "the size passes 64 bits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1000_and_of_1024() {
        let cases =
            [("1", 1), ("700b", 700), ("100M", 100_000_000), ("3kb", 3000), ("64MiB", 64 << 20), ("2G", 2_000_000_000)];
        for (text, expected) in cases {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for wrong in ["", "0", "00M", "M", "-1M", "+1M", "1.5G", "1 G", "2GG", "2Q", "1e9", "0x10", "２G"] {
            let refusal = parse_size(wrong).expect_err(wrong);
            assert!(refusal.contains("expected a number of bytes"), "{wrong}: {refusal}");
        }
        for wrong in ["18446744073709551616", "99999999T"] {
            assert_eq!(parse_size(wrong), Err("the size passes 64 bits".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_is_the_start_of_a_files_name() {
        for right in ["a", "./a", "/tmp/some.model", "a b"] {
            assert_eq!(parse_prefix(right.into()), Ok(PathBuf::from(right)));
        }
        for wrong in ["", "/", "..", "folder/", "folder/.."] {
            assert!(parse_prefix(wrong.into()).is_err(), "{wrong:?} was taken for a prefix");
        }
    }
}
