//! Timers of 16 bits over several wraps of their clock: an ended flow never comes back, and is reported once.

use std::collections::HashMap;

use fibula_lookup::flow::{FlowTable, InsertError, MAX_LIFETIME, Settings, Step};
use fibula_lookup::hash::{Family, SecretKey};
use fibula_lookup::testkit::{Rng, seed};

/// Values of the 16-bit clock.
const WRAP: u64 = 1 << 16;

fn table(capacity: usize, seed: u64, now: u64) -> FlowTable<2, 2> {
    let (family, key) = (Family::default(), SecretKey::from_seed(seed));
    FlowTable::new(&Settings { capacity, max_capacity: 4 * capacity, family, key, now }).unwrap()
}

fn lives(table: &FlowTable<2, 2>, name: u64) -> bool {
    let key = [name, 1];
    table.lookup(&key, table.digest(&key)).is_some()
}

fn insert(table: &mut FlowTable<2, 2>, name: u64, lifetime: u16) -> Result<(), InsertError> {
    let key = [name, 1];
    table.insert(&key, table.digest(&key), &[name, 0], lifetime, |_, _| {}).map(|_| ())
}

/// Random steps of the clock, small and large, over `wraps` wraps; scans as much as each step requires.
fn over_wraps(wraps: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let start = rng.next_u64() >> 20;
    let mut table = table(1 << 10, seed, start);
    let n_buckets = table.capacity() / 8;
    let mut ends: HashMap<u64, u64> = HashMap::new();
    let mut told: HashMap<u64, u64> = HashMap::new();
    let (mut now, mut next, mut wrapped_at) = (start, 0u64, start);
    while now - start < wraps * WRAP {
        let step = match rng.below(50) {
            0..25 => rng.below(2),
            25..45 => rng.below(200),
            45..49 => rng.below(3_000),
            _ => rng.below(2 * WRAP),
        };
        now += step;
        assert_eq!(table.advance(now), Step::Exact, "seed {seed}, at {now}");
        let mut tell = |key: &[u64; 2], value: &[u64; 2]| {
            assert!(value[0] <= now, "seed {seed}: {} is told of before its end", key[0]);
            *told.entry(key[0]).or_default() += 1;
        };
        // A round every 8,192 units; a step of more than a window counts as one.
        table.scan((n_buckets as u64 * (1 + step.min(WRAP / 4)) / 8192 + 1) as usize, &mut tell);
        table.rehome(rng.below(64) as usize);
        for _ in 0..rng.below(60) {
            if table.len() * 20 < table.capacity() * 19 {
                let lifetime = if rng.below(4) == 0 { MAX_LIFETIME } else { 1 + rng.below(500) as u16 };
                let key = [next, 1];
                let digest = table.digest(&key);
                let end = now + u64::from(lifetime);
                table.insert(&key, digest, &[end, 0], lifetime, &mut tell).unwrap();
                ends.insert(next, end);
                next += 1;
            }
        }
        for _ in 0..20 {
            let name = rng.below(next.max(1));
            let end = ends.get(&name).copied();
            assert_eq!(
                lives(&table, name),
                end.is_some_and(|end| end > now),
                "seed {seed}: {name} ends {end:?}, at {now}"
            );
            if end.is_some_and(|end| end > now) && rng.below(4) == 0 {
                let key = [name, 1];
                let lifetime = 1 + rng.below(1000) as u16;
                let slot = table.lookup_refresh(&key, table.digest(&key), lifetime).unwrap().unwrap();
                table.value_mut(slot)[0] = now + u64::from(lifetime);
                ends.insert(name, now + u64::from(lifetime));
            }
        }
        if now - wrapped_at > WRAP / 16 || rng.below(200) == 0 {
            wrapped_at = now;
            for (&name, &end) in &ends {
                assert_eq!(lives(&table, name), end > now, "seed {seed}: {name} ends {end}, at {now}");
            }
            table.audit().unwrap();
        }
    }
    // In the end every flow is reported exactly once.
    table.advance(now + WRAP);
    for _ in 0..2 {
        table.scan(usize::MAX, |key, _| *told.entry(key[0]).or_default() += 1);
    }
    assert!(table.is_empty());
    assert!(
        told.len() as u64 == next && told.values().all(|&times| times == 1),
        "seed {seed}: {} of {next}",
        told.len()
    );
    let counters = table.counters();
    assert_eq!(counters.ended_reused + counters.ended_scanned, counters.inserted);
}

#[test]
fn no_timer_revives_over_wraps_of_the_clock() {
    over_wraps(if std::env::var_os("FIBULA_DEEP").is_some() { 300 } else { 4 }, seed());
}

#[test]
fn without_scans_the_clock_is_held_and_nothing_revives() {
    let mut table = table(1 << 10, seed(), 0);
    for name in 0..500 {
        insert(&mut table, name, 1 + (name * 37 % u64::from(MAX_LIFETIME)) as u16).unwrap();
    }
    let mut gone = vec![false; 500];
    let mut n_held = 0;
    for now in (0..4 * WRAP).step_by(97) {
        n_held += u64::from(matches!(table.advance(now), Step::Held(_)));
        for name in 0..500 {
            let lives = lives(&table, name);
            assert!(!(gone[name as usize] && lives), "{name} lives again at {now}");
            gone[name as usize] |= !lives;
        }
    }
    assert!(n_held > 0 && gone.iter().all(|&gone| gone));
    assert_eq!(table.scan_due_in(), 0);
    // One round, and time goes on.
    assert_eq!(table.scan(usize::MAX, |_, _| {}).n_ended, 500);
    assert!(table.scan_due_in() > 0);
    assert_eq!(table.advance(4 * WRAP + 1), Step::Exact);
}

#[test]
fn a_clock_that_goes_back_ends_nothing() {
    let mut table = table(1 << 10, 1, 1_000_000);
    insert(&mut table, 1, MAX_LIFETIME).unwrap();
    insert(&mut table, 2, 10).unwrap();
    assert_eq!(table.advance(999_999), Step::Back(1));
    assert!(lives(&table, 1) && lives(&table, 2));
    // A clock that goes back and forth is no faster than its latest time.
    for _ in 0..100 {
        table.advance(1_000_000);
        table.advance(999_995);
    }
    assert!(lives(&table, 2));
    assert_eq!(table.advance(1_000_010), Step::Exact);
    assert!(!lives(&table, 2) && lives(&table, 1));
    // A clock that was set back continues from there.
    assert_eq!(table.advance(5), Step::Back(1_000_005));
    insert(&mut table, 3, 10).unwrap();
    table.advance(14);
    assert!(lives(&table, 3));
    table.advance(15);
    assert!(!lives(&table, 3) && !lives(&table, 2) && lives(&table, 1));
}

#[test]
fn a_clock_that_leaps_ends_everything_and_new_flows_live_their_time() {
    for leap in [u64::from(MAX_LIFETIME), WRAP - 1, WRAP, WRAP + 1, 10 * WRAP, 1 << 60] {
        let mut table = table(1 << 10, leap, 7);
        for name in 0..900 {
            insert(&mut table, name, MAX_LIFETIME).unwrap();
        }
        assert_eq!(table.advance(7 + leap), Step::Exact);
        for name in 0..900 {
            assert!(!lives(&table, name), "{name} after a leap of {leap}");
        }
        for name in 1000..1900 {
            insert(&mut table, name, 20).unwrap();
        }
        table.advance(7 + leap + 19);
        assert!((1000..1900).all(|name| lives(&table, name)), "after a leap of {leap}");
        table.advance(7 + leap + 20);
        assert!((0..1900).all(|name| !lives(&table, name)), "after a leap of {leap}");
        table.audit().unwrap();
    }
}

#[test]
fn lifetimes_out_of_range_are_refused() {
    let mut table = table(16, 1, 0);
    for got in [0, MAX_LIFETIME + 1, u16::MAX] {
        assert_eq!(insert(&mut table, 1, got), Err(InsertError::Lifetime { got, max: MAX_LIFETIME }));
    }
    insert(&mut table, 1, 1).unwrap();
    let slot = table.lookup(&[1, 1], table.digest(&[1, 1])).unwrap();
    assert!(table.refresh(slot, 0).is_err());
    assert_eq!((table.remaining(slot), table.counters().refused_lifetime), (Some(1), 4));
    table.advance(1);
    assert_eq!(table.remaining(slot), None);
}

#[test]
fn timers_run_on_while_the_table_grows() {
    let mut table = table(1 << 10, seed(), 0);
    for name in 0..960 {
        insert(&mut table, name, 1 + (name % 100) as u16).unwrap();
    }
    table.grow().unwrap();
    let mut n_ended = 0;
    for now in 0..=100 {
        table.advance(now);
        n_ended += table.migrate(1, |key, _| assert!(key[0] % 100 < now)).n_ended;
        n_ended += table.scan(5, |key, _| assert!(key[0] % 100 < now)).n_ended;
        for name in 0..960 {
            assert_eq!(lives(&table, name), 1 + name % 100 > now, "{name} at {now}");
        }
        table.audit().unwrap();
    }
    n_ended += table.migrate(usize::MAX, |_, _| {}).n_ended;
    n_ended += table.scan(usize::MAX, |_, _| {}).n_ended;
    n_ended += table.scan(usize::MAX, |_, _| {}).n_ended;
    assert_eq!((n_ended, table.len(), table.is_growing()), (960, 0, false));
}
