//! The trie of prefixes: conformance, limits, damaged messages, readers concurrent with the writer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::prefixes;

use fibula_lookup::hash::SecretKey;
use fibula_lookup::lpm::prefix::{Address, Prefix};
use fibula_lookup::lpm::trie::{Leaf, PrefixTrie, PrefixTrieQuery, Settings, Update};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::{Oracle, bytes_of, over_bytes};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, ApplyError, BatchReader, Control, InsertError, Query, Undivided};
use prefixes::{LongestPrefix, StopAtEnd, deep, numbered};

/// The oracle of a trie. Two tries of the same prefixes have the same bytes, and use the same memory, except for the
/// shared leaves of next hops that a wide one no longer has.
pub(crate) fn oracle<A: Address, L: Leaf>() -> LongestPrefix<PrefixTrie<A, L>> {
    let state = |query: &PrefixTrieQuery<A, L>| {
        let [top, chunks, leaves] = query.size_bytes();
        let sizes = if L::BYTES == 2 { [top, chunks, leaves] } else { [top, chunks, 0] };
        bytes_of(query).into_iter().chain(sizes.into_iter().flat_map(u64::to_le_bytes)).collect()
    };
    LongestPrefix { state, carried: Box::new(over_bytes) }
}

fn conforms<A: Address, L: Leaf>(n_operations: usize) {
    let seed = seed();
    // Few prefixes, which are often re-inserted; and so many that a batch is written as a whole.
    for (n_names, n_values) in [(200, 3), (2_000, u64::from(L::MAX_HOP) + 1)] {
        let mut trie = PrefixTrie::<A, L>::empty(Settings::new(1 << 18, &SecretKey::from_seed(seed)));
        let scope = Scope { n_operations, n_names, n_values, check_every: n_operations.div_ceil(6), seed };
        let live = conformance::random(&mut trie, oracle(), |number| numbered(number, seed), &scope);
        let (oracle, mut rng) = (oracle(), Rng::new(seed));
        for &prefix in live.keys().take(100) {
            for address in oracle.probes(prefix, &mut rng) {
                let longest = trie.longest(address).map_or(0, |(_, value)| value);
                assert_eq!(Some(longest), oracle.expected(&trie, &live, address), "seed {seed}, IPv{}", A::VERSION);
            }
        }
    }
}

#[test]
fn ipv4_tries_conform() {
    conforms::<u32, u16>(if deep() { 40_000 } else { 1_200 });
}

#[test]
fn ipv6_tries_conform() {
    conforms::<u128, u16>(if deep() { 40_000 } else { 1_200 });
}

#[test]
fn tries_of_many_next_hops_conform() {
    conforms::<u32, u32>(if deep() { 40_000 } else { 600 });
    conforms::<u128, u32>(if deep() { 40_000 } else { 600 });
}

fn trie<A: Address>() -> PrefixTrie<A> {
    PrefixTrie::new(Settings::new(1000, &SecretKey::from_seed(1)))
}

fn insert(trie: &mut PrefixTrie<u32>, prefix: &str, value: u64) -> Vec<Update<u32>> {
    let mut updates = Vec::new();
    trie.insert(prefix.parse().unwrap(), value, &mut updates).unwrap();
    updates
}

fn ask(query: &PrefixTrieQuery<u32>, address: &str) -> u64 {
    query.lookup(address.parse::<std::net::Ipv4Addr>().unwrap().into())
}

#[test]
fn absent_default_and_host_routes_are_right() {
    let mut table = trie();
    let mut query = table.export();
    assert_eq!(ask(&query, "1.2.3.4"), 0);
    let expect = |query: &PrefixTrieQuery<u32>, answers: [u64; 4]| {
        let got = ["0.0.0.0", "10.1.2.3", "10.1.2.4", "255.255.255.255"].map(|address| ask(query, address));
        assert_eq!(got, answers);
    };
    let apply = |updates: Vec<Update<u32>>, query: &mut PrefixTrieQuery<u32>| {
        updates.iter().for_each(|update| assert_eq!(query.apply(update), Ok(Applied::Applied)));
    };
    apply(insert(&mut table, "10.1.2.3/32", 5), &mut query);
    expect(&query, [0, 5, 0, 0]);
    apply(insert(&mut table, "0.0.0.0/0", 1), &mut query);
    expect(&query, [1, 5, 1, 1]);
    apply(insert(&mut table, "10.0.0.0/8", 0), &mut query);
    expect(&query, [1, 5, 0, 1]);
    apply(insert(&mut table, "255.255.255.255/32", 9), &mut query);
    apply(insert(&mut table, "10.1.2.0/31", 7), &mut query);
    expect(&query, [1, 5, 0, 9]);
    let mut updates = Vec::new();
    assert!(table.remove("0.0.0.0/0".parse().unwrap(), &mut updates));
    assert!(!table.remove("0.0.0.0/0".parse().unwrap(), &mut updates));
    apply(updates, &mut query);
    expect(&query, [0, 5, 0, 9]);
}

#[test]
fn a_prefix_under_another_with_its_next_hop_costs_no_message() {
    let mut table = trie();
    assert_eq!(insert(&mut table, "10.0.0.0/8", 3).len(), 1);
    assert!(insert(&mut table, "10.1.2.3/32", 3).is_empty());
    assert_eq!(table.len(), 2);
    assert_eq!(table.export().size_bytes()[1..], [0, 65_536]);
}

#[test]
fn limits_are_errors_that_change_nothing() {
    let mut table: PrefixTrie<u32> = PrefixTrie::new(Settings::new(2, &SecretKey::from_seed(1)));
    let mut updates = insert(&mut table, "10.0.0.0/8", 1);
    let wide = table.insert("11.0.0.0/8".parse().unwrap(), 1 << 15, &mut updates);
    assert_eq!(wide, Err(InsertError::ValueTooWide { value: 1 << 15, value_bits: 15 }));
    let mut many = PrefixTrie::<u32, u32>::wide(Settings::new(2, &SecretKey::from_seed(1)));
    assert_eq!(many.insert("11.0.0.0/8".parse().unwrap(), 1 << 24, &mut Vec::new()), Ok(()));
    let wide = many.insert("11.0.0.0/8".parse().unwrap(), (1 << 24) + 1, &mut Vec::new());
    assert_eq!(wide, Err(InsertError::ValueTooWide { value: (1 << 24) + 1, value_bits: 25 }));
    assert_eq!(many.export().lookup(11 << 24), 1 << 24);
    // A query half takes messages of its own width only.
    let mut bytes = Vec::new();
    many.whole().encode(&mut bytes);
    assert!(Update::<u32, u32>::decode(&bytes).is_ok() && Update::<u32>::decode(&bytes).is_err());
    insert(&mut table, "11.0.0.0/8", 2);
    updates.clear();
    let full = table.insert("12.0.0.0/8".parse().unwrap(), 1, &mut updates);
    assert_eq!((full, updates.len(), table.len()), (Err(InsertError::TooManyNames { max: 2 }), 0, 2));
    // A change of a prefix in the table does not count as a new one.
    assert_eq!(insert(&mut table, "11.0.0.0/8", 3).len(), 1);
}

#[test]
fn gaps_duplicates_and_damage_are_noticed_and_change_nothing() {
    let mut table = trie();
    let mut query = table.export();
    let first = insert(&mut table, "10.1.2.3/32", 5);
    let second = insert(&mut table, "10.1.2.0/24", 6);
    assert!(matches!(query.apply(&second[0]), Err(ApplyError::Gap { current: 0, from: 1, .. })));
    assert_eq!(query.apply(&first[0]), Ok(Applied::Applied));
    let before = query.image();
    let mut bytes = Vec::new();
    second[0].encode(&mut bytes);
    // Every byte except those of the versions: another digest, or no update at all.
    for at in (0..bytes.len()).filter(|at| !(1..17).contains(at)) {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(update) = Update::<u32>::decode(&damaged) {
                assert!(query.apply(&update).is_err(), "byte {at}, bit {bit}");
            }
            assert!(Update::<u32>::decode(&bytes[..at]).is_err(), "{at} bytes");
        }
    }
    assert_eq!(query.image(), before);
    assert_eq!(query.apply(&second[0]), Ok(Applied::Applied));
    assert_eq!((ask(&query, "10.1.2.3"), ask(&query, "10.1.2.4")), (5, 6));
}

/// One thread changes prefixes next to, above and below addresses whose answer stays, and flips others between two next
/// hops; another checks every answer. Inserts and removals of prefixes move runs, nodes and chunks all the while.
fn readers_beside_a_writer<A: Address>(n_answers: u64) {
    const N: u64 = 64;
    let seed = seed();
    let mut trie = PrefixTrie::<A>::new(Settings::new(1 << 16, &SecretKey::from_seed(seed)));
    // Host `n` keeps its answer where `n` is even; odd ones have one of two. All lie in two /24s.
    let host = |n: u64| A::narrowed(A::from_first(10, 8).widened() | u128::from(n * 5 + (n % 2) * 256 * 3));
    let (kept, one, other) = (|n: u64| 100 + n, 7, 9);
    let mut updates = Vec::new();
    for n in 0..N {
        let value = if n % 2 == 0 { kept(n) } else { one };
        trie.insert(Prefix::of(host(n), A::BITS as u8), value, &mut updates).unwrap();
    }
    let mut query = trie.export();
    let mut reader = query.reader();
    let (done, n_updates) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (done, n_updates) = (&done, &n_updates);
        let _stop = StopAtEnd(done);
        let writer = scope.spawn(move || {
            let mut rng = Rng::new(seed);
            while !done.load(Ordering::Relaxed) {
                updates.clear();
                let value = if rng.below(2) == 0 { one } else { other };
                let n = rng.below(N) | 1;
                let len = match rng.below(4) {
                    0 => A::BITS - 1 - rng.below(8) as u32,
                    1 => A::BITS - 8 - rng.below(u64::from(A::BITS) - 26) as u32,
                    _ => A::BITS,
                };
                // A neighbour of a host, or a prefix that covers some hosts; the hosts themselves only change.
                let near = A::narrowed(host(n).widened() ^ (2 * u128::from(rng.below(2))));
                let prefix = Prefix::of(near, len as u8);
                if len == A::BITS && near == host(n) || rng.below(2) == 0 {
                    trie.insert(prefix, value, &mut updates).unwrap();
                } else if (0..N).all(|n| prefix != Prefix::of(host(n), A::BITS as u8)) {
                    trie.remove(prefix, &mut updates);
                }
                for update in &updates {
                    query.apply(update).unwrap();
                }
                n_updates.fetch_add(updates.len() as u64, Ordering::Relaxed);
            }
        });
        let mut rng = Rng::new(seed ^ 1);
        let (mut numbers, mut addresses, mut values) = ([0; 32], [A::default(); 32], [0; 32]);
        let mut n_answered = 0;
        // Without a second idle core the writer may be scheduled late: the lookups go on until it has made some
        // updates.
        let too_few = || n_updates.load(Ordering::Relaxed) < n_answers / 300 && !writer.is_finished();
        while n_answered < n_answers || too_few() {
            n_answered += 32;
            for (number, address) in numbers.iter_mut().zip(&mut addresses) {
                *number = rng.below(N);
                *address = host(*number);
            }
            if rng.below(2) == 0 {
                reader.lookup_batch(&addresses, &mut values);
            } else {
                reader.begin(&addresses);
                reader.finish(&addresses, &mut values);
            }
            for (&n, &value) in numbers.iter().zip(&values) {
                let right = if n % 2 == 0 { value == kept(n) } else { value == one || value == other };
                assert!(right, "seed {seed}, IPv{}: host {n} answers {value}", A::VERSION);
            }
        }
        reader.offline();
    });
}

#[test]
fn no_answer_is_wrong_beside_a_writer() {
    let n_answers = if deep() { 50_000_000 } else { 300_000 };
    readers_beside_a_writer::<u32>(n_answers);
    readers_beside_a_writer::<u128>(n_answers);
}
