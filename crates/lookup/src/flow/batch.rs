//! Lookups in batches of any length.

use super::FlowTable;
use super::Slot;
use super::policy::{Policy, Second};
use crate::cuckoo::BURST;
use crate::hash::Digest;

impl<const K: usize, const V: usize, P: Policy> FlowTable<K, V, P> {
    /// The digests of `keys`.
    /// # Panics
    /// If `keys` and `out` differ in length.
    pub fn digests(&self, keys: &[[u64; K]], out: &mut [Digest]) {
        assert_eq!(keys.len(), out.len(), "one digest a key");
        for (key, out) in keys.iter().zip(out) {
            *out = self.digest(key);
        }
    }

    /// `out[i] = lookup(&keys[i], digests[i])`, with memory latency hidden.
    /// # Panics
    /// If the slices differ in length.
    pub fn lookup_batch(&self, keys: &[[u64; K]], digests: &[Digest], out: &mut [Option<Slot>]) {
        assert!(keys.len() == digests.len() && keys.len() == out.len(), "one digest and one answer a key");
        let bursts = keys.chunks(BURST).zip(digests.chunks(BURST)).zip(out.chunks_mut(BURST));
        for ((keys, digests), out) in bursts {
            for &digest in digests {
                let place = self.store.place(digest);
                self.store.slab.prefetch_bucket(place.first);
                if P::SECOND == Second::Fetched {
                    self.store.slab.prefetch_bucket(self.store.away(place));
                }
            }
            for &digest in digests {
                let place = self.store.place(digest);
                let matches = self.store.bucket(place.first).matches::<P>(place.tag, self.clock.low());
                if matches != 0 {
                    self.store.slab.prefetch_entry(place.first * 8 + matches.trailing_zeros());
                } else if let Some(second) = self.store.second(place) {
                    self.store.slab.prefetch_bucket(second);
                }
            }
            for ((key, &digest), out) in keys.iter().zip(digests).zip(out) {
                *out = self.lookup(key, digest);
            }
        }
    }
}
