//! The move of a name under loom: every interleaving and every permitted stale read of a concurrent lookup, and the
//! same with one defect, which must be found.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p fibula-lookup --test loom_cuckoo --release`, seconds once it is built.
#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use fibula_lookup::publish::Sequence;
use fibula_lookup::publish::mutants::{self, Mutant};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;

const NAME: u64 = 7;
const OTHER: u64 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Defect {
    Nothing,
    /// The old place is overwritten before the new one is written.
    ClearedFirst,
    /// A lookup that found nothing does not look at the counters again.
    NoRecheck,
    /// A place is written without its counter.
    Uncounted,
}

/// Two buckets of one slot and an exact second level, with the counters of the buckets and that of the level.
struct Places {
    places: [AtomicU64; 3],
    counters: [Sequence; 3],
}

impl Places {
    fn store(&self, place: usize, value: u64, defect: Defect) {
        let guard = (defect != Defect::Uncounted).then(|| self.counters[place].write());
        // Release for buckets of one word: a lookup that finds something in them does not read the counter.
        self.places[place].store(value, Ordering::Release);
        guard.into_iter().for_each(|guard| guard.commit());
    }

    /// Whether the name is there, or none if the writer interfered.
    fn lookup(&self, defect: Defect) -> Option<bool> {
        let stamps = [self.counters[0].read_begin()?, self.counters[1].read_begin()?];
        for bucket in 0..2 {
            if self.places[bucket].load(Ordering::Acquire) == NAME {
                return Some(true);
            }
        }
        let second = self.counters[2].read_begin()?;
        let found = self.places[2].load(Ordering::Relaxed) == NAME;
        if !self.counters[2].read_validate(second) {
            return None;
        }
        let checks = defect != Defect::NoRecheck && !found;
        let moved = checks && !(0..2).all(|bucket| self.counters[bucket].read_validate(stamps[bucket]));
        (!moved).then_some(found)
    }
}

/// A name moves to `to` while it is looked up; `left` is what its old place holds afterwards.
fn model(to: usize, left: u64, from: usize, defect: Defect, answered: &'static AtomicUsize) -> impl Fn() + Sync + Send {
    move || {
        let initial = |place| AtomicU64::new(if place == from { NAME } else { 0 });
        let counters = [Sequence::new(), Sequence::new(), Sequence::new()];
        let places = Arc::new(Places { places: [initial(0), initial(1), initial(2)], counters });
        let reader = {
            let places = Arc::clone(&places);
            thread::spawn(move || {
                if let Some(found) = places.lookup(defect) {
                    assert!(found, "a live name was missed");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let mut stores = [(to, NAME), (from, left)];
        if defect == Defect::ClearedFirst {
            stores.reverse();
        }
        stores.into_iter().for_each(|(place, value)| places.store(place, value, defect));
        reader.join().expect("the reader ends");
    }
}

static ANSWERED: AtomicUsize = AtomicUsize::new(0);

/// Moves between buckets, from the first level to the second, and back.
const MOVES: [(usize, u64, usize); 4] = [(0, OTHER, 1), (1, OTHER, 0), (2, 0, 1), (0, 0, 2)];

fn fails(to: usize, left: u64, from: usize, defect: Defect, mutant: Option<Mutant>) -> bool {
    let run = || loom::model(model(to, left, from, defect, &ANSWERED));
    mutants::with(mutant, || catch_unwind(AssertUnwindSafe(run)).is_err())
}

#[test]
fn a_name_is_found_wherever_it_moves() {
    for (to, left, from) in MOVES {
        let before = ANSWERED.load(Ordering::Relaxed);
        loom::model(model(to, left, from, Defect::Nothing, &ANSWERED));
        assert!(ANSWERED.load(Ordering::Relaxed) > before, "no execution answered: the model shows nothing");
    }
}

#[test]
fn every_defect_of_a_move_is_found() {
    for defect in [Defect::ClearedFirst, Defect::NoRecheck, Defect::Uncounted] {
        let found = MOVES.iter().any(|&(to, left, from)| fails(to, left, from, defect, None));
        assert!(found, "the model does not notice {defect:?}");
    }
    let mutant = Mutant::CommittedRelaxed;
    let found = MOVES.iter().any(|&(to, left, from)| fails(to, left, from, Defect::Nothing, Some(mutant)));
    assert!(found, "the model does not notice {mutant:?}");
}
