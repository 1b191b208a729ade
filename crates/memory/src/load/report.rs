//! What a load did.

use std::time::Duration;

use super::{LoadPath, LoadPolicy};
use crate::{Api, Residency};

/// What was asked for, what was done, and what it took.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadReport {
    /// The device loaded for: how it is spoken to.
    pub api: Api,
    /// Its name.
    pub device: String,
    /// The policy asked for.
    pub asked: LoadPolicy,
    /// The path taken.
    pub engaged: LoadPath,
    /// Why that path.
    pub reason: String,
    /// Whether reads were asked to go past the page cache, as they are for a file that is not in it: so they leave no second
    /// copy there, and were seen to be twice as fast.
    pub direct: bool,
    /// What it took to look at the weights. `None`: nobody did.
    pub inspected: Option<Inspected>,
    /// Bytes of weights that are the file's own pages.
    pub bytes_mapped: u64,
    /// Bytes of weights that were copied.
    pub bytes_copied: u64,
    /// Time from the index to the last byte in memory.
    pub duration: Duration,
    /// The most bytes of memory that the process had so far, file pages included; `None` where the system doesn't say.
    pub peak_resident_bytes: Option<u64>,
    /// Whether the weights are kept in memory.
    pub residency: Residency,
    /// What a GPU's self-test looked at. `None` for the host, which needs none.
    pub self_test: Option<SelfTest>,
}

/// What looking at the weights took, while they came into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspected {
    /// Time that threads spent, all of them together.
    pub thread_time: Duration,
    /// Bytes that were looked at.
    pub size_bytes: u64,
}

/// A self-test that passed: the device read weights through the arena's bindings, and saw the host's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelfTest {
    /// Views that were looked at.
    pub n_views: usize,
    /// Bytes that were compared by checksum.
    pub size_bytes: u64,
}

impl LoadReport {
    /// Bytes of weights a second.
    pub fn bytes_per_second(&self) -> f64 {
        (self.bytes_mapped + self.bytes_copied) as f64 / self.duration.as_secs_f64()
    }
}
