//! NEON (Advanced SIMD), without its later extensions.

mod ints;
mod quads;
mod simd;
