//! Hooks for simulations of the daemons: the time, and deliberate mistakes.
//!
//! Only with the feature `kit`, and mistakes also with `crash-points`: the environment variable `FIBULA_MISTAKE` names
//! the one that a process makes. The product is built without these: it uses the system's time, and makes no deliberate
//! mistakes.

mod mistakes {
    fib::mistakes! {
        /// A wrong decision of a daemon or a command that a simulation or a kill campaign must notice.
        #[allow(missing_docs, reason = "each is described where a simulation lists it")]
        pub(super) mistaken: {
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
    }
}

pub use mistakes::Mistake;
#[cfg(feature = "kit")]
pub use mistakes::set_mistake;

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
pub use ::clock::set_time;
pub use ::clock::{now, simulated};

/// Whether this process makes this mistake.
#[cfg(feature = "crash-points")]
fn is_of_process(mistake: Mistake) -> bool {
    static NAME: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let name = NAME.get_or_init(|| std::env::var("FIBULA_MISTAKE").ok());
    name.as_ref().is_some_and(|name| *name == format!("{mistake:?}"))
}

/// Whether this process makes this mistake: no.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
const fn is_of_process(_: Mistake) -> bool {
    false
}

/// Whether to make this mistake, in this thread or in this process. The product makes none.
#[inline]
pub fn mistaken(mistake: Mistake) -> bool {
    mistakes::mistaken(mistake) || is_of_process(mistake)
}
