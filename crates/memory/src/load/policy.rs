//! The choice between mapping and reading.

use std::fmt;

use crate::available::Availability;
use crate::{Capabilities, ModelFile};

/// Which path a load is to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadPolicy {
    /// Map the file and fault its pages in; nothing is copied.
    Map,
    /// Read the file into memory that CPU and device share, with parallel positioned reads.
    Read,
    /// Whichever of the two the machine's state speaks for; the report says why.
    #[default]
    Auto,
}

/// The path that a load took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPath {
    /// The weights are the file's own pages.
    Map,
    /// The weights were read into memory that CPU and device share.
    Read,
    /// The weights were copied to the device's own memory. The CPU reads the file's pages.
    Upload,
}

impl fmt::Display for LoadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Map => "map",
            Self::Read => "read",
            Self::Auto => "auto",
        })
    }
}

impl fmt::Display for LoadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Map => "map",
            Self::Read => "read",
            Self::Upload => "upload",
        })
    }
}

impl LoadPolicy {
    /// Whether `engaged` is what was asked for.
    pub fn is_met_by(self, engaged: LoadPath) -> bool {
        match self {
            Self::Map => engaged == LoadPath::Map,
            Self::Read => engaged == LoadPath::Read,
            Self::Auto => true,
        }
    }
}

/// What the choice looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    weight_bytes: u64,
    /// `None`: the system doesn't say.
    available_bytes: Option<u64>,
    /// Share of the files that is in the page cache, 0 to 1. `None`: the system doesn't say.
    cached_share: Option<f64>,
    /// Whether one call brings many pages of a mapping in, rather than one page fault after the other.
    populates: bool,
}

impl Observed {
    pub(super) fn of(files: &[ModelFile], weight_bytes: u64) -> Self {
        Self {
            weight_bytes,
            available_bytes: Availability::observe().least().map(|limit| limit.available_bytes),
            cached_share: cached_share(files),
            populates: cfg!(target_os = "linux"),
        }
    }
}

/// From this share on, a file counts as cached.
pub(super) const MOSTLY_CACHED: f64 = 0.5;

/// The share of all files' bytes that is in the page cache.
pub(super) fn cached_share(files: &[ModelFile]) -> Option<f64> {
    let (mut cached_bytes, mut all_bytes) = (0.0, 0.0);
    for file in files {
        let size_bytes = file.size_bytes() as f64;
        cached_bytes += file.cached_share()? * size_bytes;
        all_bytes += size_bytes;
    }
    (all_bytes > 0.0).then(|| cached_bytes / all_bytes)
}

/// The path for what was asked, as far as the device goes along, and why.
pub(super) fn choose(
    policy: LoadPolicy,
    device: Capabilities,
    observe: impl FnOnce() -> Observed,
) -> (LoadPath, String) {
    match policy {
        LoadPolicy::Map if device.imports_mappings => (LoadPath::Map, "as asked".into()),
        LoadPolicy::Read if device.unified => (LoadPath::Read, "as asked".into()),
        LoadPolicy::Auto if device.imports_mappings => choose_from(observe()),
        LoadPolicy::Map | LoadPolicy::Read | LoadPolicy::Auto => without_mapping(device),
    }
}

/// The path for a device that takes no mapping, and why.
pub(super) fn without_mapping(device: Capabilities) -> (LoadPath, String) {
    if device.unified {
        (LoadPath::Read, "the device imports no file mapping, so weights are read into memory that it shares".into())
    } else {
        (LoadPath::Upload, "the device does not share the CPU's memory, so weights are copied to its own".into())
    }
}

/// Maps or reads, and why, where both can be done.
///
/// Mapping copies nothing, so it is the choice unless something speaks against it: a file that is on disk still, where the
/// system brings a mapping in by page faults only. There, mapping was seen to reach a tenth of the disk's speed. With a call
/// that populates many pages at once, as Linux has, mapping a cold file is as fast as reading it or faster.
fn choose_from(observed: Observed) -> (LoadPath, String) {
    let Observed { weight_bytes, available_bytes, cached_share, populates } = observed;
    if let Some(available_bytes) = available_bytes.filter(|&available_bytes| available_bytes < weight_bytes) {
        let reason = format!(
            "the weights have {weight_bytes} bytes and {available_bytes} are available; mapped pages can be dropped and \
             come back, a copy can not"
        );
        return (LoadPath::Map, reason);
    }
    match cached_share {
        None if populates => (LoadPath::Map, "mapping copies nothing".into()),
        None => (LoadPath::Read, "the file may be on disk still, and this system maps cold files slowly".into()),
        Some(share) => {
            let cached = format!("{:.0} % of the file is in the page cache", share * 100.0);
            if share >= MOSTLY_CACHED || populates {
                (LoadPath::Map, format!("{cached}; mapping copies nothing"))
            } else {
                (LoadPath::Read, format!("{cached}, and this system maps cold files slowly"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    const WARM: Observed =
        Observed { weight_bytes: 1000, available_bytes: Some(5000), cached_share: Some(0.9), populates: false };

    fn device(unified: bool, imports_mappings: bool) -> Capabilities {
        Capabilities { unified, imports_mappings, ..Device::host().capabilities() }
    }

    /// What `auto` chooses on a device that can do either.
    fn auto(observed: Observed) -> (LoadPath, String) {
        choose(LoadPolicy::Auto, device(true, true), || observed)
    }

    #[test]
    fn m18_auto_maps_what_is_cached_and_says_so() {
        assert_eq!(auto(WARM), (LoadPath::Map, "90 % of the file is in the page cache; mapping copies nothing".into()));
    }

    #[test]
    fn m18_each_policy_goes_as_far_as_the_device() {
        use LoadPath::{Map, Read, Upload};
        for (unified, imports, map, read, auto) in
            [(true, true, Map, Read, Map), (true, false, Read, Read, Read), (false, false, Upload, Upload, Upload)]
        {
            let engaged = |policy| choose(policy, device(unified, imports), || WARM).0;
            let found = [LoadPolicy::Map, LoadPolicy::Read, LoadPolicy::Auto].map(engaged);
            assert_eq!(found, [map, read, auto], "unified: {unified}, imports: {imports}");
        }
        let (_, reason) = choose(LoadPolicy::Map, device(false, false), || WARM);
        assert!(reason.contains("does not share"), "{reason}");
    }

    #[test]
    fn m18_auto_maps_what_memory_can_not_hold_twice_over() {
        let (path, reason) = auto(Observed { available_bytes: Some(999), cached_share: Some(0.0), ..WARM });
        assert_eq!(path, LoadPath::Map);
        assert!(reason.contains("1000 bytes and 999 are available"), "{reason}");
    }

    #[test]
    fn m18_auto_reads_a_cold_file_where_mapping_it_means_one_fault_a_page() {
        for cached_share in [None, Some(0.0), Some(0.49)] {
            let cold = Observed { cached_share, available_bytes: None, ..WARM };
            assert_eq!(auto(cold).0, LoadPath::Read, "{cached_share:?}");
            assert_eq!(auto(Observed { populates: true, ..cold }).0, LoadPath::Map, "{cached_share:?}");
        }
    }
}
