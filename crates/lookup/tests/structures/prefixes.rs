//! Difficult prefixes and their oracle, for the tests of longest prefix match.

use std::sync::atomic::{AtomicBool, Ordering};

use fibula_lookup::lpm::prefix::{Address, Prefix};
use fibula_lookup::testkit::Rng;
use fibula_lookup::testkit::oracle::{Live, Oracle, Subject, UpdateOf};
use fibula_lookup::traits::{Control, Query};

/// Encodes and decodes an update.
type Carry<C> = Box<dyn Fn(&<C as Control>::Query, &UpdateOf<C>) -> Option<UpdateOf<C>>>;

/// The oracle of a table of prefixes: an address has the value of the longest prefix that covers it, found by trying
/// each length.
pub(crate) struct LongestPrefix<C: Subject> {
    /// What two tables of the same prefixes have in common.
    pub(crate) state: fn(&C::Query) -> Vec<u8>,
    /// An update after encoding and decoding.
    pub(crate) carried: Carry<C>,
}

impl<A, C> Oracle<C> for LongestPrefix<C>
where
    A: Address,
    C: Subject + Control<Key = Prefix<A>, Query: Query<Key = A>>,
{
    /// Addresses whose answers may change: the ends of a prefix and their neighbours, and random ones.
    fn probes(&self, prefix: Prefix<A>, rng: &mut Rng) -> Vec<A> {
        let (first, last) = (prefix.address().widened(), prefix.last().widened());
        let ends = [first, last, first.wrapping_sub(1), last.wrapping_add(1)].map(A::narrowed);
        ends.into_iter().chain([wide(rng), crowded(rng, 8)]).collect()
    }

    fn expected(&self, _control: &C, live: &Live<C>, address: A) -> Option<u64> {
        let lengths = (0..=A::BITS as u8).rev();
        Some(lengths.filter_map(|len| live.get(&Prefix::of(address, len))).copied().next().unwrap_or(0))
    }

    fn state(&self, query: &C::Query) -> Vec<u8> {
        (self.state)(query)
    }

    fn carried(&self, query: &C::Query, update: &UpdateOf<C>) -> Option<UpdateOf<C>> {
        (self.carried)(query, update)
    }
}

pub(crate) fn wide<A: Address>(rng: &mut Rng) -> A {
    A::narrowed(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

/// An address near others: there are few values of its first bits, and of the bits around `len`.
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

/// Prefixes by number: the first of them are nested, the others are anywhere.
pub(crate) fn numbered<A: Address>(number: u64, seed: u64) -> Prefix<A> {
    match [20, 8, A::BITS as u8, 0, 17, 26].get(number as usize) {
        Some(&len) => Prefix::of(A::from_first(0x0a01_02ff, 32), len),
        None => some_prefix(&mut Rng::new(number ^ seed)),
    }
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
