//! Orthogonal Bloom filters in the size of the Othello paper: one filter per value bit, each sized for all names. The
//! bits of all filters at one position are adjacent, so a lookup reads as many cells as one filter has hash functions.
//!
//! Names whose value the filters get wrong stay wrong, as in the paper. They are very few, because a filter holds only
//! the names whose bit is one. `obf` has an exact table of them instead, and smaller filters.

use fib::model::mcq;
use lookup::hash::{Digest, Hasher, mix64};

use super::{Burst, Contestant, Input, Kind, MAX_BATCH, Reader};

pub(super) const KIND: Kind = Kind {
    name: "obf-sliced",
    about: "orthogonal Bloom filters as the papers size them, bits of all filters side by side; static",
    build: |input| Ok(Box::new(Sliced::build(input))),
    default: false,
};

struct Sliced {
    words: Vec<u64>,
    /// Cells per word: a power of two.
    cells_per_word_log: u32,
    cell_bits: u8,
    n_cells: u64,
    n_hashes: u32,
    n_wrong: usize,
    hasher: Hasher,
    name_len: usize,
}

impl Sliced {
    fn build(input: &Input<'_>) -> Self {
        let l = u32::from(input.value_bits);
        let n_cells = (mcq::obf_bits(input.names.len() as u64, l) / f64::from(l)).ceil() as u64;
        let cells_per_word_log = (64 / l).ilog2();
        let mut filters = Self {
            words: vec![0; (n_cells >> cells_per_word_log) as usize + 1],
            cells_per_word_log,
            cell_bits: input.value_bits,
            n_cells,
            n_hashes: mcq::obf_hashes(l),
            n_wrong: 0,
            hasher: input.hasher(),
            name_len: input.name_len,
        };
        let entries = input.entries();
        for &(digest, value) in &entries {
            let (mut at, step) = filters.start(digest);
            for _ in 0..filters.n_hashes {
                let (word, shift) = filters.cell(at);
                filters.words[word] |= value << shift;
                at = at.wrapping_add(step);
            }
        }
        filters.n_wrong = entries.iter().filter(|&&(digest, value)| filters.value(digest) != value).count();
        filters
    }

    /// The first position of a name and the distance between positions, as fractions of 2^64.
    #[inline(always)]
    fn start(&self, digest: Digest) -> (u64, u64) {
        (digest.0, mix64(digest.0) | 1)
    }

    #[inline(always)]
    fn cell(&self, at: u64) -> (usize, u32) {
        let cell = ((u128::from(at) * u128::from(self.n_cells)) >> 64) as u64;
        let in_word = cell & ((1 << self.cells_per_word_log) - 1);
        ((cell >> self.cells_per_word_log) as usize, in_word as u32 * u32::from(self.cell_bits))
    }

    #[inline(always)]
    fn value(&self, digest: Digest) -> u64 {
        let (mut at, step) = self.start(digest);
        let mut value = u64::MAX >> (64 - self.cell_bits);
        for _ in 0..self.n_hashes {
            let (word, shift) = self.cell(at);
            value &= self.words[word] >> shift;
            at = at.wrapping_add(step);
        }
        value
    }
}

impl Contestant for Sliced {
    fn size_bits(&self) -> u64 {
        64 * self.words.len() as u64
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }

    fn answers(&self) -> bool {
        self.n_wrong == 0
    }

    fn note(&self) -> String {
        if self.n_wrong == 0 { String::new() } else { format!("{} names have wrong values", self.n_wrong) }
    }
}

impl Burst for &Sliced {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let mut digests = [Digest(0); MAX_BATCH];
        let digests = &mut digests[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        for (value, digest) in values.iter_mut().zip(digests.iter()) {
            *value = self.value(*digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::Calls;
    use crate::names::NameSet;

    #[test]
    fn values_of_every_width_come_out_and_the_size_is_the_papers() {
        for value_bits in [1u8, 4, 5, 8, 16, 33, 64] {
            let names = NameSet::Mac.generate(5000, 7);
            let family = lookup::hash::Family::MulAdd;
            let input =
                Input { names: &names, name_len: 6, value_bits, family, seed: 7, build_threads: 1, floor_bytes: 0 };
            let filters = Sliced::build(&input);
            assert_eq!(filters.n_wrong, 0, "{value_bits} bits");
            assert_eq!(filters.reader().first_wrong(&names, Calls::new(32, 1), value_bits), None, "{value_bits} bits");
            if value_bits.is_power_of_two() {
                let papers = mcq::obf_bits(5000, value_bits.into());
                assert!((filters.size_bits() as f64 / papers - 1.0).abs() < 0.01, "{value_bits} bits");
            }
        }
    }
}
