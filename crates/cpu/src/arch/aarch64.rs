//! Tiers of AArch64.

mod dot;
mod neon;
