//! What this CPU can run, as values that only detection can make.
//!
//! A tier's token ([`Scalar`], `Avx2`, `Avx512Vnni`, `Neon`) exists only where the CPU has the tier's instructions, so holding one is
//! the proof that kernels need before they use them. [`Tier`] is any of the tokens; every tier gives the same bits, so
//! the choice is one of speed alone and any available tier can be forced.

/// The portable tier: plain Rust, available everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar;

/// Proof that the CPU has AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// The token, where the CPU and the operating system support the features.
    pub fn detect() -> Option<Self> {
        let found = std::arch::is_x86_feature_detected!("avx2")
            && std::arch::is_x86_feature_detected!("fma")
            && std::arch::is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }
}

/// Proof that the CPU has AVX-VNNI beside AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AvxVnni(Avx2);

#[cfg(target_arch = "x86_64")]
impl AvxVnni {
    /// The token, where the CPU and the operating system support the features.
    pub fn detect() -> Option<Self> {
        Avx2::detect().filter(|_| std::arch::is_x86_feature_detected!("avxvnni")).map(Self)
    }

    /// What it proves beside.
    pub fn avx2(self) -> Avx2 {
        self.0
    }
}

/// Proof that the CPU has AVX-512 with VNNI, on registers of any width, beside AVX2, FMA and F16C.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Avx512Vnni(Avx2);

#[cfg(target_arch = "x86_64")]
impl Avx512Vnni {
    /// The token, where the CPU and the operating system support the features.
    pub fn detect() -> Option<Self> {
        let found = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512vnni");
        Avx2::detect().filter(|_| found).map(Self)
    }

    /// What it proves beside.
    pub fn avx2(self) -> Avx2 {
        self.0
    }
}

/// Proof that the CPU has NEON (Advanced SIMD), which is part of every AArch64 target Rust supports with an OS.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neon(());

#[cfg(target_arch = "aarch64")]
impl Neon {
    /// The token, where the CPU supports the feature.
    pub fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

/// Proof that the CPU has the dot products of bytes beside NEON.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NeonDot(Neon);

#[cfg(target_arch = "aarch64")]
impl NeonDot {
    /// The token, where the CPU and the operating system support the features.
    pub fn detect() -> Option<Self> {
        Neon::detect().filter(|_| std::arch::is_aarch64_feature_detected!("dotprod")).map(Self)
    }

    /// What it proves beside.
    pub fn neon(self) -> Neon {
        self.0
    }
}

/// One of the kernel tiers this CPU can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Plain Rust.
    Scalar(Scalar),
    /// x86-64 with AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// x86-64 with AVX2 and AVX-VNNI.
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    /// x86-64 with AVX-512 and VNNI.
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512Vnni),
    /// AArch64 with NEON.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// AArch64 with NEON and its dot products.
    #[cfg(target_arch = "aarch64")]
    NeonDot(NeonDot),
}

impl Tier {
    /// The fastest tier of this CPU.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or(Self::Scalar(Scalar))
    }

    /// Every tier this CPU can run, slowest first.
    pub fn available() -> Vec<Self> {
        let mut tiers = vec![Self::Scalar(Scalar)];
        #[cfg(target_arch = "x86_64")]
        {
            tiers.extend(Avx2::detect().map(Self::Avx2));
            tiers.extend(AvxVnni::detect().map(Self::AvxVnni));
            tiers.extend(Avx512Vnni::detect().map(Self::Avx512Vnni));
        }
        #[cfg(target_arch = "aarch64")]
        {
            tiers.extend(Neon::detect().map(Self::Neon));
            tiers.extend(NeonDot::detect().map(Self::NeonDot));
        }
        tiers
    }

    /// The available tier with this [`name`](Self::name), if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|tier| tier.name() == name)
    }

    /// The tier's name as users write and read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar(_) => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot(_) => "neon-dot",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detected_tier_is_the_last_available_one() {
        assert_eq!(Tier::available().last(), Some(&Tier::detect()));
    }

    #[test]
    fn every_available_tier_is_found_by_its_name_and_unknown_names_are_not() {
        for tier in Tier::available() {
            assert_eq!(Tier::named(tier.name()), Some(tier));
        }
        assert_eq!(Tier::named("mmx"), None);
    }
}
