//! Residency: asking the operating system to keep the weights in memory.

use std::io;

use crate::GpuBytes;

/// Whether the weights are kept in memory. Residency fails open: without it everything still runs, and this says so. The
/// lock goes with the memory that it is on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Residency {
    /// Nobody asked.
    NotAsked,
    /// All of it is locked.
    Locked {
        /// Locked bytes, in whole pages.
        size_bytes: u64,
    },
    /// The system refused to lock all of it.
    Refused {
        /// Bytes that are locked all the same, in whole pages.
        locked_bytes: u64,
        /// Bytes that should have been, in whole pages.
        wanted_bytes: u64,
        /// The system's reason.
        reason: String,
    },
}

impl Residency {
    pub(crate) fn engage(windows: &[GpuBytes]) -> Self {
        Self::engage_with(windows, GpuBytes::lock_resident)
    }

    fn engage_with(windows: &[GpuBytes], lock: impl Fn(&GpuBytes) -> io::Result<()>) -> Self {
        let mut locked_bytes = 0;
        for window in windows {
            if let Err(error) = lock(window) {
                let wanted_bytes = windows.iter().map(|window| window.device_size_bytes() as u64).sum();
                return Self::Refused { locked_bytes, wanted_bytes, reason: error.to_string() };
            }
            locked_bytes += window.device_size_bytes() as u64;
        }
        Self::Locked { size_bytes: locked_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, page_size};

    fn windows() -> [GpuBytes; 2] {
        [1, 2].map(|n_pages| GpuBytes::from_slice(&Device::host(), &vec![1; n_pages * page_size()]).unwrap())
    }

    #[test]
    fn m22_all_windows_are_locked_when_asked() {
        // Three pages are within what every system lets a process lock.
        assert_eq!(Residency::engage(&windows()), Residency::Locked { size_bytes: 3 * page_size() as u64 });
    }

    #[test]
    fn m23_a_lock_that_is_refused_is_reported_and_no_error() {
        let windows = windows();
        let refuse_second = |window: &GpuBytes| {
            if window.len() == page_size() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
        };
        let page = page_size() as u64;
        let Residency::Refused { locked_bytes, wanted_bytes, reason } = Residency::engage_with(&windows, refuse_second)
        else {
            panic!("the second window was refused");
        };
        assert_eq!((locked_bytes, wanted_bytes), (page, 3 * page));
        assert!(reason.contains("not permitted"), "{reason}");
    }
}
