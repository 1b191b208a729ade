//! Uploads: weights copied to a device that has memory of its own.

use super::{DeviceBuffer, Gpu, native};
use crate::allocation::Allocation;
use crate::arena::Window;
use crate::load::Crew;
use crate::{Device, FileMapping, Result};

/// Bytes that are read and then copied at once. There are two such buffers, so that one fills while the other empties.
pub(crate) const STAGING_BYTES: usize = 16 << 20;

/// Bytes of one read.
const READ_BYTES: usize = 4 << 20;

impl Gpu {
    /// Reads a window of a file into a buffer in the device's own memory, through two staging buffers.
    pub(crate) fn upload(
        &self,
        device: &Device,
        mapping: &FileMapping,
        window: &Window,
        crew: &Crew<'_>,
    ) -> Result<DeviceBuffer> {
        const UPLOAD: &str = "upload weights";
        self.expect_fits("window", window.device_size_bytes())?;
        let target = native::allocate_local(self, window.device_size_bytes());
        let target = target.map_err(|reason| self.failed("allocate device memory", reason))?;
        let staging_bytes = STAGING_BYTES.min(window.device_size_bytes());
        let allocate = || Allocation::of::<u8>(device, "staging", staging_bytes);
        let mut staging = [(allocate()?, None), (allocate()?, None)];
        for (i, start) in window.bytes.clone().step_by(staging_bytes).enumerate() {
            let (half, in_flight) = &mut staging[i % 2];
            if let Some(submission_index) = in_flight.take() {
                let copied = wgpu::PollType::Wait { submission_index: Some(submission_index), timeout: None };
                self.device.poll(copied).map_err(|error| self.failed(UPLOAD, error.to_string()))?;
            }
            let len = staging_bytes.min(window.bytes.end - start);
            // Copies are whole words; what is behind the end is not to be what stood there before.
            let copied = len.next_multiple_of(4);
            let bytes = &mut half.as_mut_slice::<u8>()[..copied];
            bytes[len..].fill(0);
            crew.work(bytes[..len].chunks_mut(READ_BYTES).enumerate(), |(k, piece)| {
                let offset = start + k * READ_BYTES;
                mapping.source().read_exact_at(piece, offset as u64)?;
                crew.inspect(window, offset - window.bytes.start, piece)?;
                Ok(piece.len())
            })?;
            let from = half.device_buffer().expect("allocated on a GPU").raw();
            *in_flight = Some(self.checked(UPLOAD, || {
                let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                let to = (start - window.bytes.start) as u64;
                encoder.copy_buffer_to_buffer(from, 0, target.raw(), to, copied as u64);
                self.queue.submit([encoder.finish()])
            })?);
        }
        self.wait(UPLOAD)?;
        crew.inspect_seams(window, &mapping.as_slice()[window.bytes.clone()], READ_BYTES, READ_BYTES)?;
        Ok(target)
    }
}
