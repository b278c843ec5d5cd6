//! Double hashing: all positions are derived from two.
//!
//! With h_1 and h_2 uniform below m, position i is `h_1 + i h_2 + i^3` modulo m, for i from 0 to k - 1.
//!
//! Cost: one mix, then two additions per position. Memory as for [`Standard`].
//! Alien names: positive about as often as in a standard filter where m and n are large and m/n is small. Otherwise
//! more often, as positions are no longer independent: with n = 1000 and k = 10, by 0.5 % at 10 bits per name and by a
//! quarter at 28. The expected rate computed here is that of a standard filter.
//! Source: Kirsch and Mitzenmacher, "Less Hashing, Same Performance: Building a Better Bloom Filter", extended double
//! hashing with cubes: LHBF in Lu et al., "Low Computational Cost Bloom Filters". Differs: h_1 and h_2 come from one
//! keyed digest.

use super::layout::{Draw, Layout, Rule, Standard};
use super::modulus::below;
use super::sizing::Shape;

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
        Standard::expected_fp(bits, n_hashes, n_names)
    }

    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
        Standard::bits_for(n_names, fp, n_hashes)
    }

    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64 {
        Standard::rate_of(words, bits, n_hashes)
    }
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
