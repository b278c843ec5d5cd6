//! A whole system under faults, on one scheduler: a controller, switches, operators, their disks and their connections.
//!
//! ```text
//! operators ─► writer ─► store (write, sync) ─► answer ─► pusher ─► streams ─► switches ─► saved images
//!                ▲            full, torn                   phases     cut, broken  crash       torn
//!                └────────────────────────── reports, acknowledgements ◄┘
//! ```
//! **Real**: the decisions of the daemons: the controller's writer, sessions, pusher and status
//! ([`controller::kit::Owner`]), the switch's following of a stream ([`switch::daemon::agent::Following`]), and below them
//! the network, the replica, the codecs, the rows of the store and the saved images. **Modelled**: what they build on:
//! threads (each runs for a step at a time), connections (in order as TCP's, with few messages on the way), the store's file,
//! and the file of a saved image. Time is virtual. Everything follows from the seed; [`Outcome::trace`] is a hash over all
//! events.
//!
//! **Faults.** Streams break, switches are cut off, and both ends notice at different times; messages on the way are
//! lost, sent again, or overtake those of the next stream. The controller and switches crash, at named points too; what was
//! written but not synced is lost or torn. The disk fills up. The store is set back to a backup. The controller pauses while
//! time passes, and its clock jumps ahead. (No decision reads the date: time is what has passed since some moment.) Another
//! controller is started on a copy of the store, now or as it was, while the first runs on, without operators, and serves the
//! switches that reach it until it is stopped. The state of a switch that it has served is unknown until the first has served it.
//!
//! **What must hold** after every event, and at every named point of a turn of the writer:
//! - Changes that were answered survive every restart. Each request that was not answered survives whole or not at all.
//! - For a name that exists, a switch answers as the network said at some change between the last that the switch is known
//!   to have whole, by its acknowledgements and by the status, and the last that is committed. The same is true of its exact
//!   tables. Or it drops, if the value of the name has got another meaning in between, in port mode.
//! - A switch that the status calls in step answers as of the last answered change or later.
//! - A verification of a switch finds no difference.
//! - A frame for a name that has not changed lately arrives where the name is attached, and does not loop.
//! - A switch that once saved its image has a usable one.
//! - After the faults, all switches are in step and lack nothing.
//!
//! [`Mutant`]s are mistakes that the daemons, or what they build on, can be told to make. Tests require that each is found.
//!
//! Limits: one controller; certificates, rates and audit are not part of it.

mod check;
mod controller;
mod history;
mod operators;
mod store;
mod switch;
mod totals;
mod watch;
mod world;

pub use totals::{Outcome, Totals};

use api::seam::Mistake;

/// What is run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Seed of everything.
    pub seed: u64,
    /// Number of switches, 3 to 50.
    pub switches: usize,
    /// Number of requests of operators.
    pub steps: usize,
    /// Bits of a value in port mode. With 3 of them destinations share, and ports take values from them.
    pub value_bits: u8,
    /// A mistake to make.
    pub mutant: Option<Mutant>,
    /// Crashes at this point, counted from 0 over the run; see [`Outcome::points`].
    pub kill: Option<u64>,
    /// Whether to print the events on standard error.
    pub log: bool,
}

impl Scenario {
    /// 3 to 8 switches, 40 requests, values of 8 bits or of 3.
    pub fn new(seed: u64) -> Scenario {
        let (switches, value_bits) = (3 + (seed % 6) as usize, if (seed / 6).is_multiple_of(2) { 8 } else { 3 });
        Scenario { seed, switches, steps: 40, value_bits, mutant: None, kill: None, log: false }
    }
}

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident $(= $mistake:ident)?,)*) => {
        /// A mistake.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant { $($(#[$doc])* $name,)* }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name,)*];

            /// The mistake in the code of the daemons; of the others, what they stand on makes them.
            fn mistake(self) -> Option<Mistake> {
                match self {
                    $($(Mutant::$name => Some(Mistake::$mistake),)?)*
                    _ => None,
                }
            }
        }
    };
}

mutants! {
    /// A released switch is called in step before the messages with what it lacks are made.
    InStepBeforeMessages = InStepBeforeMessages,
    /// Messages are sent before their rows are committed.
    SentBeforeCommit = SentBeforeCommit,
    /// In step between the commit and the making of messages.
    StatusIgnoresMaking = StatusIgnoresMaking,
    /// In step although messages wait for the pusher.
    StatusIgnoresQueue = StatusIgnoresQueue,
    /// In step although messages are not acknowledged.
    StatusIgnoresFlight = StatusIgnoresFlight,
    /// A switch that is released is sent nothing of what it lacks.
    ReleaseSendsNothing = ReleaseSendsNothing,
    /// Parked switches are never released.
    NeverReleased = NeverReleased,
    /// A switch that holds something is taken to hold everything.
    ReportAnsweredWithNothing = ReportAnsweredWithNothing,
    /// The end of an old stream removes the session of the new one.
    DetachRemovesNewer = DetachRemovesNewer,
    /// What waits for a late switch is dropped.
    LatePhasesDropped = LatePhasesDropped,
    /// A controller whose store was set back keeps its term, which switches refuse.
    TermNotOutdone = TermNotOutdone,
    /// A change counts as acknowledged although messages of a later phase are not sent yet.
    AcknowledgedBetweenPhases = AcknowledgedBetweenPhases,
    /// Another hash key is not stored.
    RekeyNotStored = RekeyNotStored,
    /// Switches are not sent the tables of another hash key.
    RekeyLeavesSwitches = RekeyLeavesSwitches,
    /// A verification compares digests of different versions.
    VerifiedAtAnyVersion = VerifiedAtAnyVersion,
    /// Tables that a switch did not ask for, after a rekey, count as the answer to a report.
    ReportsMiscounted = ReportsMiscounted,
    /// A switch that was removed and added again insists on its old id.
    OldIdKept = OldIdKept,
    /// A switch acknowledges messages while it waits for the answer to its report.
    AcknowledgesWhileItWaits = AcknowledgesWhileItWaits,
    /// A switch acknowledges messages that it has no room for.
    AcknowledgesWhatItRefuses = AcknowledgesWhatItRefuses,
    /// A switch acknowledges messages before they take effect.
    AcknowledgedBeforeApplied,
    /// The controller does not hear that a switch asks for what it lacks.
    ResyncIgnored,
    /// A commit returns before its rows are synced.
    CommitNotSynced,
    /// A commit succeeds although the disk is full.
    FullDiskIgnored,
    /// The controller goes on after a commit has failed, ahead of its store.
    GoesOnAfterFailure,
    /// Deletions of rows are not stored.
    DeletionsNotStored,
    /// A transaction that was written in part is read back in part.
    HalfTransactions,
    /// The saved image is renamed before it is synced.
    ImageRenamedUnsynced,
    /// The saved image is written over the old one.
    ImageInPlace,
    /// A value of port mode gets another meaning at once, while cells have it with the former one.
    MeaningAtOnce,
}

/// What did not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Violation {
    #[error("after a restart {what}; {n_open} requests had no answer")]
    Lost { what: String, n_open: usize },
    #[error("switch {switch} answers {got} for name {name}; changes {since} to {until} allow {allowed}")]
    WrongAnswer { switch: usize, name: usize, got: String, since: u64, until: u64, allowed: String },
    #[error("switch {switch} is said to be in step with change {change}, but: {why}")]
    NotInStep { switch: usize, change: u64, why: Box<Violation> },
    #[error("a verification finds a difference at switch {switch} where there is none: {what}")]
    Verified { switch: usize, what: String },
    #[error("a frame for name {name} from switch {from} {fate}")]
    Frame { name: usize, from: usize, fate: &'static str },
    #[error("the image that switch {switch} saved cannot be used: {why}")]
    Image { switch: usize, why: String },
    #[error("the store cannot be restored: {why}")]
    Restore { why: String },
    #[error("after the faults, {why}")]
    NotConverged { why: String },
}

impl Violation {
    /// Its kind, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Violation::Lost { .. } => "lost",
            Violation::WrongAnswer { .. } => "wrong-answer",
            Violation::NotInStep { .. } => "not-in-step",
            Violation::Verified { .. } => "verified",
            Violation::Frame { .. } => "frame",
            Violation::Image { .. } => "image",
            Violation::Restore { .. } => "restore",
            Violation::NotConverged { .. } => "not-converged",
        }
    }
}

/// Runs a scenario.
/// # Errors
/// [`Violation`]: a mistake in what is simulated, or a [`Mutant`].
/// # Panics
/// With fewer than 3 switches, or more than 50. When a daemon would.
pub fn run(scenario: &Scenario) -> Result<Outcome, Violation> {
    assert!((3..=50).contains(&scenario.switches), "{} switches, 3 to 50 are possible", scenario.switches);
    world::System::new(scenario).run()
}
