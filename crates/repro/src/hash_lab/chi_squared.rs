//! Chi-squared tests of hash functions by the number of ones in their values, equations (11) to (16).
//!
//! The bits of a random L-bit value are ones with probability 1/2 each, so their sum is i with probability `C(L, i) /
//! 2^L` (the paper's (11) and (14) print 2^i). The statistic compares the frequency of each sum with that; for two
//! functions, it takes the bits of the exclusive or of their values. Cells with an expectation below [`LEAST_EXPECTED`]
//! are pooled with their neighbours towards the middle, and degrees of freedom are counted after pooling: otherwise a
//! single value with three ones would reject any function.
//!
//! The tests detect values whose bits are biased or correlated as a set, and pairs whose difference is. They do not
//! detect anything that leaves the number of ones binomial, nor keys that collide.
//! Source: Lu et al., "Low Computational Cost Bloom Filters", section IV. Differs: the pooling.

use statrs::function::gamma::gamma_ur;

/// Minimum expectation of every cell.
pub const LEAST_EXPECTED: f64 = 5.0;

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// S_X of (12), or S_Z of (15).
    pub statistic: f64,
    /// Degrees of freedom: cells after pooling, less one.
    pub degrees: u32,
    /// Probability of such a statistic or a greater one under the hypothesis.
    pub p: f64,
}

impl Verdict {
    /// Whether the hypothesis is accepted at this level of significance: (13), (16).
    pub fn passes(&self, alpha: f64) -> bool {
        self.p > alpha
    }
}

/// Minimum number of values for a test: fewer make fewer than three cells.
pub const LEAST_VALUES: u64 = 100;

/// Frequency of each sum of bits: H_X of one function's values, or H_Z of the exclusive or of two functions' values.
#[derive(Clone, Debug)]
pub struct Sums {
    observed: Vec<u64>,
}

impl Sums {
    /// Empty counts for values of `bits` = L bits.
    /// # Panics
    /// When L is not from 8 to 64.
    pub fn new(bits: u32) -> Self {
        assert!((8..=64).contains(&bits), "values of {bits} bits");
        Self { observed: vec![0; bits as usize + 1] }
    }

    /// Counts one value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.observed[value.count_ones() as usize] += 1;
    }

    /// The randomness test, if these are H_X; the independence test, if they are H_Z.
    /// # Panics
    /// When there are fewer than [`LEAST_VALUES`].
    pub fn verdict(&self) -> Verdict {
        goodness_of_fit(&self.observed)
    }
}

/// Observed frequencies of the sums 0 to L against the binomial distribution.
fn goodness_of_fit(observed: &[u64]) -> Verdict {
    let n: u64 = observed.iter().sum();
    assert!(n >= LEAST_VALUES, "{n} values are too few for a test: it takes {LEAST_VALUES}");
    let l = observed.len() - 1;
    let mut expected = vec![n as f64 * (-(l as f64)).exp2(); l + 1];
    for i in 1..=l {
        expected[i] = expected[i - 1] * (l + 1 - i) as f64 / i as f64;
    }
    let cells: Vec<(f64, f64)> = observed.iter().map(|&count| count as f64).zip(expected).collect();
    let cells = pooled(&cells);
    let statistic = cells.iter().map(|(observed, expected)| (observed - expected).powi(2) / expected).sum();
    let degrees = cells.len() as u32 - 1;
    Verdict { statistic, degrees, p: survival(statistic, degrees) }
}

/// Joins cells from both ends until each has the required expectation.
fn pooled(cells: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let tail = |cells: &mut dyn Iterator<Item = &(f64, f64)>| {
        let (mut sum, mut n) = ((0.0, 0.0), 0);
        for (observed, expected) in cells {
            // Expectations grow towards the middle: after the first cell that is large enough, all are.
            if sum.1 >= LEAST_EXPECTED && *expected >= LEAST_EXPECTED {
                break;
            }
            (sum, n) = ((sum.0 + observed, sum.1 + expected), n + 1);
        }
        (sum, n)
    };
    let middle = cells.len() / 2;
    let (low, n_low) = tail(&mut cells[..middle].iter());
    let (high, n_high) = tail(&mut cells[middle..].iter().rev());
    [&[low], &cells[n_low..cells.len() - n_high], &[high]].concat()
}

/// Probability that a chi-squared variable is at least `statistic`.
fn survival(statistic: f64, degrees: u32) -> f64 {
    if statistic <= 0.0 { 1.0 } else { gamma_ur(f64::from(degrees) / 2.0, statistic / 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Random;

    #[test]
    fn the_papers_quantile_comes_out() {
        // Chi-squared of 0.05 and 32 degrees: 46.194; of 0.001 and 10: 29.588.
        assert!((survival(46.194, 32) - 0.05).abs() < 1e-5);
        assert!((survival(29.588, 10) - 0.001).abs() < 1e-6);
        assert_eq!(survival(0.0, 5), 1.0);
    }

    #[test]
    fn a_statistic_worked_out_by_hand_comes_out() {
        // L = 8, 256 values: expectations are the binomial coefficients; 1 and 8 at each end are joined to 9.
        let observed = [0, 10, 30, 50, 70, 60, 26, 9, 1];
        let verdict = goodness_of_fit(&observed);
        let by_hand = 1.0 / 9.0 + 4.0 / 28.0 + 36.0 / 56.0 + 0.0 + 16.0 / 56.0 + 4.0 / 28.0 + 1.0 / 9.0;
        assert!((verdict.statistic - by_hand).abs() < 1e-12, "{}", verdict.statistic);
        assert_eq!(verdict.degrees, 6);
    }

    #[test]
    fn random_values_are_rejected_as_often_as_the_level_says() {
        let mut random = Random::new(5);
        for bits in [8, 32, 64] {
            let n_rejected = (0..2000).filter(|_| {
                let mut sums = Sums::new(bits);
                (0..2000).for_each(|_| sums.add(random.next_u64() >> (64 - bits)));
                !sums.verdict().passes(0.05)
            });
            let n_rejected = n_rejected.count();
            println!("{bits} bits: {n_rejected} of 2000");
            // 100 are expected; 3 sigma is 29.
            assert!((71..=129).contains(&n_rejected), "{bits} bits: {n_rejected} of 2000 rejected at 5 %");
        }
    }

    #[test]
    fn every_cell_has_its_expectation() {
        for n in [100, 1000, 1_000_000] {
            for l in [8, 32, 64] {
                let cells: Vec<(f64, f64)> = (0..=l)
                    .map(|i| {
                        let ways: f64 = (0..i).map(|j| f64::from(l - j) / f64::from(j + 1)).product();
                        (0.0, f64::from(n) * ways * (-f64::from(l)).exp2())
                    })
                    .collect();
                let cells = pooled(&cells);
                assert!(cells.len() >= 3 && cells.iter().all(|cell| cell.1 >= LEAST_EXPECTED), "n = {n}, L = {l}");
                assert!((cells.iter().map(|cell| cell.1).sum::<f64>() / f64::from(n) - 1.0).abs() < 1e-9);
            }
        }
    }
}
