//! One-hashing: one hash word per name, and its remainders modulo k primes.
//!
//! The filter is cut into k partitions whose sizes m_i are consecutive primes. The bit of a name in partition i is its
//! word modulo m_i. As the m_i are pairwise relatively prime, any two remainders of a uniform word are independent.
//!
//! Cost: k remainders of two multiplications each; memory is the sum of the m_i, as near as possible to the wanted.
//! Alien names: positive with probability `prod (1 - (1 - 1/m_i)^n)`, equation (7).
//! Source: Lu et al., "Low Computational Cost Bloom Filters", IEEE/ACM Transactions on Networking, 2018, section III.
//! Differs: remainders are computed by multiplication ([`Modulus`]). The primes nearest to m/k are searched for instead
//! of read from a table. Algorithm 1 takes absolute differences throughout, and also considers the window before the
//! one at which it stops, as the paper's own Table III does.
//! Limits: the theorem gives *pairwise* independence, and requires a word with more values than the product of all m_i.
//! For k = 10 partitions of 65,000 that product is 2^160, far more. Formula (7) needs all k remainders to be
//! independent. With words from a keyed hash it holds within the accuracy of a thousand filters; with clustered
//! addresses as their own words it is off by a factor of fifty. And anyone who knows the sizes and chooses words can list
//! k aliens `y + m_i` that make another word y positive. So words are digests mixed with a secret seed;
//! [`AddressHashing`] lacks this protection.

use super::layout::{Layout, Rule, ones};
use super::modulus::{Modulus, prime_above, prime_below};
use super::sizing::{self, MAX_BITS, Shape};
use super::theory;

/// One partition per position; sizes are consecutive primes; the bit of a name is its word modulo the size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OneHashing<const MIXED: bool = true>;

/// One-hashing with the digest itself, unmixed and unseeded, as the word: the paper's option of an IP address as its
/// own hash value (section VI.C). Not for addresses that others choose, nor for clustered ones.
pub type AddressHashing = OneHashing<false>;

/// A partition: the modulus of its remainders, and its first bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    pub(super) modulus: Modulus,
    pub(super) first: u64,
}

impl Partition {
    /// Size of the partition in bits: m_i.
    pub fn size(&self) -> u64 {
        self.modulus.divisor()
    }
}

/// The k consecutive primes whose sum is nearest to `m_p`, with the smaller sum on a tie: Algorithm 1. The k smallest
/// primes if no sum is that small.
/// # Panics
/// When `k` is 0.
pub fn partition_sizes(m_p: u64, k: u32) -> Vec<u64> {
    assert!(k > 0, "a filter has at least one partition");
    let mut window = window_near(m_p, k);
    while let Some(lower) = lower(&window)
        && sum(&lower).abs_diff(m_p) <= sum(&window).abs_diff(m_p)
    {
        window = lower;
    }
    loop {
        let higher = higher(&window);
        if sum(&higher).abs_diff(m_p) >= sum(&window).abs_diff(m_p) {
            return window;
        }
        window = higher;
    }
}

fn sum(window: &[u64]) -> u64 {
    window.iter().sum()
}

/// k consecutive primes that end with the one nearest to `m_p / k`, or start with 2.
fn window_near(m_p: u64, k: u32) -> Vec<u64> {
    let mean = m_p / u64::from(k);
    let above = prime_above(mean.saturating_sub(1));
    let nearest = prime_below(mean).filter(|below| mean - below <= above - mean).unwrap_or(above);
    let mut window = vec![nearest];
    while window.len() < k as usize {
        match prime_below(window[0]) {
            Some(prime) => window.insert(0, prime),
            None => window.push(prime_above(window[window.len() - 1])),
        }
    }
    window
}

fn lower(window: &[u64]) -> Option<Vec<u64>> {
    let prime = prime_below(window[0])?;
    Some([&[prime], &window[..window.len() - 1]].concat())
}

fn higher(window: &[u64]) -> Vec<u64> {
    [&window[1..], &[prime_above(window[window.len() - 1])]].concat()
}

impl<const MIXED: bool> Layout for OneHashing<MIXED> {
    type Plan = Box<[Partition]>;

    const NAME: &'static str = if MIXED { "one-hashing" } else { "address-hashing" };
    const ONE_LINE: bool = false;
    const MIXED: bool = MIXED;

    fn round_bits(bits: u64, n_hashes: u32) -> u64 {
        sum(&partition_sizes(bits, n_hashes))
    }

    fn range(bits: u64, n_hashes: u32) -> u64 {
        bits / u64::from(n_hashes)
    }

    fn plan(bits: u64, n_hashes: u32) -> Box<[Partition]> {
        let mut first = 0;
        let partition = |size| {
            let partition = Partition { modulus: Modulus::new(size), first };
            first += size;
            partition
        };
        partition_sizes(bits, n_hashes).into_iter().map(partition).collect()
    }

    #[inline(always)]
    fn rule(_shape: Shape<Self>, plan: &Self::Plan) -> Rule<'_> {
        Rule::Remainders(plan)
    }

    #[inline(always)]
    fn positions(_shape: Shape<Self>, plan: &Self::Plan, start: u64) -> impl Iterator<Item = u64> {
        plan.iter().map(move |partition| partition.first + partition.modulus.remainder(start))
    }

    fn expected_fp(bits: u64, n_hashes: u32, n_names: u64) -> f64 {
        theory::f_o(&partition_sizes(bits, n_hashes), n_names)
    }

    fn bits_for(n_names: u64, fp: f64, n_hashes: u32) -> u64 {
        let guess = sizing::partitioned_bits(n_names as f64, fp, n_hashes);
        if guess > MAX_BITS {
            return guess;
        }
        let mut window = window_near(guess, n_hashes);
        while theory::f_o(&window, n_names) > fp {
            window = higher(&window);
        }
        while let Some(lower) = lower(&window)
            && theory::f_o(&lower, n_names) <= fp
        {
            window = lower;
        }
        sum(&window)
    }

    fn rate_of(words: &[u64], bits: u64, n_hashes: u32) -> f64 {
        let fill = |partition: &Partition| {
            let end = partition.first + partition.size();
            ones(words, partition.first, end) as f64 / partition.size() as f64
        };
        Self::plan(bits, n_hashes).iter().map(fill).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table III of the paper: planned size, size, and the sizes of k = 10 partitions.
    const TABLE_III: [(u64, u64, [u64; 10]); 8] = [
        (10_000, 10_012, [971, 977, 983, 991, 997, 1009, 1013, 1019, 1021, 1031]),
        (20_000, 19_986, [1973, 1979, 1987, 1993, 1997, 1999, 2003, 2011, 2017, 2027]),
        (40_000, 39_994, [3947, 3967, 3989, 4001, 4003, 4007, 4013, 4019, 4021, 4027]),
        (80_000, 80_044, [7949, 7951, 7963, 7993, 8009, 8011, 8017, 8039, 8053, 8059]),
        (160_000, 159_990, [15937, 15959, 15971, 15973, 15991, 16001, 16007, 16033, 16057, 16061]),
        (320_000, 319_984, [31957, 31963, 31973, 31981, 31991, 32003, 32009, 32027, 32029, 32051]),
        (640_000, 640_024, [63929, 63949, 63977, 63997, 64007, 64013, 64019, 64033, 64037, 64063]),
        (1_280_000, 1_280_084, [127931, 127951, 127973, 127979, 127997, 128021, 128033, 128047, 128053, 128099]),
    ];

    #[test]
    fn partitions_are_those_of_table_iii() {
        for (m_p, m_f, sizes) in TABLE_III {
            assert_eq!(partition_sizes(m_p, 10), sizes, "m_p = {m_p}");
            assert_eq!(Shape::<OneHashing>::new(m_p, 10).unwrap().bits(), m_f);
        }
    }

    #[test]
    fn a_size_that_partitions_have_leads_back_to_them() {
        for k in 1..=super::super::MAX_HASHES {
            for m_p in (1..2000).step_by(97).chain([10_000, 123_457, 1 << 24, 1 << 40]) {
                let sizes = partition_sizes(m_p, k);
                assert!(sizes.windows(2).all(|pair| prime_above(pair[0]) == pair[1]), "{sizes:?}");
                assert_eq!(partition_sizes(sum(&sizes), k), sizes, "m_p = {m_p}, k = {k}");
            }
        }
    }

    #[test]
    fn no_other_consecutive_primes_are_nearer() {
        let primes: Vec<u64> = (2..6000).filter(|&n| crate::bloom::modulus::is_prime(n)).collect();
        for k in [2, 3, 5, 10, 32] {
            let nearest = |m_p| primes.windows(k).map(|window| sum(window).abs_diff(m_p)).min().unwrap();
            for m_p in (1..10_000).step_by(7) {
                let sizes = partition_sizes(m_p, k as u32);
                assert_eq!(sum(&sizes).abs_diff(m_p), nearest(m_p), "m_p = {m_p}, k = {k}");
            }
        }
    }

    /// Section III.E: with k = 32 and up to ten million bits, the size differs by at most 315 from the planned one. The
    /// planned sizes with the largest difference are half way between the sums of two neighbouring windows.
    #[test]
    fn sizes_are_as_near_to_what_was_planned_as_the_paper_says() {
        const MOST: usize = 10_000_000;
        let mut composite = vec![false; MOST / 32 + 2000];
        let mut primes = Vec::new();
        for n in 2..composite.len() {
            if !composite[n] {
                primes.push(n as u64);
                (n * n..composite.len()).step_by(n).for_each(|multiple| composite[multiple] = true);
            }
        }
        let sums: Vec<u64> = primes.windows(32).map(sum).take_while(|&sum| sum < MOST as u64).collect();
        let (furthest, middle) =
            sums.windows(2).map(|pair| ((pair[1] - pair[0]) / 2, (pair[0] + pair[1]) / 2)).max().unwrap();
        println!("furthest from {middle}: {furthest}");
        assert!(furthest <= 315);
        assert_eq!(sum(&partition_sizes(middle, 32)).abs_diff(middle), furthest);
    }
}
