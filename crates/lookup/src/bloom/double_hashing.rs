//! Double hashing: all positions are derived from two.
//!
//! With h_1 and h_2 uniform below m, position i is `h_1 + i h_2 + i^3` modulo m, for i from 0 to k - 1.
//!
//! Cost: one mix, then two additions per position. Memory as for [`Standard`].
//! Alien names: positive about as often as in a standard filter where m and n are large and m/n is small. Otherwise
//! more often, as positions are no longer independent: an alien with both h_1 and h_2 of a name has all its positions, which
//! one in m^2 has. So n names have a rate of n / m^2 at least, whatever k: with few names and low rates more than a thousand
//! times that of a standard filter. The rate computed here adds that, and up to 2,048 bits it is counted over all
//! pairs h_1 and h_2, because positions modulo a small m coincide more often still. A filter for a rate has the bits for it.
//! Source: Kirsch and Mitzenmacher, "Less Hashing, Same Performance: Building a Better Bloom Filter", extended double
//! hashing with cubes: LHBF in Lu et al., "Low Computational Cost Bloom Filters". Differs: h_1 and h_2 come from one
//! keyed digest.

use super::layout::{Draw, Layout, Rule, STEP, Standard, ones};
use super::modulus::below;
use super::sizing::{self, Shape};
use crate::hash::mix64;

/// The most bits for which a rate is counted over all pairs h_1 and h_2: with more, positions of different pairs coincide
/// hardly more often than independent ones. From 64 to 2,752 bits, the rest was 28 % of the rate at most.
const MAX_COUNTED: u64 = 2048;
/// The pairs that are tried for an expected rate, over several filters of random names.
const N_TRIED: u64 = 1 << 21;
/// The fewest and the most filters of random names for an expected rate.
const N_FILTERS: (u64, u64) = (2, 256);

/// Positions in arithmetic progression plus cubes, anywhere in the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DoubleHashing;

/// Positions 0 to k - 1 that follow from `h_1` and `h_2`, both below `m`.
#[inline(always)]
pub fn extended_double_hashing(h_1: u64, h_2: u64, m: u64, k: u32) -> impl Iterator<Item = u64> {
    let mut line = h_1;
    (0..u64::from(k)).map(move |i| {
        let cube = i * i * i;
        let cube = if cube < m { cube } else { cube % m };
        let position = below(line + cube, m);
        line = below(line + h_2, m);
        position
    })
}

impl Layout for DoubleHashing {
    type Plan = ();

    const NAME: &'static str = "double-hashing";
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
        Rule::Progression { range: shape.range, a_mix: shape.a_mix }
    }

    #[inline(always)]
    fn positions(shape: Shape<Self>, _plan: &(), start: u64) -> impl Iterator<Item = u64> {
        let mut draw = Draw::new(start, shape.a_mix);
        let (h_1, h_2) = (draw.below(shape.range), draw.below(shape.range));
        extended_double_hashing(h_1, h_2, shape.range, shape.n_hashes())
    }

    fn expected_fp(bits: u64, n_hashes: u32, n_names: u64) -> f64 {
        if bits > MAX_COUNTED || n_names == 0 {
            return about(bits, n_hashes, n_names);
        }
        let n_filters = (N_TRIED / (bits * bits)).clamp(N_FILTERS.0, N_FILTERS.1);
        // More throws leave no bit unset that a rate would show.
        let n_names = n_names.min(bits * 64);
        let mut word = bits ^ u64::from(n_hashes) << 32 ^ n_names << 40;
        let mut random = || {
            word = word.wrapping_add(STEP);
            ((u128::from(mix64(word)) * u128::from(bits)) >> 64) as u64
        };
        let rates = (0..n_filters).map(|_| {
            let mut is_set = vec![false; bits as usize];
            for _ in 0..n_names {
                let (h_1, h_2) = (random(), random());
                extended_double_hashing(h_1, h_2, bits, n_hashes).for_each(|bit| is_set[bit as usize] = true);
            }
            counted(&is_set, n_hashes)
        });
        rates.sum::<f64>() / n_filters as f64
    }

    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
        let guess = Standard::bits_for(n_names, fp, n_hashes);
        let mut bits =
            sizing::fewest(fp, guess as f64, |bits| if bits == 0 { 1.0 } else { about(bits, n_hashes, n_names) });
        // Where positions coincide more often, a tenth more at a time is soon enough.
        while bits <= MAX_COUNTED && Self::expected_fp(bits, n_hashes, n_names) > fp {
            bits += bits.div_ceil(10);
        }
        bits
    }

    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64 {
        if bits <= MAX_COUNTED {
            let is_set: Vec<bool> = (0..bits).map(|bit| words[bit as usize / 64] >> (bit % 64) & 1 == 1).collect();
            return counted(&is_set, n_hashes);
        }
        let fill = ones(words, 0, bits) as f64 / bits as f64;
        // As many names as leave this many bits unset.
        let n_names = (1.0 - fill).ln() / ((-1.0 / bits as f64).ln_1p() * f64::from(n_hashes));
        (Standard::rate_of(words, bits, n_hashes) + same_pair(bits, n_names)).min(1.0)
    }
}

/// The rate of a standard filter, and that of aliens that have the pair of a name.
fn about(bits: u64, n_hashes: u32, n_names: u64) -> f64 {
    (Standard::expected_fp(bits, n_hashes, n_names) + same_pair(bits, n_names as f64)).min(1.0)
}

/// The rate at which an alien has the same h_1 and h_2 as one of the names.
fn same_pair(bits: u64, n_names: f64) -> f64 {
    if n_names == 0.0 { 0.0 } else { n_names / (bits as f64 * bits as f64) }
}

/// The share of all pairs h_1 and h_2 whose positions are all set: the rate of the filter with these bits.
fn counted(is_set: &[bool], n_hashes: u32) -> f64 {
    let m = is_set.len() as u64;
    let is_positive =
        |h_1: u64, h_2: u64| extended_double_hashing(h_1, h_2, m, n_hashes).all(|bit| is_set[bit as usize]);
    // The first position is h_1.
    let starts = (0..m).filter(|&h_1| is_set[h_1 as usize]);
    let n_positive: usize = starts.map(|h_1| (0..m).filter(|&h_2| is_positive(h_1, h_2)).count()).sum();
    n_positive as f64 / (m * m) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_formula() {
        for (h_1, h_2, m) in [(5, 7, 10_003), (10_002, 10_002, 10_003), (0, 1, 2), (0, 0, 1), (3, 999, 1000)] {
            let expected: Vec<u64> = (0..32).map(|i| (h_1 + i * h_2 + i * i * i) % m).collect();
            assert_eq!(extended_double_hashing(h_1, h_2, m, 32).collect::<Vec<_>>(), expected, "{h_1}, {h_2}, {m}");
        }
    }
}
