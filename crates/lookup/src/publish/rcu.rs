//! Read-copy-update of a whole table. The writer publishes a new version by one store of a pointer. The old version is
//! freed once every reader has been quiescent.

#![expect(unsafe_code, reason = "publishes versions by pointer and frees them when readers are gone")]

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ring::Ring;
use super::{Domain, Epoch, Pin, ReaderSlot};
use crate::base::prefetch::BURST;
use crate::traits::ApplyError;

/// Bytes of old versions that may wait for readers before the next version is refused.
pub(crate) const RETIRED_LIMIT: usize = 64 << 20;

/// A version that was replaced, or that the writer left when it was dropped. Readers may still have references to it.
struct Old<T>(NonNull<T>);

// SAFETY: it is the only owner of a boxed value, and of nothing else.
unsafe impl<T: Send> Send for Old<T> {}

// SAFETY: nothing can be done with a reference to it.
unsafe impl<T: Send> Sync for Old<T> {}

impl<T> Old<T> {
    /// # Safety
    /// No reader follows the version any more.
    unsafe fn free(self) {
        // SAFETY: made by Box::into_raw, and by the caller's contract no reference is left.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

struct Shared<T> {
    pointer: AtomicPtr<T>,
    domain: Domain,
    /// Versions that a dropped writer could not free.
    left: Mutex<Vec<Old<T>>>,
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let left = std::mem::take(self.left.get_mut().unwrap_or_else(PoisonError::into_inner));
        let current = NonNull::new(*self.pointer.get_mut()).map(Old);
        for version in left.into_iter().chain(current) {
            // SAFETY: the last owner is being dropped, so no reader is left.
            unsafe { version.free() };
        }
    }
}

/// The writer's handle: it holds the current version.
pub(crate) struct RcuCell<T: Send + Sync> {
    shared: Arc<Shared<T>>,
    retired: VecDeque<(Epoch, Old<T>, usize)>,
    retired_bytes: usize,
}

impl<T: Send + Sync> RcuCell<T> {
    pub(crate) fn new(version: T) -> Self {
        let pointer = AtomicPtr::new(Box::into_raw(Box::new(version)));
        let shared = Shared { pointer, domain: Domain::new(), left: Mutex::new(Vec::new()) };
        Self { shared: Arc::new(shared), retired: VecDeque::new(), retired_bytes: 0 }
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: only `replace` retires the version, and it needs this handle exclusively.
        unsafe { &*self.shared.pointer.load(Ordering::Relaxed) }
    }

    /// Whether a version may be replaced now.
    /// # Errors
    /// [`ApplyError::ReadersStalled`].
    pub(crate) fn may_replace(&mut self) -> Result<(), ApplyError> {
        let passed = self.shared.domain.completed();
        while self.retired.front().is_some_and(|&(epoch, ..)| epoch <= passed) {
            let (_, version, bytes) = self.retired.pop_front().expect("it was there");
            self.retired_bytes -= bytes;
            // SAFETY: every reader announced an epoch after that of the replacement, so none refers to it.
            unsafe { version.free() };
        }
        let retired_bytes = self.retired_bytes;
        if retired_bytes > RETIRED_LIMIT {
            return Err(ApplyError::ReadersStalled { retired_bytes, limit_bytes: RETIRED_LIMIT });
        }
        Ok(())
    }

    /// Publishes the next version. The one before it, of `bytes` bytes, is freed once every reader has released it.
    /// # Errors
    /// As [`RcuCell::may_replace`]; the version is unchanged.
    pub(crate) fn replace(&mut self, version: T, bytes: usize) -> Result<(), ApplyError> {
        self.may_replace()?;
        self.replace_now(version, bytes);
        Ok(())
    }

    /// As [`RcuCell::replace`], after [`RcuCell::may_replace`] has allowed it.
    pub(crate) fn replace_now(&mut self, version: T, bytes: usize) {
        let old = self.shared.pointer.swap(Box::into_raw(Box::new(version)), Ordering::AcqRel);
        let old = NonNull::new(old).expect("it came from a box");
        self.retired.push_back((self.shared.domain.advance(), Old(old), bytes));
        self.retired_bytes += bytes;
    }

    pub(crate) fn retired_bytes(&self) -> usize {
        self.retired_bytes
    }

    /// A reader whose bursts in flight remember a `B`.
    pub(crate) fn reader<B: Default>(&self) -> RcuReader<T, B> {
        RcuReader {
            slot: self.shared.domain.register(),
            shared: Arc::clone(&self.shared),
            in_flight: Ring::new(|_| InFlight { version: NonNull::dangling(), n: 0, burst: B::default() }),
        }
    }
}

impl<T: Send + Sync> Drop for RcuCell<T> {
    fn drop(&mut self) {
        let mut left = self.shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(self.retired.drain(..).map(|(_, version, _)| version));
    }
}

/// A burst that has begun: the version that it follows, and what it must remember.
struct InFlight<T, B> {
    version: NonNull<T>,
    /// How many keys it has.
    n: usize,
    burst: B,
}

// SAFETY: the version is shared between threads, and the reader that has the burst holds it wherever it goes.
unsafe impl<T: Send + Sync, B: Send> Send for InFlight<T, B> {}

/// A reader's handle.
pub(crate) struct RcuReader<T, B = ()> {
    slot: ReaderSlot,
    shared: Arc<Shared<T>>,
    in_flight: Ring<InFlight<T, B>>,
}

impl<T, B> RcuReader<T, B> {
    /// The version for one burst. The reader must use nothing from an earlier burst that is not in flight.
    #[inline]
    pub(crate) fn pin(&mut self) -> (&T, Pin<'_>) {
        let pin = self.slot.pin();
        // SAFETY: a version that is found while pinned is not freed before this reader is quiescent, that is, before
        // the borrow of `self` in the result ends and `pin` or `offline` is called.
        (unsafe { &*self.shared.pointer.load(Ordering::Acquire) }, pin)
    }

    /// Begins a burst of `n` keys on the present version.
    /// # Panics
    /// When there are more than [`BURST`] keys, or too many bursts in flight.
    #[inline]
    pub(crate) fn begin(&mut self, n: usize, locate: impl FnOnce(&T, &mut B)) {
        assert!(n <= BURST, "a burst has at most {BURST} names");
        self.slot.begin();
        let in_flight = self.in_flight.push();
        in_flight.n = n;
        in_flight.version = NonNull::new(self.shared.pointer.load(Ordering::Acquire)).expect("a version is always set");
        // SAFETY: as in `pin`. A burst in flight holds its version as a pin does, until the slot is told.
        locate(unsafe { in_flight.version.as_ref() }, &mut in_flight.burst);
    }

    /// Finishes the oldest burst in flight, on the version on which it was begun. `ns` are the numbers of keys and values.
    /// # Panics
    /// When no burst is in flight, or it was begun with another number of keys.
    #[inline]
    pub(crate) fn finish(&mut self, ns: [usize; 2], read: impl FnOnce(&T, &mut B)) {
        let InFlight { version, n, burst } = self.in_flight.pop();
        assert!(ns == [*n; 2], "a burst is finished with what it was begun with");
        // SAFETY: as in `begin`.
        read(unsafe { version.as_ref() }, burst);
        self.slot.finish();
    }

    /// Declares that this thread reads nothing until the next burst. Bursts in flight are given up.
    pub(crate) fn offline(&mut self) {
        self.in_flight.clear();
        self.slot.offline();
    }
}
