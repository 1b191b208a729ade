//! SHA-256 of files, with progress.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

use crate::progress::Progress;

/// What identifies a content.
#[derive(Debug, PartialEq, Eq)]
pub struct Digest {
    /// The length in bytes.
    pub size_bytes: u64,
    /// SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
}

/// Hashes a file; `name` is what the progress bar says.
///
/// # Errors
/// The file cannot be read.
pub fn file(path: &Path, name: &str) -> Result<Digest> {
    concat(&[path], None, name)
}

/// Hashes files as one, in this order, and copies them into `out` where there is one.
///
/// # Errors
/// A file cannot be read, or `out` not written.
pub fn concat(paths: &[&Path], mut out: Option<&mut File>, name: &str) -> Result<Digest> {
    let mut total = 0;
    for path in paths {
        total += path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
    }
    let progress = Progress::bytes(&format!("verifying {name}"), total);
    let mut sha256 = Sha256::new();
    let mut size_bytes = 0;
    let mut buffer = vec![0; 1 << 20];
    for path in paths {
        let context = || format!("cannot read {}", path.display());
        let mut file = File::open(path).with_context(context)?;
        loop {
            let len = file.read(&mut buffer).with_context(context)?;
            if len == 0 {
                break;
            }
            sha256.update(&buffer[..len]);
            if let Some(out) = out.as_deref_mut() {
                out.write_all(&buffer[..len]).with_context(|| format!("cannot write {name}"))?;
            }
            size_bytes += len as u64;
            progress.at(size_bytes);
        }
    }
    Ok(Digest { size_bytes, sha256: hex(&sha256.finalize()) })
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_hashed_and_written_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, joined) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("joined"));
        std::fs::write(&a, "hel").unwrap();
        std::fs::write(&b, "lo").unwrap();
        let digest = concat(&[&a, &b], Some(&mut File::create(&joined).unwrap()), "hello").unwrap();
        assert_eq!(digest.size_bytes, 5);
        assert_eq!(digest.sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(std::fs::read_to_string(&joined).unwrap(), "hello");
        assert_eq!(file(&joined, "joined").unwrap(), digest);
    }
}
