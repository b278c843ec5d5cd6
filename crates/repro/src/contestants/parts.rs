//! Parts of a lookup, each a contestant that takes the first steps of it and then stops. They answer nothing.
//!
//! The difference between two parts is what a step costs. It is an upper bound inside a lookup, where the processor takes
//! the steps of one name while those of another wait for memory.

use std::hint::black_box;

use lookup::base::prefetch::BURST;
use lookup::base::processor::Kernel;
use lookup::hash::{Digest, Hasher};

use super::{Burst, Contestant, Input, Kind, Reader};
use crate::BenchError;

pub(super) const SCALAR: Kind = Kind {
    name: "digest-scalar",
    about: "part of a lookup: the digests, without vector instructions",
    build: |input| digests("digest-scalar", input),
    default: false,
};
pub(super) const AVX2: Kind = Kind {
    name: "digest-avx2",
    about: "the same by AVX2",
    build: |input| digests("digest-avx2", input),
    default: false,
};
pub(super) const AVX512: Kind = Kind {
    name: "digest-avx512",
    about: "the same by AVX-512",
    build: |input| digests("digest-avx512", input),
    default: false,
};
pub(super) const IFMA: Kind = Kind {
    name: "digest-avx512-ifma",
    about: "the same by AVX-512 with products of 52 bits",
    build: |input| digests("digest-avx512-ifma", input),
    default: false,
};

/// The parts of lookups in `concise` and `line` that this processor can take, then the whole lookups and their floors.
pub(crate) fn names() -> Vec<String> {
    const OTHERS: [&str; 9] = [
        "positions",
        "concise-begin",
        "concise-begin-prefetch",
        "line-begin",
        "line-begin-prefetch",
        "floor-line",
        "floor",
        "line",
        "concise",
    ];
    // Gathers play no part in digests.
    let kernels = Kernel::available().filter(|kernel| kernel.name() != "avx512-gather");
    let digests = kernels.map(|kernel| format!("digest-{kernel}"));
    digests.chain(OTHERS.map(String::from)).collect()
}

fn digests(contestant: &'static str, input: &Input<'_>) -> Result<Box<dyn Contestant>, BenchError> {
    let is_named = |kernel: &Kernel| contestant.strip_prefix("digest-") == Some(kernel.name());
    let kernel = Kernel::available().find(is_named).ok_or_else(|| BenchError::Unavailable {
        contestant,
        reason: "this processor has no such instructions".into(),
    })?;
    Ok(part(input, kernel, 0, || |digests: &[Digest]| _ = black_box(digests)))
}

/// A part that computes digests and passes each burst of them to what `make` makes for a reader.
pub(super) fn part<F, G>(input: &Input<'_>, kernel: Kernel, size_bits: u64, make: F) -> Box<dyn Contestant>
where
    F: Fn() -> G + 'static,
    G: FnMut(&[Digest]) + Send + 'static,
{
    Box::new(Part { hasher: input.hasher(), name_len: input.name_len, kernel, size_bits, make })
}

struct Part<F> {
    hasher: Hasher,
    name_len: usize,
    kernel: Kernel,
    size_bits: u64,
    make: F,
}

impl<F: Fn() -> G, G: FnMut(&[Digest]) + Send + 'static> Contestant for Part<F> {
    fn size_bits(&self) -> u64 {
        self.size_bits
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        let Self { hasher, name_len, kernel, .. } = self;
        let digests = [Digest(0); BURST];
        Box::new(PartReader { hasher, name_len: *name_len, kernel: *kernel, digests, then: (self.make)() })
    }

    fn answers(&self) -> bool {
        false
    }

    fn note(&self) -> String {
        format!("{} by {}", self.hasher.family(), self.kernel)
    }
}

struct PartReader<'a, G> {
    hasher: &'a Hasher,
    name_len: usize,
    kernel: Kernel,
    digests: [Digest; BURST],
    then: G,
}

impl<G: FnMut(&[Digest])> Burst for PartReader<'_, G> {
    #[inline]
    fn lookup(&mut self, names: &[u64], _values: &mut [u64]) {
        for names in names.chunks(BURST) {
            let digests = &mut self.digests[..names.len()];
            self.hasher.digest_words_with(self.kernel, names, self.name_len, digests);
            (self.then)(digests);
        }
    }
}
