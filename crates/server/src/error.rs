//! What can keep a server from starting, and what ends it.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server could not be started, or ended by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is not to be had.
    #[error("could not listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Other machines could use the server, and nothing asks them for a key.
    #[error(
        "{address} can be reached from other machines: give a file with keys (--api-key-file), or listen on 127.0.0.1"
    )]
    KeyDemanded {
        /// The address.
        address: SocketAddr,
    },
    /// The file of keys can't be read.
    #[error("{path}: could not read the file of keys: {source}", path = path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others than its owner can read the file of keys, or change it.
    #[error("{path}: the file of keys has mode {mode:04o}, expected 0600, which is its owner's alone", path = path.display())]
    KeyFileMode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key that no client could send in a header.
    #[error(
        "{path}: line {line} is no key: expected {min} to {max} printable ASCII characters without spaces",
        path = path.display(), min = crate::keys::MIN_KEY_LEN, max = crate::keys::MAX_KEY_LEN
    )]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// The file of keys has none.
    #[error("{path}: the file of keys holds none; expected one a line", path = path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The system gives no threads or descriptors.
    #[error("could not start the server's threads: {0}")]
    Runtime(#[source] io::Error),
    /// The engine ended by itself.
    #[error(transparent)]
    Engine(muser_engine::Error),
}
