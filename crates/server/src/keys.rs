//! Keys that clients have to send.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use subtle::{Choice, ConstantTimeEq};

use crate::Error;

/// Shortest key: a guess a microsecond would take some thousand years.
pub(crate) const MIN_KEY_LEN: usize = 8;
/// Longest key; well within the limit on headers.
pub(crate) const MAX_KEY_LEN: usize = 512;
/// Longest file of keys.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The keys of a file. Never shown: [`Debug`](fmt::Debug) says how many there are.
pub struct Keys(Vec<String>);

impl Keys {
    /// Reads a file of keys, one a line; empty lines and those that start with `#` don't count.
    ///
    /// # Errors
    /// When the file can't be read, is open to others than its owner, or holds no key or something else.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::KeyFile { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        // Of the open file: the path may lead to another one by now.
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o177 != 0 {
            return Err(Error::KeyFileMode { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        let mut keys = Vec::new();
        for (line, number) in text.lines().map(str::trim).zip(1..) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let is_key =
                (MIN_KEY_LEN..=MAX_KEY_LEN).contains(&line.len()) && line.bytes().all(|b| b.is_ascii_graphic());
            if !is_key {
                return Err(Error::BadKey { path: path.to_owned(), line: number });
            }
            keys.push(line.to_owned());
        }
        if keys.is_empty() { Err(Error::NoKey { path: path.to_owned() }) } else { Ok(Self(keys)) }
    }

    /// Whether this is one of the keys. Takes a time that depends on lengths only.
    pub(crate) fn accept(&self, given: &[u8]) -> bool {
        let any = self.0.iter().fold(Choice::from(0), |found, key| found | key.as_bytes().ct_eq(given));
        any.into()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_accepted_and_nothing_near_it() {
        let keys = Keys(vec!["first-key".into(), "second-key".into()]);
        assert!(keys.accept(b"first-key") && keys.accept(b"second-key"));
        for wrong in ["", "first-ke", "first-key ", "First-key", "first-keysecond-key"] {
            assert!(!keys.accept(wrong.as_bytes()), "{wrong:?}");
        }
    }

    #[test]
    fn keys_are_not_shown() {
        assert_eq!(format!("{:?}", Keys(vec!["secret-key".into()])), "Keys(1)");
    }
}
