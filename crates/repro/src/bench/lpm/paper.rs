//! The filters of the paper's experiments: seeded hash functions of address and length.
//!
//! Source: Lu et al., "Low Computational Cost Bloom Filters", sections V.C and VI.B: "all the hash functions are
//! BOB-based hash function with different seeds", each modulo m, and a query ends at the first zero bit.

use lookup::bloom::double_hashing::extended_double_hashing;
use lookup::lpm::bloom::Membership;
use lookup::lpm::prefix::Prefix;

/// Bob Jenkins' `hashlittle` of lookup3.c, for the five bytes of an address and a length.
#[inline(always)]
pub(super) fn bob(address: u32, len: u8, seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(5).wrapping_add(seed);
    let (mut a, mut b, mut c) = (start.wrapping_add(address), start.wrapping_add(len.into()), start);
    let step = |x: &mut u32, y: u32, rotate: u32| *x = (*x ^ y).wrapping_sub(y.rotate_left(rotate));
    step(&mut c, b, 14);
    step(&mut a, c, 11);
    step(&mut b, a, 25);
    step(&mut c, b, 16);
    step(&mut a, c, 4);
    step(&mut b, a, 14);
    step(&mut c, b, 24);
    c
}

fn seed_of(number: u32) -> u32 {
    number.wrapping_mul(0x9E37_79B9)
}

/// k hash functions: the paper's SBF.
#[derive(Clone)]
pub(super) struct Sbf {
    pub(super) n_bits: u64,
    pub(super) n_hashes: u32,
}

impl Membership<u32> for Sbf {
    fn n_bits(&self) -> u64 {
        self.n_bits
    }

    fn n_hashes(&self) -> u32 {
        self.n_hashes
    }

    #[inline(always)]
    fn bits_of(&self, prefix: Prefix<u32>) -> impl Iterator<Item = u64> {
        let n_bits = self.n_bits;
        (0..self.n_hashes).map(move |number| below(bob(prefix.address(), prefix.len(), seed_of(number)), n_bits))
    }
}

/// Two hash functions, and k positions from them: the paper's LHBF.
#[derive(Clone)]
pub(super) struct Lhbf {
    pub(super) n_bits: u64,
    pub(super) n_hashes: u32,
}

impl Membership<u32> for Lhbf {
    fn n_bits(&self) -> u64 {
        self.n_bits
    }

    fn n_hashes(&self) -> u32 {
        self.n_hashes
    }

    #[inline(always)]
    fn bits_of(&self, prefix: Prefix<u32>) -> impl Iterator<Item = u64> {
        let hash = |number| below(bob(prefix.address(), prefix.len(), seed_of(number)), self.n_bits);
        extended_double_hashing(hash(0), hash(1), self.n_bits, self.n_hashes)
    }
}

#[inline(always)]
fn below(hash: u32, n_bits: u64) -> u64 {
    u64::from(hash) % n_bits
}
