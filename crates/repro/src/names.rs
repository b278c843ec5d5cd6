//! Sets of names to measure with, and the order in which they are looked up.
//!
//! A name has at most 8 bytes, stored as a little-endian integer padded with zeros, so that a set of 64M names is
//! one flat array and every contestant reads the same memory in the same order. All names of a set are distinct.
//! Everything is determined by a seed.
//!
//! Sources: the linear feedback shift register is the name generator of Yu, Belazzougui, Qian, Zhang, "A Concise
//! Forwarding Information Base for Scalable and Fast Name Lookups", section VI.B.3. Differs: the names are written
//! to an array before the clock starts, in an order shuffled afterwards.

use std::fmt;
use std::str::FromStr;

pub use sim::random::Random;
pub(crate) use sim::random::{Zipf, mix64};

/// How the names of a set are generated, and how often each is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSet {
    /// MAC addresses as in a large network: vendor prefixes with 16,384 addresses each, half of them in sequence (one
    /// batch of hosts), half scattered. Each is looked up equally often.
    Mac,
    /// MAC addresses in one sequence, as a virtualisation platform assigns them. Each is looked up equally often.
    Sequential,
    /// Successive states of a 64-bit linear feedback shift register, the papers' generator: 8 bytes, every name a
    /// linear function of the previous one. Each is looked up equally often.
    Lfsr,
    /// Random 8-byte names. Each is looked up equally often.
    Uniform,
    /// The names of [`NameSet::Mac`], looked up in proportion to 1/rank: a few of them make up most of the traffic.
    Zipf,
}

impl NameSet {
    /// All sets, in the order in which help texts list them.
    pub const ALL: [Self; 5] = [Self::Mac, Self::Sequential, Self::Lfsr, Self::Uniform, Self::Zipf];

    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mac => "mac",
            Self::Sequential => "seq",
            Self::Lfsr => "lfsr",
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        }
    }

    /// Length of a name in bytes.
    pub fn name_len(self) -> usize {
        match self {
            Self::Mac | Self::Sequential | Self::Zipf => 6,
            Self::Lfsr | Self::Uniform => 8,
        }
    }

    /// The first `n` names of the set. A longer set begins with the shorter one.
    /// # Panics
    /// When `n` exceeds 2^31, more than the prefixes of [`NameSet::Mac`] hold.
    pub fn generate(self, n: usize, seed: u64) -> Vec<u64> {
        assert!(n <= 1 << 31, "a set has at most 2^31 names");
        match self {
            Self::Mac | Self::Zipf => (0..n as u64).map(|i| vendor_mac(i, seed)).collect(),
            Self::Sequential => {
                let base = 0x0200_0000_0000 | (mix64(seed) & 0xff_0000_0000);
                (0..n as u64).map(|i| mac_name(base + i)).collect()
            }
            Self::Lfsr => {
                let mut state = mix64(seed) | 1;
                let mut next = || {
                    // Galois form of x^64 + x^63 + x^61 + x^60 + 1, with full period.
                    state = (state >> 1) ^ ((state & 1).wrapping_neg() & 0xd800_0000_0000_0000);
                    state
                };
                (0..n).map(|_| next()).collect()
            }
            Self::Uniform => (0..n as u64).map(|i| mix64(seed.wrapping_add(i))).collect(),
        }
    }

    /// The order in which `n_queries` lookups query `names`: shuffled passes over the set, or random draws if the
    /// popularity is not uniform.
    pub fn queries(self, names: &[u64], n_queries: usize, seed: u64) -> Vec<u64> {
        let mut random = Random::new(seed ^ 0x5175_6572_6965_7321);
        if names.is_empty() {
            return Vec::new();
        }
        if self == Self::Zipf {
            // Names of one rank are anywhere in the set, so popular ones do not share a vendor prefix.
            let zipf = Zipf::new(names.len() as u64);
            let n = names.len() as u64;
            let stride = (mix64(seed) % n..).find(|&s| gcd(s.max(1), n) == 1).unwrap_or(1).max(1);
            return (0..n_queries)
                .map(|_| {
                    let rank = zipf.draw(&mut random) - 1;
                    names[(u128::from(rank) * u128::from(stride) % u128::from(n)) as usize]
                })
                .collect();
        }
        let mut order = Vec::with_capacity(n_queries);
        let mut pass = names.to_vec();
        while order.len() < n_queries {
            let wanted = pass.len().min(n_queries - order.len());
            random.shuffle_front(&mut pass, wanted);
            order.extend_from_slice(&pass[..wanted]);
        }
        order
    }
}

impl fmt::Display for NameSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for NameSet {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|set| set.as_str() == s).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|set| set.as_str()).collect();
            format!("no such set of names: `{s}`; there are {}", known.join(", "))
        })
    }
}

/// The value of a name in every bench: any value of `value_bits` bits except 0, which means drop.
pub fn value_of(name: u64, value_bits: u8) -> u64 {
    let hash = mix64(name ^ 0x7661_6c75_6573_2121);
    match value_bits {
        64 => hash | 1,
        l => 1 + hash % ((1u64 << l) - 1),
    }
}

/// Addresses per vendor prefix.
const PER_VENDOR: u64 = 1 << 14;

fn vendor_mac(i: u64, seed: u64) -> u64 {
    let (vendor, host) = (i / PER_VENDOR, i % PER_VENDOR);
    // 22 bits number the prefix, randomised by a bijection; the two lowest bits of the first byte (group, locally
    // administered) stay 0.
    let number = mix_bits(vendor ^ (mix64(seed) & 0x3f_ffff), 22);
    let oui = ((number >> 16) << 18) | (number & 0xffff);
    let tail = if vendor % 2 == 0 {
        ((mix64(seed ^ vendor) & 0xff_ffff) + host) & 0xff_ffff
    } else {
        mix_bits(host ^ (mix64(seed ^ vendor) & 0xff_ffff), 24)
    };
    mac_name((oui << 24) | tail)
}

/// Converts a MAC address from a number, first byte highest, to the little-endian integer of its six bytes.
fn mac_name(mac: u64) -> u64 {
    mac.swap_bytes() >> 16
}

/// A bijection on integers of `bits` bits.
fn mix_bits(x: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let mut x = x & mask;
    for multiplier in [0x9e37_79b1, 0x85eb_ca6b] {
        x ^= x >> (bits / 2);
        x = x.wrapping_mul(multiplier) & mask;
    }
    x ^ (x >> (bits / 2))
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_of_every_set_are_distinct_and_fit_their_length() {
        for set in NameSet::ALL {
            let names = set.generate(200_000, 7);
            let distinct: HashSet<u64> = names.iter().copied().collect();
            assert_eq!(distinct.len(), names.len(), "{set}");
            let bits = 8 * set.name_len() as u32;
            assert!(names.iter().all(|&name| bits == 64 || name >> bits == 0), "{set}");
        }
    }

    #[test]
    fn a_longer_set_begins_with_the_shorter_one() {
        for set in NameSet::ALL {
            assert_eq!(set.generate(50_000, 3)[..20_000], set.generate(20_000, 3), "{set}");
        }
    }

    #[test]
    fn generated_macs_are_unicast_addresses_of_vendors() {
        for name in NameSet::Mac.generate(100_000, 1) {
            assert_eq!(name & 0b11, 0, "{name:012x}: the first byte holds the group and the local bit");
        }
    }

    #[test]
    fn one_pass_of_queries_asks_for_every_name_once() {
        for set in [NameSet::Mac, NameSet::Sequential, NameSet::Lfsr, NameSet::Uniform] {
            let names = set.generate(10_000, 5);
            let mut asked = set.queries(&names, names.len(), 5);
            assert_ne!(asked, names, "{set}: shuffled");
            let mut sorted = names;
            asked.sort_unstable();
            sorted.sort_unstable();
            assert_eq!(asked, sorted, "{set}");
        }
    }

    #[test]
    fn zipf_queries_follow_one_over_rank() {
        let names = NameSet::Zipf.generate(1_000, 5);
        let n_queries = 1_000_000;
        let mut counts = std::collections::HashMap::<u64, u64>::new();
        for name in NameSet::Zipf.queries(&names, n_queries, 5) {
            *counts.entry(name).or_default() += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=names.len()).map(|k| 1.0 / k as f64).sum();
        for rank in [1, 2, 10, 100] {
            let expected = n_queries as f64 / harmonic / rank as f64;
            let got = counts[rank - 1] as f64;
            assert!((got / expected - 1.0).abs() < 0.1, "rank {rank}: {got} of {expected:.0}");
        }
    }

    #[test]
    fn values_are_never_drop_and_fit_their_width() {
        for l in [1u8, 2, 7, 8, 33, 63, 64] {
            for name in 0..10_000 {
                let value = value_of(name, l);
                assert!(value != 0 && (l == 64 || value >> l == 0), "l = {l}");
            }
        }
    }
}
