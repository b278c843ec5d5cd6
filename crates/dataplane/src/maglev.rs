//! Servers by digest: a table of slots, each with a server, in proportion to weights.
//!
//! A digest leads to the server in the slot that it gives. A server has slots in proportion to its
//! weight, exact to one slot. Each server has its own order of slots, and the servers take turns to claim the next free
//! slot in their order. So few slots of the other servers change when one comes or goes, and switches with similar lists
//! of servers choose alike.
//!
//! Source: Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4.
//! Differs: servers have weights, as shares of the turns. Cost: a choice reads one slot. A table is filled in
//! milliseconds.

use lookup::hash::mix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Slots of a table: a prime, so that every step visits all of them. Shares are exact to 0.002 %.
pub const SLOTS: usize = 65_537;
/// The largest weight.
pub const MAX_WEIGHT: u16 = 1000;

/// The content of a slot if there are no servers.
pub const NOBODY: u16 = u16::MAX;

/// A server that takes part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// The value of its slots.
    pub index: u16,
    /// The seed of its order of slots: the same wherever the server is known.
    pub name: u64,
    /// Its share, relative to the sum of all weights.
    pub weight: u16,
}

/// The slot of a digest.
#[inline]
pub fn slot(digest: u64) -> usize {
    ((u128::from(mix64(digest)) * SLOTS as u128) >> 64) as usize
}

/// Fills the slots with servers. Those with weight 0 get none.
/// # Panics
/// If there are not [`SLOTS`] slots.
pub fn fill(slots: &mut [u16], servers: impl Iterator<Item = Server>) {
    struct Claim {
        index: u16,
        weight: u64,
        /// The number of slots that it gets.
        quota: u64,
        taken: u64,
        at: usize,
        step: usize,
    }
    assert_eq!(slots.len(), SLOTS, "every step visits all slots of a table of that size");
    let servers: Vec<Server> = servers.filter(|server| server.weight > 0).collect();
    let weights = servers.iter().map(|server| u64::from(server.weight));
    let (total, heaviest) = weights.fold((0, 0), |(sum, max), weight| (sum + weight, weight.max(max)));
    slots.fill(NOBODY);
    let (mut claims, mut weight_before) = (Vec::new(), 0);
    for Server { index, name, weight } in servers {
        let weight = u64::from(weight);
        let share = |weight: u64| SLOTS as u64 * weight / total;
        claims.push(Claim {
            index,
            weight,
            quota: share(weight_before + weight) - share(weight_before),
            taken: 0,
            at: (name % SLOTS as u64) as usize,
            step: 1 + (mix64(name ^ 1) % (SLOTS as u64 - 1)) as usize,
        });
        weight_before += weight;
    }
    // In each round the server with the largest weight takes one slot. A server with a smaller weight takes a slot
    // in those rounds in which its share has grown by one. Rounds in which no server is due are skipped.
    let due = |claim: &Claim| claim.taken * heaviest / claim.weight + 1;
    let is_open = |claim: &Claim| claim.taken < claim.quota;
    let mut turns: BinaryHeap<_> =
        (0..claims.len()).filter(|&i| is_open(&claims[i])).map(|i| Reverse((1, i))).collect();
    while let Some(Reverse((_, i))) = turns.pop() {
        let claim = &mut claims[i];
        while slots[claim.at] != NOBODY {
            claim.at = (claim.at + claim.step) % SLOTS;
        }
        slots[claim.at] = claim.index;
        claim.taken += 1;
        if is_open(claim) {
            turns.push(Reverse((due(claim), i)));
        }
    }
}
