//! Loading: how weights get from a file to where kernels read them, and what it cost.

mod crew;
mod policy;
mod prefault;
mod read;
mod report;

#[cfg(test)]
mod tests;

use std::ops::ControlFlow;
use std::time::Instant;

pub use policy::{LoadPath, LoadPolicy};
pub use report::LoadReport;

use crate::arena::Layout;
use crate::available::peak_resident_bytes;
use crate::residency::Residency;
use crate::{Arena, Device, ModelFile, RegionSpec, Result};
use crew::Crew;
use policy::Observed;

/// How to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Which path to take.
    pub policy: LoadPolicy,
    /// Threads that read or fault pages in; at least one is used.
    pub n_threads: usize,
    /// Ask the operating system to keep the weights in memory.
    pub resident: bool,
}

/// How far a load has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadProgress {
    /// Bytes that are in memory.
    pub done_bytes: u64,
    /// Bytes that will be.
    pub total_bytes: u64,
}

/// What is told about the progress, from any of the loading threads, some hundred times a gigabyte; and says whether to
/// go on.
pub type OnProgress<'a> = dyn Fn(LoadProgress) -> ControlFlow<()> + Sync + 'a;

impl Arena {
    /// As [`new`](Self::new), and brings all weights into memory, by the path that `options` ask for.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); when a file can't be read or changes meanwhile; [`Error::Cancelled`](crate::Error::Cancelled)
    /// when `on_progress` breaks. Nothing half-loaded stays behind. That memory can't be locked is no error: the report
    /// says so.
    pub fn load(
        device: &Device,
        files: Vec<ModelFile>,
        regions: impl IntoIterator<Item = RegionSpec>,
        options: &LoadOptions,
        on_progress: &OnProgress<'_>,
    ) -> Result<(Self, LoadReport)> {
        let started = Instant::now();
        let layout = Layout::new(device, &files, regions)?;
        let (engaged, reason) = match options.policy {
            LoadPolicy::Map => (LoadPath::Map, "as asked".into()),
            LoadPolicy::Read => (LoadPath::Read, "as asked".into()),
            LoadPolicy::Auto => policy::choose(&Observed::of(device, &files, layout.size_bytes())),
        };
        let crew = Crew::new(options.n_threads, layout.size_bytes(), on_progress);
        let sources: Vec<_> = files.iter().map(|file| file.mapping().source().clone()).collect();
        let windows = match engaged {
            LoadPath::Map => {
                let windows = layout.map(device, &files)?;
                prefault::windows(&windows, &crew)?;
                windows
            }
            LoadPath::Read => {
                // Never mapped and copied: what the header's parser touched goes before the first read.
                drop(files);
                read::windows(device, &layout, &sources, &crew)?
            }
        };
        let arena = layout.into_arena(windows, sources);
        arena.check_unchanged()?;
        let residency = if options.resident { Residency::engage(arena.windows()) } else { Residency::NotAsked };
        let size_bytes = |mapped| {
            arena.windows().iter().filter(|window| window.is_mapped() == mapped).map(|window| window.len() as u64).sum()
        };
        let report = LoadReport {
            asked: options.policy,
            engaged,
            reason,
            bytes_mapped: size_bytes(true),
            bytes_copied: size_bytes(false),
            duration: started.elapsed(),
            peak_resident_bytes: peak_resident_bytes(),
            residency,
        };
        Ok((arena, report))
    }
}
