//! The trie of prefixes against an independent one, the crate prefix-trie, on a full table: under changes, and with a
//! concurrent reader.
//!
//! The table is the list that `FIBULA_PREFIXES` names, compressed with gzip or not; without it, a generated one.

use std::sync::atomic::{AtomicBool, Ordering};

use fibula_repro::bench::lpm::{generate, listed};
use lookup::hash::SecretKey;
use lookup::lpm::prefix::{Address, Prefix};
use lookup::lpm::trie::{PrefixTrie, PrefixTrieQuery, Settings};
use lookup::testkit::{Rng, seed};
use lookup::traits::{BatchReader, Control, Query, Replicated};
use prefix_trie::PrefixMap;

/// The lines of a full table, if there is one.
fn full_table() -> Option<String> {
    listed().unwrap_or_else(|error| panic!("{error}"))
}

fn prefixes_of<A: Address>(text: &str) -> Vec<Prefix<A>> {
    let of_version = text.lines().filter(|line| line.contains(':') == (A::VERSION == 6));
    of_version.map(|line| line.split(',').next().unwrap().parse().unwrap()).collect()
}

fn wide<A: Address>(rng: &mut Rng) -> A {
    A::narrowed(u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()))
}

/// Random addresses, addresses in prefixes, and the first and last address of prefixes with their neighbours.
fn addresses<A: Address>(prefixes: &[Prefix<A>], rng: &mut Rng, n: usize) -> Vec<A> {
    let address = |at: usize, rng: &mut Rng| {
        let prefix = prefixes[rng.below(prefixes.len() as u64) as usize];
        let (first, last) = (prefix.address().widened(), prefix.last().widened());
        let inside = first | (wide::<A>(rng).widened() & (first ^ last));
        A::narrowed(match at % 6 {
            0 => wide::<A>(rng).widened(),
            1 => inside,
            2 => first,
            3 => last,
            4 => first.wrapping_sub(1),
            _ => last.wrapping_add(1),
        })
    };
    (0..n).map(|at| address(at, rng)).collect()
}

/// The oracle, with addresses in the form that the crate takes.
trait Oracle<A> {
    fn longest(&self, address: A) -> Option<(u8, u64)>;
    fn put(&mut self, prefix: Prefix<A>, value: Option<u64>);
}

macro_rules! oracle {
    ($int:ty) => {
        impl Oracle<$int> for PrefixMap<($int, u8), u64> {
            fn longest(&self, address: $int) -> Option<(u8, u64)> {
                self.get_lpm(&(address, <$int>::BITS as u8)).map(|((_, len), &value)| (len, value))
            }

            fn put(&mut self, prefix: Prefix<$int>, value: Option<u64>) {
                let key = (prefix.address(), prefix.len());
                match value {
                    Some(value) => self.insert(key, value),
                    None => self.remove(&key),
                };
            }
        }
    };
}
oracle!(u32);
oracle!(u128);

fn assert_answers<A: Address>(query: &PrefixTrieQuery<A>, oracle: &impl Oracle<A>, addresses: &[A], context: &str) {
    let mut values = vec![0; addresses.len()];
    query.lookup_batch(addresses, &mut values);
    for (&address, &value) in addresses.iter().zip(&values) {
        let right = oracle.longest(address).map_or(0, |(_, value)| value);
        assert_eq!(value, right, "{context}: {}", A::Text::from(address));
    }
}

fn check<A: Address>(prefixes: &[Prefix<A>], mut oracle: impl Oracle<A>, n_addresses: usize, n_changes: usize) {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let context = format!("seed {seed}, {} IPv{} prefixes", prefixes.len(), A::VERSION);
    println!("{context}");
    let entries: Vec<_> = prefixes.iter().map(|&prefix| (prefix, 1 + rng.below(255))).collect();
    let mut trie = PrefixTrie::new(Settings::new(prefixes.len() * 2, &SecretKey::from_seed(seed)));
    let mut updates = Vec::new();
    trie.insert_batch(&entries, &mut updates).unwrap();
    entries.iter().for_each(|&(prefix, value)| oracle.put(prefix, Some(value)));
    let mut query = trie.export();
    let asked = addresses(prefixes, &mut rng, n_addresses);
    assert_answers(&query, &oracle, &asked, &context);

    // A tenth of the prefixes change their next hops; answers by the others stay, and a reader checks them
    // concurrently.
    let changes = |prefix: Prefix<A>| (prefix.address().widened() ^ u128::from(prefix.len())) % 10 == 3;
    let stay: Vec<(A, u64)> = asked
        .iter()
        .take(50_000)
        .filter_map(|&address| {
            let (len, value) = oracle.longest(address)?;
            (!changes(Prefix::of(address, len))).then_some((address, value))
        })
        .collect();
    let changing: Vec<_> = prefixes.iter().copied().filter(|&prefix| changes(prefix)).collect();
    let (mut reader, done) = (query.reader(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (stay, done) = (&stay, &done);
        let checks = scope.spawn(move || {
            let mut n_passes = 0;
            while !done.load(Ordering::Acquire) || n_passes == 0 {
                for burst in stay.chunks(32) {
                    let (mut keys, mut values) = ([A::default(); 32], [0; 32]);
                    keys.iter_mut().zip(burst).for_each(|(key, (address, _))| *key = *address);
                    reader.lookup_batch(&keys[..burst.len()], &mut values);
                    for (&(address, right), &value) in burst.iter().zip(&values) {
                        assert_eq!(value, right, "beside changes: {}", A::Text::from(address));
                    }
                }
                n_passes += 1;
            }
        });
        for _ in 0..n_changes {
            let prefix = changing[rng.below(changing.len() as u64) as usize];
            let value = 1 + rng.below(255);
            updates.clear();
            trie.insert(prefix, value, &mut updates).unwrap();
            oracle.put(prefix, Some(value));
            updates.iter().for_each(|update| _ = query.apply(update).unwrap());
        }
        done.store(true, Ordering::Release);
        checks.join().unwrap();
    });

    for _ in 0..n_changes {
        let prefix = match rng.below(3) {
            0 => Prefix::of(wide(&mut rng), rng.below(u64::from(A::BITS) - 8) as u8 + 8),
            _ => prefixes[rng.below(prefixes.len() as u64) as usize],
        };
        let value = (rng.below(2) == 0).then(|| 1 + rng.below(255));
        updates.clear();
        match value {
            Some(value) => trie.insert(prefix, value, &mut updates).unwrap(),
            None => _ = trie.remove(prefix, &mut updates),
        }
        oracle.put(prefix, value);
        updates.iter().for_each(|update| _ = query.apply(update).unwrap());
    }
    assert_answers(&query, &oracle, &asked, &context);
    assert_eq!(query.images(), [trie.whole()]);
}

/// Numbers of addresses looked up, and of changes.
fn scope() -> (usize, usize) {
    if std::env::var_os("FIBULA_DEEP").is_some() { (10_000_000, 20_000) } else { (300_000, 1000) }
}

#[test]
fn a_full_ipv4_table_answers_like_another_implementation() {
    let prefixes = full_table().map_or_else(|| generate(200_000, 1), |text| prefixes_of::<u32>(&text));
    let (n_addresses, n_changes) = scope();
    check(&prefixes, PrefixMap::<(u32, u8), u64>::new(), n_addresses, n_changes);
}

#[test]
fn a_full_ipv6_table_answers_like_another_implementation() {
    let generated = || -> Vec<Prefix<u128>> {
        // Twice the length, in 2000::/3.
        let wide =
            |prefix: Prefix<u32>| Prefix::of(1 << 125 | u128::from(prefix.address()) << 93, 3 + prefix.len() * 2);
        generate(50_000, 1).into_iter().map(wide).collect()
    };
    let prefixes = full_table().map_or_else(generated, |text| prefixes_of::<u128>(&text));
    let (n_addresses, n_changes) = scope();
    check(&prefixes, PrefixMap::<(u128, u8), u64>::new(), n_addresses, n_changes);
}
