//! What products of tiles need of a tier's lanes, for registers that hold one group of eight weight rows or several.
//!
//! Lane `8g + r` belongs to row `r` of group `g`. Operations do to each group what their namesakes of [`Simd`], [`Ints`] and
//! [`Quads`] do, so how many groups share a register changes no bit.

use crate::arch::ints::Ints;
use crate::arch::quads::Quads;
use crate::arch::simd::Simd;

/// Registers of `G` groups of eight weight rows.
pub(crate) trait Lanes<const G: usize>: Copy {
    /// An f32 for each row.
    type F: Copy;
    /// An i32 for each row.
    type I: Copy;
    /// Two i16 for each row.
    type H: Copy;
    /// Four bytes for each row.
    type B: Copy;
    /// Running sums of products of quads, as [`Quads::S`].
    type S: Copy;

    /// As [`Quads::WIDE_SUMS`].
    const WIDE_SUMS: bool;
    /// Whether products are added by one instruction, which the compiler cannot take apart to reorder additions.
    const IS_FUSED: bool;
    /// Whether registers hold the sums of eight activation rows, of units and of all.
    const HOLDS_EIGHT: bool;

    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: [&[f32; 8]; G]) -> Self::F;
    fn store(self, x: Self::F, out: &mut [[f32; 8]; G]);
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    fn to_f32(self, x: Self::I) -> Self::F;

    fn splat_int(self, x: i32) -> Self::I;
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I;
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I;

    fn splat_i16(self, x: i16) -> Self::H;
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "a broadcast takes it from memory")]
    fn splat_pair(self, pair: &[i16; 2]) -> Self::H;
    fn load_i16(self, x: [&[i16; 16]; G]) -> Self::H;
    fn dot(self, acc: Self::I, a: Self::H, b: Self::H) -> Self::I;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "a broadcast takes it from memory")]
    fn splat_quad(self, quad: &[i8; 4]) -> Self::B;
    fn load_quads(self, quads: [&[u8; 32]; G]) -> Self::B;
    fn no_products(self) -> Self::S;
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "a broadcast takes it from memory")]
    fn add_code(self, sums: Self::S, pairs: &[i16; 2], code: i16) -> Self::S;
    fn add_products(self, sums: Self::S, codes: Self::B, x: Self::B) -> Self::S;
    fn row_sums(self, sums: Self::S) -> Self::I;
    fn add_scaled(self, acc: Self::I, sums: Self::S, factors: Self::H) -> Self::I;
}

/// Work on tiles of two groups.
pub(crate) trait PairKernel {
    /// The work on registers that hold a group each; implementations are `#[inline(always)]`.
    fn apart<S: Quads>(self, s: S);
    /// The work on registers that hold both groups; implementations are `#[inline(always)]`.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "no register of other architectures holds two groups")
    )]
    fn together<L: Lanes<2>>(self, lanes: L);
}

/// Each register of a tier holds one group.
impl<S: Quads> Lanes<1> for S {
    type F = <S as Simd>::F;
    type I = <S as Simd>::I;
    type H = <S as Ints>::H;
    type B = <S as Quads>::B;
    type S = <S as Quads>::S;

    const WIDE_SUMS: bool = <S as Quads>::WIDE_SUMS;
    // Loops are kept even where products are fused: no gain from more of one group has been measured.
    const IS_FUSED: bool = false;
    const HOLDS_EIGHT: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        Simd::splat(self, x)
    }

    #[inline(always)]
    fn load(self, [x]: [&[f32; 8]; 1]) -> Self::F {
        Simd::load(self, x)
    }

    #[inline(always)]
    fn store(self, x: Self::F, [out]: &mut [[f32; 8]; 1]) {
        Simd::store(self, x, out);
    }

    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        Simd::add(self, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        Simd::mul(self, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        Simd::fma(self, a, b, c)
    }

    #[inline(always)]
    fn to_f32(self, x: Self::I) -> Self::F {
        Ints::to_f32(self, x)
    }

    #[inline(always)]
    fn splat_int(self, x: i32) -> Self::I {
        Simd::splat_int(self, x)
    }

    #[inline(always)]
    fn add_int(self, a: Self::I, b: Self::I) -> Self::I {
        Simd::add_int(self, a, b)
    }

    #[inline(always)]
    fn sub_int(self, a: Self::I, b: Self::I) -> Self::I {
        Simd::sub_int(self, a, b)
    }

    #[inline(always)]
    fn splat_i16(self, x: i16) -> Self::H {
        Ints::splat_i16(self, x)
    }

    #[inline(always)]
    fn splat_pair(self, pair: &[i16; 2]) -> Self::H {
        Ints::splat_pair(self, pair)
    }

    #[inline(always)]
    fn load_i16(self, [x]: [&[i16; 16]; 1]) -> Self::H {
        Ints::load_i16(self, x)
    }

    #[inline(always)]
    fn dot(self, acc: Self::I, a: Self::H, b: Self::H) -> Self::I {
        Ints::dot(self, acc, a, b)
    }

    #[inline(always)]
    fn splat_quad(self, quad: &[i8; 4]) -> Self::B {
        Quads::splat_quad(self, quad)
    }

    #[inline(always)]
    fn load_quads(self, [quads]: [&[u8; 32]; 1]) -> Self::B {
        Quads::load_quads(self, quads)
    }

    #[inline(always)]
    fn no_products(self) -> Self::S {
        Quads::no_products(self)
    }

    #[inline(always)]
    fn add_code(self, sums: Self::S, pairs: &[i16; 2], code: i16) -> Self::S {
        Quads::add_code(self, sums, pairs, code)
    }

    #[inline(always)]
    fn add_products(self, sums: Self::S, codes: Self::B, x: Self::B) -> Self::S {
        Quads::add_products(self, sums, codes, x)
    }

    #[inline(always)]
    fn row_sums(self, sums: Self::S) -> Self::I {
        Quads::row_sums(self, sums)
    }

    #[inline(always)]
    fn add_scaled(self, acc: Self::I, sums: Self::S, factors: Self::H) -> Self::I {
        Quads::add_scaled(self, acc, sums, factors)
    }
}
