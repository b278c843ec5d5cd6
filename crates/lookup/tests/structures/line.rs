//! The line table under stress: levels of bumping, churn, damaged messages, golden vectors.
//!
//! `FIBULA_DEEP=1` runs 30 turnovers of 100K to 1M names, growth to 10M names and back, and 10^7 operations of the
//! conformance test from 0 to 1M names and back.

use std::path::{Path, PathBuf};

use fibula_lookup::alien::checked::{Checksum, Marked};
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::line::{LineQuery, LineSkeleton, LineTable, Settings, Trade, Update};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::Names;
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, ApplyError, Control, InsertError, Query, Replicated, Skeleton};

use super::alien::checked;

fn is_deep() -> bool {
    std::env::var_os("FIBULA_DEEP").is_some()
}

fn settings(seed: u64, max_names: usize) -> Settings {
    Settings::new(8, max_names, &SecretKey::from_seed(seed))
}

/// A name that points to the first bucket of a small table, at the first level and at the second.
fn of_one_bucket(rng: &mut Rng) -> Digest {
    // Bits 39 to 33 choose one of up to 128 buckets, bits 23 to 8 one of the second level. Ranks are elsewhere.
    Digest(rng.next_u64() & !(0x7F << 33 | 0xFFFF << 8))
}

#[test]
fn names_that_one_bucket_cannot_keep_go_through_every_level_and_answer() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut entries: Vec<(Digest, u64)> = (0..4_000).map(|n| (Digest(rng.next_u64()), n & 255)).collect();
    let mut table = LineTable::build(settings(seed, 10_000), &entries, 1).unwrap().0;
    let mut switch = table.export();
    let mut updates = Vec::new();
    let mut deepest = [0; 3];
    let mut n_stashed = 0;
    for n in 0..140 {
        let name = of_one_bucket(&mut rng);
        table.insert(name, n & 255, &mut updates).unwrap();
        entries.push((name, n & 255));
        let stats = table.skeleton().stats();
        (0..3).for_each(|level| deepest[level] = deepest[level].max(stats.n_names[level]));
        n_stashed = n_stashed.max(stats.n_stashed);
    }
    updates.drain(..).for_each(|update| assert_eq!(switch.apply(&update), Ok(Applied::Applied)));
    assert!(deepest[1] > 50 && deepest[2] > 10, "seed {seed}: {deepest:?}, {n_stashed} stashed");
    for &(name, value) in &entries {
        assert_eq!((switch.lookup(name), table.get(name)), (value, Some(value)), "seed {seed}: {name:?}");
    }
    // When other names are removed, bumped names come back.
    for &(name, _) in &entries[4_000..] {
        assert!(table.remove(name, &mut updates));
    }
    updates.drain(..).for_each(|update| assert_eq!(switch.apply(&update), Ok(Applied::Applied)));
    entries[..4_000].iter().for_each(|&(name, value)| assert_eq!(switch.lookup(name), value, "seed {seed}"));
    let [first, second, third] = table.skeleton().stats().n_names;
    assert!(second + third < first / 20, "seed {seed}: {first}, {second}, {third}");
}

/// Memory after this many turnovers, in bits per name.
fn after_turnovers(trade: Trade, n_names: usize, n_turnovers: usize, seed: u64) -> f64 {
    let mut rng = Rng::new(seed);
    let mut names: Vec<(Digest, u64)> = (0..n_names).map(|n| (Digest(rng.next_u64()), n as u64 & 255)).collect();
    let settings = settings(seed, n_names + 1).with_trade(trade);
    let (mut table, mut switch) = LineTable::build(settings, &names, 2).unwrap();
    let mut updates = Vec::new();
    for _ in 0..n_turnovers * n_names {
        let leaves = &mut names[rng.below(n_names as u64) as usize];
        assert!(table.remove(leaves.0, &mut updates));
        *leaves = (Digest(rng.next_u64()), rng.below(256));
        table.insert(leaves.0, leaves.1, &mut updates).unwrap();
        updates.drain(..).for_each(|update| assert_eq!(switch.apply(&update), Ok(Applied::Applied)));
    }
    names.iter().for_each(|&(name, value)| assert_eq!(switch.lookup(name), value, "seed {seed}"));
    let stats = table.skeleton().stats();
    let bits = switch.size_bits() as f64 / n_names as f64;
    let control = table.skeleton().heap_bytes() as f64 / n_names as f64;
    println!("{}: {n_names} names, {n_turnovers} turnovers: {bits:.2} bits a name", trade.name());
    println!("control half: {control:.1} bytes a name, {stats:?}");
    bits
}

#[test]
fn memory_stays_what_it_was_under_churn() {
    let seed = seed();
    if is_deep() {
        let bounds = [(Trade::Fast, 11.1), (Trade::Balanced, 10.4), (Trade::Small, 9.7)];
        let small = [100_000, 170_000].into_iter().flat_map(|n_names| bounds.map(|bound| (n_names, bound)));
        for (n_names, (trade, most)) in small.chain([(1_000_000, bounds[1])]) {
            let bits = after_turnovers(trade, n_names, 30, seed);
            assert!(bits < most, "{}: {n_names} names: {bits} bits a name", trade.name());
        }
    } else {
        for (trade, most) in [(Trade::Balanced, 10.4), (Trade::Small, 9.7)] {
            let bits = after_turnovers(trade, 100_000, 2, seed);
            assert!(bits < most, "{}: {bits} bits a name", trade.name());
        }
    }
}

#[test]
fn a_table_conforms_over_many_operations() {
    let seed = seed();
    let (n_names, n_operations) = if is_deep() { (1_000_000, 10_000_000) } else { (5_000, 100_000) };
    let scope = Scope { n_operations, n_names, n_values: 256, check_every: n_operations.div_ceil(5), seed };
    let mut table = LineTable::new(settings(seed, n_names as usize * 2));
    conformance::random(&mut table, Names::aliens(), |name| Digest(mix64(name ^ seed)), &scope);
}

/// Names that are never reused, so that the oracle is arithmetic: name `n` has value `n % 251`.
#[test]
fn a_table_grows_to_its_limit_and_back() {
    let seed = seed();
    let n_names: u64 = if is_deep() { 10_000_000 } else { 60_000 };
    let digest = |n: u64| Digest(mix64(n ^ seed));
    let mut table = LineTable::new(settings(seed, n_names as usize));
    let mut switch = table.export();
    let mut updates = Vec::new();
    // Looks up every eighth name, and those at both ends of the live range.
    let check = |switch: &LineQuery, live: std::ops::Range<u64>| {
        let some = live.clone().step_by(8).chain(live.start..live.end.min(live.start + 64));
        some.for_each(|n| assert_eq!(switch.lookup(digest(n)), n % 251, "seed {seed}: name {n} of {live:?}"));
    };
    let eighth = n_names / 8;
    for n in 0..n_names {
        table.insert(digest(n), n % 251, &mut updates).unwrap();
        updates.drain(..).for_each(|update| assert_eq!(switch.apply(&update), Ok(Applied::Applied)));
        if (n + 1) % eighth == 0 {
            check(&switch, 0..n + 1);
        }
    }
    let full = switch.size_bits();
    assert!(full < n_names * 11, "seed {seed}: {full} bits");
    for n in 0..n_names {
        assert!(table.remove(digest(n), &mut updates));
        updates.drain(..).for_each(|update| assert_eq!(switch.apply(&update), Ok(Applied::Applied)));
        if (n + 1) % eighth == 0 {
            check(&switch, n + 1..n_names);
        }
    }
    assert!(switch.size_bits() < full / 20, "seed {seed}: {} of {full} bits are left", switch.size_bits());
}

#[test]
fn a_checksum_in_the_value_tells_aliens() {
    let seed = seed();
    let key = SecretKey::from_seed(seed);
    let settings = Settings::new(16, 2_000, &key);
    let mut table = checked::<LineSkeleton<Marked<u64>>>(settings, Checksum::new(8, &key));
    let mut rng = Rng::new(seed);
    (0..1_500).for_each(|_| table.insert(Digest(rng.next_u64()), 1 + rng.below(255), &mut Vec::new()).unwrap());
    let query = table.export();
    let n_aliens = 100_000;
    let passed = (0..n_aliens).filter(|_| query.lookup(Digest(rng.next_u64())) != 0).count();
    // One in 256, within 5 sigma.
    assert!((290..=490).contains(&passed), "seed {seed}: {passed} of {n_aliens}");
}

fn small_table(seed: u64) -> (LineTable, LineQuery, Vec<(Digest, u64)>) {
    let mut rng = Rng::new(seed);
    let names: Vec<(Digest, u64)> = (0..300).map(|_| (Digest(rng.next_u64()), rng.below(256))).collect();
    let (table, query) = LineTable::build(settings(seed, 1_000), &names, 1).unwrap();
    (table, query, names)
}

#[test]
fn damaged_and_stale_messages_change_nothing() {
    let seed = seed();
    let (mut table, mut switch, names) = small_table(seed);
    let settings = settings(seed, 1_000);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    table.insert(names[0].0, names[0].1 ^ 1, &mut first).unwrap();
    table.insert(names[0].0, names[0].1, &mut second).unwrap();
    let before = switch.images();
    assert_eq!(before.len(), 1);
    assert!(matches!(switch.apply(&second[0]), Err(ApplyError::Gap { .. })));
    for update in [first[0].clone(), Update::Groups(table.export().images())] {
        let mut bytes = Vec::new();
        update.encode(&mut bytes);
        assert_eq!(Update::decode(&settings, &bytes).unwrap(), update);
        for length in 0..bytes.len() {
            assert!(Update::decode(&settings, &bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
        }
        // Nothing is proved about its version except that it is newer.
        let version = if matches!(update, Update::Buckets(_)) { 14..22 } else { 17..25 };
        for bit in (0..bytes.len() * 8).filter(|bit| !version.contains(&(bit / 8))) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(update) = Update::decode(&settings, &damaged) {
                assert_ne!(switch.apply(&update), Ok(Applied::Applied), "bit {bit}: {update:?}");
            }
        }
        assert_eq!(switch.images(), before);
    }
    assert_eq!(switch.apply(&first[0]), Ok(Applied::Applied));
    assert_eq!(switch.apply(&first[0]), Ok(Applied::AlreadyThere));
    assert_eq!(switch.apply(&second[0]), Ok(Applied::Applied));
}

#[test]
fn upper_levels_made_anew_are_sent_without_the_first() {
    let seed = seed();
    let settings = settings(seed, 10_000);
    let mut rng = Rng::new(seed);
    let entries: Vec<(Digest, u64)> = (0..4_000).map(|n| (Digest(rng.next_u64()), n & 255)).collect();
    let (mut table, mut switch) = LineTable::build(settings.clone(), &entries, 1).unwrap();
    let (mut updates, mut n_levels, mut with_first, mut with_stash) = (Vec::new(), 0, 0, 0);
    // Names that go through every level to the stash, and out again, so that there are spare levels.
    let crowd: Vec<Digest> = (0..150).map(|_| of_one_bucket(&mut rng)).collect();
    let steps = [Some(7), Some(9), None].into_iter().flat_map(|value| crowd.iter().map(move |&name| (name, value)));
    for (name, value) in steps {
        match value.map(|value| table.insert(name, value, &mut updates)) {
            // There is no room for the last names of the crowd.
            Some(Ok(()) | Err(InsertError::Unsolvable { .. })) => {}
            Some(Err(other)) => panic!("seed {seed}: {other}"),
            None => _ = table.remove(name, &mut updates),
        }
        for update in updates.drain(..) {
            let Update::Levels(levels) = &update else {
                assert_eq!(switch.apply(&update), Ok(Applied::Applied));
                continue;
            };
            n_levels += 1;
            with_first += usize::from(!levels.first.indices.is_empty());
            with_stash += usize::from(!levels.stash.is_empty());
            let (mut bytes, before) = (Vec::new(), switch.images());
            update.encode(&mut bytes);
            assert!(bytes.len() * 64 < switch.size_bits() as usize, "{} bytes", bytes.len());
            assert_eq!(Update::decode(&settings, &bytes).unwrap(), update);
            assert!((0..bytes.len()).all(|length| Update::decode(&settings, &bytes[..length]).is_err()));
            for _ in 0..20 {
                let bit = rng.below(bytes.len() as u64 * 8) as usize;
                // Nothing is proved about its version except that it is newer.
                if (14..22).contains(&(bit / 8)) {
                    continue;
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(damaged) = Update::decode(&settings, &bytes) {
                    assert_ne!(switch.apply(&damaged), Ok(Applied::Applied), "seed {seed}, bit {bit}: {damaged:?}");
                }
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            assert_eq!(switch.images(), before);
            assert_eq!(switch.apply(&update), Ok(Applied::Applied));
            assert_eq!(switch.apply(&update), Ok(Applied::AlreadyThere));
        }
        assert_eq!(switch.images(), table.export().images(), "seed {seed}");
    }
    println!("{n_levels} updates of levels, {with_first} with buckets of the first, {with_stash} with a stash");
    assert!(n_levels > 3 && with_first > 0 && with_stash > 0, "seed {seed}: {n_levels}, {with_first}, {with_stash}");
    entries.iter().for_each(|&(name, value)| assert_eq!(switch.lookup(name), value, "seed {seed}"));
}

fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name)
}

/// `vectors/line.hex` is a table, `vectors/line.csv` its answers; `FIBULA_WRITE_VECTORS=1` rewrites both.
#[test]
#[expect(clippy::disallowed_methods, reason = "golden vectors are files")]
fn a_table_is_the_golden_one_and_gives_the_golden_answers() {
    let (_, query, names) = small_table(17);
    let mut bytes = Vec::new();
    Update::Groups(query.images()).encode(&mut bytes);
    let hex: String =
        bytes.chunks(32).map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n").collect();
    let aliens = (0..50).map(|n| Digest(mix64(n + 1)));
    let answer = |name: Digest| format!("{:016x},{:02x}\n", name.0, query.lookup(name));
    let csv: String = names.iter().map(|name| name.0).chain(aliens).map(answer).collect();
    let csv = format!("digest,value\n{csv}");
    if std::env::var_os("FIBULA_WRITE_VECTORS").is_some() {
        std::fs::write(vector("line.hex"), &hex).unwrap();
        std::fs::write(vector("line.csv"), &csv).unwrap();
    }
    assert_eq!(std::fs::read_to_string(vector("line.hex")).unwrap(), hex);
    assert_eq!(std::fs::read_to_string(vector("line.csv")).unwrap(), csv);
    names.iter().for_each(|&(name, value)| assert_eq!(query.lookup(name), value));
}
