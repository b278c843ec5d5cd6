//! Hooks for simulations of the daemons: the time, and deliberate mistakes.
//!
//! Only with the feature `kit`, and mistakes also with `crash-points`: the environment variable `FIBULA_MISTAKE` names
//! the one that a process makes. The product is built without these: it uses the system's time, and makes no deliberate
//! mistakes.

/// A wrong decision of a daemon or a command that a simulation or a kill campaign must notice.
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
    RekeyNotStored,
    RekeyLeavesSwitches,
    VerifiedAtAnyVersion,
    ReportsMiscounted,
    CommitsPutOff,
    CommittedInHalves,
    SealedAfterCommit,
    LogNotWritten,
    LogNotSynced,
    LogBegunEarly,
    CopyInPlace,
    PartsLookWhole,
    AuditedAfterAnswer,
    ImageInPlace,
    ImageNotReplaced,
    AuthorityBeforeKey,
    HeldBeforeRecord,
    GuardLeftOut,
    FailedGuardIsSuccess,
    LeadKeepsSeal,
    JournalThrownAway,
    JournalNamedFirst,
    LeadsBehind,
    FollowsBlindly,
    UntoldIsNothing,
}

/// The position of a controller's writer in its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// A change has been carried out in memory, or refused.
    Changed,
    /// The rows of the group are about to be committed.
    Committing,
    /// The rows were committed.
    Committed,
    /// A requester of the group is answered.
    Answered,
    /// The pusher has the messages of the group.
    Made,
    /// The missing messages of a switch are known, but not yet sent.
    Attached,
    /// The missing messages of a switch were sent.
    Sent,
}

#[cfg(feature = "kit")]
mod kit {
    use super::Mistake;
    use std::cell::Cell;

    thread_local! {
        static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// Sets the mistake that daemons make in this thread from now on.
    pub fn set_mistake(mistake: Option<Mistake>) {
        MISTAKE.set(mistake);
    }

    /// Whether this thread makes this mistake.
    pub(super) fn mistaken(mistake: Mistake) -> bool {
        MISTAKE.get() == Some(mistake)
    }
}

#[cfg(feature = "kit")]
pub use ::clock::set_time;
pub use ::clock::{now, simulated};
#[cfg(feature = "kit")]
pub use kit::set_mistake;

/// Whether this process makes this mistake.
#[cfg(feature = "crash-points")]
fn is_of_process(mistake: Mistake) -> bool {
    static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let name = NAME.get_or_init(|| std::env::var("FIBULA_MISTAKE").ok());
    name.as_ref().is_some_and(|name| *name == format!("{mistake:?}"))
}

/// Whether to make this mistake.
#[cfg(any(feature = "kit", feature = "crash-points"))]
pub fn mistaken(mistake: Mistake) -> bool {
    #[cfg(feature = "kit")]
    if kit::mistaken(mistake) {
        return true;
    }
    #[cfg(feature = "crash-points")]
    if is_of_process(mistake) {
        return true;
    }
    false
}

/// Whether to make this mistake: no.
#[cfg(not(any(feature = "kit", feature = "crash-points")))]
#[inline(always)]
pub const fn mistaken(_: Mistake) -> bool {
    false
}
