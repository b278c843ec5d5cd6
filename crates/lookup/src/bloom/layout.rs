//! Maps names to the positions of their bits.

#[cfg(doc)]
use super::OneHashing;
use super::sizing::{self, Shape};
use crate::hash::{Digest, mix64};

/// Increment between the mixes of one name: the 64-bit golden ratio, odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bits of a block: one cache line.
pub(super) const BLOCK_BITS: u64 = 512;
/// Bits of a mix that are not used up by positions, so that the last position is uniform to a thousandth, too.
const SPARE_BITS: u32 = 10;

/// Maps a uniform word to `0..bound` without a division; also returns the uniform word that remains.
#[inline(always)]
fn reduce(word: u64, bound: u64) -> (u64, u64) {
    let product = u128::from(word) * u128::from(bound);
    ((product >> 64) as u64, product as u64)
}

/// How many positions below `range` one mix of 64 bits yields.
pub(super) fn positions_a_mix(range: u64) -> u32 {
    let bits_a_position = (64 - (range - 1).leading_zeros()).max(1);
    ((64 - SPARE_BITS) / bits_a_position).max(1)
}

/// Draws the positions of one name.
pub(super) struct Draw {
    /// The word to be mixed next, less `STEP`.
    next: u64,
    /// What remains of the current mix, and the number of positions still to be drawn from it.
    word: u64,
    left: u32,
    a_mix: u32,
}

impl Draw {
    #[inline(always)]
    pub(super) fn new(start: u64, a_mix: u32) -> Self {
        Self { next: start, word: 0, left: 0, a_mix }
    }

    #[inline(always)]
    pub(super) fn below(&mut self, range: u64) -> u64 {
        if self.left == 0 {
            self.next = self.next.wrapping_add(STEP);
            self.word = mix64(self.next);
            self.left = self.a_mix;
        }
        self.left -= 1;
        let (position, rest) = reduce(self.word, range);
        self.word = rest;
        position
    }
}

/// A rule for the positions of a name. Sealed: sizes and rates are computed per layout.
pub trait Layout: Copy + Default + Eq + std::fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// The name used in benchmarks and on the command line. Its first letter is the layout's number in images.
    const NAME: &'static str;
    /// Whether all positions of a name are in one line.
    const ONE_LINE: bool;

    /// The size to use for `bits`: the smallest possible one of at least `bits`; the nearest for [`OneHashing`].
    fn round_bits(bits: u64, n_hashes: u32) -> u64;

    /// The range that one position is drawn from, in a filter of `bits`.
    fn range(bits: u64, n_hashes: u32) -> u64;

    /// What positions need besides the shape; `()` for most.
    type Plan: Clone + Eq + std::fmt::Debug + Send + Sync + 'static;

    /// The plan of a filter of `bits`, a size that the layout can have.
    fn plan(bits: u64, n_hashes: u32) -> Self::Plan;

    /// The word that all positions of a name are drawn from.
    #[inline(always)]
    fn start(digest: Digest, seed: u64) -> u64 {
        mix64(digest.0 ^ seed)
    }

    /// The positions of the name whose word is `start`.
    fn positions(shape: Shape<Self>, plan: &Self::Plan, start: u64) -> impl Iterator<Item = u64>;

    /// The expected false-positive rate of a filter with `n_names`.
    fn expected_fp(bits: u64, n_hashes: u32, n_names: u64) -> f64;

    /// The fewest bits in which `n_names` have a rate of at most `fp` with `n_hashes` positions each, before rounding.
    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64;

    /// The probability that a random alien is positive in the filter `words`.
    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64;
}

/// Maps names to positions, in all filters of one shape and seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places<L: Layout> {
    shape: Shape<L>,
    plan: L::Plan,
    seed: u64,
}

impl<L: Layout> Places<L> {
    /// The places for filters of this shape and seed.
    pub fn new(shape: Shape<L>, seed: u64) -> Self {
        Self { shape, plan: L::plan(shape.bits(), shape.n_hashes()), seed }
    }

    /// Bits and positions.
    #[inline(always)]
    pub fn shape(&self) -> Shape<L> {
        self.shape
    }

    /// The seed of the positions.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The plan that they need besides the shape: the partitions of [`OneHashing`].
    pub fn plan(&self) -> &L::Plan {
        &self.plan
    }

    /// The bits of a name, [`Shape::n_hashes`] of them.
    #[inline(always)]
    pub fn of(&self, digest: Digest) -> impl Iterator<Item = u64> {
        L::positions(self.shape, &self.plan, L::start(digest, self.seed))
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Standard {}
    impl Sealed for super::Partitioned {}
    impl Sealed for super::Blocked {}
    impl Sealed for crate::bloom::DoubleHashing {}
    impl<const MIXED: bool> Sealed for crate::bloom::OneHashing<MIXED> {}
}

/// Every position anywhere in the filter: Bloom's original.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standard;

/// Each position in its own partition, so that k memories can be read at once; no name hits a bit twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partitioned;

/// All positions in one block of 512 bits: one memory access per lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocked;

/// The number of ones among the bits `from..to`.
pub(super) fn ones(words: &[u64], from: u64, to: u64) -> u64 {
    let inside = |at: u64| {
        let low = if at == from / 64 { u64::MAX << (from % 64) } else { u64::MAX };
        let high = if at == to / 64 { !(u64::MAX << (to % 64)) } else { u64::MAX };
        u64::from((words[at as usize] & low & high).count_ones())
    };
    (from / 64..to.div_ceil(64)).map(inside).sum()
}

impl Layout for Standard {
    type Plan = ();
    const NAME: &'static str = "standard";
    const ONE_LINE: bool = false;

    fn round_bits(bits: u64, _n_hashes: u32) -> u64 {
        bits
    }

    fn range(bits: u64, _n_hashes: u32) -> u64 {
        bits
    }

    fn plan(_bits: u64, _n_hashes: u32) {}

    #[inline(always)]
    fn positions(shape: Shape<Self>, _plan: &(), start: u64) -> impl Iterator<Item = u64> {
        let mut draw = Draw::new(start, shape.a_mix);
        (0..shape.n_hashes()).map(move |_| draw.below(shape.range))
    }

    fn expected_fp(bits: u64, n_hashes: u32, n_names: u64) -> f64 {
        sizing::scattered_fp(bits as f64, n_hashes, n_names as f64)
    }

    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
        sizing::scattered_bits(n_names as f64, fp, n_hashes)
    }

    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64 {
        (ones(words, 0, bits) as f64 / bits as f64).powi(n_hashes as i32)
    }
}

impl Layout for Partitioned {
    type Plan = ();
    const NAME: &'static str = "partitioned";
    const ONE_LINE: bool = false;

    fn round_bits(bits: u64, n_hashes: u32) -> u64 {
        bits.next_multiple_of(n_hashes.into())
    }

    fn range(bits: u64, n_hashes: u32) -> u64 {
        bits / u64::from(n_hashes)
    }

    fn plan(_bits: u64, _n_hashes: u32) {}

    #[inline(always)]
    fn positions(shape: Shape<Self>, _plan: &(), start: u64) -> impl Iterator<Item = u64> {
        let mut draw = Draw::new(start, shape.a_mix);
        (0..shape.n_hashes()).map(move |part| shape.range * u64::from(part) + draw.below(shape.range))
    }

    fn expected_fp(bits: u64, n_hashes: u32, n_names: u64) -> f64 {
        sizing::partitioned_fp(bits as f64, n_hashes, n_names as f64)
    }

    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
        sizing::partitioned_bits(n_names as f64, fp, n_hashes)
    }

    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64 {
        let part = bits / u64::from(n_hashes);
        let fill = |index: u32| ones(words, part * u64::from(index), part * u64::from(index + 1)) as f64 / part as f64;
        (0..n_hashes).map(fill).product()
    }
}

impl Layout for Blocked {
    type Plan = ();
    const NAME: &'static str = "blocked";
    const ONE_LINE: bool = true;

    fn round_bits(bits: u64, _n_hashes: u32) -> u64 {
        bits.next_multiple_of(BLOCK_BITS)
    }

    fn range(_bits: u64, _n_hashes: u32) -> u64 {
        BLOCK_BITS
    }

    fn plan(_bits: u64, _n_hashes: u32) {}

    #[inline(always)]
    fn positions(shape: Shape<Self>, _plan: &(), start: u64) -> impl Iterator<Item = u64> {
        let block = reduce(start, shape.bits() / BLOCK_BITS).0 * BLOCK_BITS;
        let mut draw = Draw::new(start, const { (64 - SPARE_BITS) / BLOCK_BITS.ilog2() });
        (0..shape.n_hashes()).map(move |_| block + draw.below(BLOCK_BITS))
    }

    fn expected_fp(bits: u64, n_hashes: u32, n_names: u64) -> f64 {
        sizing::blocked_fp(bits / BLOCK_BITS, n_hashes, n_names)
    }

    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
        sizing::blocks_for(n_names, fp, n_hashes) * BLOCK_BITS
    }

    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64 {
        let rate = |block: &[u64]| {
            let ones: u32 = block.iter().map(|word| word.count_ones()).sum();
            (f64::from(ones) / BLOCK_BITS as f64).powi(n_hashes as i32)
        };
        let sum: f64 = words.chunks_exact((BLOCK_BITS / 64) as usize).map(rate).sum();
        sum / (bits / BLOCK_BITS) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_counted_between_any_two_bits() {
        let words = [u64::MAX, 1 << 63 | 1, 0xFF];
        assert_eq!(ones(&words, 0, 64), 64);
        assert_eq!(ones(&words, 63, 65), 2);
        assert_eq!(ones(&words, 65, 127), 0);
        assert_eq!(ones(&words, 60, 132), 4 + 2 + 4);
        assert_eq!(ones(&words, 3, 9), 6);
        assert_eq!(ones(&words, 5, 5), 0);
    }

    #[test]
    fn a_mix_yields_no_more_positions_than_it_has_bits_for() {
        for (range, positions) in [(1, 54), (2, 54), (512, 6), (513, 5), (1 << 27, 2), ((1 << 27) + 1, 1), (1 << 40, 1)]
        {
            assert_eq!(positions_a_mix(range), positions, "{range}");
        }
    }

    #[test]
    fn positions_stay_inside_their_filter_partition_and_block() {
        for start in (0..1000).map(mix64).chain([0, u64::MAX]) {
            assert!(Standard::positions(Shape::new(1000, 20).unwrap(), &(), start).all(|bit| bit < 1000));
            let parts = Partitioned::positions(Shape::new(1000, 20).unwrap(), &(), start).enumerate();
            parts.for_each(|(part, bit)| assert_eq!(bit / 50, part as u64));
            let positions = Blocked::positions(Shape::new(5120, 20).unwrap(), &(), start);
            let blocks: Vec<u64> = positions.map(|bit| bit / 512).collect();
            assert!(blocks[0] < 10 && blocks.iter().all(|&block| block == blocks[0]));
        }
    }
}
