//! Every interleaving of one lookup with the moves of the name it looks up: between two buckets, and between the levels
//! of a Filtable. Writing the destination first and checking the counters again never misses the name. If either is
//! left out, it is missed.
//!
//! The steps of the lookup are a model of the real one, which cannot be stopped between two reads.
//! `missed_between_writes` in `cuckoo_exact` and `cuckoo_filtable` runs whole lookups of the real query halves between
//! single writes.
#![cfg(not(loom))]

use fibula_lookup::publish::{Sequence, Stamp};

/// Where the name can be: its two buckets, and the exact second level.
const FIRST: usize = 0;
const SECOND: usize = 1;
const LEVEL_2: usize = 2;
const NAME: u64 = 7;
/// Another name, which takes the place that the name left.
const OTHER: u64 = 8;

/// A store: the place and its new contents.
type Store = (usize, u64);

/// From the second bucket to the first, and back.
const MOVES: [Store; 4] = [(FIRST, NAME), (SECOND, OTHER), (SECOND, NAME), (FIRST, OTHER)];
/// The same, but each place is cleared before the other is written.
const MOVES_CLEARED_FIRST: [Store; 4] = [(SECOND, OTHER), (FIRST, NAME), (FIRST, OTHER), (SECOND, NAME)];
/// From the first level to the second, when a new name collides with it, and back, when that name is removed.
const LEVELS: [Store; 4] = [(LEVEL_2, NAME), (SECOND, 0), (FIRST, NAME), (LEVEL_2, 0)];
/// Removed from its level before it is in the other.
const LEVELS_REMOVED_FIRST: [Store; 4] = [(SECOND, 0), (LEVEL_2, NAME), (LEVEL_2, 0), (FIRST, NAME)];

#[derive(Default, PartialEq, Eq, Debug)]
struct Outcomes {
    found: u32,
    again: u32,
    missed: u32,
}

/// Runs a lookup of five steps concurrently with `stores` of three steps each, in every order.
fn every_interleaving(stores: [Store; 4], rechecks: bool) -> Outcomes {
    const READS: u32 = 5;
    let n_steps = READS + 3 * stores.len() as u32;
    let mut outcomes = Outcomes::default();
    for schedule in (0u32..1 << n_steps).filter(|schedule| schedule.count_ones() == READS) {
        match lookup(stores, rechecks, (0..n_steps).map(|step| schedule >> step & 1 == 1)) {
            None => outcomes.again += 1,
            Some(true) => outcomes.found += 1,
            Some(false) => outcomes.missed += 1,
        }
    }
    outcomes
}

/// Whether the name is found, or none if the lookup has to begin again.
fn lookup(stores: [Store; 4], rechecks: bool, schedule: impl Iterator<Item = bool>) -> Option<bool> {
    let counters = [Sequence::new(), Sequence::new()];
    let mut places = [0, NAME, 0];
    let mut guard = None;
    let (mut stamps, mut found): ([Option<Stamp>; 2], bool) = ([None; 2], false);
    let (mut n_reads, mut n_writes) = (0, 0);
    for reads in schedule {
        if !reads {
            let (place, value) = stores[n_writes / 3];
            match n_writes % 3 {
                0 => guard = counters.get(place).map(Sequence::write),
                1 => places[place] = value,
                _ => guard.take().into_iter().for_each(|guard| guard.commit()),
            }
            n_writes += 1;
            continue;
        }
        match n_reads {
            0 => stamps = [counters[0].read_begin(), counters[1].read_begin()],
            1..=3 => found |= places[n_reads - 1] == NAME,
            _ if found || !rechecks => return Some(found),
            _ => {
                let still =
                    |(counter, stamp): (&Sequence, Option<Stamp>)| stamp.is_some_and(|s| counter.read_validate(s));
                return counters.iter().zip(stamps).all(still).then_some(false);
            }
        }
        n_reads += 1;
    }
    unreachable!("a schedule has all steps of the lookup")
}

#[test]
fn a_name_that_moves_between_its_buckets_is_never_missed() {
    let outcomes = every_interleaving(MOVES, true);
    assert_eq!(outcomes.missed, 0, "{outcomes:?}");
    assert!(outcomes.found > 0 && outcomes.again > 0, "{outcomes:?}");
}

#[test]
fn a_name_that_moves_between_the_levels_is_never_missed() {
    let outcomes = every_interleaving(LEVELS, true);
    assert_eq!(outcomes.missed, 0, "{outcomes:?}");
    assert!(outcomes.found > 0 && outcomes.again > 0, "{outcomes:?}");
}

#[test]
fn without_a_look_at_the_counters_moved_names_are_missed() {
    for stores in [MOVES, LEVELS] {
        let outcomes = every_interleaving(stores, false);
        assert!(outcomes.missed > 0, "{outcomes:?}");
    }
}

#[test]
fn a_place_that_is_cleared_before_the_other_is_written_loses_the_name() {
    for stores in [MOVES_CLEARED_FIRST, LEVELS_REMOVED_FIRST] {
        let outcomes = every_interleaving(stores, true);
        assert!(outcomes.missed > 0, "{outcomes:?}");
    }
}
