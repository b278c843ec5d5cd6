//! The clock of the daemons and the data plane, which a simulation may set; the [`date`]; when a file was written
//! ([`Stamp`]).
//!
//! All of it is a thin layer over the standard library. It is a crate because the data plane, the API and the daemons
//! need the same clock, and neither of the first two may depend on the other.

pub mod date;
mod stamp;

pub use stamp::Stamp;

#[cfg(feature = "kit")]
mod kit {
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    thread_local! {
        static TIME: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// Sets the time of this thread, as the time since the beginning. `None`: the system's time.
    pub fn set_time(since_begin: Option<Duration>) {
        TIME.set(since_begin.map(|since| *BEGIN + since));
    }

    /// The simulated time since the beginning; none if the time is the system's.
    pub fn simulated() -> Option<Duration> {
        TIME.get().map(|time| time - *BEGIN)
    }

    /// The current time.
    pub fn now() -> Instant {
        TIME.get().unwrap_or_else(Instant::now)
    }
}

#[cfg(feature = "kit")]
pub use kit::{now, set_time, simulated};

/// The current time.
#[cfg(not(feature = "kit"))]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The simulated time: always none here.
#[cfg(not(feature = "kit"))]
#[inline(always)]
pub const fn simulated() -> Option<std::time::Duration> {
    None
}
