//! What one trunk knows of its other end. It decides from what it is told, with the time of that; it has no clock.
//!
//! A trunk is **up** while exactly one other switch says hello, hears this one in turn, and the carrier is there: a link that
//! fails in one direction is down at both ends. It goes down at once, by carrier, or when as many hellos in a row as its
//! neighbour says did not come. It comes up at once the first time; after it went down it must be good for a while first, twice as
//! long each time that it goes down again soon. A neighbour that starts anew and is heard again in time is no fall: a restart
//! says nothing about the cable. It is said hello at once, and has [two intervals](EXCUSED_INTERVALS) to hear us again; meanwhile the trunk
//! stays up. Each time that it has heard us it may do so again: both directions have carried something since.
//!
//! A trunk that never was up is **not down** without hellos: its neighbour may be a switch that says none. Only its carrier
//! counts then. Two neighbours at one port (a bridge in between), the switch itself, or a switch of another network are down at
//! once: frames would come twice, come back, or go astray.

use super::hello::Hello;
use fib::action::PortId;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often a switch says hello, and how many may be lost in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Between two hellos; 0: none are said, and only the carrier is watched.
    pub interval_ms: u16,
    /// Hellos in a row that may be lost.
    pub multiplier: u8,
}

impl Default for Timing {
    fn default() -> Self {
        Self { interval_ms: 100, multiplier: 3 }
    }
}

/// How long a link that went down must be good before it is up again, for each interval between hellos,
const FIRST_HOLD: u32 = 3;
/// at most,
const LONGEST_HOLD: Duration = Duration::from_secs(10);
/// and how long it must be up until that is forgotten.
const FORGIVEN: Duration = Duration::from_secs(30);

/// How long a neighbour that starts anew may not hear us, in intervals: so one hello, or the answer to it, may be lost.
const EXCUSED_INTERVALS: u8 = 2;

/// Others at one port that are told apart.
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

/// What is known of a trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// Nobody says hello.
    Silent,
    /// A neighbour says hello and does not hear us.
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
    /// It is no trunk: a trunk of another switch leads to a host port.
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

/// Something happened at a trunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Another state, another neighbour, or both.
    Changed,
    /// The neighbour started anew, and is to be said hello at once: it does not hear us before.
    Anew,
    /// Nothing that others need to know.
    Nothing,
}

/// Hellos at a trunk since the start, for others to read.
///
/// A hello is lost when it is expected and does not come: not before the next one, and not before its neighbour is taken for
/// gone. Of a neighbour that is gone none is expected, and of one that is behind a cable without carrier neither. A restart of
/// the neighbour that is over in time is no loss; one that takes longer, or a neighbour that stops, counts until it is taken for gone.
#[derive(Debug, Default)]
pub struct Tally {
    heard: AtomicU64,
    lost: AtomicU64,
}

impl Tally {
    /// Hellos that came.
    pub fn heard(&self) -> u64 {
        self.heard.load(Relaxed)
    }

    /// Hellos that were expected and did not come.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Somebody who says hello.
#[derive(Clone, Debug)]
struct Peer {
    is: Neighbour,
    /// Between two of its hellos, as it says.
    every: Duration,
    /// Hellos that did not come when they were due, and may come late.
    missing: u64,
    session: u64,
    hears_us: bool,
    is_foreign: bool,
    heard: Instant,
    /// It is gone when it was not heard for so long.
    within: Duration,
}

/// What is known of one trunk.
#[derive(Debug)]
pub struct Session {
    port: PortId,
    /// This start of this switch.
    own: u64,
    timing: Timing,
    cluster: u64,
    has_carrier: bool,
    peers: Vec<Peer>,
    state: LinkState,
    since: Instant,
    was_up: bool,
    /// Times that it went down, and not so long ago.
    falls: u32,
    /// Since when it is good.
    good_since: Option<Instant>,
    /// The neighbour has started anew, and may not hear us until then.
    excused: Option<Instant>,
    /// When a neighbour that started anew was answered last. Two switches of one name, at either end of a bridge, look like one that
    /// starts over and over: they do not answer each other for ever.
    answered: Option<Instant>,
    tally: Arc<Tally>,
}

impl Peer {
    /// Hellos that were due since the last one, the present one included.
    fn due(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.heard) + self.every / 2;
        u64::try_from(since.as_nanos() / self.every.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    /// Hellos that are missing for good once it is gone.
    fn missed(&self) -> u64 {
        self.missing + u64::try_from(self.within.as_nanos() / self.every.as_nanos().max(1)).unwrap_or(0)
    }
}

impl Session {
    /// Of a port of the switch that started as `own`.
    pub fn new(port: PortId, own: u64, timing: Timing, now: Instant) -> Self {
        Self::counting(port, own, timing, now, Arc::default())
    }

    /// Of a cable that is one of several of a port, which count together.
    pub(crate) fn counting(port: PortId, own: u64, timing: Timing, now: Instant, tally: Arc<Tally>) -> Self {
        let state = if timing.interval_ms == 0 { LinkState::Unwatched } else { LinkState::Silent };
        let (cluster, peers) = (0, Vec::new());
        let (was_up, falls, good_since, excused, answered) = (false, 0, None, None, None);
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
            falls,
            good_since,
            excused,
            answered,
            tally,
        }
    }

    /// Hellos that came and those that did not.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// What is known, and since when.
    pub fn state(&self) -> (LinkState, Instant) {
        (self.state, self.since)
    }

    /// Who is there; of several the one that was there first.
    pub fn neighbour(&self) -> Option<&Neighbour> {
        self.peers.first().map(|peer| &peer.is)
    }

    /// Whether frames should take an alternate.
    pub fn is_down(&self) -> bool {
        match self.state {
            LinkState::Up | LinkState::Unwatched | LinkState::HostPort => false,
            LinkState::Silent | LinkState::OneWay | LinkState::Settling => {
                holds(Rule::GoneIsDown) && (self.was_up || !holds(Rule::NeverUpIsNotDown))
            }
            LinkState::NoCarrier
            | LinkState::Looped
            | LinkState::Several
            | LinkState::Foreign
            | LinkState::Unbundled => true,
        }
    }

    /// What it says at this port.
    pub fn hello(&self, switch: &str) -> Hello {
        let hears = match &self.peers[..] {
            [peer] => Some((peer.session, peer.is.port)),
            _ => None,
        };
        let Timing { interval_ms, multiplier } = self.timing;
        let (switch, port, session, cluster) = (switch.to_owned(), self.port, self.own, self.cluster);
        Hello { switch, port, session, hears, cluster, interval_ms, multiplier }
    }

    /// A hello came.
    pub fn hear(&mut self, hello: &Hello, now: Instant) -> Event {
        if self.timing.interval_ms == 0 {
            return Event::Nothing;
        }
        // Whoever says hello seldom is not expected sooner; whoever says it often is heard as often as we look.
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
        };
        // The same port of the same switch, be it after a new start of that switch.
        let known = self.peers.iter().position(|known| known.is == peer.is);
        let mut starts_anew = false;
        match known {
            Some(known) => {
                let before = &self.peers[known];
                starts_anew = before.session != peer.session;
                // Once: one that starts over and over and never hears us is of no use.
                let may_be_excused = before.hears_us || !holds(Rule::ExcusedOnce);
                if starts_anew && may_be_excused && self.state == LinkState::Up && holds(Rule::RestartIsExcused) {
                    let n_intervals = hello.multiplier.min(EXCUSED_INTERVALS);
                    self.excused = Some(now + Duration::from_millis(u64::from(interval) * u64::from(n_intervals)));
                }
                match before.due(now) {
                    // It said none while it was away.
                    _ if starts_anew => {}
                    // One that is late, or one that is said between two because something changed.
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

    /// The carrier came or went.
    pub fn carrier(&mut self, has_carrier: bool, now: Instant) -> Event {
        self.has_carrier = has_carrier;
        if !has_carrier {
            // Whoever is at the other end of the next cable says so.
            self.peers.clear();
        }
        self.judge(now)
    }

    /// The network that the switch belongs to.
    pub fn joined(&mut self, cluster: u64) {
        self.cluster = cluster;
    }

    /// This switch itself stood still for so long, so it cannot tell who was silent meanwhile.
    pub fn excuse(&mut self, stood_still: Duration) {
        self.peers.iter_mut().for_each(|peer| peer.heard += stood_still);
        self.excused = self.excused.map(|until| until + stood_still);
    }

    /// When to [judge](Self::judge) at the latest, without another event.
    pub fn deadline(&self) -> Option<Instant> {
        let gone = self.peers.iter().map(|peer| peer.heard + peer.within).min();
        let settled = self.good_since.filter(|_| self.state == LinkState::Settling).map(|since| since + self.hold());
        [gone, settled, self.excused].into_iter().flatten().min()
    }

    /// How long it must be good before it is up.
    fn hold(&self) -> Duration {
        let Some(doublings) = self.falls.checked_sub(1).filter(|_| holds(Rule::Held)) else { return Duration::ZERO };
        let doublings = if holds(Rule::HeldLonger) { doublings.min(16) } else { 0 };
        let longest = if holds(Rule::NotForEver) { LONGEST_HOLD } else { Duration::MAX };
        let first = Duration::from_millis(self.timing.interval_ms.into()) * FIRST_HOLD;
        first.saturating_mul(1 << doublings).min(longest)
    }

    /// Looks at the time, and says whether anything changed.
    pub fn judge(&mut self, now: Instant) -> Event {
        let before = (self.state, self.neighbour().cloned());
        self.peers.retain(|peer| {
            let is_there = now.saturating_duration_since(peer.heard) < peer.within || !holds(Rule::Expires);
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
                // One that was good for long falls for the first time.
                let is_old = now.saturating_duration_since(self.since) >= FORGIVEN;
                self.falls = if is_old { 1 } else { self.falls + 1 };
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
        if before == (self.state, self.neighbour().cloned()) { Event::Nothing } else { Event::Changed }
    }
}

/// What a trunk's state follows from. A test leaves each out in turn, and must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// A link that carries frames one way only is down.
    BothWays,
    /// With two others at the port it is down.
    OneNeighbour,
    /// A neighbour that is not heard any more is gone.
    Expires,
    /// A link whose neighbour is gone is down,
    GoneIsDown,
    /// unless it never was up.
    NeverUpIsNotDown,
    /// Without carrier it is down at once.
    CarrierCounts,
    /// A switch that hears itself is no neighbour.
    NotItself,
    /// One that fell is held down for a while,
    Held,
    /// each time for longer,
    HeldLonger,
    /// and not for ever.
    NotForEver,
    /// One whose neighbour starts anew has not fallen,
    RestartIsExcused,
    /// unless that one starts again before it heard us.
    ExcusedOnce,
}

#[cfg(not(test))]
fn holds(rule: Rule) -> bool {
    !(rule == Rule::BothWays && api::seam::mistaken(api::seam::Mistake::OneWayIsUp))
}

#[cfg(test)]
use model::holds;

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    /// Two ends of a cable, whose directions can be cut.
    struct Cable {
        now: Instant,
        ends: [Session; 2],
        cut: [bool; 2],
    }

    impl Cable {
        fn new() -> Self {
            let now = Instant::now();
            let end = |i: u16| Session::new(PortId(10 + i), 100 + u64::from(i), Timing::default(), now);
            Self { now, ends: [end(0), end(1)], cut: [false; 2] }
        }

        /// Each end says hello, and the time of one interval passes.
        fn round(&mut self) {
            for from in 0..2 {
                let hello = self.ends[from].hello(["a", "b"][from]);
                if !self.cut[from] {
                    self.ends[1 - from].hear(&hello, self.now);
                }
            }
            self.now += INTERVAL;
            self.ends.iter_mut().for_each(|end| _ = end.judge(self.now));
        }

        fn rounds(&mut self, n: u32) -> [LinkState; 2] {
            (0..n).for_each(|_| self.round());
            self.states()
        }

        fn states(&self) -> [LinkState; 2] {
            self.ends.each_ref().map(|end| end.state)
        }

        fn are_down(&self) -> [bool; 2] {
            self.ends.each_ref().map(Session::is_down)
        }
    }

    #[test]
    fn two_ends_come_up_and_know_each_other() {
        let mut cable = Cable::new();
        assert_eq!((cable.states(), cable.are_down()), ([LinkState::Silent; 2], [false; 2]));
        assert_eq!(cable.rounds(2), [LinkState::Up; 2]);
        let of = |end: &Session| end.neighbour().map(ToString::to_string);
        assert_eq!(cable.ends.each_ref().map(of), [Some("b:11".to_owned()), Some("a:10".to_owned())]);
    }

    #[test]
    fn a_link_that_fails_in_one_direction_is_down_at_both_ends() {
        let mut cable = Cable::new();
        cable.rounds(2);
        cable.cut = [true, false];
        // One may be lost; three intervals after the last one it is down.
        assert_eq!(cable.rounds(1), [LinkState::Up; 2]);
        assert_eq!(cable.rounds(1), [LinkState::Up, LinkState::Silent]);
        assert_eq!(cable.rounds(1), [LinkState::OneWay, LinkState::Silent]);
        assert_eq!(cable.are_down(), [true; 2]);
    }

    #[test]
    fn one_without_carrier_is_down_at_once_and_the_other_soon() {
        let mut cable = Cable::new();
        cable.rounds(2);
        assert_eq!(cable.ends[0].carrier(false, cable.now), Event::Changed);
        assert_eq!((cable.states()[0], cable.are_down()), (LinkState::NoCarrier, [true, false]));
        cable.cut = [true; 2];
        assert_eq!(cable.rounds(3)[1], LinkState::Silent);
        assert_eq!(cable.are_down(), [true; 2]);
        // Another carrier may be another cable: nothing is known of it.
        cable.ends[0].carrier(true, cable.now);
        assert_eq!((cable.states()[0], cable.are_down()[0]), (LinkState::Silent, true));
    }

    #[test]
    fn a_link_that_flaps_is_held_down_longer_each_time_up_to_a_limit_and_forgiven() {
        let mut cable = Cable::new();
        cable.rounds(2);
        let mut last = 0;
        let mut held = Vec::new();
        for _ in 0..10 {
            cable.cut = [true; 2];
            cable.rounds(3);
            assert_eq!(cable.are_down(), [true; 2]);
            cable.cut = [false; 2];
            let rounds = (1..1000).find(|_| cable.rounds(1) == [LinkState::Up; 2]).unwrap();
            held.push(rounds);
            assert!(rounds >= last, "{held:?}");
            last = rounds;
        }
        assert!(held[0] <= 6 && held[3] >= 2 * held[1] && (100..=104).contains(&held[9]), "{held:?}");
        cable.rounds(301);
        cable.cut = [true; 2];
        cable.rounds(3);
        cable.cut = [false; 2];
        assert_eq!((1..1000).find(|_| cable.rounds(1) == [LinkState::Up; 2]), Some(held[0]));
    }

    #[test]
    fn a_neighbour_that_starts_again_is_the_same_neighbour() {
        let mut cable = Cable::new();
        cable.rounds(2);
        cable.ends[1] = Session::new(PortId(11), 999, Timing::default(), cable.now);
        let states: Vec<_> = (0..12).map(|_| cable.rounds(1)).collect();
        assert!(states.iter().all(|states| states.iter().all(|state| *state != LinkState::Several)), "{states:?}");
        assert_eq!(states.last(), Some(&[LinkState::Up; 2]));
    }

    #[test]
    fn a_neighbour_that_starts_again_in_time_is_not_held_down() {
        let mut cable = Cable::new();
        cable.rounds(2);
        for start in 0..5 {
            cable.ends[1] = Session::new(PortId(11), 1000 + start, Timing::default(), cable.now);
            // The first round may begin with the end that does not know of it.
            assert_eq!(cable.rounds(2), [LinkState::Up; 2], "start {start}");
        }
        // One that was silent for long has fallen.
        cable.cut = [true; 2];
        cable.rounds(3);
        cable.cut = [false; 2];
        assert_eq!(cable.rounds(2), [LinkState::Settling; 2]);
        // Falls that were long ago are forgiven with a restart, too.
        cable.rounds(310);
        assert_eq!(cable.states(), [LinkState::Up; 2]);
        cable.ends[1] = Session::new(PortId(11), 2000, Timing::default(), cable.now);
        assert_eq!(cable.rounds(2), [LinkState::Up; 2]);
    }

    #[test]
    fn a_neighbour_that_starts_again_has_two_intervals_to_hear_us() {
        let mut cable = Cable::new();
        cable.rounds(2);
        let mut hello = cable.ends[1].hello("b");
        let end = &mut cable.ends[0];
        (hello.session, hello.hears) = (999, None);
        let began = cable.now;
        assert_eq!((end.hear(&hello, began), end.state), (Event::Anew, LinkState::Up));
        assert_eq!(end.deadline(), Some(began + 2 * INTERVAL));
        // Another start is no other excuse.
        hello.session += 1;
        assert_eq!((end.hear(&hello, began + INTERVAL), end.is_down()), (Event::Anew, false));
        assert_eq!(end.judge(began + 2 * INTERVAL - Duration::from_millis(1)), Event::Nothing);
        assert_eq!(end.judge(began + 2 * INTERVAL), Event::Changed);
        assert_eq!((end.state, end.is_down()), (LinkState::OneWay, true), "the way there may be cut");

        // One that hears us in time was never gone.
        let mut cable = Cable::new();
        cable.rounds(2);
        let end = &mut cable.ends[0];
        assert_eq!(end.hear(&hello, began), Event::Anew);
        hello.hears = Some((100, PortId(10)));
        assert_eq!(end.hear(&hello, began + INTERVAL), Event::Nothing);
        assert_eq!((end.excused, end.falls, end.state), (None, 0, LinkState::Up));
    }

    #[test]
    fn a_neighbour_that_starts_again_is_answered_at_once_and_not_more_often_than_hellos_are_said() {
        let mut cable = Cable::new();
        cable.rounds(2);
        let mut hello = cable.ends[1].hello("b");
        let (end, began) = (&mut cable.ends[0], cable.now);
        let mut heard = |ms: u64, starts: bool| {
            hello.session += u64::from(starts);
            end.hear(&hello, began + Duration::from_millis(ms))
        };
        assert_eq!(heard(0, false), Event::Nothing);
        assert_eq!(heard(10, true), Event::Anew);
        assert_eq!(heard(11, false), Event::Nothing);
        // As of two switches of one name.
        assert_eq!(
            [heard(20, true), heard(109, true), heard(110, true)],
            [Event::Nothing, Event::Nothing, Event::Anew]
        );
    }

    #[test]
    fn an_excuse_is_as_long_for_a_switch_that_stood_still() {
        let mut cable = Cable::new();
        cable.rounds(2);
        let mut hello = cable.ends[1].hello("b");
        (hello.session, hello.hears) = (999, None);
        let (end, began, still) = (&mut cable.ends[0], cable.now, Duration::from_secs(1));
        end.hear(&hello, began);
        end.excuse(still);
        assert_eq!(end.judge(began + still + INTERVAL), Event::Nothing);
        assert_eq!(end.judge(began + still + 2 * INTERVAL), Event::Changed);
        assert_eq!(end.state, LinkState::OneWay);
    }

    #[test]
    fn a_bridge_a_loop_and_another_network_are_told_apart_and_down() {
        let hello = |switch: &str, session, cluster| Hello {
            switch: switch.to_owned(),
            port: PortId(1),
            session,
            hears: Some((100, PortId(10))),
            cluster,
            interval_ms: 100,
            multiplier: 3,
        };
        let now = Instant::now();
        let new = || {
            let mut session = Session::new(PortId(10), 100, Timing::default(), now);
            session.joined(7);
            session
        };
        let mut end = new();
        end.hear(&hello("b", 1, 7), now);
        assert_eq!(end.state, LinkState::Up);
        end.hear(&hello("c", 2, 7), now);
        assert!(end.state == LinkState::Several && end.is_down() && end.hello("a").hears.is_none());
        // The third one is gone again.
        end.hear(&hello("b", 1, 7), now + 2 * INTERVAL);
        end.judge(now + 4 * INTERVAL);
        assert_eq!(end.state, LinkState::Settling);

        for (hello, state) in [
            (hello("a", 100, 7), LinkState::Looped),
            (hello("x", 5, 8), LinkState::Foreign),
            (hello("x", 5, 0), LinkState::Up),
        ] {
            let mut end = new();
            end.hear(&hello, now);
            assert_eq!((end.state, end.is_down()), (state, state != LinkState::Up));
        }
    }

    #[test]
    fn a_flood_of_neighbours_is_bounded() {
        let now = Instant::now();
        let mut end = Session::new(PortId(10), 100, Timing::default(), now);
        for i in 1..100_000_u64 {
            let hears = None;
            let (interval_ms, multiplier, cluster) = (u16::MAX, u8::MAX, 0);
            let hello =
                Hello { switch: format!("s{i}"), port: PortId(1), session: i, hears, cluster, interval_ms, multiplier };
            end.hear(&hello, now);
        }
        assert_eq!((end.peers.len(), end.state), (MAX_PEERS, LinkState::Several));
    }

    #[test]
    fn without_hellos_the_carrier_alone_counts() {
        let now = Instant::now();
        let mut end = Session::new(PortId(1), 1, Timing { interval_ms: 0, multiplier: 3 }, now);
        assert_eq!((end.state, end.is_down()), (LinkState::Unwatched, false));
        end.carrier(false, now);
        assert_eq!((end.state, end.is_down()), (LinkState::NoCarrier, true));
        end.carrier(true, now);
        assert_eq!((end.state, end.is_down()), (LinkState::Unwatched, false));
    }

    #[test]
    fn hellos_that_do_not_come_are_counted_and_those_that_come_late_are_not() {
        let mut cable = Cable::new();
        let of = |cable: &Cable| (cable.ends[1].tally().heard(), cable.ends[1].tally().lost());
        cable.rounds(10);
        assert_eq!(of(&cable), (10, 0));
        // One of two is lost, five times.
        for _ in 0..5 {
            cable.cut = [true, false];
            cable.rounds(1);
            cable.cut = [false; 2];
            cable.rounds(2);
        }
        assert_eq!(of(&cable), (20, 5));
        // One that comes nine tenths of an interval late, and the next one in time.
        cable.now += INTERVAL * 9 / 10;
        let hello = cable.ends[0].hello("a");
        cable.ends[1].hear(&hello, cable.now);
        cable.now += INTERVAL / 10;
        cable.rounds(10);
        assert_eq!(of(&cable), (31, 5));
        // Three until the neighbour is taken for gone, and none after that.
        cable.cut = [true, false];
        cable.rounds(100);
        assert_eq!(cable.states()[1], LinkState::Silent);
        assert_eq!(of(&cable), (31, 8));
        // Neither a restart of the neighbour nor its way back is a loss.
        cable.cut = [false; 2];
        cable.ends[0] = Session::new(PortId(10), 7, Timing::default(), cable.now);
        cable.rounds(20);
        assert_eq!(of(&cable), (51, 8));
        // Without carrier nobody is expected.
        cable.ends[1].carrier(false, cable.now);
        cable.cut = [true; 2];
        cable.rounds(10);
        assert_eq!(of(&cable), (51, 8));
    }

    #[test]
    fn a_neighbour_that_starts_again_in_time_has_lost_no_hello() {
        let mut cable = Cable::new();
        let lost = |cable: &Cable| cable.ends[1].tally().lost();
        cable.rounds(10);
        for start in 0..3 {
            // It is heard two intervals after its last hello, and would be gone after three.
            cable.cut = [true, false];
            cable.rounds(1);
            cable.cut = [false; 2];
            cable.ends[0] = Session::new(PortId(10), 1000 + start, Timing::default(), cable.now);
            cable.rounds(10);
            assert_eq!((cable.states()[1], lost(&cable)), (LinkState::Up, 0), "start {start}");
        }
        // Without a restart the one in between is lost.
        cable.cut = [true, false];
        cable.rounds(1);
        cable.cut = [false; 2];
        cable.rounds(10);
        assert_eq!(lost(&cable), 1);
    }

    #[test]
    fn a_switch_that_stood_still_blames_nobody() {
        let mut cable = Cable::new();
        cable.rounds(2);
        let still = Duration::from_secs(60);
        cable.now += still;
        cable.ends[0].excuse(still);
        assert_eq!(cable.ends[0].judge(cable.now), Event::Nothing);
        cable.ends[1].judge(cable.now);
        assert_eq!(cable.states(), [LinkState::Up, LinkState::Silent]);
    }
}
