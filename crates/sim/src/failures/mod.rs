//! Networks in which links fail, one after another, in any state of convergence of the failure before.
//!
//! Nothing here decides where a frame goes or which link is down. Frames are real and are forwarded by the workers of real switches
//! ([`switch::kit`]), which watch their trunks with real hellos; [`controller::kit::Trunks`] says which links are cut, and
//! [`fib::network`] makes the tables. The simulation has the cables and the order of events:
//!
//! ```text
//!  host ─► worker ─► cable ─► worker ─► ... ─► host            a probe: all ordered pairs of switches with hosts
//!            ▲ alternates                                       between any two events
//!            │
//!  carrier, hellos ─► sessions ─► reports ─► controller ─► tables, phase by phase, ─► replicas
//!                                                           to one switch after another
//! ```
//! A cut takes the carrier from both ends, or silently stops the traffic in both directions or in one. The first cut may exist from the
//! start. The next one comes when the first has reached the stage that the scenario names ([`Stage`]), or after a random number of
//! events: an end loses its carrier, the next switch says hello (each once in 100 ms, with a phase of its own) or one says hello at once
//! because what it sees changed, a report arrives, a switch gets its next message or an old one again, a name that is not probed moves.
//! Afterwards all messages run out.
//!
//! | at any moment | |
//! |---|---|
//! | a frame arrives | at the host whose name it has, and once |
//! | a frame is gone | in a cable that carries nothing, or counted by the switch that dropped it |
//! | a frame crosses | no more links than its hop limit allows |
//! | **while one link is cut and no new table is there** | |
//! | a frame is gone | in that cable alone: alternates make no loop |
//! | a switch that knows, or must after 900 ms | sends nothing there that has an alternate |
//! | **when all messages have run out** | |
//! | a frame arrives | if any path is left, by a shortest one |
//! | if none is left | it is dropped where it enters, and counted |
//!
//! In between, tables of several versions may form loops. A frame that would leave where it came in is dropped, which ends a loop
//! of two switches; the hop limit ends longer ones. Such frames are counted by reason ([`Outcome::dropped`]), and are not violations.
//!
//! [`run_alone`] has no controller: links are cut, their ends know it, and tables stay as they were. Then no frame loops.
//!
//! A packet takes no time: it sees all switches as they are between two events. No message is lost, no stream ends, and no switch
//! restarts; links come back when all messages have run out. Cost: a run of 11 switches takes some 30 ms.

mod probe;
mod world;

use crate::network::Graph;
use api::seam;
use dataplane::links::{Rule, leave_out};
use fib::messages::ValueMode;
use std::collections::BTreeMap;

/// How a link fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Its cable is pulled: both ends lose their carrier.
    Pulled,
    /// It carries nothing, and neither end is told.
    Silent,
    /// From this end, the first or the second of the link, it carries nothing.
    OneWay(usize),
}

impl How {
    /// All of them.
    pub const ALL: [How; 4] = [How::Pulled, How::Silent, How::OneWay(0), How::OneWay(1)];
}

/// How far a network has come with a cut, when the next comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// No end knows.
    Unknown,
    /// One end takes it for down, the other does not.
    OneEndKnows,
    /// Both ends know, or one has told the controller of it; no message is made.
    Unreported,
    /// Messages are on their way, and no switch has one.
    Answered,
    /// Some switches have messages that follow from it, and others do not.
    Between,
    /// Everything has run out.
    Over,
}

impl Stage {
    /// Those in which something is under way.
    pub const UNDER_WAY: [Stage; 5] =
        [Stage::Unknown, Stage::OneEndKnows, Stage::Unreported, Stage::Answered, Stage::Between];
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario<'a> {
    /// The switches and links.
    pub graph: &'a Graph,
    /// Switches without hosts, by index.
    pub core: &'a [usize],
    /// What values of FIBs mean.
    pub mode: ValueMode,
    /// The links that fail, by index, in this order.
    pub cuts: Vec<(usize, How)>,
    /// Whether the first is there before the switches start. No switch then knows of one in which no end hears anything.
    pub from_start: bool,
    /// When the second comes; none: after a random number of events.
    pub when: Option<Stage>,
    /// Whether they are repaired afterwards, in the same order.
    pub repaired: bool,
    /// A mistake to make.
    pub mutant: Option<Mutant>,
    /// Seed of all randomness.
    pub seed: u64,
}

/// A mistake, which must be noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Any neighbour is an alternate, also one whose shortest path leads back.
    AnyAlternate,
    /// Frames take alternates although the next hop is up.
    AlternateWhileUp,
    /// Frames take no alternate although the next hop is down.
    AlternateNotTaken,
    /// Of several ways one that is down is chosen, too.
    DownWayTaken,
    /// A frame that came by its own way is to go on by that one, too, which the port of entry forbids.
    WayOfEntryTaken,
    /// A frame may leave where it came in, and hops are not counted: nothing ends a circle.
    CirclesNotEnded,
    /// A frame for a host is sent to it twice.
    SentTwice,
    /// A link counts as up when one end hears the other, and is not heard.
    OneWayIsUp,
    /// A link counts as up where hellos come whose sender has never heard this end.
    UnheardIsUp,
    /// A link that is cut while another one is changes no table.
    SecondCutIgnored,
    /// A switch takes an action table of an earlier version for a new one.
    OldActionsTaken,
    /// The controller is not told of a trunk that went down.
    ReportsLost,
    /// Two hosts are exchanged, which no name says.
    HostsExchanged,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 13] = [
        Mutant::AnyAlternate,
        Mutant::AlternateWhileUp,
        Mutant::AlternateNotTaken,
        Mutant::DownWayTaken,
        Mutant::WayOfEntryTaken,
        Mutant::CirclesNotEnded,
        Mutant::SentTwice,
        Mutant::OneWayIsUp,
        Mutant::UnheardIsUp,
        Mutant::SecondCutIgnored,
        Mutant::OldActionsTaken,
        Mutant::ReportsLost,
        Mutant::HostsExchanged,
    ];

    /// Has the product make its mistakes in this thread, from now on; none: it makes none.
    fn set(mutant: Option<Self>) {
        let is = |other| mutant == Some(other);
        let of_fib = [
            (Mutant::AnyAlternate, fib::mistakes::Mistake::AnyAlternate),
            (Mutant::SecondCutIgnored, fib::mistakes::Mistake::SecondCutIgnored),
            (Mutant::OldActionsTaken, fib::mistakes::Mistake::OldActionsTaken),
        ];
        let of_switch = [
            (Mutant::AlternateWhileUp, switch::kit::Mistake::AlternateWhileUp),
            (Mutant::AlternateNotTaken, switch::kit::Mistake::AlternateNotTaken),
            (Mutant::DownWayTaken, switch::kit::Mistake::DownWayTaken),
            (Mutant::WayOfEntryTaken, switch::kit::Mistake::WayOfEntryTaken),
            (Mutant::CirclesNotEnded, switch::kit::Mistake::CirclesNotEnded),
            (Mutant::SentTwice, switch::kit::Mistake::SentTwice),
        ];
        let of_links = [(Mutant::OneWayIsUp, Rule::BothWays), (Mutant::UnheardIsUp, Rule::UnheardIsDown)];
        fib::mistakes::set_mistake(of_fib.into_iter().find(|(of, _)| is(*of)).map(|(_, mistake)| mistake));
        switch::kit::set_mistake(of_switch.into_iter().find(|(of, _)| is(*of)).map(|(_, mistake)| mistake));
        leave_out(of_links.into_iter().find(|(of, _)| is(*of)).map(|(_, rule)| rule));
    }
}

/// What happened to frames. All but [`Outcome::sent`] and [`Outcome::delivered`] only while something was under way, except those
/// that were dropped because no path was left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
    /// Frames that hosts sent.
    pub sent: u64,
    /// Those that arrived.
    pub delivered: u64,
    /// Those that were lost in a cable that carries nothing.
    pub lost: u64,
    /// Those that led in a circle: back to where they came from, or until the hop limit.
    pub looped: u64,
    /// Those that switches dropped, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Probes that found a circle.
    pub probes_with_circles: u64,
    /// Probes.
    pub probes: u64,
    /// The most links that a frame crossed and arrived.
    pub most_hops: u32,
    /// How far the network had come with the first cut when the second came.
    pub met: BTreeMap<Stage, u64>,
}

impl Outcome {
    /// Adds another one.
    pub fn add(&mut self, other: &Outcome) {
        let Outcome {
            runs,
            events,
            sent,
            delivered,
            lost,
            looped,
            dropped,
            probes_with_circles,
            probes,
            most_hops,
            met,
        } = other;
        let sums = [
            (&mut self.runs, runs),
            (&mut self.events, events),
            (&mut self.sent, sent),
            (&mut self.delivered, delivered),
            (&mut self.lost, lost),
            (&mut self.looped, looped),
            (&mut self.probes_with_circles, probes_with_circles),
            (&mut self.probes, probes),
        ];
        sums.into_iter().for_each(|(sum, n)| *sum += n);
        dropped.iter().for_each(|(reason, n)| *self.dropped.entry(reason).or_default() += n);
        met.iter().for_each(|(stage, n)| *self.met.entry(*stage).or_default() += n);
        self.most_hops = self.most_hops.max(*most_hops);
    }
}

/// What did not hold. Switches are given by their indices; a frame goes from a switch to the name at another one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Violation {
    #[error("a frame from {from} for the name at {to} arrives at the host at {at}")]
    Misdelivered { from: usize, to: usize, at: usize },
    #[error("a frame from {from} for the name at {to} arrives twice")]
    Twice { from: usize, to: usize },
    #[error("a frame from {from} for the name at {to} has crossed {hops} links")]
    Endless { from: usize, to: usize, hops: u32 },
    #[error("of {sent} frames {delivered} arrived, {lost} were lost in cables, and {dropped} were counted as dropped")]
    Uncounted { sent: u64, delivered: u64, lost: u64, dropped: u64 },
    #[error("{n} frames are dropped ({reason}) while one link is cut and no new table is there")]
    DroppedEarly { n: u64, reason: &'static str },
    #[error("{at} sends a frame for the name at {to} into a link that it knows to be down, and has an alternate")]
    AlternateNotTaken { at: usize, to: usize },
    #[error(
        "{at} still sends a frame for the name at {to} into a link that it must know to be down, and could do else"
    )]
    NotNoticed { at: usize, to: usize },
    #[error("{at} sends a frame for the name at {to} into a link that it knows to be down, and has another way")]
    DownWayTaken { at: usize, to: usize },
    #[error("when all has run out, a frame from {from} for the name at {to} is lost")]
    BlackHole { from: usize, to: usize },
    #[error("when all has run out, a frame from {from} for the name at {to} arrives, and no path is left")]
    NoPath { from: usize, to: usize },
    #[error("when all has run out, a frame from {from} for the name at {to} crosses {hops} links, and no path is left")]
    DroppedLate { from: usize, to: usize, hops: u32 },
    #[error(
        "when all has run out, a frame from {from} to {to} takes a path of length {took}; the shortest has {shortest}"
    )]
    Detour { from: usize, to: usize, took: u64, shortest: u64 },
    #[error("when all has run out, {unreachable} frames have no path, and {dropped:?} are dropped")]
    Dropped { unreachable: u64, dropped: Vec<(&'static str, u64)> },
    #[error("switch {switch} refuses a message: {why}")]
    Refused { switch: usize, why: String },
    #[error("the controller refuses what follows from a report: {why}")]
    Controller { why: String },
    #[error("{n} frames go in a circle, and all tables are of one state of the network")]
    Circle { n: u64 },
    #[error("after {events} events not all has run out")]
    NotSettled { events: u64 },
}

/// Frames between hosts in a network without a controller whose links have failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Alone {
    /// Those for which there is a path.
    pub joined: u64,
    /// Those of them that arrived.
    pub arrived: u64,
}

/// Cuts the links of a scenario in a network that has no controller any more, waits until their ends know it, and sends frames between
/// all hosts. When what is cut, and repairs, play no part.
/// # Errors
/// The first [`Violation`]; [`Violation::Circle`] if frames meet their hop limit.
/// # Panics
/// As [`run`].
pub fn run_alone(scenario: &Scenario<'_>) -> Result<Alone, Violation> {
    simulate(scenario, world::World::run_alone)
}

/// Runs a scenario.
/// # Errors
/// The first [`Violation`].
/// # Panics
/// When the scenario names links or switches that the graph does not have, or what is simulated does.
pub fn run(scenario: &Scenario<'_>) -> Result<Outcome, Violation> {
    simulate(scenario, world::World::run)
}

fn simulate<'a, T>(
    scenario: &'a Scenario<'a>,
    run: impl FnOnce(world::World<'a>) -> Result<T, Violation>,
) -> Result<T, Violation> {
    Mutant::set(scenario.mutant);
    let result = world::World::new(scenario).and_then(run);
    Mutant::set(None);
    seam::set_time(None);
    result
}
