//! The portable tier.

mod ints;
mod quads;
mod simd;
