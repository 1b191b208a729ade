//! NEON (Advanced SIMD), and what it shares with the tier that has its dot products of bytes.

mod ints;
mod quads;
mod simd;

use std::arch::aarch64::{
    int32x4_t, uint8x16_t, vget_low_s8, vmull_high_s8, vmull_s8, vpadalq_s16, vpaddq_s16, vreinterpretq_s8_u8,
};

use crate::arch::ints::Kernel;
use crate::caps::Neon;
pub(super) use ints::with_neon;

/// A tier on pairs of 128-bit registers: what is its own, beside the lanes that all of them share.
pub(crate) trait VectorPair: Copy {
    /// The proof that the CPU has NEON.
    fn neon(self) -> Neon;
    /// As [`Ints::enter`](crate::arch::ints::Ints::enter).
    fn enter<K: Kernel>(self, kernel: K) -> K::Output;
    /// Adds four products to each lane. Codes are below 128, and so the same as signed bytes.
    fn add_products(self, sums: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t;
}

impl VectorPair for Neon {
    #[inline(always)]
    fn neon(self) -> Neon {
        self
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon")]
        #[inline(never)]
        fn run<K: Kernel>(token: Neon, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: the feature is there, or there would be no token.
        unsafe { run(self, kernel) }
    }

    #[inline(always)]
    fn add_products(self, sums: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t {
        with_neon!(self, {
            let (codes, x) = (vreinterpretq_s8_u8(codes), vreinterpretq_s8_u8(x));
            // Two products of a code and of an activation of at most 127 fit in 16 bits, but four might not.
            let (low, high) = (vmull_s8(vget_low_s8(codes), vget_low_s8(x)), vmull_high_s8(codes, x));
            vpadalq_s16(sums, vpaddq_s16(low, high))
        })
    }
}
