//! Seams at which a simulation takes hold of the daemons: what time it is, and mistakes on purpose.
//!
//! Only with the feature `kit`. The product is built without: then the time is the system's, and no mistake is made.

/// A wrong decision of a daemon, which a simulation must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each is described where a simulation lists it")]
pub enum Mistake {
    InStepBeforeMessages,
    SentBeforeCommit,
    StatusIgnoresMaking,
    StatusIgnoresQueue,
    StatusIgnoresFlight,
    ReleaseSendsNothing,
    NeverReleased,
    ReportAnsweredWithNothing,
    DetachRemovesNewer,
    LatePhasesDropped,
    TermNotOutdone,
    AcknowledgedBetweenPhases,
    OldIdKept,
    AcknowledgesWhileItWaits,
    AcknowledgesWhatItRefuses,
}

/// Where the writer of a controller is in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// A change has been carried out in memory, or refused.
    Changed,
    /// The rows of the group are about to be committed.
    Committing,
    /// They are.
    Committed,
    /// A requester of the group is answered.
    Answered,
    /// The messages of the group are with the pusher.
    Made,
    /// What a switch lacks is known, and not yet sent.
    Attached,
    /// What a switch lacks is sent.
    Sent,
}

#[cfg(feature = "kit")]
mod kit {
    use super::Mistake;
    use std::cell::Cell;
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

    thread_local! {
        static TIME: Cell<Option<Instant>> = const { Cell::new(None) };
        static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// The time in this thread, from now on: so long after the beginning. `None`: the system's.
    pub fn set_time(since_begin: Option<Duration>) {
        TIME.set(since_begin.map(|since| *BEGIN + since));
    }

    /// The mistake that daemons make in this thread, from now on.
    pub fn set_mistake(mistake: Option<Mistake>) {
        MISTAKE.set(mistake);
    }

    /// The time.
    pub fn now() -> Instant {
        TIME.get().unwrap_or_else(Instant::now)
    }

    /// Whether to make this mistake.
    pub fn mistaken(mistake: Mistake) -> bool {
        MISTAKE.get() == Some(mistake)
    }
}

#[cfg(feature = "kit")]
pub use kit::{mistaken, now, set_mistake, set_time};

/// The time.
#[cfg(not(feature = "kit"))]
pub fn now() -> std::time::Instant {
    std::time::Instant::now()
}

/// Whether to make this mistake: no.
#[cfg(not(feature = "kit"))]
#[inline(always)]
pub const fn mistaken(_: Mistake) -> bool {
    false
}
