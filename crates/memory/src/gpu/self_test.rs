//! The self-test: the device reads a few weights through the arena's bindings, and must see the bytes that the host sees.

use super::{Binding, Gpu};
use crate::allocation::Allocation;
use crate::{Arena, Device, Error, GpuByteView, RegionId, Result, SelfTest};

/// Bytes at either end of a binding that are looked at.
const SAMPLE_BYTES: usize = 1 << 20;

impl Gpu {
    /// Compares checksums of a few views, read by the device and by the host: the first and the last region of every
    /// window and the largest of all, at both ends of every range that they are bound in.
    ///
    /// # Errors
    ///
    /// [`Error::SelfTest`] for the first region in which they differ; when the driver fails.
    pub(crate) fn self_test(&self, device: &Device, arena: &Arena) -> Result<SelfTest> {
        let kernel = Kernel::new(self)?;
        let mut passed = SelfTest::default();
        for id in samples(arena) {
            let view = arena.view(id);
            for binding in view.bindings(1)? {
                for (start, len) in ends(binding.n_rows) {
                    let first_byte = binding.skip_bytes + start as u32;
                    let on_device = kernel.run(self, device, &binding, first_byte, len as u32)?;
                    let on_host = checksum(part(view, binding.first_row + start, len));
                    if on_device != on_host {
                        let region = arena.regions()[id.index()].name().to_owned();
                        return Err(Error::SelfTest { device: self.name().to_owned(), region, on_device, on_host });
                    }
                    passed.size_bytes += len as u64;
                }
            }
            passed.n_views += 1;
        }
        Ok(passed)
    }
}

fn samples(arena: &Arena) -> Vec<RegionId> {
    let mut ids = Vec::new();
    let filled = || arena.regions().iter().filter(|region| region.size_bytes() > 0);
    for window_no in 0..arena.windows().len() {
        let inside = || filled().filter(|region| region.window_no() == window_no);
        ids.extend(inside().min_by_key(|region| region.file_offset()).map(crate::Region::id));
        ids.extend(inside().max_by_key(|region| region.file_offset()).map(crate::Region::id));
    }
    ids.extend(filled().max_by_key(|region| region.size_bytes()).map(crate::Region::id));
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// First byte and length of what is looked at in `len` bytes.
fn ends(len: usize) -> impl Iterator<Item = (usize, usize)> {
    let whole = len <= 2 * SAMPLE_BYTES;
    let ranges = if whole { [(0, len), (0, 0)] } else { [(0, SAMPLE_BYTES), (len - SAMPLE_BYTES, SAMPLE_BYTES)] };
    ranges.into_iter().filter(|&(_, len)| len > 0)
}

fn part(view: GpuByteView<'_>, start: usize, len: usize) -> &[u8] {
    &view.as_slice()[start..start + len]
}

/// What `checksum.wgsl` computes.
fn checksum(bytes: &[u8]) -> [u32; 2] {
    let mut sums = [0_u32; 2];
    for (k, word) in bytes.chunks(4).enumerate() {
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        let mut h = u32::from_le_bytes(padded) ^ (k as u32).wrapping_mul(0x9e37_79b1);
        h = (h ^ (h >> 15)).wrapping_mul(0x85eb_ca77);
        h ^= h >> 13;
        sums[0] = sums[0].wrapping_add(h);
        sums[1] = sums[1].wrapping_add((h ^ (h >> 16)).wrapping_mul(0xc2b2_ae3d));
    }
    sums
}

struct Kernel {
    pipeline: wgpu::ComputePipeline,
}

impl Kernel {
    fn new(gpu: &Gpu) -> Result<Self> {
        let pipeline = gpu.checked("build the self-test", || {
            let module = gpu.device.create_shader_module(wgpu::include_wgsl!("checksum.wgsl"));
            gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some("checksum"),
                layout: None,
                module: &module,
                entry_point: Some("checksum"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            })
        })?;
        Ok(Self { pipeline })
    }

    /// The sums over `n_bytes` from byte `first_byte` of a binding on.
    fn run(
        &self,
        gpu: &Gpu,
        device: &Device,
        weights: &Binding<'_>,
        first_byte: u32,
        n_bytes: u32,
    ) -> Result<[u32; 2]> {
        const RUN: &str = "run the self-test";
        let mut range = Allocation::of::<u32>(device, "self-test", 2)?;
        range.as_mut_slice().copy_from_slice(&[first_byte, n_bytes]);
        let sums = Allocation::of::<u32>(device, "self-test", 2)?;
        let raw = |memory: &Allocation| memory.device_buffer().expect("allocated on a GPU").raw().clone();
        let (range_buffer, sums_buffer) = (raw(&range), raw(&sums));
        gpu.checked(RUN, || {
            let bind_group = gpu.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &self.pipeline.get_bind_group_layout(0),
                entries: &[
                    weights.as_entry(0),
                    wgpu::BindGroupEntry { binding: 1, resource: range_buffer.as_entire_binding() },
                    wgpu::BindGroupEntry { binding: 2, resource: sums_buffer.as_entire_binding() },
                ],
            });
            let mut encoder = gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &bind_group, &[]);
            pass.dispatch_workgroups(n_bytes.div_ceil(4).div_ceil(64).min(1024), 1, 1);
            drop(pass);
            // The CPU reads the sums by their address, which wgpu knows nothing of.
            let to_host = wgpu::BufferTransition { buffer: &sums_buffer, state: wgpu::BufferUses::MAP_READ };
            encoder.transition_resources(std::iter::once(to_host), std::iter::empty());
            gpu.queue.submit([encoder.finish()]);
        })?;
        gpu.wait(RUN)?;
        let sums = sums.as_slice::<u32>();
        Ok([sums[0], sums[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_sees_every_byte_and_where_it_is() {
        let bytes: Vec<u8> = (0..=255).collect();
        let sums = checksum(&bytes);
        for i in 0..bytes.len() {
            let mut other = bytes.clone();
            other[i] ^= 1;
            assert_ne!(checksum(&other), sums, "byte {i}");
        }
        let mut swapped = bytes.clone();
        swapped.swap(0, 8);
        assert_ne!(checksum(&swapped), sums);
        assert_ne!(checksum(&bytes[..255]), sums);
    }
}
