//! AVX2 with FMA and F16C.

mod ints;
mod quads;
mod simd;
