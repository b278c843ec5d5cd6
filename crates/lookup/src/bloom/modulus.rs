//! Remainders by a fixed divisor without a division, and the primes to divide by.

/// A divisor whose remainders cost two multiplications instead of a division.
///
/// With `magic = floor(2^64 / d)`, `floor(x * magic / 2^64)` is the quotient of x or one less, because the error
/// `x (2^64 / d - magic) / 2^64` is below 1. So one conditional subtraction makes the remainder exact, for every x.
/// Source: Barrett's reduction. Lemire's fastmod ("Faster remainder by direct computation") needs no subtraction where
/// x has half the bits of a word. For the 64-bit words here it would need a 128-bit magic, which costs more than the
/// subtraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulus {
    pub(super) divisor: u64,
    pub(super) magic: u64,
}

impl Modulus {
    /// # Panics
    /// When `divisor` is less than 2.
    pub fn new(divisor: u64) -> Self {
        assert!(divisor >= 2, "remainders by {divisor} are not computed");
        Self { divisor, magic: ((1 << 64) / u128::from(divisor)) as u64 }
    }

    /// The divisor.
    #[inline(always)]
    pub fn divisor(self) -> u64 {
        self.divisor
    }

    /// `word % divisor`.
    #[inline(always)]
    pub fn remainder(self, word: u64) -> u64 {
        let quotient = ((u128::from(word) * u128::from(self.magic)) >> 64) as u64;
        below(word.wrapping_sub(quotient.wrapping_mul(self.divisor)), self.divisor)
    }
}

/// `word % bound` for a word below `2 * bound`. If the subtraction wraps, its result is the larger of the two.
#[inline(always)]
pub(super) fn below(word: u64, bound: u64) -> u64 {
    word.min(word.wrapping_sub(bound))
}

/// Primes used first as trial divisors, then as witnesses: together they decide for every 64-bit number (Sorenson and
/// Webster, "Strong pseudoprimes to twelve prime bases").
const WITNESSES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];

/// Whether `n` is prime: trial division by the smallest primes, then the Miller-Rabin test with witnesses that make it
/// exact. About 10 µs for a prime.
pub fn is_prime(n: u64) -> bool {
    if let Some(&divisor) = WITNESSES.iter().find(|&&prime| n.is_multiple_of(prime)) {
        return n == divisor;
    }
    if n < 41 * 41 {
        return n > 1;
    }
    let times = |a: u64, b: u64| (u128::from(a) * u128::from(b) % u128::from(n)) as u64;
    let shift = (n - 1).trailing_zeros();
    let odd = (n - 1) >> shift;
    WITNESSES.iter().all(|&witness| {
        let (mut power, mut base, mut exponent) = (1, witness, odd);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = times(power, base);
            }
            base = times(base, base);
            exponent >>= 1;
        }
        let squares = std::iter::successors(Some(power), |&root| Some(times(root, root)));
        power == 1 || squares.take(shift as usize).any(|square| square == n - 1)
    })
}

/// The smallest prime above `n`.
pub fn prime_above(n: u64) -> u64 {
    (n + 1..).find(|&n| is_prime(n)).expect("there is always a greater prime")
}

/// The largest prime below `n`, if there is one.
pub fn prime_below(n: u64) -> Option<u64> {
    (2..n).rev().find(|&n| is_prime(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn remainders_are_exact_at_every_boundary_and_at_random() {
        let mut rng = Rng::new(seed());
        let random: Vec<u64> = (0..200).map(|_| rng.next_u64() >> rng.below(62)).collect();
        let divisors = (2..2000).chain((1..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]));
        for divisor in divisors.chain([u64::MAX - 1, u64::MAX]).chain(random).filter(|&divisor| divisor >= 2) {
            let modulus = Modulus::new(divisor);
            // Around the multiples of the divisor at both ends of the words, where a quotient may be one too small.
            let last = u64::MAX / divisor * divisor;
            let multiples = [0, divisor, divisor.wrapping_mul(2), last, last - divisor];
            let words = multiples.into_iter().flat_map(|at| [at.wrapping_sub(1), at, at.wrapping_add(1)]);
            for word in words.chain((0..200).map(|_| rng.next_u64())).chain([u64::MAX, 1 << 63]) {
                assert_eq!(modulus.remainder(word), word % divisor, "{word} by {divisor}");
            }
        }
    }

    #[test]
    fn primes_are_those_of_the_sieve_and_known_pseudoprimes_are_none() {
        let mut composite = vec![false; 200_000];
        for n in 2..composite.len() {
            assert_eq!(is_prime(n as u64), !composite[n], "{n}");
            if !composite[n] {
                (n * n..composite.len()).step_by(n).for_each(|multiple| composite[multiple] = true);
            }
        }
        assert!(!is_prime(0) && !is_prime(1));
        // Strong pseudoprimes to the first 4, 8 and 9 prime bases, and a Carmichael number.
        for n in [3_215_031_751, 341_550_071_728_321, 3_825_123_056_546_413_051, 561] {
            assert!(!is_prime(n), "{n}");
        }
        assert!(is_prime((1 << 61) - 1) && is_prime(u64::MAX - 58));
    }

    #[test]
    fn neighbouring_primes_are_found() {
        assert_eq!((prime_above(0), prime_above(2), prime_above(7), prime_above(1 << 40)), (2, 3, 11, (1 << 40) + 15));
        assert_eq!((prime_below(2), prime_below(3), prime_below(8)), (None, Some(2), Some(7)));
    }
}
