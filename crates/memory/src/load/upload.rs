//! Uploading: a copy in a device's own memory, beside the mapping that the CPU goes on reading.

use super::Crew;
use crate::arena::{Layout, Window};
use crate::{Device, GpuBytes, ModelFile, Result};

/// Copies every window of the layout to the device, which is a GPU.
pub(super) fn windows(device: &Device, layout: &Layout, files: &[ModelFile], crew: &Crew<'_>) -> Result<Vec<GpuBytes>> {
    let gpu = device.as_gpu().expect("only GPUs have memory of their own");
    let upload = |window: &Window| {
        let mapping = files[window.file_no].mapping();
        GpuBytes::uploaded(device, mapping, window.bytes.clone(), || gpu.upload(device, mapping, window, crew))
    };
    layout.windows().iter().map(upload).collect()
}
