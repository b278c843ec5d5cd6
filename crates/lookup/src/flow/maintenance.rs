//! What the caller drives between bursts: the clock, the scan for ended entries, moves to first buckets, and growth.

use super::bucket::Line;
use super::clock::Step;
use super::error::CapacityError;
use super::layout::{Layout, lanes};
use super::policy::Policy;
use super::report::Progress;
use super::store::Store;
use super::table::{Table, store};

impl<L: Layout, P: Policy> Table<L, P> {
    /// Sets the clock to the caller's, in units. O(1), whatever the step.
    ///
    /// Timers have a granularity of one unit: a lifetime of `n` ends between `n - 1` and `n` units from now.
    pub fn advance(&mut self, now: u64) -> Step {
        let before = self.clock.low();
        let step = self.clock.advance(now);
        self.version += u64::from(self.clock.low() != before);
        match step {
            Step::Exact => {}
            Step::Back(units) => self.counters.back_units += units,
            Step::Held(units) => self.counters.held_units += units,
        }
        step
    }

    /// Units until the clock has to be held, unless the scan completes before.
    pub fn scan_due_in(&self) -> u64 {
        self.clock.left()
    }

    /// Visits the next `n_buckets` and removes ended entries; `ended` receives each. One cache line per bucket.
    ///
    /// A step ends with its round. Call it often enough that a round over all buckets takes less than [`scan_due_in`](Self::scan_due_in).
    pub fn scan(&mut self, n_buckets: usize, mut ended: impl FnMut(&L::Key, &L::Value)) -> Progress {
        let now = self.clock.low();
        let current = self.store.n_buckets();
        let all = current + self.old.as_ref().map_or(0, Store::n_buckets);
        let mut n_ended = 0;
        if self.scanned == 0 {
            self.clock.scan_begins();
        }
        let end = all.min(self.scanned.saturating_add(n_buckets));
        for bucket in self.scanned..end {
            let (store, bucket) = match &mut self.old {
                Some(old) if bucket >= current => (old, bucket - current),
                _ => (&mut self.store, bucket),
            };
            let line = store.bucket(bucket as u32);
            let dead = line.occupied() & !line.live::<P>(now);
            n_ended += store.clear(bucket as u32, dead, &mut ended);
        }
        self.version += n_ended as u64;
        self.scanned = end;
        if end >= all {
            self.scanned = 0;
            self.clock.scan_is_complete();
        }
        self.counters.ended_scanned += n_ended as u64;
        Progress { n_buckets_left: all - end, n_ended, n_moved: 0 }
    }

    /// Visits the next `n_buckets` and moves flows from their second bucket to their first, if that has a free slot
    /// now: a hit on them then reads one line less. At most eight moves per bucket, one line of metadata each: at most
    /// about 1 µs per bucket. Worthwhile if flows come and go: after many turnovers at load 0.8, 26 % of them are in
    /// their second bucket, after a round 12 %.
    ///
    /// A step ends with its round. While the table grows, migration does this, and there is nothing to visit.
    pub fn rehome(&mut self, n_buckets: usize) -> Progress {
        let (now, all) = (self.clock.low(), self.store.n_buckets());
        let mut n_moved = 0;
        if self.is_growing() {
            return Progress { n_buckets_left: 0, n_ended: 0, n_moved };
        }
        let end = all.min(self.homed.saturating_add(n_buckets));
        for bucket in self.homed..end {
            n_moved += self.store.rehome(bucket as u32, now);
        }
        self.version += n_moved as u64;
        self.homed = if end == all { 0 } else { end };
        self.counters.moved += n_moved as u64;
        Progress { n_buckets_left: all - end, n_ended: 0, n_moved }
    }

    /// Starts to double the capacity. O(1): [`migrate`](Self::migrate) moves the flows while lookups and inserts
    /// continue. A miss costs one lookup in each generation until all have moved.
    /// # Errors
    /// [`CapacityError`]; the table is unchanged then.
    pub fn grow(&mut self) -> Result<(), CapacityError> {
        if self.is_growing() {
            return Err(CapacityError::Growing);
        }
        let wanted = self.store.n_slots() * 2;
        if wanted > self.max_capacity {
            return Err(CapacityError::Limit { wanted, max: self.max_capacity });
        }
        self.old = Some(std::mem::replace(&mut self.store, store(wanted, &self.hasher)?));
        self.version += 1;
        (self.migrated, self.scanned, self.homed) = (0, 0, 0);
        Ok(())
    }

    /// Whether flows are being moved from an old generation.
    pub fn is_growing(&self) -> bool {
        self.old.is_some()
    }

    /// Moves the flows of the next `n_buckets` of the old generation to the new one; `ended` receives ended entries.
    /// About 1 µs per bucket. When the old generation is empty, its memory is returned.
    pub fn migrate(&mut self, n_buckets: usize, mut ended: impl FnMut(&L::Key, &L::Value)) -> Progress {
        let now = self.clock.low();
        let mut n_ended = 0;
        let mut n_moved = 0;
        let Some(old) = &mut self.old else { return Progress { n_buckets_left: 0, n_ended, n_moved } };
        let end = old.n_buckets().min(self.migrated.saturating_add(n_buckets));
        for bucket in self.migrated..end {
            let bucket = bucket as u32;
            let (occupied, live) = (old.bucket(bucket).occupied(), old.bucket(bucket).live::<P>(now));
            n_ended += old.clear(bucket, occupied & !live, &mut ended);
            for lane in (0..lanes::<L>()).filter(|lane| live >> lane & 1 != 0) {
                let slot = bucket * lanes::<L>() + lane;
                let (key, value) = (old.memory.key(slot), old.memory.value(slot));
                let place = self.store.place(L::digest(&self.hasher, key));
                let pair = (key, value);
                let times = (now, old.bucket(bucket).end(lane as usize));
                // A flow that finds no place stays, and is found, in the old generation until the next round.
                if let Ok(done) = self.store.insert(&mut self.search, pair, place, times, &mut ended) {
                    n_ended += usize::from(done.reused);
                    n_moved += 1;
                    self.counters.moved += done.n_moved as u64;
                    old.remove(slot);
                }
            }
        }
        self.version += 1;
        self.counters.ended_scanned += n_ended as u64;
        self.migrated = end;
        let n_buckets_left = old.n_buckets() - end;
        if n_buckets_left == 0 {
            self.migrated = 0;
            if old.n_entries() == 0 {
                self.old = None;
            }
        }
        Progress { n_buckets_left, n_ended, n_moved }
    }
}
