//! Who looks on while weights come into memory.

use std::fmt;
use std::ops::ControlFlow;

use crate::Region;

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

/// What is shown all bytes of the regions that have a [unit](crate::RegionSpec::unit_bytes), once each, by the threads that
/// brought them in; and says whether to go on. It gets the region, where in it the bytes begin, and the bytes: some whole
/// units.
pub type OnBytes<'a> = dyn Fn(&Region, usize, &[u8]) -> ControlFlow<()> + Sync + 'a;

/// What a load calls while it goes on.
#[derive(Clone, Copy)]
pub struct Observer<'a> {
    pub(super) on_progress: &'a OnProgress<'a>,
    pub(super) on_bytes: Option<&'a OnBytes<'a>>,
}

impl<'a> Observer<'a> {
    /// Told about the progress.
    pub fn new(on_progress: &'a OnProgress<'a>) -> Self {
        Self { on_progress, on_bytes: None }
    }

    /// And shown the bytes.
    #[must_use]
    pub fn with_bytes(self, on_bytes: &'a OnBytes<'a>) -> Self {
        Self { on_bytes: Some(on_bytes), ..self }
    }
}

impl fmt::Debug for Observer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("sees_bytes", &self.on_bytes.is_some()).finish_non_exhaustive()
    }
}
