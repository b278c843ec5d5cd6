//! Numbers that are found by the hash of what they number, without a copy of it.
//!
//! Open addressing with linear probing, over numbers of 32 bits. The caller compares, and hashes what a number stands
//! for when the index grows or closes a gap.
//!
//! Cost: 5 to 6.3 bytes a number. A search for what is absent reads 13 places on average when the index is full.
//! Source: Knuth, vol. 3, 6.4, algorithms L and R. Limits: numbers below 2^32 - 1. One place in five stays empty.

const EMPTY: u32 = u32::MAX;
/// At most this share of the places is in use.
const FULL: (usize, usize) = (4, 5);

/// An index. See the module.
#[derive(Clone, Debug, Default)]
pub struct HashIndex {
    places: Vec<u32>,
    len: usize,
}

impl HashIndex {
    /// An index with room for `n` numbers.
    pub fn with_capacity(n: usize) -> Self {
        Self { places: if n == 0 { Vec::new() } else { vec![EMPTY; n * FULL.1 / FULL.0 + 2] }, len: 0 }
    }

    /// The numbers in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.places.capacity() * 4
    }

    /// The number with this hash for which `is_it` holds.
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        // The loop ends: a place in five is empty.
        while self.places[at] != EMPTY {
            if is_it(self.places[at]) {
                return Some(self.places[at]);
            }
            at = self.next(at);
        }
        None
    }

    /// The numbers with hashes from `first` to `last`, and a few others, each once.
    pub fn near(&self, first: u64, last: u64) -> impl Iterator<Item = u32> + '_ {
        // Numbers are in the order of their hashes, but for those that moved over occupied places.
        let n = self.places.len();
        let (from, to) = if n == 0 { (0, 0) } else { (self.home(first), self.home(last) + 1) };
        let moved = self.places[to..].iter().chain(&self.places[..from]).take_while(|&&number| number != EMPTY);
        self.places[from..to].iter().filter(|&&number| number != EMPTY).chain(moved).copied()
    }

    /// Adds a number that is not in it. `hash_of` hashes the numbers that are.
    pub fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        debug_assert_ne!(number, EMPTY, "the number that stands for none");
        if self.places.len() < 2 || (self.len + 1) * FULL.1 > self.places.len() * FULL.0 {
            let old = std::mem::replace(self, Self::with_capacity(8 + self.len + self.len / 4));
            self.len = old.len;
            old.places
                .into_iter()
                .filter(|&number| number != EMPTY)
                .for_each(|number| self.occupy(hash_of(number), number));
        }
        self.insert_next(hash, number);
    }

    /// Adds a number that is not in it, for which there is room. In the order of the hashes this writes place after place.
    pub fn insert_next(&mut self, hash: u64, number: u32) {
        debug_assert!((self.len + 1) * FULL.1 <= self.places.len() * FULL.0, "there is room");
        self.occupy(hash, number);
        self.len += 1;
    }

    /// Puts `number` in the place of `old`, which has the same hash.
    pub fn replace(&mut self, hash: u64, old: u32, number: u32) {
        if let Some(at) = self.place_of(hash, old) {
            self.places[at] = number;
        }
    }

    /// Removes a number; false if it is not in it. `hash_of` hashes the others.
    pub fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) -> bool {
        let Some(mut gap) = self.place_of(hash, number) else { return false };
        let mut at = self.next(gap);
        while self.places[at] != EMPTY {
            // It may move into the gap unless its search starts after the gap.
            let home = self.home(hash_of(self.places[at]));
            let stays = if gap < at { gap < home && home <= at } else { gap < home || home <= at };
            if !stays {
                self.places[gap] = self.places[at];
                gap = at;
            }
            at = self.next(at);
        }
        self.places[gap] = EMPTY;
        self.len -= 1;
        true
    }

    fn place_of(&self, hash: u64, number: u32) -> Option<usize> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        while self.places[at] != EMPTY {
            if self.places[at] == number {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    fn occupy(&mut self, hash: u64, number: u32) {
        let mut at = self.home(hash);
        while self.places[at] != EMPTY {
            at = self.next(at);
        }
        self.places[at] = number;
    }

    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.places.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lookup::hash::{Rng, mix64};
    use lookup::testkit;
    use std::collections::BTreeSet;

    #[test]
    fn it_answers_like_a_set_also_when_hashes_collide() {
        let mut rng = Rng::new(testkit::seed());
        for hash_of in [|number: u32| mix64(u64::from(number) + 1), |number| u64::from(number % 7) << 61 | 1 << 60] {
            let (mut index, mut oracle) = (HashIndex::default(), BTreeSet::new());
            for _ in 0..10_000 {
                let number = rng.below(300) as u32;
                let found = index.find(hash_of(number), |found| found == number);
                let (first, last) = (hash_of(number).saturating_sub(1 << 62), hash_of(number));
                let is_near = |number: &u32| (first..=last).contains(&hash_of(*number));
                let mut near: Vec<u32> = index.near(first, last).filter(is_near).collect();
                near.sort_unstable();
                assert!(near.iter().eq(oracle.iter().filter(|number| is_near(number))));
                assert_eq!(found, oracle.get(&number).copied());
                if rng.below(2) == 0 {
                    assert_eq!(index.remove(hash_of(number), number, hash_of), oracle.remove(&number));
                } else if oracle.insert(number) {
                    index.insert(hash_of(number), number, hash_of);
                }
                assert_eq!(index.len(), oracle.len());
            }
        }
    }

    #[test]
    fn a_number_costs_at_most_six_and_a_half_bytes() {
        let mut index = HashIndex::default();
        for number in 0..200_000u32 {
            index.insert(mix64(number.into()), number, |number| mix64(number.into()));
            if number > 1000 {
                assert!(
                    index.heap_bytes() * 10 <= index.len() * 65,
                    "{} bytes, {} numbers",
                    index.heap_bytes(),
                    index.len()
                );
            }
        }
    }
}
