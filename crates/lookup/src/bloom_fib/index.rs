//! The inverted index: from a position of any filter to the names that may have it.
//!
//! A name is entered once for each of its numbers. A position of a filter corresponds to an interval of numbers, so one
//! index serves the filters of all ports, whatever their sizes; it returns a few names too many.
//! Cost: 6.4 bytes per number of a name. With d even ports a position concerns `k n / m = d ln 2` names.

use crate::base::prefetch::prefetch;

/// Names per line; the last place links to the next line of the same bucket.
const LINE_NAMES: usize = 15;
/// Names per bucket on average: nine of ten buckets fit one line.
const LOAD: usize = 10;

/// Maps intervals of numbers to names.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Names + 1, zero where empty, then the next line, zero if none. The first line of bucket b is line b.
    lines: Vec<[u32; LINE_NAMES + 1]>,
    n_buckets: u64,
    capacity: usize,
}

impl Index {
    /// An index for `capacity` names of `n_numbers` numbers each; it accepts more, but slows down.
    pub(super) fn new(capacity: usize, n_numbers: usize) -> Self {
        let n_buckets = (capacity * n_numbers).div_ceil(LOAD).max(1);
        Self { lines: vec![[0; LINE_NAMES + 1]; n_buckets], n_buckets: n_buckets as u64, capacity }
    }

    /// The number of names that the index is sized for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    fn bucket(&self, number: u32) -> usize {
        ((u64::from(number) * self.n_buckets) >> 32) as usize
    }

    /// Starts fetching what inserting or removing these numbers touches.
    pub(super) fn prefetch(&self, numbers: &[u32]) {
        numbers.iter().for_each(|&number| prefetch(self.lines.as_ptr().wrapping_add(self.bucket(number)).cast()));
    }

    pub(super) fn insert(&mut self, numbers: &[u32], name: u32) {
        for &number in numbers {
            let mut at = self.bucket(number);
            loop {
                let [names @ .., next] = &mut self.lines[at];
                if let Some(empty) = names.iter_mut().find(|place| **place == 0) {
                    *empty = name + 1;
                    break;
                }
                if *next == 0 {
                    let made = self.lines.len();
                    self.lines[at][LINE_NAMES] = made as u32;
                    self.lines.push([0; LINE_NAMES + 1]);
                    at = made;
                } else {
                    at = *next as usize;
                }
            }
        }
    }

    pub(super) fn remove(&mut self, numbers: &[u32], name: u32) {
        for &number in numbers {
            let mut at = self.bucket(number);
            loop {
                let [names @ .., next] = &mut self.lines[at];
                if let Some(place) = names.iter_mut().find(|place| **place == name + 1) {
                    *place = 0;
                    break;
                }
                assert_ne!(*next, 0, "a name is removed that was inserted");
                at = *next as usize;
            }
        }
    }

    /// Appends the names with a number in `first..=last`, and a few more; some twice.
    pub(super) fn candidates(&self, first: u32, last: u32, names: &mut Vec<u32>) {
        for bucket in self.bucket(first)..=self.bucket(last) {
            let mut at = bucket;
            loop {
                let [places @ .., next] = &self.lines[at];
                names.extend(places.iter().filter(|&&place| place != 0).map(|place| place - 1));
                if *next == 0 {
                    break;
                }
                at = *next as usize;
            }
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        std::mem::size_of_val(&*self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn names_are_found_by_every_interval_round_their_numbers_until_they_are_removed() {
        let seed = seed();
        let mut rng = Rng::new(seed);
        let mut index = Index::new(500, 3);
        let mut present: Vec<([u32; 3], u32)> = Vec::new();
        for name in 0..6_000 {
            if rng.below(100) < 60 {
                // Some numbers twice, and most of them close together.
                let mut number = || (rng.below(1 << 12) << rng.below(21)) as u32;
                let (a, b) = (number(), number());
                let numbers = [a, b, [a, number()][rng.below(2) as usize]];
                index.insert(&numbers, name);
                present.push((numbers, name));
            } else if !present.is_empty() {
                let (numbers, name) = present.swap_remove(rng.below(present.len() as u64) as usize);
                index.remove(&numbers, name);
                let mut found = Vec::new();
                index.candidates(0, u32::MAX, &mut found);
                assert!(!found.contains(&name), "seed {seed}");
            }
            if name % 500 == 0 {
                for (numbers, name) in &present {
                    for number in numbers {
                        let mut found = Vec::new();
                        index.candidates(number.saturating_sub(3), number.saturating_add(5), &mut found);
                        assert!(found.contains(name), "seed {seed}");
                    }
                }
            }
        }
        present.drain(..).for_each(|(numbers, name)| index.remove(&numbers, name));
        let mut found = Vec::new();
        index.candidates(0, u32::MAX, &mut found);
        assert!(found.is_empty());
    }
}
