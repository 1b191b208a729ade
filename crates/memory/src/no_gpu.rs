//! In place of `gpu` in a build without GPUs: the same names, for types that have no values. What uses them compiles the
//! same, and the compiler drops it.

use std::convert::Infallible;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::Window;
use crate::available::MemoryLimit;
use crate::load::Crew;
use crate::residency::Resident;
use crate::{Api, Arena, Capabilities, Device, FileMapping, Result, SelfTest};

#[derive(Debug)]
pub(crate) enum Gpu {}

impl Gpu {
    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn api(&self) -> Api {
        match *self {}
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        match *self {}
    }

    pub(crate) fn memory_limit(&self) -> Option<MemoryLimit> {
        match *self {}
    }

    pub(crate) fn allocate(&self, _: usize) -> Result<SharedMemory> {
        match *self {}
    }

    pub(crate) fn import(&self, _: &Arc<FileMapping>, _: Range<usize>) -> Result<DeviceBuffer> {
        match *self {}
    }

    pub(crate) fn upload(&self, _: &Device, _: &FileMapping, _: &Window, _: &Crew<'_>) -> Result<DeviceBuffer> {
        match *self {}
    }

    pub(crate) fn keep_resident<'a>(
        &self,
        _: impl Iterator<Item = &'a DeviceBuffer>,
    ) -> Option<std::result::Result<Resident, String>> {
        match *self {}
    }

    pub(crate) fn self_test(&self, _: &Device, _: &Arena) -> Result<SelfTest> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) struct DeviceBuffer(Infallible);

#[derive(Debug)]
pub(crate) enum SharedMemory {}

impl SharedMemory {
    pub(crate) fn start(&self) -> NonNull<u8> {
        match *self {}
    }

    pub(crate) fn size_bytes(&self) -> usize {
        match *self {}
    }

    pub(crate) fn buffer(&self) -> &DeviceBuffer {
        match *self {}
    }
}
