//! Quiescent-state-based reclamation: when memory that readers may still be reading can be reused.
//!
//! ```text
//! writer                                    reader
//!   entry.publish(new)                        e = epoch.load(Acquire)
//!   e = epoch.fetch_add(1, AcqRel) + 1        if e != announced: announced = e; seen.store(e, Release)
//!   ...                                       if it was offline: fence(SeqCst)
//!   fence(SeqCst)                             v = entry.load(Acquire), reads of v, ...
//!   all seen.load(Acquire) >= e or offline?
//!   then no reader uses the old version
//! ```
//! A reader that announced e has seen the entry unpublished before e, and its earlier reads are complete. This follows
//! from the two Acquire-Release pairs, on `epoch` and on `seen`. A reader that was offline may announce an older epoch
//! while the writer scans. The two fences ensure that either the writer sees it online, or it sees the new entry.
//!
//! **Several bursts in flight.** A reader may begin a burst before it has finished the one before. It loads the epoch
//! at the beginning of each, and announces that of the oldest in flight. What a burst loaded was not unpublished before
//! the burst's own epoch, and the epochs of later bursts are not smaller. So the announcement holds for all of them.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};

use super::ring::Ring;
use super::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence, required, step};

/// The announcement of an offline reader: newer than every epoch.
const OFFLINE: u64 = u64::MAX;

/// A point in the writer's history; later epochs compare greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(u64);

/// The readers of one or more structures that one thread writes. Cheap to clone; clones are the same domain.
///
/// ```
/// use fibula_lookup::publish::{Domain, Entry};
///
/// let (domain, entry) = (Domain::new(), Entry::new(0));
/// let mut reader = domain.register();
/// reader.pin();
/// assert_eq!(entry.load(), 0); // version 0 may be read until the next pin
///
/// entry.publish(1); // the writer: version 0 is unpublished,
/// let epoch = domain.advance(); // before this epoch,
/// assert!(!domain.passed(epoch)); // and may still be read
///
/// reader.pin();
/// assert!(domain.passed(epoch)); // now it may be reused
/// ```
#[derive(Clone, Debug)]
pub struct Domain(Arc<Shared>);

/// Two cache lines, because processors fetch them in pairs: a reader's announcement does not disturb other threads.
#[repr(align(128))]
#[derive(Debug)]
struct Padded(AtomicU64);

#[derive(Debug)]
struct Shared {
    epoch: Padded,
    /// The latest announcement of every registered reader.
    seen: Mutex<Vec<Arc<Padded>>>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Vec<Arc<Padded>>> {
        // Nothing panics while it holds the lock, and the list is consistent at every step.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Domain {
    /// A domain without readers.
    pub fn new() -> Domain {
        Domain(Arc::new(Shared { epoch: Padded(AtomicU64::new(0)), seen: Mutex::new(Vec::new()) }))
    }

    /// Adds a reader, which is offline until its first [`pin`](ReaderSlot::pin). Takes a lock. There is no limit on
    /// readers.
    pub fn register(&self) -> ReaderSlot {
        let seen = Arc::new(Padded(AtomicU64::new(OFFLINE)));
        // The lock orders this against a scan: a reader that a scan misses sees everything before the scan.
        self.0.seen().push(Arc::clone(&seen));
        ReaderSlot { shared: Arc::clone(&self.0), seen, announced: OFFLINE, in_flight: Ring::new(|_| 0) }
    }

    /// Starts the next epoch. Call it **after** unpublishing, and keep the epoch with the unpublished memory.
    pub fn advance(&self) -> Epoch {
        Epoch(self.0.epoch.0.fetch_add(1, required!(EpochAdvancedRelaxed, AcqRel)) + 1)
    }

    /// Whether every reader has released what was unpublished before `epoch` began. Never blocks on a reader.
    ///
    /// It costs as much as [`completed`](Domain::completed). For a list of retired memory, call that once.
    pub fn passed(&self, epoch: Epoch) -> bool {
        epoch <= self.completed()
    }

    /// The newest epoch that has [`passed`](Domain::passed). Costs one fence, one lock and one cache line per reader:
    /// 10 ns, or a miss (some 50 ns) for each reader that announced since.
    pub fn completed(&self) -> Epoch {
        // Acquire for epochs that another thread began. For the writer's own, less would be enough.
        let now = self.0.epoch.0.load(Ordering::Acquire);
        step!(ScanUnfenced, fence(Ordering::SeqCst));
        let seen = self.0.seen();
        let oldest = seen.iter().map(|seen| seen.0.load(required!(ScannedRelaxed, Acquire))).min();
        Epoch(oldest.map_or(now, |oldest| oldest.min(now)))
    }

    /// Readers registered now, online or not.
    pub fn n_readers(&self) -> usize {
        self.0.seen().len()
    }
}

impl Default for Domain {
    fn default() -> Domain {
        Domain::new()
    }
}

/// A reader's slot in a [`Domain`], one per thread. Dropping it removes the reader.
///
/// A slot that is leaked while online holds the writer's memory forever: the writer then reports stalled readers.
#[derive(Debug)]
pub struct ReaderSlot {
    shared: Arc<Shared>,
    seen: Arc<Padded>,
    /// A copy of `seen`, which saves a load.
    announced: u64,
    /// The epochs in which the bursts in flight began.
    in_flight: Ring<u64>,
}

impl ReaderSlot {
    /// Releases everything read under the last pin, and starts a new read. Call it once per burst. If bursts are
    /// [in flight](ReaderSlot::begin), it releases nothing.
    ///
    /// Cost: a load; if the writer advanced since, also a store; if the slot was offline, also a full fence.
    #[inline]
    pub fn pin(&mut self) -> Pin<'_> {
        if self.in_flight.is_empty() {
            self.enter();
        }
        Pin(PhantomData)
    }

    /// Begins a burst. What is loaded from the entries of the domain for it is not changed until the burst is
    /// [finished](ReaderSlot::finish). Other bursts may be in flight.
    /// # Panics
    /// When [`IN_FLIGHT`](super::ring::IN_FLIGHT) bursts are in flight.
    #[inline]
    pub fn begin(&mut self) {
        let epoch = if self.in_flight.is_empty() {
            self.enter()
        } else {
            self.shared.epoch.0.load(required!(EpochOfBurstRelaxed, Acquire))
        };
        *self.in_flight.push() = epoch;
    }

    /// Finishes the oldest burst in flight: nothing that was read for it is read again.
    /// # Panics
    /// When no burst is in flight.
    #[inline]
    pub fn finish(&mut self) {
        self.in_flight.pop();
        let Some(&oldest) = self.in_flight.oldest() else { return };
        #[cfg(loom)]
        let oldest = if super::mutants::Mutant::NewestAnnounced.is_active() {
            self.shared.epoch.0.load(Ordering::Acquire)
        } else {
            oldest
        };
        if oldest != self.announced {
            self.announce(oldest);
        }
    }

    /// Releases everything until the next pin. Call it before sleeping, so that the writer need not wait. Bursts in
    /// flight are given up.
    pub fn offline(&mut self) {
        self.in_flight.clear();
        self.seen.0.store(OFFLINE, required!(OfflineRelaxed, Release));
        self.announced = OFFLINE;
    }

    /// Announces the current epoch, and returns it.
    #[inline]
    fn enter(&mut self) -> u64 {
        let epoch = self.shared.epoch.0.load(required!(EpochLoadedRelaxed, Acquire));
        if epoch != self.announced {
            self.announce(epoch);
        }
        epoch
    }

    fn announce(&mut self, epoch: u64) {
        // Release even from offline: a scan that reads this store must see the reads from before the reader went
        // offline.
        let announcement = required!(AnnouncedRelaxed, Release);
        if self.announced == OFFLINE {
            step!(OnlineUnannounced, self.seen.0.store(epoch, announcement));
            step!(OnlineUnfenced, fence(Ordering::SeqCst));
        } else {
            self.seen.0.store(epoch, announcement);
        }
        self.announced = epoch;
    }
}

impl Drop for ReaderSlot {
    fn drop(&mut self) {
        self.offline();
        self.shared.seen().retain(|seen| !Arc::ptr_eq(seen, &self.seen));
    }
}

/// While it exists, what its reader loads from the entries of the domain is not changed.
#[derive(Debug)]
pub struct Pin<'a>(PhantomData<&'a mut ReaderSlot>);
