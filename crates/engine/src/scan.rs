//! The search for weights that are not finite, while they come into memory.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use muser_gguf::GgufSet;
use muser_memory::Region;
use muser_quant::{WeightType, first_not_finite};

use crate::Error;
use crate::error::BadModel;
use crate::files::ModelFiles;

/// Looks at all tensors of types that are known here. No others are ever computed.
pub(crate) struct Scan<'a> {
    files: &'a ModelFiles,
    /// In the order of the regions.
    types: Vec<Option<WeightType>>,
    found: Mutex<Option<Found>>,
}

/// The foremost block found so far.
struct Found {
    /// Region and offset in it.
    at: (usize, usize),
    file_no: usize,
    problem: BadModel,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(files: &'a ModelFiles, set: &GgufSet<'_>) -> Self {
        let types = set.tensors().map(|(_, tensor)| WeightType::from_ggml_id(tensor.tensor_type().id())).collect();
        Self { files, types, found: Mutex::new(None) }
    }

    /// Looks at some whole blocks of a tensor, those from the byte `offset` on.
    pub(crate) fn look(&self, region: &Region, offset: usize, bytes: &[u8]) -> ControlFlow<()> {
        let Some(ty) = self.types[region.id().index()] else { return ControlFlow::Continue(()) };
        let searched = first_not_finite(ty, bytes).expect("regions have blocks for units, and units are not torn");
        let Some(bad) = searched else { return ControlFlow::Continue(()) };
        let problem = BadModel::NotFinite {
            tensor: region.name().to_owned(),
            ty: ty.name(),
            unit: if ty.block_len() == 1 { "value" } else { "block" },
            index: offset / ty.block_bytes() + bad.block,
            value: bad.value,
        };
        let found = Found { at: (region.id().index(), offset), file_no: region.file_no(), problem };
        let mut foremost = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if foremost.as_ref().is_none_or(|foremost| found.at < foremost.at) {
            *foremost = Some(found);
        }
        ControlFlow::Break(())
    }

    /// The error for what was found.
    pub(crate) fn into_error(self) -> Option<Error> {
        let Found { file_no, problem, .. } = self.found.into_inner().unwrap_or_else(PoisonError::into_inner)?;
        let path = self.files.files()[file_no].path().to_owned();
        Some(Error::BadModel { path, source: Box::new(problem) })
    }
}
