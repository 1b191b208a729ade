//! Residency: asking the system to keep the weights in memory.

use std::io;

use crate::heartbeat::Heartbeat;
use crate::{Device, GpuBytes};

/// What keeps weights in a GPU's memory; they may go when it is dropped.
#[derive(Debug)]
pub(crate) struct Resident {
    #[expect(dead_code, reason = "held for its drop")]
    pub(crate) heartbeat: Heartbeat,
}

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
    /// The device's driver keeps all of it, and is reminded while the model is loaded: without that, macOS lets go of memory
    /// that was idle for a second.
    Kept {
        /// Bytes, in whole pages.
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
    /// Keeps `windows` in memory: by the device's driver where that has a way to, whether `asked` or not; else, when
    /// `asked`, by locks of the operating system.
    pub(crate) fn engage(device: &Device, windows: &[GpuBytes], asked: bool) -> (Self, Option<Resident>) {
        let buffers = windows.iter().filter_map(GpuBytes::device_buffer);
        let wanted_bytes = windows.iter().map(|window| window.device_size_bytes() as u64).sum();
        match device.as_gpu().and_then(|gpu| gpu.keep_resident(buffers)) {
            Some(Ok(resident)) => (Self::Kept { size_bytes: wanted_bytes }, Some(resident)),
            Some(Err(reason)) => (Self::Refused { locked_bytes: 0, wanted_bytes, reason }, None),
            None if asked => (Self::engage_with(windows, GpuBytes::lock_resident), None),
            None => (Self::NotAsked, None),
        }
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
        let (engaged, _) = Residency::engage(&Device::host(), &windows(), true);
        assert_eq!(engaged, Residency::Locked { size_bytes: 3 * page_size() as u64 });
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
