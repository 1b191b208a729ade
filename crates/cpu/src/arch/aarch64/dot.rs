//! The dot product of signed bytes: four products added to 32 bits at once.

use std::arch::aarch64::{int32x4_t, uint8x16_t};
use std::arch::asm;

use super::neon::VectorPair;
use crate::arch::ints::Kernel;
use crate::caps::{Neon, NeonDot};

impl VectorPair for NeonDot {
    #[inline(always)]
    fn neon(self) -> Neon {
        self.neon()
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "neon,dotprod")]
        #[inline(never)]
        fn run<K: Kernel>(token: NeonDot, kernel: K) -> K::Output {
            kernel.run(token)
        }
        // SAFETY: the features are there, or there would be no token.
        unsafe { run(self, kernel) }
    }

    #[inline(always)]
    fn add_products(self, mut sums: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t {
        // The intrinsic is not stable yet.
        // SAFETY: the token proves the instruction, which has no effect but on its first register.
        unsafe {
            asm!(
                "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.16b",
                sums = inout(vreg) sums,
                codes = in(vreg) codes,
                x = in(vreg) x,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        sums
    }
}
