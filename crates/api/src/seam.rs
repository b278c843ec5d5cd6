//! Seams at which a simulation takes hold of the daemons: what time it is, and mistakes on purpose.
//!
//! Only with the feature `kit`, and mistakes also with `crash-points`: the environment variable `FIBULA_MISTAKE` names the
//! one that a process makes. The product is built without: then the time is the system's, and no mistake is made.

/// A wrong decision of a daemon or a command, which a simulation or a campaign of kills must notice.
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

    thread_local! {
        static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) };
    }

    /// The mistake that daemons make in this thread, from now on.
    pub fn set_mistake(mistake: Option<Mistake>) {
        MISTAKE.set(mistake);
    }

    /// Whether this thread is to make this mistake.
    pub(super) fn mistaken(mistake: Mistake) -> bool {
        MISTAKE.get() == Some(mistake)
    }
}

#[cfg(feature = "kit")]
pub use ::clock::set_time;
pub use ::clock::{now, simulated};
#[cfg(feature = "kit")]
pub use kit::set_mistake;

/// Whether this process is to make this mistake.
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
