//! The memory substrate: mappings, arenas, buffers, views, KV planes and plans.
//!
//! On unified memory the CPU and the GPU read the same physical bytes, so loading a model should copy nothing and
//! nothing should be allocated that wasn't planned. This crate owns every byte that a kernel touches; it knows no file
//! format and no model.
//!
//! # Three owners and one view
//!
//! | Type | Elements | Owns |
//! | --- | --- | --- |
//! | [`GpuBuffer`] | f32: residual stream, activations, logits | an allocation |
//! | [`GpuHalfBuffer`] | 16-bit elements: KV planes | an allocation |
//! | [`GpuBytes`] | bytes: weights, immutable | an allocation, or a share in a file mapping |
//! | [`GpuByteView`] | bytes | nothing; borrowed from a [`GpuBytes`] |
//!
//! The owners are separate types, so a 16-bit plane can't be passed where f32 activations are expected:
//!
//! ```compile_fail,E0308
//! # use muser_memory::{Device, GpuBuffer, GpuHalfBuffer};
//! fn rms_norm(activations: &mut GpuBuffer) {}
//!
//! let mut plane = GpuHalfBuffer::zeros(&Device::host(), 64)?;
//! rms_norm(&mut plane); // M1: expected `GpuBuffer`, found `GpuHalfBuffer`
//! # Ok::<(), muser_memory::Error>(())
//! ```
//!
//! Lengths are exact and logical everywhere (`len` in elements, `size_bytes` in bytes). Only `device_size_bytes`, what a
//! device is handed, is rounded up to whole pages. All memory comes from a [`Device`], in which one function decides the
//! storage options of every allocation.
//!
//! # From a file to views
//!
//! ```no_run
//! # use muser_memory::{Arena, Device, ModelFile, RegionSpec};
//! let file = ModelFile::open("model.gguf".as_ref())?;
//! let header: &[u8] = file.bytes(); // parse it: names, offsets and sizes of the tensors
//! let regions = [RegionSpec { name: "token_embd.weight".into(), file_no: 0, offset: 4096, size_bytes: 1024, unit_bytes: None }];
//! let arena = Arena::new(&Device::host(), vec![file], regions)?;
//! let id = arena.region("token_embd.weight").expect("the header names it").id();
//! let bytes: &[u8] = arena.view(id).as_slice();
//! # Ok::<(), muser_memory::Error>(())
//! ```
//!
//! [`Arena::load`] brings the weights into memory too, mapped or read as asked ([`LoadPolicy`]), and returns a
//! [`LoadReport`] of what it did and what it cost. A file that changes under its mapping is found by
//! [`Arena::check_unchanged`]; one that shrinks raises a bus error, which [`report_bus_errors`] turns into a message that
//! names the file and an exit code.
//!
//! # Devices
//!
//! [`Device::host`] is the CPU. With the feature `gpu`, `Device::gpu` opens a device of Vulkan or Metal, through wgpu, whose
//! buffers this crate makes itself: the mapping imported, memory that both sides use at one address, or a staged copy where
//! the device has memory of its own. A kernel binds a [`GpuByteView`] by its `bindings`: which buffer, where in it, and whole
//! rows at a time where a device limits what is bound. `Arena::load` proves by checksums that a GPU reads the host's bytes.
//!
//! # The KV cache
//!
//! [`KvPlane`] is one layer's K and V: a ring of rows addressed by token position, with the layout that the attention
//! kernels read. Its page says how rows, positions and bits relate. A [`DetachedGeneration`] is a second set of planes that
//! is filled aside and swapped in whole.
//!
//! # The plan
//!
//! Memory is budgeted before it is allocated: a [`PlanRequest`] says what a model wants, [`Availability`] what there is,
//! and [`PlanRequest::fit`] returns the [`Plan`], or a [`Refusal`] with the numbers and what would fit. Planes are made
//! from the same [`KvLayer::geometry`] that the plan counts.
//!
//! # Systems
//!
//! Unix: memory, mappings, locks and signals go through POSIX calls, in `mapping`, `file` and `fault`, which is where
//! another system would come in. `unsafe` is confined to `mapping` (the calls), `allocation` (memory as elements), `fault`
//! (the signal handler), two look-ups in `available`, and `gpu`.

#![cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "what only GPUs use is compiled without them all the same")
)]

#[cfg(not(unix))]
compile_error!("muser-memory maps files and memory by POSIX calls; see `mapping`, `file` and `fault` for a port");

mod allocation;
mod arena;
mod available;
mod buffer;
mod bytes;
mod device;
mod error;
mod fault;
mod file;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(not(feature = "gpu"))]
#[path = "no_gpu.rs"]
mod gpu;
#[cfg_attr(not(target_vendor = "apple"), allow(dead_code, reason = "only macOS lets go of what is idle"))]
mod heartbeat;
mod kv;
mod load;
mod mapping;
mod page;
mod plan;
mod residency;
#[cfg_attr(not(target_vendor = "apple"), allow(dead_code, reason = "for the heartbeat"))]
mod sync;
mod windows;

#[cfg(test)]
mod arena_tests;
#[cfg(test)]
mod bytes_tests;
#[cfg(test)]
mod file_tests;

pub use arena::{Arena, Region, RegionId, RegionSpec};
pub use available::{Availability, MemoryLimit, large_page_bytes, peak_resident_bytes};
pub use buffer::{GpuBuffer, GpuHalfBuffer, POISON_BITS};
pub use bytes::{GpuByteView, GpuBytes};
pub use device::{Api, Capabilities, Device, DeviceLimits, HazardTracking, Storage, StorageOptions};
pub use error::Error;
pub use fault::report_bus_errors;
pub use file::{FileIdentity, ModelFile, drop_from_page_cache};
#[cfg(feature = "gpu")]
pub use gpu::{Binding, GpuInfo, GpuOptions, gpus};
pub use kv::{
    CompleteGeneration, DetachedGeneration, KV_COMPONENTS, KV_LANES, KV_MOST_OF_V, KV_NORM_OF_K, KvGeometry, KvPlane,
};
pub use load::{
    Inspected, LoadOptions, LoadPath, LoadPolicy, LoadProgress, LoadReport, Observer, OnBytes, OnProgress, SelfTest,
};
pub use mapping::FileMapping;
pub use page::page_size;
pub use plan::{KvLayer, Plan, PlanRequest, PlanRow, Refusal};
pub use residency::Residency;

/// What every fallible function here returns.
pub type Result<T> = std::result::Result<T, Error>;
