//! Cuckoo paths: the shortest chain of moves that frees a slot in one of a newcomer's buckets, found breadth first.
//!
//! Cost: under churn at load 0.95 an insert writes 2.1 slots, that is, moves 1.1 names; no chain has more than five
//! moves. A search looks at [`MAX_NODES`] slots at most, after which the table is rebuilt. Source: Zhou, Fan, Lim,
//! Kaminsky, Andersen, "Scalable, High Performance Ethernet Forwarding with CuckooSwitch", section 3.2.

use super::SLOTS;

/// Slots that a search looks at: those of 512 buckets, four levels below the newcomer's own and a part of the fifth. Of
/// 600,000 inserts at load 0.95 none failed.
const MAX_NODES: usize = 2048;

/// What a search needs to know of a table.
pub(super) trait Buckets {
    /// A free slot of a bucket.
    fn free_slot(&self, bucket: u32) -> Option<u32>;
    /// The other bucket of the name in a slot, or the same if both its buckets are one.
    fn other_bucket(&self, slot: u32) -> u32;
}

/// Room for searches, kept between them.
#[derive(Clone, Debug, Default)]
pub(super) struct Search {
    /// Slots whose names could move on, each with the place of the slot (plus one) that would move into it.
    nodes: Vec<(u32, u32)>,
    /// The latest chain: a free slot first, then whose name moves into the one before, the newcomer's slot last.
    pub(super) chain: Vec<u32>,
}

impl Search {
    /// Finds a chain for a newcomer with buckets `own`; false when there is none within bounds.
    pub(super) fn run(&mut self, table: &impl Buckets, own: [u32; 2]) -> bool {
        self.nodes.clear();
        self.chain.clear();
        if self.visit(table, own[0], 0) || self.visit(table, own[1], 0) {
            return true;
        }
        let mut at = 0;
        while at < self.nodes.len() && self.nodes.len() + SLOTS <= MAX_NODES {
            let bucket = table.other_bucket(self.nodes[at].0);
            at += 1;
            if self.visit(table, bucket, at as u32) {
                return true;
            }
        }
        false
    }

    /// Looks into a bucket that was reached from the node before `from`.
    fn visit(&mut self, table: &impl Buckets, bucket: u32, from: u32) -> bool {
        if let Some(free) = table.free_slot(bucket) {
            self.chain.push(free);
            let mut from = from;
            while from > 0 {
                let (slot, parent) = self.nodes[from as usize - 1];
                self.chain.push(slot);
                from = parent;
            }
            return true;
        }
        self.nodes.extend((0..SLOTS as u32).map(|slot| (bucket * SLOTS as u32 + slot, from)));
        false
    }
}
