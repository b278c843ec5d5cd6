//! The collision avoidance sets of all buckets in one table: maps (bucket, fingerprint) to the names that have both.
//!
//! The paper keeps a set of full names per bucket. Here each name is entered under its two (bucket, fingerprint) pairs
//! in one open-addressed table. A newcomer finds itself and the names that it collides with by two probes, instead of
//! being compared with the 15 names of two buckets. 27 bytes per name.

use super::Spots;
use crate::hash::mix64;

/// Maximum load of the table.
const FILL: f64 = 0.6;

/// Items are `tag << 32 | name + 1`, zero where empty. The tag alone gives the home slot, by range reduction, so an
/// item can be moved back without reading its name.
#[derive(Clone, Debug)]
pub(super) struct Index {
    items: Vec<u64>,
    n_items: usize,
}

impl Index {
    /// Capacity for `n_names`; grows beyond that.
    pub(super) fn new(n_names: usize) -> Self {
        Self { items: vec![0; ((n_names * 2) as f64 / FILL) as usize + 8], n_items: 0 }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.items.capacity() * 8
    }

    fn tags(spots: &Spots) -> impl Iterator<Item = u32> + use<> {
        let [first, second] = spots.buckets;
        let fingerprint = u64::from(spots.fingerprint) << 32;
        let tag = move |bucket: u32| (mix64(fingerprint | (u64::from(bucket) + 1)) >> 32) as u32;
        [Some(tag(first)), (second != first).then(|| tag(second))].into_iter().flatten()
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.items.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.items.len() { 0 } else { at + 1 }
    }

    /// Names under one of the two pairs: those that collide with `spots`, some twice, and a few with equal tags.
    pub(super) fn candidates<'a>(&'a self, spots: &Spots) -> impl Iterator<Item = u32> + use<'a> {
        Self::tags(spots).flat_map(move |tag| {
            let mut at = self.home(tag);
            std::iter::from_fn(move || {
                loop {
                    let item = self.items[at];
                    if item == 0 {
                        return None;
                    }
                    at = self.next(at);
                    if (item >> 32) as u32 == tag {
                        return Some(item as u32 - 1);
                    }
                }
            })
        })
    }

    pub(super) fn insert(&mut self, spots: &Spots, name: u32) {
        if (self.n_items + 2) as f64 > self.items.len() as f64 * FILL {
            let n_items = self.n_items;
            let old = std::mem::replace(self, Self::new(n_items + 8));
            old.items.into_iter().filter(|&item| item != 0).for_each(|item| self.put(item));
        }
        for tag in Self::tags(spots) {
            self.put((u64::from(tag) << 32) | (u64::from(name) + 1));
        }
    }

    fn put(&mut self, item: u64) {
        let mut at = self.home((item >> 32) as u32);
        while self.items[at] != 0 {
            at = self.next(at);
        }
        self.items[at] = item;
        self.n_items += 1;
    }

    pub(super) fn remove(&mut self, spots: &Spots, name: u32) {
        for tag in Self::tags(spots) {
            let item = (u64::from(tag) << 32) | (u64::from(name) + 1);
            let mut at = self.home(tag);
            while self.items[at] != item {
                assert_ne!(self.items[at], 0, "a name is removed that was inserted");
                at = self.next(at);
            }
            self.n_items -= 1;
            // Moves back the items displaced past this place, so that no probe ends early.
            let mut hole = at;
            loop {
                at = self.next(at);
                let item = self.items[at];
                if item == 0 {
                    break;
                }
                let home = self.home((item >> 32) as u32);
                let len = self.items.len();
                let distance = |from: usize, to: usize| if to >= from { to - from } else { to + len - from };
                if distance(home, at) >= distance(hole, at) {
                    self.items[hole] = item;
                    hole = at;
                }
            }
            self.items[hole] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::{Rng, seed};

    #[test]
    fn names_are_found_under_both_buckets_until_they_are_removed() {
        let seed = seed();
        let mut rng = Rng::new(seed);
        let mut index = Index::new(10);
        let mut present: Vec<(Spots, u32)> = Vec::new();
        for name in 0..20_000 {
            if rng.below(100) < 55 {
                let buckets = [rng.below(50) as u32, rng.below(50) as u32];
                let spots = Spots { buckets, fingerprint: rng.below(64) as u32 };
                index.insert(&spots, name);
                present.push((spots, name));
            } else if !present.is_empty() {
                let (spots, name) = present.swap_remove(rng.below(present.len() as u64) as usize);
                index.remove(&spots, name);
                assert!(!index.candidates(&spots).any(|found| found == name), "seed {seed}");
            }
            if name % 500 == 0 {
                for (spots, name) in &present {
                    for bucket in spots.buckets {
                        let one = Spots { buckets: [bucket; 2], ..*spots };
                        assert!(index.candidates(&one).any(|found| found == *name), "seed {seed}");
                    }
                }
            }
        }
        present.drain(..).for_each(|(spots, name)| index.remove(&spots, name));
        assert!(index.items.iter().all(|&item| item == 0) && index.n_items == 0);
    }
}
