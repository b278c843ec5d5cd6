//! Maps names to the positions of their bits.

#[cfg(doc)]
use super::OneHashing;
use super::one_hashing::Partition;
use super::sizing::{self, Shape};
use crate::base::prefetch::BURST;
use crate::hash::{Digest, mix64};

/// Increment between the mixes of one name: the 64-bit golden ratio, odd.
pub(super) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
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

/// [`reduce`], without the rest, to a bound of at most 32 bits and one.
#[inline(always)]
fn reduced(word: u64, bound: u64) -> u64 {
    ((word >> 32) * bound + (((word & 0xFFFF_FFFF) * bound) >> 32)) >> 32
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

/// Positions of all names of a burst: those with one index side by side, so that loops over them are vector loops.
pub(super) type BurstPositions<const N: usize> = [[u64; BURST]; N];

/// The first `n` positions that [`Draw`] draws for each name of a burst, if the range has at most 32 bits. Then a product
/// needs no more than 32-bit multiplications, which processors have for vectors.
#[inline(always)]
pub(super) fn draw_bursts<const N: usize>(
    starts: &[u64; BURST],
    (a_mix, range): (u32, u64),
    n: usize,
    positions: &mut BurstPositions<N>,
) {
    debug_assert!(range <= 1 << 32);
    let (mut words, mut next) = ([0; BURST], *starts);
    for (index, positions) in positions.iter_mut().enumerate().take(n) {
        if (index as u32).is_multiple_of(a_mix) {
            for (word, next) in words.iter_mut().zip(&mut next) {
                *next = next.wrapping_add(STEP);
                *word = mix64(*next);
            }
        }
        for (position, word) in positions.iter_mut().zip(&mut words) {
            let (high, low) = ((*word >> 32) * range, (*word & 0xFFFF_FFFF) * range);
            *position = (high + (low >> 32)) >> 32;
            *word = (high << 32).wrapping_add(low);
        }
    }
}

/// How the positions of a name follow from its word: what [`Layout::positions`] computes, for loops over several names.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Rule<'a> {
    /// Draws below `range`, of which a mix yields `a_mix`. `apart` is added to each position once more than to the one
    /// before.
    Draws {
        /// The range.
        range: u64,
        /// Positions that one mix yields.
        a_mix: u32,
        /// The distance of partitions.
        apart: u64,
    },
    /// Draws below the bits of a block, counted from the first bit of a block.
    Block {
        /// Blocks of the filter.
        n_blocks: u64,
    },
    /// The remainder by the size of each partition.
    Remainders(&'a [Partition]),
    /// [`extended_double_hashing`](super::double_hashing::extended_double_hashing) of the first two draws below `range`.
    Progression {
        /// The range.
        range: u64,
        /// Positions that one mix yields.
        a_mix: u32,
    },
}

/// Positions in a block that one mix yields.
pub(super) const BLOCK_A_MIX: u32 = (64 - SPARE_BITS) / BLOCK_BITS.ilog2();

/// A rule for the positions of a name. Sealed: sizes and rates are computed per layout.
pub trait Layout: Copy + Default + Eq + std::fmt::Debug + Send + Sync + 'static + sealed::Sealed {
    /// The name used in benchmarks and on the command line. Its first letter is the layout's number in images.
    const NAME: &'static str;
    /// Whether all positions of a name are in one line.
    const ONE_LINE: bool;
    /// Whether the word of a name is its digest mixed with the seed; if not, it is the digest itself.
    const MIXED: bool = true;

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
        if Self::MIXED { mix64(digest.0 ^ seed) } else { digest.0 }
    }

    /// The rule for loops over several names.
    fn rule(shape: Shape<Self>, plan: &Self::Plan) -> Rule<'_>;

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

    /// The first `n` positions of each of up to [`BURST`] names. Those beyond the last name are of digest 0.
    #[inline(always)]
    pub(super) fn of_burst<const N: usize>(&self, digests: &[Digest], n: usize, positions: &mut BurstPositions<N>) {
        let mut starts = [Digest(0); BURST];
        starts[..digests.len()].copy_from_slice(digests);
        let starts = starts.map(|digest| L::start(digest, self.seed));
        match L::rule(self.shape, &self.plan) {
            Rule::Draws { range, a_mix, apart } if range <= 1 << 32 => {
                draw_bursts(&starts, (a_mix, range), n, positions);
                for (index, positions) in (0..).zip(positions).take(n) {
                    positions.iter_mut().for_each(|position| *position += index * apart);
                }
                return;
            }
            Rule::Block { n_blocks } => {
                draw_bursts(&starts, (BLOCK_A_MIX, BLOCK_BITS), n, positions);
                for positions in positions.iter_mut().take(n) {
                    let blocks = starts.iter().map(|&start| reduced(start, n_blocks));
                    positions.iter_mut().zip(blocks).for_each(|(position, block)| *position += block * BLOCK_BITS);
                }
                return;
            }
            _ => {}
        }
        for (name, &start) in starts.iter().enumerate() {
            let all = L::positions(self.shape, &self.plan, start).take(n);
            positions.iter_mut().zip(all).for_each(|(positions, position)| positions[name] = position);
        }
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
    fn rule(shape: Shape<Self>, _plan: &()) -> Rule<'_> {
        Rule::Draws { range: shape.range, a_mix: shape.a_mix, apart: 0 }
    }

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
    fn rule(shape: Shape<Self>, _plan: &()) -> Rule<'_> {
        Rule::Draws { range: shape.range, a_mix: shape.a_mix, apart: shape.range }
    }

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
    fn rule(shape: Shape<Self>, _plan: &()) -> Rule<'_> {
        Rule::Block { n_blocks: shape.bits() / BLOCK_BITS }
    }

    #[inline(always)]
    fn positions(shape: Shape<Self>, _plan: &(), start: u64) -> impl Iterator<Item = u64> {
        let block = reduce(start, shape.bits() / BLOCK_BITS).0 * BLOCK_BITS;
        let mut draw = Draw::new(start, BLOCK_A_MIX);
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
    fn a_burst_has_the_positions_of_its_names() {
        fn check<L: Layout>(bits: u64, n_hashes: u32) {
            let shape = Shape::<L>::new(bits, n_hashes).unwrap();
            let places = Places::new(shape, 7);
            let digests: Vec<Digest> = (0..BURST as u64).map(|n| Digest(mix64(n ^ bits))).collect();
            for n in 0..=(n_hashes as usize).min(4) {
                let mut positions = [[u64::MAX; BURST]; 4];
                places.of_burst(&digests, n, &mut positions);
                for (name, &digest) in digests.iter().enumerate() {
                    let expected: Vec<u64> = places.of(digest).take(n).collect();
                    let got: Vec<u64> = positions[..n].iter().map(|positions| positions[name]).collect();
                    assert_eq!(got, expected, "{}, {bits} bits, name {name}", L::NAME);
                }
            }
        }
        for bits in [512, 1000, 1 << 20, (1 << 32) - 1, 1 << 32, 1 << 33] {
            for n_hashes in [1, 2, 3, 4, 9] {
                check::<Standard>(bits, n_hashes);
                check::<Partitioned>(bits, n_hashes);
                check::<Blocked>(bits, n_hashes);
                check::<crate::bloom::DoubleHashing>(bits, n_hashes);
            }
        }
        check::<crate::bloom::OneHashing>(10_000, 3);
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
