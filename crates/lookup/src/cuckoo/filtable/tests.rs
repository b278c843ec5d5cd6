//! The invariant of the levels, against all pairs of names.

use super::*;
use crate::testkit::{Rng, seed};

/// Checks every pair of names by their spots; says how many names are in level 2 without a collision.
fn check(skeleton: &Skeleton<u32>, removed: &[Digest]) -> usize {
    let (tweak, first) = skeleton.first();
    let spots = |digest| {
        let n_buckets = (skeleton.n_first_slots() / SLOTS) as u32;
        Spots::of(digest, tweak, n_buckets, skeleton.settings().fingerprint_bits.into())
    };
    let tombstones = removed.iter().copied().filter(|&digest| skeleton.has_tombstone(digest));
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
        let mut skeleton = Skeleton::<u32>::new(Settings::new(8, fingerprint_bits, 600, &key), 600);
        let mut rng = Rng::new(seed);
        let name = |n: u64| Digest(mix64(n ^ seed));
        for operation in 0..6_000 {
            let digest = name(rng.below(900));
            if rng.below(100) < 60 && skeleton.len() < 600 {
                skeleton.insert(digest, operation).unwrap();
            } else {
                skeleton.remove(digest);
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
            // Few fingerprints and values, and the extreme ones, so that all cases come.
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
