//! Prefixes that make trouble, and what is right of them: for the tests of longest prefix match.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use fibula_lookup::lpm::prefix::{Address, Prefix};
use fibula_lookup::testkit::Rng;

/// Prefixes by what they are, asked for from the longest length to the shortest.
#[derive(Default)]
pub(crate) struct Oracle<A>(pub(crate) HashMap<Prefix<A>, u64>);

impl<A: Address> Oracle<A> {
    pub(crate) fn lookup(&self, address: A) -> u64 {
        let lengths = (0..=A::BITS as u8).rev();
        lengths.filter_map(|len| self.0.get(&Prefix::of(address, len))).copied().next().unwrap_or(0)
    }
}

pub(crate) fn wide<A: Address>(rng: &mut Rng) -> A {
    A::narrowed(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

/// An address near others: few values of its first bits, and of the bits about `len`.
pub(crate) fn crowded<A: Address>(rng: &mut Rng, len: u32) -> A {
    let mut address = A::from_first(rng.below(3) as u32, 8.min(len));
    for _ in 0..rng.below(4) {
        let at = rng.below(u64::from(A::BITS)) as u32;
        address = A::narrowed(address.widened() | 1 << at);
    }
    if rng.below(4) == 0 { wide(rng) } else { address }
}

pub(crate) fn some_prefix<A: Address>(rng: &mut Rng) -> Prefix<A> {
    let len = match rng.below(4) {
        0 => 4 + rng.below(u64::from(A::BITS) - 3) as u32,
        1 => [0, 1, 8, 17, 18, 19, 23, 24, 25, 26, 30, 31, 32, 32, 32][rng.below(15) as usize],
        2 => A::BITS - rng.below(3) as u32,
        _ => 16 + rng.below(16) as u32,
    };
    Prefix::of(crowded(rng, len), len as u8)
}

/// Addresses at which answers may change: ends of prefixes, and their neighbours; and random ones.
pub(crate) fn probes<A: Address>(oracle: &Oracle<A>, rng: &mut Rng, n_random: usize) -> Vec<A> {
    let ends = oracle.0.keys().flat_map(|prefix| {
        let (first, last) = (prefix.address().widened(), prefix.last().widened());
        [first, last, first.wrapping_sub(1), last.wrapping_add(1)].map(A::narrowed)
    });
    let mut probes: Vec<A> = ends.collect();
    probes.extend((0..n_random).map(|at| if at % 2 == 0 { wide::<A>(rng) } else { crowded(rng, 8) }));
    probes
}

pub(crate) fn deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

/// Ends the other thread's loop, whether the test passes or panics.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
