//! What can go wrong outside of an operation.

/// Why a backend could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to start a thread.
    #[error("worker thread {index} of {threads} could not be started")]
    Spawn {
        /// The thread's number, from 1 on.
        index: usize,
        /// Threads asked for, the caller's included.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
}
