//! Which vector instructions the lookup loops use, and when they prefetch.
//!
//! Each structure has one loop per [`Kernel`] that is worth one, and a scalar loop. All give the same answers. The best
//! kernel of the processor is chosen once per process. The environment variable [`Kernel::VARIABLE`] chooses a lesser
//! one, for tests and comparisons.
//!
//! On AArch64 the kernel is scalar: NEON has two lanes for digests and no 64-bit product, and was slower where it was
//! tried (docs/decisions/0013-bursts-in-flight.md). Flow tables compare eight tags at once by NEON all the same: every
//! AArch64 has it, so it is not a kernel to choose.

use std::fmt;
use std::sync::OnceLock;

/// A generation of vector instructions. Later ones include earlier ones of the same architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Vectors {
    /// No vector instructions that the target does not have anyway.
    Scalar,
    /// AVX2 and BMI2: 4 names per instruction.
    Avx2,
    /// AVX-512 F, BW, DQ, VL: 8 names per instruction, with 64-bit products.
    Avx512,
    /// AVX-512 with 52-bit multiply-add (IFMA), byte permutations (VBMI, VBMI2) and population counts: Ice Lake, Zen 4
    /// and later.
    Avx512Ifma,
}

impl Vectors {
    const ALL: [Vectors; 4] = [Vectors::Scalar, Vectors::Avx2, Vectors::Avx512, Vectors::Avx512Ifma];

    fn is_available(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt");
            let avx512 = avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            let permutes = has!("avx512vbmi") && has!("avx512vbmi2") && has!("avx512vpopcntdq");
            match self {
                Self::Scalar => true,
                Self::Avx2 => avx2,
                Self::Avx512 => avx512,
                Self::Avx512Ifma => avx512 && permutes && has!("avx512ifma"),
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        {
            self == Self::Scalar
        }
    }
}

/// A set of lookup loops that this processor can run. There is no value for one that it cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    vectors: Vectors,
    /// Whether scattered words are loaded by gathers.
    gathers: bool,
}

impl Kernel {
    /// The environment variable that names the kernel to use.
    pub const VARIABLE: &str = "FIBULA_KERNEL";
    /// The loops without vector instructions.
    pub const SCALAR: Kernel = Kernel::of(Vectors::Scalar);

    /// AVX-512 with IFMA, and gathers.
    const GATHER: Kernel = Kernel { vectors: Vectors::Avx512Ifma, gathers: true };

    const fn of(vectors: Vectors) -> Self {
        Self { vectors, gathers: false }
    }

    /// The kernel of this process: the best one of the processor, or the one that [`Kernel::VARIABLE`] names. If the
    /// processor lacks that one, or no kernel has that name, the best one of the processor.
    #[inline]
    pub fn get() -> Kernel {
        static CHOSEN: OnceLock<Kernel> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let named = std::env::var(Self::VARIABLE).ok();
            let wanted = Self::available().find(|kernel| Some(kernel.name()) == named.as_deref());
            wanted.or_else(|| Self::available().last()).unwrap_or(Self::SCALAR)
        })
    }

    /// The kernels of this processor, the best one last.
    pub fn available() -> impl Iterator<Item = Kernel> {
        let available = Vectors::ALL.into_iter().filter(|vectors| vectors.is_available()).map(Kernel::of);
        available.chain(gathers_are_fast().then_some(Kernel::GATHER))
    }

    /// The names of the kernels that this processor lacks: what a test of all kernels could not run.
    pub fn unavailable() -> impl Iterator<Item = &'static str> {
        let lacking = Vectors::ALL.into_iter().filter(|vectors| !vectors.is_available()).map(Kernel::of);
        lacking.chain((!gathers_are_fast()).then_some(Kernel::GATHER)).map(Kernel::name)
    }

    /// The name in statistics and in [`Kernel::VARIABLE`].
    pub const fn name(self) -> &'static str {
        match self.vectors {
            _ if self.gathers => "avx512-gather",
            Vectors::Scalar => "scalar",
            Vectors::Avx2 => "avx2",
            Vectors::Avx512 => "avx512",
            Vectors::Avx512Ifma => "avx512-ifma",
        }
    }

    /// The vector instructions, which the processor has.
    #[inline(always)]
    pub(crate) fn vectors(self) -> Vectors {
        self.vectors
    }

    /// Whether scattered words are loaded by gathers.
    #[inline(always)]
    pub(crate) fn gathers(self) -> bool {
        self.gathers
    }
}

/// Whether a gather of eight words is faster than eight loads: Intel processors from Sapphire Rapids on, which also have
/// 16-bit floating-point vectors. On AMD's processors a gather takes several times as long, and on older ones of Intel it
/// waits, so that nothing leaks from it. They have no such vectors.
fn gathers_are_fast() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        Vectors::Avx512Ifma.is_available() && std::arch::is_x86_feature_detected!("avx512fp16")
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        false
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The environment variable that says whether lookups prefetch, for tests and comparisons: `on` or `off`.
pub const PREFETCH_VARIABLE: &str = "FIBULA_PREFETCH";

/// What lookups do with the memory that they read. It decides from which size on prefetches pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// They read small cells at places that are known, and little follows. The processor begins the reads of many names
    /// at once on its own, as long as the third-level cache is near.
    Cells,
    /// They read a line and work on it before the next name.
    Line,
}

impl Reads {
    /// The most bytes that are read faster without prefetches.
    fn near(self) -> usize {
        match self {
            Reads::Cells => 4 * second_level_cache(),
            Reads::Line => second_level_cache() / 2,
        }
    }
}

/// Whether lookups in `bytes` of memory are faster with prefetches. Below, a prefetch costs its instruction and gains
/// nothing (docs/decisions/0013-bursts-in-flight.md).
pub fn prefetch_pays(reads: Reads, bytes: usize) -> bool {
    static CHOSEN: OnceLock<Option<bool>> = OnceLock::new();
    let chosen = *CHOSEN.get_or_init(|| match std::env::var(PREFETCH_VARIABLE).as_deref() {
        Ok("on") => Some(true),
        Ok("off") => Some(false),
        _ => None,
    });
    chosen.unwrap_or_else(|| bytes > reads.near())
}

/// Bytes of the second-level cache of a processor core; 1 MiB where the operating system does not tell.
fn second_level_cache() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(ask_for_second_level_cache)
}

fn ask_for_second_level_cache() -> usize {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    {
        #[expect(unsafe_code, reason = "asks the operating system")]
        // SAFETY: reads a constant of the system.
        let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
        if bytes > 0 {
            return bytes as usize;
        }
    }
    1 << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_of_the_process_is_the_named_or_the_best() {
        let kernels: Vec<Kernel> = Kernel::available().collect();
        println!("kernels: {kernels:?}; not run: {:?}", Kernel::unavailable().collect::<Vec<_>>());
        assert_eq!(kernels.len() + Kernel::unavailable().count(), Vectors::ALL.len() + 1);
        let named = std::env::var(Kernel::VARIABLE).ok();
        let named = kernels.iter().find(|kernel| Some(kernel.name()) == named.as_deref());
        assert_eq!(Some(&Kernel::get()), named.or(kernels.last()));
        assert!(kernels.is_sorted() && kernels[0] == Kernel::SCALAR);
    }
}
