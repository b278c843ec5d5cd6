//! The time that daemons and the data plane go by, which a simulation may set; the [`date`]; when a file was written ([`Stamp`]).
//!
//! Nothing here is more than a few lines around the standard library. It is a crate because the data plane, the interface and the
//! daemons need the same clock, and neither of the first two may depend on the other.

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

    /// The time in this thread, from now on: so long after the beginning. `None`: the system's.
    pub fn set_time(since_begin: Option<Duration>) {
        TIME.set(since_begin.map(|since| *BEGIN + since));
    }

    /// The time of a simulation, since the beginning; none if the time is the system's.
    pub fn simulated() -> Option<Duration> {
        TIME.get().map(|time| time - *BEGIN)
    }

    /// The time.
    pub fn now() -> Instant {
        TIME.get().unwrap_or_else(Instant::now)
    }
}

#[cfg(feature = "kit")]
pub use kit::{now, set_time, simulated};

/// The time.
#[cfg(not(feature = "kit"))]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// The time of a simulation: there is none.
#[cfg(not(feature = "kit"))]
#[inline(always)]
pub const fn simulated() -> Option<std::time::Duration> {
    None
}
