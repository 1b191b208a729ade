//! Loading: how weights get from a file to where kernels read them, and what it cost.

mod crew;
mod inspect;
mod observer;
mod policy;
mod prefault;
mod read;
mod report;
mod upload;

#[cfg(test)]
pub(crate) mod tests;

use std::time::Instant;

pub(crate) use crew::Crew;
pub use observer::{LoadProgress, Observer, OnBytes, OnProgress};
pub use policy::{LoadPath, LoadPolicy};
pub use report::{Inspected, LoadReport, SelfTest};

use crate::arena::Layout;
use crate::available::peak_resident_bytes;
use crate::residency::Residency;
use crate::{Arena, Device, Error, GpuBytes, ModelFile, RegionSpec, Result};
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
    /// Fail rather than do otherwise than asked: take another path, or leave weights unlocked.
    pub strict: bool,
}

impl Arena {
    /// As [`new`](Self::new), and brings all weights into memory, by the path that `options` ask for as far as the device
    /// goes along. A GPU then proves that it reads the same bytes as the host.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); when a file can't be read or changes meanwhile; [`Error::Cancelled`] when the
    /// `observer` breaks; [`Error::SelfTest`] when a GPU reads other bytes than the host. Nothing half-loaded stays behind. That memory
    /// can't be locked, or that the device takes another path than the one asked for, is no error unless `options` are
    /// strict ([`Error::NotAsAsked`]): the report says so.
    pub fn load(
        device: &Device,
        files: Vec<ModelFile>,
        regions: impl IntoIterator<Item = RegionSpec>,
        options: &LoadOptions,
        observer: &Observer<'_>,
    ) -> Result<(Self, LoadReport)> {
        let started = Instant::now();
        let layout = Layout::new(device, &files, regions)?;
        let sources: Vec<_> = files.iter().map(|file| file.mapping().source().clone()).collect();
        let crew = Crew::new(options.n_threads, &layout, observer);
        let Weights { windows, engaged, reason, direct } = bring_in(device, files, &layout, options, &crew)?;
        let inspected = crew.inspected();
        let mut arena = layout.into_arena(windows, sources);
        arena.check_files()?;
        let self_test = device.as_gpu().map(|gpu| gpu.self_test(device, &arena)).transpose()?;
        let (residency, resident) = Residency::engage(device, arena.windows(), options.resident);
        if let Residency::Refused { locked_bytes, wanted_bytes, reason } = &residency
            && options.strict
        {
            let engaged = format!("{locked_bytes} of {wanted_bytes} bytes are locked into memory: {reason}");
            return Err(Error::NotAsAsked { asked: "resident weights".into(), engaged });
        }
        resident.into_iter().for_each(|resident| arena.keep(resident));
        let size_bytes = |mapped| {
            arena.windows().iter().filter(|window| window.is_mapped() == mapped).map(|window| window.len() as u64).sum()
        };
        let report = LoadReport {
            api: device.api(),
            device: device.name().to_owned(),
            asked: options.policy,
            engaged,
            reason,
            direct,
            inspected,
            bytes_mapped: size_bytes(true),
            bytes_copied: size_bytes(false),
            duration: started.elapsed(),
            peak_resident_bytes: peak_resident_bytes(),
            residency,
            self_test,
        };
        Ok((arena, report))
    }
}

/// Windows in memory, and how they got there.
struct Weights {
    windows: Vec<GpuBytes>,
    engaged: LoadPath,
    reason: String,
    /// Whether reads went past the page cache.
    direct: bool,
}

fn bring_in(
    device: &Device,
    files: Vec<ModelFile>,
    layout: &Layout,
    options: &LoadOptions,
    crew: &Crew<'_>,
) -> Result<Weights> {
    let capabilities = device.capabilities();
    let observe = || Observed::of(&files, layout.size_bytes());
    let (mut engaged, mut reason) = policy::choose(options.policy, capabilities, observe);
    let expect_as_asked = |engaged, reason: &str| {
        if !options.strict || options.policy.is_met_by(engaged) {
            return Ok(());
        }
        let asked = format!("the load path `{}`", options.policy);
        Err(Error::NotAsAsked { asked, engaged: format!("`{engaged}` engaged: {reason}") })
    };
    expect_as_asked(engaged, &reason)?;
    if engaged == LoadPath::Map {
        match layout.map(device, &files) {
            Ok(windows) => {
                prefault::windows(layout, &windows, crew)?;
                return Ok(Weights { windows, engaged, reason, direct: false });
            }
            // A driver says whether it takes a mapping only when it is given one.
            Err(Error::Gpu { reason: refusal, .. }) => {
                let (other, because) = policy::without_mapping(capabilities);
                (engaged, reason) = (other, format!("{because} (the driver refused the mapping: {refusal})"));
                expect_as_asked(engaged, &reason)?;
            }
            Err(error) => return Err(error),
        }
    }
    if engaged == LoadPath::Read {
        let sources: Vec<_> = files.iter().map(|file| file.mapping().source().clone()).collect();
        let direct = policy::cached_share(&files).is_some_and(|share| share < policy::MOSTLY_CACHED);
        // Never mapped and copied: what the header's parser touched goes before the first read.
        drop(files);
        let windows = read::windows(device, layout, &sources, direct, crew)?;
        return Ok(Weights { windows, engaged, reason, direct });
    }
    let windows = upload::windows(device, layout, &files, crew)?;
    Ok(Weights { windows, engaged, reason, direct: false })
}
