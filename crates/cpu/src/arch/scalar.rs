//! The portable tier.

mod ints;
mod simd;
