//! What can go wrong outside of an operation.

/// Why a backend could not be made, or the machine not be measured.
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
    /// There is no memory to measure the memory roof in.
    #[error(
        "measuring the read bandwidth of memory takes a buffer of {needed_bytes} bytes, and {available_bytes} are available"
    )]
    RoofMemory {
        /// The buffer's size.
        needed_bytes: u64,
        /// What the process may still take.
        available_bytes: u64,
    },
    /// The buffer could not be had.
    #[error(transparent)]
    Memory(#[from] muser_memory::Error),
}
