//! The invariants of the levels: against all pairs of names, and after every write.

use std::collections::HashMap;

use super::slots::Place;
use super::*;
use crate::testkit::{Rng, seed};
use crate::traits::{Applied, ApplyError, Query, Skeleton, Undivided, View};

/// Checks every pair of names by their spots; returns the number of names in level 2 without a collision.
fn check(skeleton: &FiltableSkeleton<u32>, removed: &[Digest]) -> usize {
    let (tweak, first) = skeleton.first();
    let spots = |digest| {
        let n_buckets = (skeleton.n_first_slots() / SLOTS) as u32;
        Spots::of(digest, tweak, n_buckets, skeleton.settings().fingerprint_bits.into())
    };
    let tombstones = removed.iter().copied().filter(|&digest| skeleton.must_drop(digest));
    let all: Vec<Digest> = skeleton.iter().map(|(digest, _)| digest).chain(tombstones).collect();
    let collides = |digest: Digest| {
        let own = spots(digest);
        all.iter().any(|&other| other != digest && spots(other).collide(&own))
    };
    let mut n_first = 0;
    for (slot, content) in (0..).zip(first) {
        if let Some((digest, _)) = content {
            n_first += 1;
            assert!(spots(digest).buckets.contains(&(slot / SLOTS as u32)), "a name stands in one of its buckets");
            assert!(!collides(digest), "a name of level 1 collides");
        }
    }
    let second: Vec<Digest> = skeleton.second().1.flatten().map(|(digest, _)| digest).collect();
    assert_eq!(second.len(), skeleton.n_second());
    assert_eq!(n_first + second.len(), skeleton.len(), "every live name stands in one level");
    second.iter().filter(|&&digest| !collides(digest)).count()
}

#[test]
fn a_name_is_in_level_1_exactly_while_it_collides_with_nothing() {
    let seed = seed();
    for fingerprint_bits in [4, 6, 9] {
        let key = crate::hash::SecretKey::from_seed(seed);
        let mut skeleton = FiltableSkeleton::<u32>::with_capacity(Settings::new(8, fingerprint_bits, 600, &key), 600);
        let mut rng = Rng::new(seed);
        let name = |n: u64| Digest(mix64(n ^ seed));
        for operation in 0..6_000 {
            let digest = name(rng.below(900));
            if rng.below(100) < 60 && skeleton.len() < 600 {
                _ = skeleton.insert(digest, operation).unwrap();
            } else {
                _ = skeleton.remove(digest);
            }
            if operation % 200 == 0 {
                let removed: Vec<Digest> = (0..900).map(name).filter(|&n| skeleton.get(n).is_none()).collect();
                let n_left = check(&skeleton, &removed);
                assert!(n_left <= 2, "seed {seed}: {n_left} names of level 2 collide with nothing");
            }
        }
    }
}

#[test]
fn all_slots_of_a_word_are_compared_as_one_by_one() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    for (value_bits, fingerprint_bits) in [(1, 15), (6, 10), (12, 4), (4, 8), (1, 30), (28, 4), (16, 16), (3, 20)] {
        let key = crate::hash::SecretKey::from_seed(seed);
        let format = Settings::new(value_bits, fingerprint_bits, 10, &key).format();
        let n_slots = 64 / format.slot_bits;
        for _ in 0..20_000 {
            // Few fingerprints and values, and the extreme ones, so that all cases occur.
            let pick = |bits: u32, rng: &mut Rng| {
                let mask = (1u64 << bits) - 1;
                [0, 1, mask, mask - 1, rng.next_u64() & mask][rng.below(5) as usize]
            };
            let slots: Vec<(u64, u64)> = (0..n_slots)
                .map(|_| (pick(format.fingerprint_bits, &mut rng), pick(format.value_bits, &mut rng)))
                .collect();
            let wanted = pick(format.fingerprint_bits, &mut rng);
            let word = (0..).zip(&slots).fold(0, |word, (at, &(fingerprint, value))| {
                word | u64::from(format.slot(fingerprint as u32, value)) << (at * format.slot_bits)
            });
            let expected = slots.iter().find(|slot| slot.0 == wanted && slot.1 != 0).map_or(0, |slot| slot.1);
            assert_eq!(table::find(format, word, wanted as u32), expected, "seed {seed}: {slots:?}, {wanted}");
        }
    }
}

/// Applies the writes of every message one at a time, and looks up the moved names after each. Returns the first that
/// is missed, if any. Newcomers must come last.
fn missed_between_writes(reversed: bool) -> Option<String> {
    const N: u64 = 3_000;
    let seed = seed();
    // Capacity for a twentieth more, so that no fluctuation of level 1 causes a rebuild.
    let settings = Settings::new(12, 8, 2 * N as usize, &SecretKey::from_seed(seed));
    let mut skeleton = FiltableSkeleton::<u64>::with_capacity(settings, N as usize / 20 * 21);
    let (mut view, mut query) = FiltableView::open(&skeleton, |value| value).unwrap();
    let nth = |n: u64| Digest(mix64(n ^ seed));
    let mut rng = Rng::new(seed);
    let (mut n_left, mut n_returned, mut newcomers_last, mut updates) = (0, 0, 0, Vec::new());
    for n in 0..20 * N {
        for is_new in [true, false] {
            // The newcomer, or the name that goes.
            let (change, name) = if is_new {
                (skeleton.insert(nth(n), 1 + n % 4_000).unwrap(), nth(n))
            } else if skeleton.len() == N as usize {
                let gone = std::iter::repeat_with(|| nth(rng.below(n))).find(|&gone| skeleton.get(gone).is_some());
                (skeleton.remove(gone.unwrap()), gone.unwrap())
            } else {
                continue;
            };
            view.updates(&skeleton, &change, |value| value, &mut updates).unwrap();
            let Some(Update::Slots(mut update)) = updates.pop().filter(|_| updates.is_empty()) else {
                panic!("seed {seed}: one message, for a table with room is not rebuilt")
            };
            assert_eq!(update.second, None, "seed {seed}: nor is its level 2");
            if reversed {
                update.writes.reverse();
            }
            let slots = &skeleton.slots;
            let moved = slots.iter().flat_map(|slot| [slot.old, slot.new]).flatten().map(|moved| moved.0);
            let live = moved.filter(|&moved| moved != name).filter_map(|moved| Some((moved, skeleton.get(moved)?)));
            let live: HashMap<Digest, u64> = live.collect();
            // One write at a time, as readers may see them; the query half computes the digest after each.
            for &write in &update.writes {
                let from = query.held().0;
                let one = |digest| {
                    Update::Slots(SlotsUpdate { from, to: from + 1, digest, second: None, writes: vec![write] })
                };
                let Err(ApplyError::WrongDigest { got, .. }) = query.apply(&one(0)) else { panic!("a digest of 0") };
                assert_eq!(query.apply(&one(got)), Ok(Applied::Applied));
                if let Some((moved, _)) = live.iter().find(|&(&moved, &value)| query.lookup(moved) != value) {
                    return Some(format!("seed {seed}: {moved:?} of {slots:?}"));
                }
            }
            assert_eq!(query.held().1, update.digest, "seed {seed}");
            n_returned += if is_new { 0 } else { slots.iter().filter(|slot| slot.new.is_some()).count() };
            for (at, slot) in slots.iter().enumerate() {
                if let (true, Place::First(_), None) = (is_new, slot.place, slot.new) {
                    // It left because of the newcomer, which must not be there before it is gone.
                    n_left += 1;
                    newcomers_last +=
                        u32::from(slots[at..].iter().any(|slot| slot.new.is_some_and(|new| new.0 == name)));
                }
            }
        }
        assert_eq!(query.lookup(nth(n)), skeleton.get(nth(n)).unwrap_or(0), "seed {seed}");
    }
    assert!(n_left > 500 && n_returned > 500, "{n_left} names left level 1, {n_returned} writes to bring some back");
    assert_eq!(n_left, newcomers_last, "seed {seed}: a newcomer was there before those that it collides with had left");
    None
}

#[test]
fn after_every_write_of_every_message_every_live_name_is_found_and_newcomers_come_last() {
    assert_eq!(missed_between_writes(false), None);
    assert!(missed_between_writes(true).is_some(), "the order of writes makes no difference");
}
