//! Counters that one thread writes and any thread reads: plain loads and stores, no locked instruction.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A 64-bit counter with a single writer. `add` is a load and a store: two writers would lose counts.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the owning thread may call it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count so far, from any thread.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! device_counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of a device. Written by the thread that owns the device, read by any thread. It has its own cache
        /// line, so that reading one worker's counts does not slow another down.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct DeviceCounters { $($(#[$doc])* pub $name: Counter,)* }

        /// The counts of a device at one moment.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct DeviceSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl DeviceCounters {
            /// Reads all counters. They may differ from each other by the frames of one burst.
            pub fn snapshot(&self) -> DeviceSnapshot {
                DeviceSnapshot { $($name: self.$name.get(),)* }
            }
        }

        impl DeviceSnapshot {
            /// Names and counts, in a fixed order, for reports.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for DeviceSnapshot {
            fn add_assign(&mut self, other: Self) { $(self.$name += other.$name;)* }
        }
    };
}

device_counters! {
    /// Frames handed to the worker.
    rx_frames,
    /// Bytes of those frames.
    rx_bytes,
    /// Frames that arrived longer than a buffer and were dropped: longer than the MTU, or super-frames where they are not taken.
    rx_oversized,
    /// Of `rx_frames`, super-frames: each is several segments on a wire.
    rx_super,
    /// Segments of TCP that arrived one by one and were joined to super-frames, each of which is one of `rx_frames` and of `rx_super`.
    rx_joined,
    /// Frames lost before the worker could take them: the ring was full.
    rx_overrun,
    /// Of `rx_frames`, those that came while no process was there, and waited for this one.
    rx_waited,
    /// Frames that waited so for too long, and were dropped.
    rx_stale,
    /// Frames that a capture or a driver delivered incomplete or unreadable; dropped.
    rx_malformed,
    /// Frames whose checksum the sender had left to its hardware, completed here.
    rx_checksums,
    /// Of `rx_frames`, those that the kernel counts as dropped besides, once this device has them: it took a tag off, and has no use for what
    /// was behind it.
    rx_twice,
    /// Frames sent. A super-frame that is cut counts as its segments.
    tx_frames,
    /// Bytes of those frames.
    tx_bytes,
    /// Super-frames that were sent whole.
    tx_super,
    /// Segments into which this switch cut super-frames, because the device or the interface does not take these.
    tx_segments,
    /// Frames the interface refused for good (longer than its MTU, shorter than a header); dropped.
    tx_refused,
    /// Times that the interface was found missing or down.
    faults,
}
