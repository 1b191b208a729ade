//! Tiers of AArch64.

mod neon;
