//! From a kernel written over lanes to a function that runs it in a tier.

/// Compiles a generic kernel for every tier, and defines the function that picks one.
///
/// `kernel! { fn name(x: X, …) -> Y = path::to::body; }` defines `name(tier, x, …)`, which calls `body(token, x, …)` from a
/// function that enables the tier's features. `body` must be `#[inline(always)]`.
macro_rules! kernel {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path;) => {
        $(#[$doc])*
        $vis fn $name(tier: $crate::caps::Tier, $($arg: $ty),*) $(-> $ret)? {
            use $crate::caps::Tier;
            match tier {
                Tier::Scalar(token) => $body(token, $($arg),*),
                #[cfg(target_arch = "x86_64")]
                Tier::Avx2(token) => {
                    #[target_feature(enable = "avx2,fma,f16c")]
                    fn avx2(token: $crate::caps::Avx2, $($arg: $ty),*) $(-> $ret)? {
                        $body(token, $($arg),*)
                    }
                    // SAFETY: the token proves the features.
                    unsafe { avx2(token, $($arg),*) }
                }
                // These kernels have no products of integers, which is all that the other tiers are faster at.
                #[cfg(target_arch = "x86_64")]
                Tier::AvxVnni(token) => $name(Tier::Avx2(token.avx2()), $($arg),*),
                #[cfg(target_arch = "x86_64")]
                Tier::Avx512Vnni(token) => $name(Tier::Avx2(token.avx2()), $($arg),*),
                #[cfg(target_arch = "aarch64")]
                Tier::Neon(token) => {
                    #[target_feature(enable = "neon")]
                    fn neon(token: $crate::caps::Neon, $($arg: $ty),*) $(-> $ret)? {
                        $body(token, $($arg),*)
                    }
                    // SAFETY: the token proves the features.
                    unsafe { neon(token, $($arg),*) }
                }
                #[cfg(target_arch = "aarch64")]
                Tier::NeonDot(token) => $name(Tier::Neon(token.neon()), $($arg),*),
            }
        }
    };
}
pub(crate) use kernel;
