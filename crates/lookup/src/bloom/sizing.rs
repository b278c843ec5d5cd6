//! Computes bits and positions of a filter, and the resulting false-positive rate.
//!
//! With m bits, k positions per name and n names (the papers' `m`, `l`, `n_k`), the fill of a standard filter is
//! `rho = X / m`, where X is the number of cells that `k n` throws hit. A random alien is positive with probability
//! `rho^k`. As rho varies between filters, the expected rate is `E[rho^k]`, not `E[rho]^k`:
//! ```text
//! mu      = E[rho] = 1 - q,  q = (1 - 1/m)^(k n)
//! var     = q (1 - q) / m + (1 - 1/m) ((1 - 2/m)^(k n) - q^2)
//! E[rho^k] = mu^k + k (k - 1) / 2 * mu^(k - 2) * var + O(m^-2)
//! ```
//! Partitioned: partitions fill independently, so the rate is exactly `(1 - (1 - k/m)^n)^k`.
//! Blocked: the number j of names in a block is binomial (Poisson in the limit). Given j, the rate is that of a filter
//! of 512 bits and follows from the distribution of X, which is computed throw by throw.
//! Double hashing: see [`double_hashing`](super::double_hashing), whose names share both hashes now and then.
//! Optimal k: `m/n * ln 2` positions, where half the bits are one. A rate p needs `m = k n / -ln(1 - p^(1/k))` bits
//! with k positions; the shape with the fewest bits over all k is used.

use std::marker::PhantomData;

use super::layout::{BLOCK_BITS, Layout, positions_a_mix};

/// Maximum number of bits of a filter.
pub const MAX_BITS: u64 = 1 << 40;
/// Maximum number of positions per name: a rate of 2^-32 needs no more.
pub const MAX_HASHES: u32 = 32;
/// With more names than this, the rate of a block is taken to be that for this many: 1 to twelve digits.
const MAX_BLOCK_NAMES: u64 = 16_384;

/// Bits of a filter and positions per name, valid for its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<L> {
    bits: u64,
    n_hashes: u32,
    /// Positions that one mix yields, and the range that each is drawn from.
    pub(super) a_mix: u32,
    pub(super) range: u64,
    layout: PhantomData<L>,
}

/// Why there is no filter of the shape asked for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// No bit, or too many.
    #[error("a Bloom filter of {bits} bits cannot be made: ask for 1 to {max}, or split the set")]
    Bits {
        /// Bits asked for.
        bits: u64,
        /// The maximum.
        max: u64,
    },
    /// No position, or too many.
    #[error("a Bloom filter with {n_hashes} positions a name cannot be made: ask for 1 to {MAX_HASHES}")]
    Hashes {
        /// Positions asked for.
        n_hashes: u32,
    },
    /// Not a false-positive rate that a filter can have.
    #[error("a Bloom filter cannot have the false-positive rate {fp}: ask for more than 0 and less than 1")]
    Rate {
        /// The rate asked for.
        fp: f64,
    },
}

impl<L: Layout> Shape<L> {
    /// A shape of at least `bits` bits, rounded up to a size that the layout can have; for
    /// [`OneHashing`](super::OneHashing) the nearest such size.
    /// # Errors
    /// [`ShapeError`] when one of the two is out of range.
    pub fn new(bits: u64, n_hashes: u32) -> Result<Self, ShapeError> {
        if !(1..=MAX_HASHES).contains(&n_hashes) {
            return Err(ShapeError::Hashes { n_hashes });
        }
        if !(1..=MAX_BITS).contains(&bits) {
            return Err(ShapeError::Bits { bits, max: MAX_BITS });
        }
        let bits = L::round_bits(bits, n_hashes);
        let range = L::range(bits, n_hashes);
        Ok(Self { bits, n_hashes, a_mix: positions_a_mix(range), range, layout: PhantomData })
    }

    /// The smallest shape in which `n_names` have an expected false-positive rate of at most `fp`.
    /// # Errors
    /// [`ShapeError`] when `fp` is not between 0 and 1, or the filter would be too large.
    pub fn for_names(n_names: u64, fp: f64) -> Result<Self, ShapeError> {
        if !(fp > 0.0 && fp < 1.0) {
            return Err(ShapeError::Rate { fp });
        }
        let n_names = n_names.max(1);
        // From log2(1/p), the best k of a standard filter, down or up while it improves: uneven blocks need fewer.
        let bits_for = |n_hashes| L::bits_for(n_names, fp, n_hashes);
        let mut n_hashes = (-fp.log2()).round().clamp(1.0, f64::from(MAX_HASHES)) as u32;
        let mut bits = bits_for(n_hashes);
        for step in [-1, 1] {
            while let next @ 1..=MAX_HASHES = n_hashes.wrapping_add_signed(step) {
                let next_bits = bits_for(next);
                if next_bits >= bits {
                    break;
                }
                (n_hashes, bits) = (next, next_bits);
            }
        }
        Self::new(bits.max(1), n_hashes)
    }

    /// Bits of the filter: m in the papers.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// Positions per name: l in the papers, k elsewhere.
    #[inline(always)]
    pub fn n_hashes(self) -> u32 {
        self.n_hashes
    }

    /// The false-positive rate expected of a filter that holds `n_names`.
    pub fn expected_fp(self, n_names: u64) -> f64 {
        L::expected_fp(self.bits, self.n_hashes, n_names)
    }
}

/// The number of positions with the fewest false positives in a standard filter of `bits` bits for `n_names`.
pub fn optimal_hashes(bits: u64, n_names: u64) -> u32 {
    let ideal = bits as f64 / n_names.max(1) as f64 * std::f64::consts::LN_2;
    let floor = (ideal as u32).clamp(1, MAX_HASHES);
    let rate = |n_hashes| scattered_fp(bits as f64, n_hashes, n_names as f64);
    let above = (floor + 1).min(MAX_HASHES);
    if rate(above) < rate(floor) { above } else { floor }
}

/// Standard filter: the mean of `rho^k`, to the second order.
pub(super) fn scattered_fp(m: f64, n_hashes: u32, n: f64) -> f64 {
    if n == 0.0 {
        return 0.0;
    }
    if m < 2.0 {
        return 1.0;
    }
    let k = f64::from(n_hashes);
    let throws = k * n;
    let ln_miss = (-1.0 / m).ln_1p();
    let q = (throws * ln_miss).exp();
    let mu = -(throws * ln_miss).exp_m1();
    let pair = if m > 2.0 { (throws * ((-2.0 / m).ln_1p() - 2.0 * ln_miss)).exp_m1() } else { -1.0 };
    let var = q * mu / m + (1.0 - 1.0 / m) * q * q * pair;
    (mu.powf(k) + k * (k - 1.0) / 2.0 * mu.powf(k - 2.0) * var).clamp(0.0, 1.0)
}

/// The fewest bits for which `rate` is at most `fp`, searched from the closed form `guess`; `rate` falls with the bits.
pub(super) fn fewest(fp: f64, guess: f64, rate: impl Fn(u64) -> f64) -> u64 {
    let (mut low, mut high) = (0, (guess.min(MAX_BITS as f64) as u64).max(1));
    while rate(high) > fp && high <= MAX_BITS {
        (low, high) = (high, high * 2);
    }
    // Invariant: `low` is too few, `high` is enough (or more than possible, which the caller refuses).
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if rate(middle) > fp { low = middle } else { high = middle }
    }
    high
}

pub(super) fn scattered_bits(n: f64, fp: f64, n_hashes: u32) -> u64 {
    let k = f64::from(n_hashes);
    let guess = k * n / -(-fp.powf(1.0 / k)).ln_1p();
    fewest(fp, guess * 1.01, |bits| scattered_fp(bits as f64, n_hashes, n))
}

/// Partitioned filter: exact.
pub(super) fn partitioned_fp(m: f64, n_hashes: u32, n: f64) -> f64 {
    let part = m / f64::from(n_hashes);
    if n == 0.0 {
        return 0.0;
    }
    if part <= 1.0 {
        return 1.0;
    }
    (-(n * (-1.0 / part).ln_1p()).exp_m1()).powi(n_hashes as i32)
}

pub(super) fn partitioned_bits(n: f64, fp: f64, n_hashes: u32) -> u64 {
    let k = f64::from(n_hashes);
    let miss = (-fp.powf(1.0 / k)).ln_1p() / n;
    ((k / -miss.exp_m1()).ceil()).min(MAX_BITS as f64 * 2.0) as u64
}

/// `rates[j]`: the rate of one block that holds j names, for j below `n`.
fn block_rates(n_hashes: u32, n: u64) -> Vec<f64> {
    let cells = BLOCK_BITS as usize;
    // hit[x]: probability that x cells are one.
    let mut hit = vec![0.0; cells + 1];
    hit[0] = 1.0;
    let chance: Vec<f64> = (0..=cells).map(|x| x as f64 / cells as f64).collect();
    let powers: Vec<f64> = chance.iter().map(|fill| fill.powi(n_hashes as i32)).collect();
    let mut rates = Vec::with_capacity(n as usize);
    for _ in 0..n {
        rates.push(hit.iter().zip(&powers).map(|(hit, power)| hit * power).sum());
        for _ in 0..n_hashes {
            for x in (1..=cells).rev() {
                hit[x] = hit[x] * chance[x] + hit[x - 1] * (1.0 - chance[x - 1]);
            }
            hit[0] = 0.0;
        }
    }
    rates
}

/// The mean of `rates[j]` over the number j of names in one of `n_blocks` blocks.
fn mean_rate(rates: &[f64], n_blocks: u64, n_names: u64) -> f64 {
    if n_blocks == 1 {
        return rates[(n_names as usize).min(rates.len() - 1)];
    }
    // Binomial weights relative to the mode, outwards until they are negligible.
    let odds = 1.0 / (n_blocks - 1) as f64;
    let mode = n_names / n_blocks;
    let rate = |j: u64| rates[(j as usize).min(rates.len() - 1)];
    let (mut sum, mut weights) = (rate(mode), 1.0);
    let (mut weight, mut j) = (1.0, mode);
    while j < n_names && weight > 1e-18 {
        weight *= (n_names - j) as f64 / (j + 1) as f64 * odds;
        j += 1;
        (sum, weights) = (sum + weight * rate(j), weights + weight);
    }
    (weight, j) = (1.0, mode);
    while j > 0 && weight > 1e-18 {
        weight *= j as f64 / (n_names - j + 1) as f64 / odds;
        j -= 1;
        (sum, weights) = (sum + weight * rate(j), weights + weight);
    }
    sum / weights
}

/// More names than any block is likely to hold.
fn most_names(mean: f64) -> u64 {
    ((mean + 12.0 * mean.sqrt()) as u64 + 40).min(MAX_BLOCK_NAMES)
}

pub(super) fn blocked_fp(n_blocks: u64, n_hashes: u32, n_names: u64) -> f64 {
    let mean = n_names as f64 / n_blocks as f64;
    mean_rate(&block_rates(n_hashes, most_names(mean).min(n_names + 1)), n_blocks, n_names)
}

pub(super) fn blocks_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
    // No useful block holds more names than it has bits.
    let rates = block_rates(n_hashes, BLOCK_BITS * 2);
    let guess = (scattered_bits(n_names as f64, fp, n_hashes) / BLOCK_BITS).max(1);
    fewest(fp, guess as f64 * 1.5, |n_blocks| if n_blocks == 0 { 1.0 } else { mean_rate(&rates, n_blocks, n_names) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::{Blocked, OneHashing, Partitioned, Standard};

    /// `E[rho^k]` of `throws` balls in `m` bins, from the whole distribution.
    fn exact(m: usize, k: u32, n: usize) -> f64 {
        let mut hit = vec![0.0; m + 1];
        hit[0] = 1.0;
        for _ in 0..n * k as usize {
            for x in (1..=m).rev() {
                hit[x] = hit[x] * (x as f64 / m as f64) + hit[x - 1] * (1.0 - (x - 1) as f64 / m as f64);
            }
            hit[0] = 0.0;
        }
        hit.iter().enumerate().map(|(x, hit)| hit * (x as f64 / m as f64).powi(k as i32)).sum()
    }

    #[test]
    fn the_second_order_is_enough_for_a_standard_filter() {
        for (m, k, n) in [(1000, 7, 100), (1000, 3, 300), (512, 5, 50), (2000, 10, 140), (256, 1, 100)] {
            let (second, exact) = (scattered_fp(m as f64, k, n as f64), exact(m, k, n));
            assert!((second / exact - 1.0).abs() < 2e-3, "m = {m}, k = {k}, n = {n}: {second} and {exact}");
        }
    }

    #[test]
    fn a_block_of_its_own_is_a_standard_filter_of_512_bits() {
        for (k, n) in [(4, 60), (8, 40)] {
            assert!((blocked_fp(1, k, n) / exact(512, k, n as usize) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn known_sizes_come_out() {
        // 1 % costs 9.593 bits per name with k = 7; 9.585 if k could be the ideal 6.64.
        let shape = Shape::<Standard>::for_names(1_000_000, 0.01).unwrap();
        assert_eq!((shape.n_hashes(), shape.bits() / 1000), (7, 9592));
        assert_eq!(optimal_hashes(10_000, 1000), 7);
        assert_eq!(optimal_hashes(1, 1_000_000), 1);
        // (1 - e^(-kn/m))^k at m/n = 8, k = 6 is 0.0216; blocks of 512 bits have 1.094 times that.
        let standard = Shape::<Standard>::new(8_000_000, 6).unwrap().expected_fp(1_000_000);
        let blocked = Shape::<Blocked>::new(8_000_000, 6).unwrap().expected_fp(1_000_000);
        assert!((standard - 0.0216).abs() < 1e-4, "{standard}");
        assert!((blocked / standard - 1.0944).abs() < 1e-3, "{blocked} and {standard}");
    }

    fn no_number_of_positions_does_better<L: Layout>() {
        for fp in [0.5, 0.02, 1e-3, 1e-6] {
            let shape = Shape::<L>::for_names(100_000, fp).unwrap();
            let (bits, n_hashes) = (1..=MAX_HASHES).map(|k| (L::bits_for(100_000, fp, k), k)).min().unwrap();
            println!("{} at {fp}: {} bits with {n_hashes}", L::NAME, bits as f64 / 1e5);
            assert_eq!(shape, Shape::new(bits, n_hashes).unwrap(), "{} at {fp}", L::NAME);
        }
    }

    #[test]
    fn the_shape_for_a_rate_is_the_smallest_over_all_numbers_of_positions() {
        no_number_of_positions_does_better::<Standard>();
        no_number_of_positions_does_better::<Partitioned>();
        no_number_of_positions_does_better::<Blocked>();
        no_number_of_positions_does_better::<OneHashing>();
    }

    fn sized_to_the_bit<L: Layout>(step: u64) {
        for n_names in [1, 10, 1000, 123_456, 50_000_000] {
            for fp in [0.3, 0.02, 1e-4, 1e-7] {
                let shape = Shape::<L>::for_names(n_names, fp).unwrap();
                let context = format!("{} for {n_names} at {fp}: {shape:?}", L::NAME);
                assert!(shape.expected_fp(n_names) <= fp * 1.000_001, "{context}");
                if shape.bits() > step {
                    let smaller = Shape::<L>::new(shape.bits() - step, shape.n_hashes()).unwrap();
                    assert!(smaller.expected_fp(n_names) > fp * 0.999_999, "{context}");
                }
            }
        }
    }

    #[test]
    fn a_shape_has_the_rate_asked_for_and_no_bit_too_many() {
        sized_to_the_bit::<Standard>(1);
        sized_to_the_bit::<Partitioned>(2 * u64::from(MAX_HASHES));
        sized_to_the_bit::<Blocked>(BLOCK_BITS);
        // Twice the span of the primes of 32 partitions of 10^8 bits.
        sized_to_the_bit::<OneHashing>(2 * 700);
    }

    #[test]
    fn shapes_out_of_range_are_refused() {
        assert_eq!(Shape::<Standard>::new(0, 1), Err(ShapeError::Bits { bits: 0, max: MAX_BITS }));
        assert_eq!(
            Shape::<Standard>::new(MAX_BITS + 1, 1).unwrap_err(),
            ShapeError::Bits { bits: MAX_BITS + 1, max: MAX_BITS }
        );
        assert_eq!(Shape::<Blocked>::new(1, 0), Err(ShapeError::Hashes { n_hashes: 0 }));
        assert_eq!(Shape::<Blocked>::new(1, 33), Err(ShapeError::Hashes { n_hashes: 33 }));
        for fp in [0.0, 1.0, -1.0] {
            assert_eq!(Shape::<Partitioned>::for_names(10, fp), Err(ShapeError::Rate { fp }));
        }
        assert!(Shape::<Standard>::for_names(u64::MAX / 2, 0.01).is_err());
        assert!(Shape::<Blocked>::for_names(u64::MAX / 2, 0.01).is_err());
        assert!(Shape::<Partitioned>::for_names(u64::MAX / 2, 0.01).is_err());
        assert!(Shape::<OneHashing>::for_names(u64::MAX / 2, 0.01).is_err());
    }
}
