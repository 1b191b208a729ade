//! Tiers of x86-64.

mod avx2;
mod vnni;
mod zmm;
