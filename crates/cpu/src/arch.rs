//! What is written by hand for one instruction set; the same file stems in each tier's folder.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub(crate) mod ints;
pub(crate) mod lanes;
pub(crate) mod quads;
mod scalar;
pub(crate) mod simd;
#[cfg(target_arch = "x86_64")]
mod x86_64;
