//! A model of cuckoo tables with buckets of any number of slots: it has bucket numbers and the places of entries, no
//! keys.

use crate::names::Random;

/// Maximum number of buckets that a search for a free slot reads.
const MAX_LOOKED_AT: usize = 2048;
/// The entry of a free slot.
const FREE: u32 = u32::MAX;

/// A table of entries with two buckets each.
struct Model {
    slots: usize,
    /// The entry that each slot holds.
    held: Vec<u32>,
    /// The first and the second bucket of each entry.
    homes: Vec<[u32; 2]>,
}

/// A bucket on a path to a free slot. `from`: the index of the previous step, and the lane of the entry that moves.
struct Step {
    bucket: u32,
    from: Option<(usize, usize)>,
}

/// Shares of the entries in their second bucket at each load, until an insert fails.
pub(super) fn second_shares(capacity: usize, slots: usize, loads: &[f64], seed: u64) -> Vec<f64> {
    let n_buckets = (capacity / slots) as u64;
    let mut random = Random::new(seed ^ slots as u64);
    let mut model = Model { slots, held: vec![FREE; n_buckets as usize * slots], homes: Vec::new() };
    let mut shares = Vec::new();
    for load in loads {
        let n = (model.held.len() as f64 * load) as usize;
        while model.homes.len() < n {
            let first = random.below(n_buckets);
            let second = (first + 1 + random.below(n_buckets - 1)) % n_buckets;
            if !model.insert([first as u32, second as u32]) {
                return shares;
            }
        }
        shares.push(model.second_share());
    }
    shares
}

impl Model {
    /// Inserts an entry by a shortest chain of moves; false if none is found.
    fn insert(&mut self, homes: [u32; 2]) -> bool {
        let name = self.homes.len() as u32;
        self.homes.push(homes);
        let mut steps: Vec<Step> = homes.map(|bucket| Step { bucket, from: None }).into();
        let mut at = 0;
        while at < steps.len().min(MAX_LOOKED_AT) {
            let bucket = steps[at].bucket;
            let held = &self.held[bucket as usize * self.slots..][..self.slots];
            if let Some(free) = held.iter().position(|&entry| entry == FREE) {
                self.shift(&steps, at, free, name);
                return true;
            }
            let others = held.iter().enumerate().map(|(lane, &entry)| {
                let [first, second] = self.homes[entry as usize];
                Step { bucket: if bucket == first { second } else { first }, from: Some((at, lane)) }
            });
            steps.extend(others);
            at += 1;
        }
        self.homes.pop();
        false
    }

    /// Moves the entries on the path to the free lane one step each, and puts `name` into the slot at its start.
    fn shift(&mut self, steps: &[Step], mut at: usize, free: usize, name: u32) {
        let mut slot = steps[at].bucket as usize * self.slots + free;
        while let Some((from, lane)) = steps[at].from {
            let source = steps[from].bucket as usize * self.slots + lane;
            self.held[slot] = self.held[source];
            (slot, at) = (source, from);
        }
        self.held[slot] = name;
    }

    fn second_share(&self) -> f64 {
        let in_second = |&(slot, &entry): &(usize, &u32)| {
            entry != FREE && self.homes[entry as usize][0] as usize != slot / self.slots
        };
        self.held.iter().enumerate().filter(in_second).count() as f64 / self.homes.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_in_one_of_its_buckets_once() {
        for slots in [1, 2, 4, 8] {
            let mut random = Random::new(9);
            let mut model = Model { slots, held: vec![FREE; 512 * slots], homes: Vec::new() };
            while model.insert([0, 1].map(|half| random.below(256) as u32 + 256 * half)) {}
            let mut seen = vec![false; model.homes.len()];
            for (slot, &entry) in model.held.iter().enumerate().filter(|(_, entry)| **entry != FREE) {
                assert!(model.homes[entry as usize].contains(&((slot / slots) as u32)));
                assert!(!std::mem::replace(&mut seen[entry as usize], true));
            }
            assert!(seen.iter().all(|&seen| seen), "{slots} slots");
        }
    }

    #[test]
    fn curves_end_where_theory_says_that_inserts_fail() {
        // Load thresholds of cuckoo tables with two choices: 0.5, 0.897, 0.980 (Dietzfelbinger and Weidling).
        let loads: Vec<f64> = (1..100).map(|percent| f64::from(percent) / 100.0).collect();
        for (slots, threshold) in [(1, 0.5), (2, 0.897), (4, 0.98)] {
            let shares = second_shares(1 << 15, slots, &loads, 3);
            let last = loads[shares.len() - 1];
            assert!((last - threshold).abs() < 0.05, "{slots} slots: to {last}");
            assert!(shares.iter().all(|share| (0.0..0.5).contains(share)));
        }
    }
}
