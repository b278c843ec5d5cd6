//! Unit tests over all parts of the module.

use super::*;
use crate::base::processor::Kernel;
use crate::hash::{Digest, mix64};
use crate::testkit::conformance::{self, Scope};
use crate::testkit::oracle::Names;
use crate::testkit::{Rng, kernels, seed};
use crate::traits::{Control, InsertError, Query};

fn run(settings: Settings, n_names: u64, n_operations: usize, seed: u64) {
    let n_values = 1 << settings.value_bits;
    let scope = Scope { n_operations, n_names, n_values, check_every: n_operations.div_ceil(5), seed };
    let mut table = LineTable::new(settings);
    conformance::random(&mut table, Names::aliens(), |name| Digest(mix64(name ^ seed)), &scope);
}

#[test]
fn every_width_and_trade_conforms() {
    let seed = seed();
    for value_bits in 1..=32 {
        for trade in Trade::ALL {
            let settings = Settings::new(value_bits, 600, &SecretKey::from_seed(seed)).with_trade(trade);
            run(settings, 300, if value_bits < 3 { 300 } else { 1_000 }, seed);
        }
    }
}

#[test]
fn every_kernel_gives_the_same_answers() {
    for value_bits in [1, 5, 8, 12, 16, 17, 32] {
        for trade in Trade::ALL {
            let settings = Settings::new(value_bits, 20_000, &SecretKey::from_seed(seed())).with_trade(trade);
            let entries: Vec<_> = (0..20_000).map(|n| (Digest(mix64(n)), mix64(n + 1) >> (64 - value_bits))).collect();
            let (_, query) = LineTable::build(settings, &entries, 1).expect("20,000 names fit");
            let live: Vec<Digest> = entries.iter().map(|entry| entry.0).collect();
            kernels::agree(&query, &live);
        }
    }
}

/// A kernel with ranks of its own would answer right, by the slow way, and more slowly.
#[test]
fn every_kernel_takes_the_slow_way_for_the_same_names() {
    const BURST: usize = 32;
    for value_bits in [8, 12, 16] {
        let settings = Settings::new(value_bits, 50_000, &SecretKey::from_seed(seed()));
        let entries: Vec<_> = (0..50_000).map(|n| (Digest(mix64(n)), n & 255)).collect();
        let (table, query) = LineTable::build(settings, &entries, 1).expect("50,000 names fit");
        let n_bumped = |kernel: Kernel| -> usize {
            let live: Vec<Digest> = entries.iter().map(|entry| entry.0).collect();
            let kept = live.chunks(BURST).map(|digests| {
                let kept = query.kept(kernel, digests);
                assert_eq!(kept, query.kept(Kernel::SCALAR, digests), "{kernel}, {value_bits} bits");
                kept.count_ones() as usize
            });
            live.len() - kept.sum::<usize>()
        };
        let stats = table.skeleton().stats();
        let above: usize = stats.n_names[1..].iter().sum::<usize>() + stats.n_stashed;
        for kernel in Kernel::available() {
            assert_eq!(n_bumped(kernel), above, "{kernel}, {value_bits} bits");
        }
        assert!(above > 0);
    }
}

#[test]
fn groups_conform_while_they_grow_split_and_merge() {
    let seed = seed();
    let settings = Settings::new(8, 100_000, &SecretKey::from_seed(seed));
    run(settings, 30_000, 300_000, seed);
}

#[test]
fn names_of_one_bucket_end_in_an_error_and_nothing_is_lost() {
    let seed = seed();
    let mut table = LineTable::new(Settings::new(8, 100_000, &SecretKey::from_seed(seed)));
    let mut rng = Rng::new(seed);
    let (mut updates, mut inserted) = (Vec::new(), Vec::new());
    // Equal in all bits that choose a bucket of a group, and with the same rank at every level.
    let failed = (0..500u64).find_map(|_| {
        let digest = Digest(rng.next_u64() & 0xFFFF_FF00_0000_0000);
        match table.insert(digest, inserted.len() as u64 & 255, &mut updates) {
            Ok(()) => {
                inserted.push(digest);
                None
            }
            Err(error) => Some(error),
        }
    });
    assert!(matches!(failed, Some(InsertError::Unsolvable { .. })), "{failed:?}");
    let query = table.export();
    for (value, &digest) in inserted.iter().enumerate() {
        assert_eq!(query.lookup(digest), value as u64 & 255);
    }
}

#[test]
fn equal_digests_are_refused() {
    let settings = Settings::new(8, 100, &SecretKey::from_seed(1));
    let entries = [(Digest(7), 1), (Digest(9 << 40), 2), (Digest(7), 3)];
    let refused = LineTable::build(settings, &entries, 1).map(|_| ());
    assert_eq!(refused, Err(InsertError::DuplicateDigest { digest: 7 }));
}
