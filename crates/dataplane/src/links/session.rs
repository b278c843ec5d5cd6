//! The state of one trunk, with its other end. It decides from its inputs and their times; it has no clock.
//!
//! A trunk is **up** while exactly one other switch says hello, hears this one in turn, and the carrier is there: a link that
//! fails in one direction is down at both ends. It goes down at once, by carrier, or when as many hellos in a row are missing as its
//! neighbour announces. It comes up at once the first time; after it went down it must be good for a while first, twice as
//! long each time that it goes down again soon. A neighbour that restarts and is heard again in time does not count as a fall: a restart
//! says nothing about the cable. It gets a hello at once, and has [two intervals](EXCUSED_INTERVALS) to hear us again; meanwhile the trunk
//! stays up. Each time that it has heard us it may do so again: both directions have carried something since.
//!
//! Where more frames come than a switch can take, hellos are lost among them. So a neighbour is not silent while **frames of switches come**:
//! its link stays up for as long as ten silences. Frames count for one interval after they came, so a link that fails
//! with frames on it is noticed no later: its last hello came before them.
//!
//! A trunk that never was up is **not down** without hellos: its neighbour may be a switch that sends none. Only its carrier
//! counts then. A neighbour that sends hellos listens too: if it does not hear us within the time in which a neighbour counts as gone,
//! the way to it is broken from the start, and the trunk is down until it was up. Two neighbours at one port (a bridge in between), the
//! switch itself, or a switch of another network are down at once: frames would come twice, come back, or go astray.

mod rules;

pub use rules::Rule;
#[cfg(any(test, feature = "kit"))]
pub use rules::leave_out;

use super::hello::Hello;
use fib::action::PortId;
use rules::holds;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often a switch sends hellos, and how many may be lost in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The time between two hellos; 0: none are sent, and only the carrier is watched.
    pub interval_ms: u16,
    /// Hellos in a row that may be lost.
    pub multiplier: u8,
}

const DEFAULT_MS: u16 = 100;

impl Default for Timing {
    fn default() -> Self {
        Self { interval_ms: DEFAULT_MS, multiplier: 3 }
    }
}

/// How long a link that went down must be good before it is up again, in intervals between hellos.
const FIRST_HOLD: u32 = 3;
/// The longest time that a link that went down must be good before it is up again.
const LONGEST_HOLD: Duration = Duration::from_secs(10);
/// How long a link must be up until earlier falls are forgotten.
const FORGIVEN: Duration = Duration::from_secs(30);

/// How long a neighbour that restarts may not hear us, in intervals: so one hello, or the answer to it, may be lost.
const EXCUSED_INTERVALS: u8 = 2;

/// Frames alone show that a neighbour is there for this many times as long as its hellos may be missing.
const PATIENCE: u32 = 10;

/// The most other ends at one port that are told apart.
const MAX_PEERS: usize = 8;

/// The other end of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// The name of the switch.
    pub switch: String,
    /// Its port.
    pub port: PortId,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.switch, self.port)
    }
}

/// The state of a trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// No hellos come.
    Silent,
    /// A neighbour sends hellos but does not hear us.
    OneWay,
    /// It is good again, and is watched for a while.
    Settling,
    /// It carries frames both ways.
    Up,
    /// The device has no carrier.
    NoCarrier,
    /// The switch hears itself.
    Looped,
    /// More than one other switch is there.
    Several,
    /// A switch of another network is there.
    Foreign,
    /// The carrier is there, and hellos are off.
    Unwatched,
    /// No member of the bundle can be used, or fewer than it must have.
    Unbundled,
    /// It is not a trunk: a trunk of another switch leads to a host port.
    HostPort,
}

impl LinkState {
    /// The name, as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::OneWay => "one_way",
            Self::Settling => "settling",
            Self::Up => "up",
            Self::NoCarrier => "no_carrier",
            Self::Looped => "looped",
            Self::Several => "several",
            Self::Foreign => "foreign",
            Self::Unwatched => "unwatched",
            Self::Unbundled => "unbundled",
            Self::HostPort => "host_port",
        }
    }
}

/// The result of an input at a trunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Another state, another neighbour, or both.
    Changed,
    /// The neighbour restarted, and is to be sent a hello at once: it does not hear us before.
    Anew,
    /// Nothing that others need to know.
    Nothing,
}

/// Hellos at a trunk since the start, for others to read.
///
/// A hello is lost when it is expected and does not come. It counts only once the next one comes, or its neighbour counts as
/// gone. None is expected from a neighbour that is gone, nor from one behind a cable without carrier. A restart of
/// the neighbour that is over in time is no loss; one that takes longer, or a neighbour that stops, counts until the neighbour is gone.
#[derive(Debug, Default)]
pub struct Tally {
    heard: AtomicU64,
    lost: AtomicU64,
    unread: AtomicU64,
    falls: AtomicU64,
}

impl Tally {
    /// Hellos that came.
    pub fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// Hellos in excess of what neighbours send, which were not read.
    pub fn unread(&self) -> u64 {
        self.unread.load(Relaxed)
    }

    pub(super) fn flooded(&self) {
        self.unread.fetch_add(1, Relaxed);
    }

    /// Hellos that were expected and did not come.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// How often it went down.
    pub fn falls(&self) -> u64 {
        self.falls.load(Relaxed)
    }
}

/// A neighbour that sends hellos.
#[derive(Clone, Debug)]
struct Peer {
    is: Neighbour,
    /// The time between two of its hellos, as it announces.
    every: Duration,
    /// Hellos that did not come when they were due, and may come late.
    missing: u64,
    session: u64,
    hears_us: bool,
    is_foreign: bool,
    heard: Instant,
    /// The neighbour counts as gone when it was not heard for this long, unless frames came.
    within: Duration,
    /// Until when frames that came show that it is there.
    shown: Option<Instant>,
}

/// The state of one trunk.
#[derive(Debug)]
pub struct Session {
    port: PortId,
    /// Identifies this start of this switch.
    own: u64,
    timing: Timing,
    cluster: u64,
    has_carrier: bool,
    peers: Vec<Peer>,
    state: LinkState,
    since: Instant,
    was_up: bool,
    /// Until when its neighbour has to hear us, if it never was up.
    to_be_heard: Option<Instant>,
    /// Whether its neighbour did not hear us in time, and it has not been up since.
    is_unheard: bool,
    /// How often it went down recently.
    falls: u32,
    /// Since when it has been good.
    good_since: Option<Instant>,
    /// Until when a neighbour that restarted may not hear us.
    excused: Option<Instant>,
    /// When a restarted neighbour was last answered. Two switches of one name, at either end of a bridge, look like one that
    /// restarts over and over: they must not answer each other forever.
    answered: Option<Instant>,
    tally: Arc<Tally>,
}

impl Peer {
    /// Hellos that were due since the last one, including the present one.
    fn due(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.heard) + self.every / 2;
        u64::try_from(since.as_nanos() / self.every.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// When it counts as gone if nothing more comes.
    fn gone(&self) -> Instant {
        let patience = if holds(Rule::FramesForAWhile) { PATIENCE } else { u32::MAX };
        let shown = self.shown.map(|shown| shown.min(self.heard + self.within * patience));
        (self.heard + self.within).max(shown.unwrap_or(self.heard))
    }

    /// Hellos that are lost for good once it is gone.
    fn missed(&self) -> u64 {
        self.missing + u64::try_from(self.within.as_nanos() / self.every.as_nanos().max(1)).unwrap_or(0)
    }
}

impl Session {
    /// A session for a port of the switch that started as `own`.
    pub fn new(port: PortId, own: u64, timing: Timing, now: Instant) -> Self {
        Self::counting(port, own, timing, now, Arc::default())
    }

    /// A session for one of several cables of a port, which count together.
    pub(crate) fn counting(port: PortId, own: u64, timing: Timing, now: Instant, tally: Arc<Tally>) -> Self {
        let state = if timing.interval_ms == 0 { LinkState::Unwatched } else { LinkState::Silent };
        let (cluster, peers) = (0, Vec::new());
        // A cable that is not watched counts as good until its carrier goes.
        let (was_up, to_be_heard, is_unheard) = (timing.interval_ms == 0, None, false);
        let (falls, good_since, excused, answered) = (0, None, None, None);
        Self {
            port,
            own,
            timing,
            cluster,
            has_carrier: true,
            peers,
            state,
            since: now,
            was_up,
            to_be_heard,
            is_unheard,
            falls,
            good_since,
            excused,
            answered,
            tally,
        }
    }

    /// Counts of hellos that came and that did not.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// The state, and since when.
    pub fn state(&self) -> (LinkState, Instant) {
        (self.state, self.since)
    }

    /// How often it went down in a row, each time soon after it had come up, and therefore how long it must be good before it is up.
    pub fn falls(&self) -> (u32, Duration) {
        (self.falls, self.hold())
    }

    /// The neighbour; of several the one that was there first.
    pub fn neighbour(&self) -> Option<&Neighbour> {
        self.peers.first().map(|peer| &peer.is)
    }

    /// Whether frames should take an alternate.
    pub fn is_down(&self) -> bool {
        match self.state {
            LinkState::Up | LinkState::Unwatched | LinkState::HostPort => false,
            LinkState::Silent | LinkState::OneWay | LinkState::Settling => {
                holds(Rule::GoneIsDown) && (self.was_up || self.is_unheard || !holds(Rule::NeverUpIsNotDown))
            }
            LinkState::NoCarrier
            | LinkState::Looped
            | LinkState::Several
            | LinkState::Foreign
            | LinkState::Unbundled => true,
        }
    }

    /// The hello to send at this port.
    pub fn hello(&self, switch: &str) -> Hello {
        let hears = match &self.peers[..] {
            [peer] => Some((peer.session, peer.is.port)),
            _ => None,
        };
        let Timing { interval_ms, multiplier } = self.timing;
        let (switch, port, session, cluster) = (switch.to_owned(), self.port, self.own, self.cluster);
        Hello { switch, port, session, hears, cluster, interval_ms, multiplier }
    }

    /// Takes a hello.
    pub fn hear(&mut self, hello: &Hello, now: Instant) -> Event {
        if self.timing.interval_ms == 0 {
            return Event::Nothing;
        }
        // A neighbour with rare hellos is not expected sooner; one with frequent hellos is heard as often as we look.
        let interval = hello.interval_ms.max(self.timing.interval_ms);
        self.tally.heard.fetch_add(1, Relaxed);
        let mut peer = Peer {
            is: Neighbour { switch: hello.switch.clone(), port: hello.port },
            every: Duration::from_millis(hello.interval_ms.into()),
            missing: 0,
            session: hello.session,
            hears_us: hello.hears == Some((self.own, self.port)),
            is_foreign: self.cluster != 0 && hello.cluster != 0 && hello.cluster != self.cluster,
            heard: now,
            within: Duration::from_millis(u64::from(interval) * u64::from(hello.multiplier)),
            shown: None,
        };
        // The same port of the same switch, possibly after a restart of that switch.
        let known = self.peers.iter().position(|known| known.is == peer.is);
        let mut starts_anew = false;
        match known {
            Some(known) => {
                let before = &self.peers[known];
                starts_anew = before.session != peer.session;
                // Only once: a neighbour that restarts over and over and never hears us is of no use.
                let may_be_excused = before.hears_us || !holds(Rule::ExcusedOnce);
                if starts_anew && may_be_excused && self.state == LinkState::Up && holds(Rule::RestartIsExcused) {
                    let n_intervals = hello.multiplier.min(EXCUSED_INTERVALS);
                    self.excused = Some(now + Duration::from_millis(u64::from(interval) * u64::from(n_intervals)));
                }
                match before.due(now) {
                    // It sent none while it was away.
                    _ if starts_anew => {}
                    // A late hello, or an extra one between two because something changed.
                    0 => peer.missing = before.missing.saturating_sub(1),
                    due => {
                        self.tally.lost.fetch_add(before.missing, Relaxed);
                        peer.missing = due - 1;
                    }
                }
                self.peers[known] = peer;
            }
            None if self.peers.len() < MAX_PEERS => self.peers.push(peer),
            None => {}
        }
        let own_interval = Duration::from_millis(self.timing.interval_ms.into());
        match self.judge(now) {
            Event::Nothing if starts_anew && self.answered.is_none_or(|answered| now >= answered + own_interval) => {
                self.answered = Some(now);
                Event::Anew
            }
            event => event,
        }
    }

    /// Notes that frames which switches send on came since the last call.
    pub fn came(&mut self, now: Instant) {
        if let [peer] = &mut self.peers[..]
            && holds(Rule::FramesCount)
        {
            peer.shown = Some(now + Duration::from_millis(self.timing.interval_ms.into()));
        }
    }

    /// Notes that the carrier came or went.
    pub fn carrier(&mut self, has_carrier: bool, now: Instant) -> Event {
        self.has_carrier = has_carrier;
        if !has_carrier {
            // The neighbour at the other end of the next cable announces itself.
            self.peers.clear();
        }
        self.judge(now)
    }

    /// Sets the network that the switch belongs to.
    pub fn joined(&mut self, cluster: u64) {
        self.cluster = cluster;
    }

    /// Notes that this switch itself stood still for this long, so it cannot tell who was silent meanwhile.
    pub fn excuse(&mut self, stood_still: Duration) {
        self.peers.iter_mut().for_each(|peer| peer.heard += stood_still);
        self.excused = self.excused.map(|until| until + stood_still);
        self.to_be_heard = self.to_be_heard.map(|until| until + stood_still);
    }

    /// The latest time to [judge](Self::judge), without another event.
    pub fn deadline(&self) -> Option<Instant> {
        let gone = self.peers.iter().map(Peer::gone).min();
        let settled = self.good_since.filter(|_| self.state == LinkState::Settling).map(|since| since + self.hold());
        [gone, settled, self.excused, self.to_be_heard].into_iter().flatten().min()
    }

    /// How long it must be good before it is up.
    fn hold(&self) -> Duration {
        let Some(doublings) = self.falls.checked_sub(1).filter(|_| holds(Rule::Held)) else { return Duration::ZERO };
        let doublings = if holds(Rule::HeldLonger) { doublings.min(16) } else { 0 };
        let longest = if holds(Rule::NotForEver) { LONGEST_HOLD } else { Duration::MAX };
        // Where no hellos are sent, a carrier that comes and goes is also held down.
        let interval_ms = if self.timing.interval_ms == 0 { DEFAULT_MS } else { self.timing.interval_ms };
        let first = Duration::from_millis(interval_ms.into()) * FIRST_HOLD;
        first.saturating_mul(1 << doublings).min(longest)
    }

    /// Takes the time into account. Returns whether anything changed.
    pub fn judge(&mut self, now: Instant) -> Event {
        let before = (self.state, self.is_down(), self.neighbour().cloned());
        self.peers.retain(|peer| {
            let is_there = now < peer.gone() || !holds(Rule::Expires);
            if !is_there {
                self.tally.lost.fetch_add(peer.missed(), Relaxed);
            }
            is_there
        });
        self.excused = self.excused.filter(|until| now < *until && matches!(&self.peers[..], [peer] if !peer.hears_us));
        let found = match &self.peers[..] {
            _ if !self.has_carrier && holds(Rule::CarrierCounts) => LinkState::NoCarrier,
            _ if self.timing.interval_ms == 0 => LinkState::Unwatched,
            [] => LinkState::Silent,
            [peer] if peer.session == self.own && holds(Rule::NotItself) => LinkState::Looped,
            [peer] if peer.is_foreign => LinkState::Foreign,
            [peer] if peer.hears_us || !holds(Rule::BothWays) => LinkState::Up,
            [_] if self.excused.is_some() => LinkState::Up,
            [_, _, ..] if !holds(Rule::OneNeighbour) => LinkState::Up,
            [_] => LinkState::OneWay,
            _ => LinkState::Several,
        };
        let is_good = matches!(found, LinkState::Up | LinkState::Unwatched);
        let was_good = matches!(self.state, LinkState::Up | LinkState::Unwatched);
        let state = if !is_good {
            if was_good && (self.was_up || found == LinkState::NoCarrier) {
                // A link that was good for long falls for the first time.
                let is_old = now.saturating_duration_since(self.since) >= FORGIVEN;
                self.falls = if is_old { 1 } else { self.falls.saturating_add(1) };
                self.tally.falls.fetch_add(1, Relaxed);
            }
            self.good_since = None;
            found
        } else if was_good {
            found
        } else {
            let since = *self.good_since.get_or_insert(now);
            if now.saturating_duration_since(since) >= self.hold() { found } else { LinkState::Settling }
        };
        self.was_up |= state == LinkState::Up;
        if state != self.state {
            (self.state, self.since) = (state, now);
        }
        self.wait_to_be_heard(now);
        if before == (self.state, self.is_down(), self.neighbour().cloned()) { Event::Nothing } else { Event::Changed }
    }

    /// Gives a neighbour that sends hellos, but has never heard us, as long to do so as it may be silent. It answers at once, so this is
    /// much longer than the start of either takes. A restart of it gets no more time; one that falls silent starts over.
    fn wait_to_be_heard(&mut self, now: Instant) {
        let waits = self.state == LinkState::OneWay && !self.was_up && !self.is_unheard && holds(Rule::UnheardIsDown);
        self.to_be_heard = match (&self.peers[..], self.to_be_heard) {
            ([peer], None) if waits => Some(now + if holds(Rule::UnheardWaits) { peer.within } else { Duration::ZERO }),
            (_, until) => until.filter(|_| waits),
        };
        if self.to_be_heard.is_some_and(|until| now >= until) {
            (self.to_be_heard, self.is_unheard) = (None, true);
        }
        self.is_unheard &= !self.was_up && (holds(Rule::UnheardStays) || self.state == LinkState::OneWay);
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;
