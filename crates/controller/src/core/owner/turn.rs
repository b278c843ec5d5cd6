//! Inputs of the owner, and what follows from them.
//!
//! There are two kinds of inputs, each taken in the order of the requests. Most are decided before their group is committed, and their rows
//! are part of that commit. A [`Task`] is done after it, so it sees durable state only.

use crate::core::change::{Change, Changed, Refusal, State};
use crate::core::happened::{Happened, Level};
use crate::core::pace::Rates;
use crate::core::push::Outgoing;
use crate::core::session::Line;
use api::v1::{ForgetfulPort, SeenHost, SeenTrunk};
use bytes::Bytes;
use fib::durable::RowChange;
use fib::messages::{Message, Report};
use fib::network::Rekey;
use lookup::hash::SecretKey;
use std::ops::Range;

/// Limits on what may wait, and what the owner cannot make itself.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most bytes that wait for a switch.
    pub switch_backlog_bytes: usize,
    /// Most bytes that may wait for all switches.
    pub waiting_bytes: usize,
    /// Fewest names of a bulk batch.
    pub bulk_names: usize,
    /// Names that are read for answers in one turn.
    pub turn_names: usize,
    /// Makes another hash key.
    pub new_key: fn() -> SecretKey,
}

impl Bounds {
    /// The bounds of a controller that lets this many bytes wait for each switch.
    pub(crate) fn new(switch_backlog_bytes: usize, new_key: fn() -> SecretKey) -> Bounds {
        Bounds {
            switch_backlog_bytes,
            // An acknowledgement signals that there may be room again, so this is enough for any rate.
            waiting_bytes: 8 << 20,
            bulk_names: super::BULK_NAMES,
            // Some 2 ms between two groups of changes.
            turn_names: 8192,
            new_key,
        }
    }
}

/// A request to the owner. `T`: the driver's ticket for the answer.
#[allow(missing_docs, reason = "their names say it")]
pub enum Input<L, T> {
    /// A change; whether its way is traced.
    Change { change: Change, ticket: T, is_traced: bool },
    /// What the switch sees at its trunks. With a ticket it is the switch of another controller, and is answered when what
    /// follows from it is committed.
    Trunks { switch: String, trunks: Vec<SeenTrunk>, ticket: Option<T> },
    /// The switch saw sources at its ports that are not names there, at this time of day in milliseconds.
    Hosts { switch: String, hosts: Vec<SeenHost>, forgetful: Vec<ForgetfulPort>, at_ms: u64, ticket: T },
    /// Forget learnt names that have been silent for too long.
    Forget,
    /// Carry out what the controller that leads has committed.
    Follow(Followed),
    /// The commits cannot be followed any more.
    Strayed,
    /// Go on with the state as of the commit of this number: the commits could not be followed.
    Replace { state: Box<State>, number: u64 },
    /// This controller leads: carry out what follows from what was heard while another one led.
    SeeAll,
    /// After the commit.
    Task(Task<L, T>),
}

/// Work that is done with the committed state.
#[allow(missing_docs, reason = "their names say it")]
pub enum Task<L, T> {
    /// Hand the ticket back.
    Durable(T),
    /// Begin to serve a switch.
    Attach { switch: String, report: Report, weighs_ways: bool, ticket: T },
    /// The switch sent a report, which its session has.
    Resync(L),
    /// Its stream ended.
    Detach(L),
    /// The switch cannot hold what it is sent: nothing is made for it until it reports again.
    Stuck(L),
    /// Choose another hash key.
    Rekey(T),
    /// Send parked switches what they lack, if it is time, and go on with what there is room for by now.
    Release,
    /// Replace the limits on what peers may cause.
    Rates(Rates),
}

/// A commit of the controller that leads.
pub struct Followed {
    pub(crate) number: u64,
    pub(crate) term: u64,
    pub(crate) what: Followable,
}

/// Says whether rows are those that were committed.
pub(crate) type IsCommitted = Box<dyn Fn(&[RowChange]) -> bool + Send>;

/// What a commit says about its changes.
pub(crate) enum Followable {
    /// Nothing that another controller needs.
    Nothing,
    /// These changes; the function says whether rows are those that were committed.
    Changes(Vec<Change>, IsCommitted),
    /// It does not say.
    Unknown,
}

/// The outcome of an input so far.
#[derive(Debug)]
pub enum Taken {
    /// The change is carried out in memory.
    Applied(Changed),
    /// It is refused.
    Refused,
    /// It was another input.
    Other,
}

/// A change that followers are to carry out as well, and which of the turn's rows are its rows.
#[derive(Debug)]
pub struct Told {
    pub(crate) change: Change,
    pub(crate) rows: Range<usize>,
}

/// An answer, with the ticket that came with the question.
#[allow(missing_docs, reason = "their names say it")]
pub enum Answer<L, T> {
    /// Everything that was asked for before is durable.
    Durable(T),
    /// The change is made, and durable.
    Changed(T, Changed),
    /// The switch is served.
    Attached(T, L),
    /// The session no longer belongs to its switch. Has whether the switch was in step at the end.
    Left { line: L, was_in_step: bool },
}

/// An event, in words.
#[derive(Debug)]
pub(crate) enum Event {
    /// A change.
    Changed(Happened),
    /// Something about a host.
    Host { level: Level, name: String, text: String },
    /// A change that follows from what switches find, whether or not it is refused: what, in detail, and whether hosts can cause it as
    /// often as they like.
    Found { what: &'static str, detail: String, is_frequent: bool },
}

/// A switch whose acknowledgement of a change is to come.
#[derive(Debug)]
pub(crate) struct Awaited<L> {
    pub(crate) switch: String,
    pub(crate) line: L,
    /// The last change of which it has something to learn.
    pub(crate) change: u64,
}

/// Values to drop elsewhere. Dropping millions of names takes long.
pub(crate) type Discarded = Box<dyn Send>;

/// The consequences of inputs. The driver commits `rows` first, and hands out the rest then.
pub struct Turn<L, T> {
    /// Refusals: they do not wait for the commit.
    pub refused: Vec<(T, Refusal)>,
    /// Rows to commit.
    pub rows: Vec<RowChange>,
    /// The changes behind the rows, in words for controllers that follow; none if there are no followers.
    pub told: Vec<Told>,
    /// Rows of the tables of switches, to commit as well. Without them a restarted controller sends a switch its whole table again.
    pub views: Vec<RowChange>,
    /// A term to make durable. Then the driver calls [`Owner::raised`](super::Owner::raised).
    pub raise_term: Option<u64>,
    /// Answers to hand out.
    pub answers: Vec<Answer<L, T>>,
    /// Messages for the pusher.
    pub outgoing: Vec<Outgoing<L>>,
    /// Events to report.
    pub(crate) events: Vec<Event>,
    /// The switches that will acknowledge each change that is traced, in the order of the changes.
    pub(crate) awaited: Vec<Vec<Awaited<L>>>,
    /// Whether the state was replaced.
    pub(crate) is_replaced: bool,
    /// Why this controller cannot follow.
    pub(crate) strayed: Vec<String>,
    /// Tables with another hash key, to build elsewhere. Then the driver calls [`Owner::rekeyed`](super::Owner::rekeyed).
    pub build: Option<Rekey>,
    /// Values to drop elsewhere.
    pub(crate) discarded: Vec<Discarded>,
    pub(crate) counts: Counts,
    /// What this turn was for.
    pub kind: Kind,
}

/// The kind of a turn, for drivers that distinguish them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// The rows and answers of a group.
    Group,
    /// The messages of a group that is committed.
    Messages,
    /// The last part of what one or several switches lack.
    Sent,
    /// Something else.
    #[default]
    Other,
}

/// What a turn did, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) messages: u64,
    pub(crate) message_bytes: u64,
    /// Changes refused because a tenant was too fast, and reports that had to wait.
    pub(crate) too_fast: u64,
    pub(crate) delayed: u64,
}

impl<L, T> Default for Turn<L, T> {
    fn default() -> Self {
        Turn {
            refused: Vec::new(),
            rows: Vec::new(),
            told: Vec::new(),
            views: Vec::new(),
            raise_term: None,
            answers: Vec::new(),
            outgoing: Vec::new(),
            events: Vec::new(),
            awaited: Vec::new(),
            is_replaced: false,
            strayed: Vec::new(),
            build: None,
            discarded: Vec::new(),
            counts: Counts::default(),
            kind: Kind::Other,
        }
    }
}

impl<L: Line, T> Turn<L, T> {
    /// Adds a message for the pusher, and reserves its bytes.
    pub(super) fn push(&mut self, phase: usize, line: &L, message: &Message) {
        let bytes = self.encode(message);
        let node = line.with(|session| {
            session.reserve(bytes.len(), message.change);
            session.node()
        });
        self.outgoing.push(Outgoing { phase, node, line: line.clone(), message: bytes });
    }

    /// The bytes of a message.
    pub(super) fn encode(&mut self, message: &Message) -> Bytes {
        let bytes = Bytes::from(message.encode());
        self.counts.messages += 1;
        self.counts.message_bytes += bytes.len() as u64;
        bytes
    }
}
