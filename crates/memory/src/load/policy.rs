//! The choice between mapping and reading.

use std::fmt;

use crate::available::Availability;
use crate::{Device, ModelFile};

/// Which path a load is to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadPolicy {
    /// Map the file and fault its pages in; nothing is copied.
    Map,
    /// Read the file into an allocation, with parallel positioned reads.
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
    /// The weights were read into an allocation.
    Read,
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
        })
    }
}

/// What the choice looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    /// Whether the device reads the CPU's memory.
    unified: bool,
    weight_bytes: u64,
    /// `None`: the system doesn't say.
    available_bytes: Option<u64>,
    /// Share of the files that is in the page cache, 0 to 1. `None`: the system doesn't say.
    cached_share: Option<f64>,
    /// Whether one call brings many pages of a mapping in, rather than one page fault after the other.
    populates: bool,
}

impl Observed {
    pub(super) fn of(device: &Device, files: &[ModelFile], weight_bytes: u64) -> Self {
        Self {
            unified: device.capabilities().unified,
            weight_bytes,
            available_bytes: Availability::observe().least().map(|limit| limit.available_bytes),
            cached_share: cached_share(files),
            populates: cfg!(target_os = "linux"),
        }
    }
}

/// The share of all files' bytes that is in the page cache.
fn cached_share(files: &[ModelFile]) -> Option<f64> {
    let (mut cached_bytes, mut all_bytes) = (0.0, 0.0);
    for file in files {
        let size_bytes = file.size_bytes() as f64;
        cached_bytes += file.mapping().cached_share()? * size_bytes;
        all_bytes += size_bytes;
    }
    (all_bytes > 0.0).then(|| cached_bytes / all_bytes)
}

/// Maps or reads, and why.
///
/// Mapping copies nothing, so it is the choice unless something speaks against it. What can: memory that the device
/// doesn't share; and a file that is on disk still, where the system brings a mapping in by page faults only. There,
/// mapping was seen to reach a tenth of the disk's speed. With a call that populates many pages at once, as Linux has,
/// mapping a cold file is as fast as reading it or faster.
pub(super) fn choose(observed: &Observed) -> (LoadPath, String) {
    let Observed { unified, weight_bytes, available_bytes, cached_share, populates } = *observed;
    if !unified {
        return (LoadPath::Read, "the device does not share the CPU's memory, so weights have to be copied".into());
    }
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
            if share >= 0.5 || populates {
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

    const WARM: Observed = Observed {
        unified: true,
        weight_bytes: 1000,
        available_bytes: Some(5000),
        cached_share: Some(0.9),
        populates: false,
    };

    #[test]
    fn m18_auto_maps_what_is_cached_and_says_so() {
        assert_eq!(
            choose(&WARM),
            (LoadPath::Map, "90 % of the file is in the page cache; mapping copies nothing".into())
        );
    }

    #[test]
    fn m18_auto_reads_for_a_device_with_memory_of_its_own() {
        let (path, reason) = choose(&Observed { unified: false, ..WARM });
        assert_eq!(path, LoadPath::Read);
        assert!(reason.contains("does not share"), "{reason}");
    }

    #[test]
    fn m18_auto_maps_what_memory_can_not_hold_twice_over() {
        let (path, reason) = choose(&Observed { available_bytes: Some(999), cached_share: Some(0.0), ..WARM });
        assert_eq!(path, LoadPath::Map);
        assert!(reason.contains("1000 bytes and 999 are available"), "{reason}");
    }

    #[test]
    fn m18_auto_reads_a_cold_file_where_mapping_it_means_one_fault_a_page() {
        for cached_share in [None, Some(0.0), Some(0.49)] {
            let cold = Observed { cached_share, available_bytes: None, ..WARM };
            assert_eq!(choose(&cold).0, LoadPath::Read, "{cached_share:?}");
            assert_eq!(choose(&Observed { populates: true, ..cold }).0, LoadPath::Map, "{cached_share:?}");
        }
    }
}
