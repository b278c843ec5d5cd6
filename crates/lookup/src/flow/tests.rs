//! Batches and phases by every kernel, and bursts in flight while the table changes, against lookups one by one.

use super::layout::lanes;
use super::*;
use crate::base::prefetch::BURST;
use crate::base::processor::Kernel;
use crate::hash::{Digest, Family, SecretKey};
use crate::testkit::{Rng, seed};

/// A layout with the keys and values of numbered flows.
trait Numbered: Layout {
    fn key_of(n: u64) -> Self::Key;
    fn value_of(n: u64) -> Self::Value;
}

impl<const K: usize> Numbered for Split<K, 1> {
    fn key_of(n: u64) -> [u64; K] {
        std::array::from_fn(|word| n + word as u64)
    }

    fn value_of(n: u64) -> [u64; 1] {
        [n]
    }
}

impl Numbered for Inline<4, 4> {
    fn key_of(n: u64) -> [u8; 4] {
        (n as u32).to_le_bytes()
    }

    fn value_of(n: u64) -> [u8; 4] {
        (n as u32).to_ne_bytes()
    }
}

fn table<L: Numbered, P: Policy>(capacity: usize, seed: u64) -> Table<L, P> {
    let key = SecretKey::from_seed(seed);
    Table::new(&Settings { capacity, max_capacity: 4 * capacity, family: Family::default(), key, now: 0 }).unwrap()
}

/// Fills a table with the flows from 0 on. At time 5, where the clock is then, a third of them have ended.
fn filled<L: Numbered, P: Policy>(load: f64, seed: u64) -> (Table<L, P>, u64) {
    let mut table = table::<L, P>(1 << 10, seed);
    let n = (table.capacity() as f64 * load) as u64;
    for flow in 0..n {
        insert(&mut table, flow, if flow % 3 == 0 { 5 } else { 1000 });
    }
    table.advance(5);
    (table, n)
}

fn insert<L: Numbered, P: Policy>(table: &mut Table<L, P>, flow: u64, lifetime: u16) {
    let key = L::key_of(flow);
    table.insert(&key, table.digest(&key), &L::value_of(flow), lifetime, |_, _| {}).unwrap();
}

/// The keys of flows, and their digests.
fn flows<L: Numbered, P: Policy>(table: &Table<L, P>, flows: &[u64]) -> (Vec<L::Key>, Vec<Digest>) {
    let keys: Vec<L::Key> = flows.iter().map(|&flow| L::key_of(flow)).collect();
    let mut digests = vec![Digest(0); keys.len()];
    table.digests(&keys, &mut digests);
    (keys, digests)
}

fn one_by_one<L: Layout, P: Policy>(table: &Table<L, P>, keys: &[L::Key], digests: &[Digest]) -> Vec<Option<Slot>> {
    keys.iter().zip(digests).map(|(key, &digest)| table.lookup(key, digest)).collect()
}

/// What a form of lookup finds. No flow may be found twice.
fn found(n: usize, look: impl FnOnce(&mut dyn FnMut(usize, Slot))) -> Vec<Option<Slot>> {
    let mut slots = vec![None; n];
    look(&mut |i, slot| assert_eq!(slots[i].replace(slot), None, "key {i} was found twice"));
    slots
}

fn every_kernel<L: Numbered, P: Policy>(seed: u64) {
    let mut rng = Rng::new(seed);
    for load in [0.1, 0.5, 0.8, 0.95] {
        let (mut table, n_flows) = filled::<L, P>(load, seed);
        for is_growing in [false, true] {
            if is_growing {
                table.grow().unwrap();
                table.migrate(30, |_, _| {});
                assert!(table.is_growing());
            }
            let mut n_found = 0;
            for length in (0..=BURST).chain([2 * BURST - 1, 2 * BURST, 200]) {
                let chosen: Vec<u64> = (0..length).map(|_| rng.below(2 * n_flows)).collect();
                let (keys, digests) = flows(&table, &chosen);
                let expected = one_by_one(&table, &keys, &digests);
                n_found += expected.iter().flatten().count();
                let mut in_batch = vec![None; length];
                table.lookup_batch(&keys, &digests, &mut in_batch);
                assert_eq!(in_batch, expected, "{length} keys at load {load}");
                for kernel in Kernel::available() {
                    let what = format!("{kernel}, {}, {length} keys at load {load}", P::NAME);
                    if !is_growing {
                        let slots =
                            found(length, |each| table.found_by(kernel, (&keys, &digests), |i, slot, _| each(i, slot)));
                        assert_eq!(slots, expected, "{what}");
                    }
                    if length <= BURST {
                        let mut in_flight = InFlight::default();
                        table.begin_batch(&digests);
                        table.advance_by(kernel, (&keys, &digests), &mut in_flight);
                        let slots = found(length, |each| {
                            table.finish_by(kernel, (&keys, &digests), &mut in_flight, |i, slot, _| each(i, slot));
                        });
                        assert_eq!(slots, expected, "{what}, by phases");
                    }
                }
            }
            assert!(n_found > 100, "{n_found} of the flows are there");
        }
    }
}

#[test]
fn every_kernel_finds_what_lookups_one_by_one_find() {
    let seed = seed();
    println!("not run, for want of a processor: {:?}", Kernel::unavailable().collect::<Vec<_>>());
    every_kernel::<Split<2, 1>, Timed>(seed);
    every_kernel::<Split<5, 1>, CuckooPlusPlus>(seed);
    every_kernel::<Split<1, 1>, Optimistic>(seed);
    every_kernel::<Split<2, 1>, Pessimistic>(seed);
    every_kernel::<Split<2, 1>, Horton>(seed);
    every_kernel::<Split<2, 1>, Published>(seed);
    every_kernel::<Inline<4, 4>, Timed>(seed);
}

/// Changes a table in every way between the second and the third phase of three bursts that are in flight together.
/// Adds to `changed` how often each kind of change changed the answers.
fn changed_in_flight<L: Numbered, P: Policy>(rng: &mut Rng, changed: &mut [usize; 8]) {
    let (mut table, n_flows) = filled::<L, P>(0.8, rng.next_u64());
    for flow in (1..n_flows).step_by(5) {
        let key = L::key_of(flow);
        table.remove(&key, table.digest(&key));
    }
    let mut now = 5;
    for round in 0..100 {
        let chosen: Vec<u64> = (0..3 * BURST).map(|_| rng.below(2 * n_flows)).collect();
        let (keys, digests) = flows(&table, &chosen);
        let bursts = || keys.chunks(BURST).zip(digests.chunks(BURST));
        let mut in_flight: [InFlight; 3] = Default::default();
        let kind = rng.below(changed.len() as u64) as usize;
        let mut revived = None;
        if kind == 7 {
            // An entry that has ended, and is still there.
            let at = rng.below(chosen.len() as u64) as usize;
            revived = table.lookup(&keys[at], digests[at]).filter(|_| P::TIMED);
            revived.into_iter().for_each(|slot| table.refresh(slot, 1).unwrap());
            now += 1;
            table.advance(now);
        }
        for ((keys, digests), in_flight) in bursts().zip(&mut in_flight) {
            table.begin_batch(digests);
            table.advance_batch(keys, digests, in_flight);
        }
        let before = one_by_one(&table, &keys, &digests);
        match kind {
            // The first frame of a flow, of which each burst may have more.
            0 => {
                if let Some(i) = (0..chosen.len()).find(|&i| before[i].is_none()) {
                    insert(&mut table, chosen[i], 1 + rng.below(20) as u16);
                }
            }
            1 => {
                let i = rng.below(chosen.len() as u64) as usize;
                table.remove(&keys[i], digests[i]);
            }
            2 => {
                now += rng.below(4);
                table.advance(now);
            }
            3 => {
                table.scan(16, |_, _| {});
            }
            4 => {
                table.rehome(64);
            }
            5 if round > 50 && table.capacity() < 2 << 10 => table.grow().unwrap(),
            6 => {
                table.migrate(8, |_, _| {});
            }
            _ => {
                if let Some(slot) = revived {
                    table.refresh(slot, 20).unwrap();
                }
            }
        }
        let expected = one_by_one(&table, &keys, &digests);
        changed[kind] += usize::from(expected != before);
        let mut slots = vec![None; keys.len()];
        for (((keys, digests), in_flight), slots) in bursts().zip(&mut in_flight).zip(slots.chunks_mut(BURST)) {
            table.finish_batch(keys, digests, in_flight, |i, slot, value| {
                assert!(std::ptr::eq(table.value(slot), value));
                slots[i] = Some(slot);
            });
        }
        assert_eq!(slots, expected, "{}, round {round}, after a change of kind {kind}", P::NAME);
    }
}

fn changed_in_every_way<L: Numbered, P: Policy>(seed: u64) {
    let (mut rng, mut changed) = (Rng::new(seed), [0; 8]);
    (0..50).for_each(|_| changed_in_flight::<L, P>(&mut rng, &mut changed));
    println!("{}: changes that changed the answers, by kind: {changed:?}", P::NAME);
    // A scan removes only what no lookup finds. Without timers, time changes nothing.
    let kinds: &[usize] = if P::TIMED { &[0, 1, 2, 4, 5, 6, 7] } else { &[0, 1, 4, 5, 6] };
    assert!(kinds.iter().all(|&kind| changed[kind] > 0), "{}: {changed:?}", P::NAME);
}

#[test]
fn bursts_in_flight_are_answered_as_the_table_is_when_they_are_finished() {
    let seed = seed();
    changed_in_every_way::<Split<2, 1>, Timed>(seed);
    changed_in_every_way::<Split<2, 1>, Pessimistic>(seed);
    changed_in_every_way::<Split<2, 1>, Horton>(seed);
    changed_in_every_way::<Inline<4, 4>, CuckooPlusPlus>(seed);
}

#[test]
fn a_burst_that_was_not_advanced_is_finished() {
    let (table, n_flows) = filled::<Split<2, 1>, Timed>(0.5, seed());
    let mut in_flight = InFlight::default();
    for first in (0..n_flows).step_by(BURST) {
        let (keys, digests) = flows(&table, &(first..first + BURST as u64).collect::<Vec<_>>());
        let slots =
            found(BURST, |each| table.finish_batch(&keys, &digests, &mut in_flight, |i, slot, _| each(i, slot)));
        assert_eq!(slots, one_by_one(&table, &keys, &digests));
    }
}

#[test]
#[should_panic(expected = "at most 32 keys")]
fn a_burst_of_too_many_keys_is_refused() {
    let (table, _) = filled::<Split<2, 1>, Timed>(0.5, 1);
    let (keys, digests) = flows(&table, &[0; BURST + 1]);
    table.advance_batch(&keys, &digests, &mut InFlight::default());
}

/// The lines that a batch of inserts fetches are those that its inserts read, whatever the policy.
fn inserts_read_what_was_fetched<P: Policy>() {
    let seed = seed();
    for load in [0.3, 0.8] {
        let (mut table, n) = filled::<Split<2, 1>, P>(load, seed);
        for flow in n..n + 100 {
            let key = <Split<2, 1> as Numbered>::key_of(flow);
            let digest = table.digest(&key);
            let place = table.store.place(digest);
            let fetched: Vec<u32> = table.store.read_by_insert(place).collect();
            // The check whether the flow is there.
            let second = table.store.second(place);
            assert!(second.is_none_or(|second| fetched.contains(&second)), "{} {flow}: {fetched:?}", P::NAME);
            let slot = table.insert(&key, digest, &[flow], 1000, |_, _| {}).unwrap();
            let bucket = (slot.0.get() >> 1) / lanes::<Split<2, 1>>();
            assert!(bucket == place.first || fetched.contains(&bucket), "{} {flow}: {bucket}", P::NAME);
        }
    }
}

#[test]
fn inserts_read_only_lines_that_their_batch_fetches() {
    inserts_read_what_was_fetched::<CuckooPlusPlus>();
    inserts_read_what_was_fetched::<Timed>();
    inserts_read_what_was_fetched::<Optimistic>();
    inserts_read_what_was_fetched::<Pessimistic>();
    inserts_read_what_was_fetched::<Horton>();
    inserts_read_what_was_fetched::<Published>();
}
