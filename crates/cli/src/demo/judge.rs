//! The judge: which frames were sent, which arrived, and which arrived at the wrong station.
//!
//! A unicast frame is **misdelivered** when it comes out at a station that does not carry its destination: a host with
//! another MAC, a far end without that name, or any station for a name that was removed or never existed. A probe to a
//! live name is **lost** when it is not seen at its station. While a name moves, both its stations carry it; once every
//! switch has confirmed the move, a probe sent later may only come out at the new one. The time at which a probe was
//! sent decides, not the time at which it was seen, so a judge that runs late judges the same.
//!
//! Probes of one sender to one name are a flow, and are sent in the order of their numbers. One that comes out after a later one at
//! the same station was **overtaken**: by a change of paths, or by frames of its flow that took another one. One that was sent before a move of
//! either end was over is not counted: it came in, or out, elsewhere.
//!
//! Cost: two hash lookups per frame; about 60 bytes per name, 40 per flow, 16 per move and one byte per probe.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::frames::probe_number;
use super::layout::{Mac, Station};

/// Misdelivered frames that are described in words; the rest are only counted.
const MAX_OFFENCES: usize = 8;

/// A part of the demo whose frames are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    Start,
    Find,
    Ping,
    Tcp,
    Udp,
    Churn,
    Cut,
    Silent,
    Move,
    Drain,
}

impl Phase {
    /// In the order of the variants.
    pub(super) const ALL: [Self; 10] = [
        Self::Start,
        Self::Find,
        Self::Ping,
        Self::Tcp,
        Self::Udp,
        Self::Churn,
        Self::Cut,
        Self::Silent,
        Self::Move,
        Self::Drain,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Find => "find",
            Self::Ping => "ping",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Churn => "churn",
            Self::Cut => "cut",
            Self::Silent => "silent",
            Self::Move => "move",
            Self::Drain => "drain",
        }
    }
}

/// Counts of one phase.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Probes to live names.
    pub(super) sent: u64,
    /// Those of them that were seen at their station.
    pub(super) delivered: u64,
    /// Probes to removed and to unknown names.
    pub(super) sent_to_nobody: u64,
    /// Unicast frames of any kind seen where they do not belong.
    pub(super) misdelivered: u64,
    /// Probes seen a second time at their station.
    pub(super) duplicates: u64,
    /// Probes seen at their station after a later one of the same flow.
    pub(super) overtaken: u64,
    /// Frames of any kind seen by the sniffers.
    pub(super) seen: u64,
}

impl Counts {
    pub(super) fn lost(&self) -> u64 {
        self.sent - self.delivered
    }
}

/// Where a name is, and which probe numbers may arrive there.
#[derive(Debug)]
struct Place {
    at: Station,
    /// The stations that it left, in order, each valid for probes numbered below this.
    before: Vec<(Station, u64)>,
    /// Removed: no station may see probes numbered from this on.
    gone: Option<u64>,
}

impl Place {
    /// Probes numbered below this may have been sent before the latest move was over.
    fn since(&self) -> u64 {
        self.before.last().map_or(0, |&(_, until)| until)
    }
}

#[derive(Debug)]
struct State {
    /// The stations' names, for messages.
    stations: Vec<String>,
    names: HashMap<Mac, Place>,
    /// The latest probe of each flow (from whom, to whom) that was seen at a station.
    latest: HashMap<(Mac, Mac, Station), u64>,
    /// One byte per probe, by number: its phase, [`SEEN`], [`NOBODY`].
    probes: Vec<u8>,
    phase: Phase,
    counts: [Counts; Phase::ALL.len()],
    offences: Vec<String>,
    /// Whether no station may see a frame to a group.
    forbids_groups: bool,
}

const SEEN: u8 = 0x80;
const NOBODY: u8 = 0x40;
const PHASE_MASK: u8 = 0x0f;

/// Shared by the threads that send and those that watch.
#[derive(Debug)]
pub(super) struct Judge(Mutex<State>);

impl Judge {
    /// `stations`: their names, for messages.
    pub(super) fn new(stations: Vec<String>) -> Self {
        Self(Mutex::new(State {
            stations,
            names: HashMap::new(),
            latest: HashMap::new(),
            probes: Vec::new(),
            phase: Phase::Start,
            counts: Default::default(),
            offences: Vec::new(),
            forbids_groups: false,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere ends the demo anyway; the counts are still correct.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts frames under `phase` from now on.
    pub(super) fn enter(&self, phase: Phase) {
        self.state().phase = phase;
    }

    /// From now on a frame to a group is misdelivered, wherever it is seen: nothing that hosts say to all is for other hosts.
    pub(super) fn forbid_groups(&self) {
        self.state().forbids_groups = true;
    }

    /// These names are about to be added.
    pub(super) fn add(&self, names: impl IntoIterator<Item = (Mac, Station)>) {
        let place = |(mac, at)| (mac, Place { at, before: Vec::new(), gone: None });
        self.state().names.extend(names.into_iter().map(place));
    }

    /// These names are about to move: both stations are right until [`Self::moved`].
    pub(super) fn moving(&self, names: impl IntoIterator<Item = (Mac, Station)>) {
        let state = &mut *self.state();
        for (mac, to) in names {
            let place = state.names.get_mut(&mac).expect("a name moves after it was added");
            place.before.push((std::mem::replace(&mut place.at, to), u64::MAX));
        }
    }

    /// Every switch has confirmed the move of these names.
    pub(super) fn moved(&self, names: impl IntoIterator<Item = Mac>) {
        let state = &mut *self.state();
        let next = state.probes.len() as u64;
        for mac in names {
            let place = state.names.get_mut(&mac).expect("a name that is moving");
            if let Some((_, until)) = place.before.last_mut() {
                *until = next;
            }
        }
    }

    /// Every switch has confirmed the removal of these names.
    pub(super) fn removed(&self, names: impl IntoIterator<Item = Mac>) {
        let state = &mut *self.state();
        let next = state.probes.len() as u64;
        for mac in names {
            state.names.get_mut(&mac).expect("a name is removed after it was added").gone = Some(next);
        }
    }

    /// Numbers `n` probes to live names that are about to be sent, consecutively. Returns the first number.
    pub(super) fn send(&self, n: usize) -> u64 {
        self.number(n, 0)
    }

    /// Numbers `n` probes to removed or unknown names.
    pub(super) fn send_to_nobody(&self, n: usize) -> u64 {
        self.number(n, NOBODY)
    }

    fn number(&self, n: usize, flag: u8) -> u64 {
        let state = &mut *self.state();
        let counts = &mut state.counts[state.phase as usize];
        *(if flag == NOBODY { &mut counts.sent_to_nobody } else { &mut counts.sent }) += n as u64;
        let first = state.probes.len();
        state.probes.resize(first + n, state.phase as u8 | flag);
        first as u64
    }

    /// Frames (from the Ethernet header on, at least [`super::frames::SNAP_LEN`] bytes where they have them) came out
    /// at `station`.
    pub(super) fn observe<'a>(&self, station: Station, frames: impl IntoIterator<Item = &'a [u8]>) {
        let state = &mut *self.state();
        for frame in frames {
            state.observe(station, frame);
        }
    }

    /// Whether probe `number` was seen at its station.
    pub(super) fn was_seen(&self, number: u64) -> bool {
        self.state().probes[number as usize] & SEEN != 0
    }

    /// Probes to live names not seen so far, over all phases.
    pub(super) fn outstanding(&self) -> u64 {
        self.state().counts.iter().map(Counts::lost).sum()
    }

    pub(super) fn counts(&self, phase: Phase) -> Counts {
        self.state().counts[phase as usize]
    }

    /// The first few misdelivered frames, described in words.
    pub(super) fn offences(&self) -> Vec<String> {
        self.state().offences.clone()
    }
}

impl State {
    fn observe(&mut self, station: Station, frame: &[u8]) {
        self.counts[self.phase as usize].seen += 1;
        let Some(destination) = frame.first_chunk::<6>() else { return };
        if destination[0] & 1 != 0 {
            if self.forbids_groups {
                self.offend(self.phase, station, destination, None);
            }
            return;
        }
        let number = probe_number(frame).filter(|&n| n < self.probes.len() as u64);
        let right = self.names.get(destination).is_some_and(|place| match number {
            Some(n) => {
                let carried = |&(at, until): &(Station, u64)| at == station && n < until;
                let carries = place.at == station || place.before.iter().any(carried);
                carries && place.gone.is_none_or(|gone| n < gone)
            }
            // TCP, ARP and the like carry no number that says when they were sent.
            None => place.at == station || place.before.last().is_some_and(|&(at, _)| at == station),
        });
        let probe = number.map(|n| &mut self.probes[n as usize]);
        let phase = probe.as_ref().map_or(self.phase as u8, |flags| **flags & PHASE_MASK);
        let counts = &mut self.counts[phase as usize];
        if !right {
            self.offend(Phase::ALL[phase as usize], station, destination, number);
        } else if let Some(flags) = probe {
            if *flags & SEEN != 0 {
                counts.duplicates += 1;
            } else if *flags & NOBODY == 0 {
                counts.delivered += 1;
                let since = |name: &Mac| self.names.get(name).map_or(0, Place::since);
                if let (Some(number), Some(source)) = (number, frame[6..].first_chunk::<6>())
                    && number >= since(source).max(since(destination))
                {
                    let latest = self.latest.entry((*source, *destination, station)).or_default();
                    counts.overtaken += u64::from(number < *latest);
                    *latest = number.max(*latest);
                }
            }
            *flags |= SEEN;
        }
    }

    fn offend(&mut self, phase: Phase, station: Station, destination: &Mac, number: Option<u64>) {
        self.counts[phase as usize].misdelivered += 1;
        if self.offences.len() < MAX_OFFENCES {
            self.offences.push(format!(
                "{} saw a frame to {}, phase {}{}",
                self.stations[station],
                mac_text(destination),
                phase.name(),
                number.map_or(String::new(), |n| format!(", probe {n}")),
            ));
        }
    }
}

/// A MAC in the usual notation.
pub(super) fn mac_text(mac: &Mac) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

#[cfg(test)]
mod tests {
    use super::super::frames::{arp_request, probe};
    use super::*;

    const NAME: Mac = [6, 0, 0, 0, 0, 1];

    fn judge() -> Judge {
        Judge::new((0..6).map(|i| format!("station {i}")).collect())
    }

    fn frame(number: u64) -> Vec<u8> {
        let from = ([2, 0, 0, 0, 0, 9], [10, 0, 0, 9].into());
        probe(from, (NAME, [10, 0, 0, 1].into()), number, 20)
    }

    fn counts(judge: &Judge) -> (u64, u64, u64, u64) {
        let c = judge.counts(Phase::Start);
        (c.delivered, c.lost(), c.misdelivered, c.duplicates)
    }

    #[test]
    fn a_probe_counts_once_where_its_name_lives_and_against_the_network_elsewhere() {
        let judge = judge();
        judge.add([(NAME, 3)]);
        let n = judge.send(2);
        judge.observe(3, [&frame(n)[..], &frame(n)[..]]);
        assert_eq!(counts(&judge), (1, 1, 0, 1));
        judge.observe(4, [&frame(n + 1)[..]]);
        assert_eq!(counts(&judge), (1, 1, 1, 1));
        assert!(judge.offences()[0].starts_with("station 4 saw a frame to 06:00:00:00:00:01"));
    }

    #[test]
    fn a_probe_is_overtaken_by_later_ones_of_its_flow_alone() {
        let judge = judge();
        let (other_name, other_host) = ([6, 0, 0, 0, 0, 2], ([2, 0, 0, 0, 0, 8], [10, 0, 0, 8].into()));
        judge.add([(NAME, 3), (other_name, 3)]);
        let n = judge.send(6);
        let of_other_host = probe(other_host, (NAME, [10, 0, 0, 1].into()), n + 1, 20);
        let to_other_name =
            probe(([2, 0, 0, 0, 0, 9], [10, 0, 0, 9].into()), (other_name, [10, 0, 0, 1].into()), n + 2, 20);
        judge.observe(3, [&frame(n + 3)[..], &of_other_host, &to_other_name, &frame(n + 4)]);
        assert_eq!(judge.counts(Phase::Start).overtaken, 0);
        judge.observe(3, [&frame(n)[..], &frame(n), &frame(n + 5)]);
        assert_eq!((judge.counts(Phase::Start).overtaken, counts(&judge)), (1, (6, 0, 0, 1)));
        // The host moves: what it sent before came another way.
        let host = [2, 0, 0, 0, 0, 9];
        judge.add([(host, 1)]);
        let early = judge.send(1);
        judge.moving([(host, 2)]);
        judge.moved([host]);
        let late = judge.send(2);
        judge.observe(3, [&frame(late)[..], &frame(early)]);
        assert_eq!(judge.counts(Phase::Start).overtaken, 1);
        judge.observe(3, [&frame(late + 1)[..]]);
        assert_eq!((judge.counts(Phase::Start).overtaken, counts(&judge)), (1, (9, 0, 0, 1)));
    }

    #[test]
    fn both_places_are_right_during_a_move_and_only_the_new_one_for_later_probes() {
        let judge = judge();
        judge.add([(NAME, 3)]);
        let early = judge.send(1);
        judge.moving([(NAME, 4)]);
        let during = judge.send(1);
        judge.moved([NAME]);
        let late = judge.send(2);
        judge.observe(3, [&frame(early)[..], &frame(during)[..]]);
        judge.observe(4, [&frame(late)[..]]);
        assert_eq!(counts(&judge), (3, 1, 0, 0));
        judge.observe(3, [&frame(late + 1)[..]]);
        assert_eq!(counts(&judge), (3, 1, 1, 0));
    }

    #[test]
    fn a_frame_seen_late_is_judged_by_when_it_was_sent() {
        let judge = judge();
        judge.add([(NAME, 3)]);
        let sent = [3, 4, 5].map(|at| {
            let number = judge.send(2);
            judge.moving([(NAME, at + 1)]);
            judge.moved([NAME]);
            number
        });
        for (number, station) in sent.into_iter().zip([3, 4, 5]) {
            judge.observe(station, [&frame(number)[..]]);
        }
        assert_eq!(counts(&judge), (3, 3, 0, 0));
        judge.observe(3, [&frame(sent[1] + 1)[..]]);
        assert_eq!(counts(&judge), (3, 3, 1, 0), "it was sent after the move away from there");
    }

    #[test]
    fn a_frame_to_a_removed_or_unknown_name_is_wrong_everywhere() {
        let judge = judge();
        let alien = judge.send_to_nobody(1);
        judge.observe(3, [&frame(alien)[..]]);
        assert_eq!(counts(&judge), (0, 0, 1, 0));
        judge.add([(NAME, 3)]);
        let before = judge.send(1);
        judge.removed([NAME]);
        let after = judge.send_to_nobody(1);
        judge.observe(3, [&frame(before)[..]]);
        assert_eq!(counts(&judge), (1, 0, 1, 0), "it was under way when the name was removed");
        judge.observe(3, [&frame(after)[..]]);
        assert_eq!(counts(&judge), (1, 0, 2, 0));
    }

    #[test]
    fn broadcasts_and_frames_of_the_hosts_themselves_are_no_offence() {
        let judge = judge();
        judge.add([(NAME, 3)]);
        let from = ([2, 0, 0, 0, 0, 9], [10, 0, 0, 9].into());
        let mut arp = arp_request(from, [10, 0, 0, 1].into());
        judge.observe(5, [&arp[..]]);
        arp[..6].copy_from_slice(&NAME);
        judge.observe(3, [&arp[..]]);
        assert_eq!(counts(&judge), (0, 0, 0, 0));
        judge.observe(5, [&arp[..]]);
        assert_eq!(counts(&judge), (0, 0, 1, 0));
    }

    #[test]
    fn a_probe_that_arrives_in_a_later_phase_is_not_lost() {
        let judge = judge();
        judge.add([(NAME, 3)]);
        let n = judge.send(1);
        judge.enter(Phase::Ping);
        assert_eq!(judge.outstanding(), 1);
        judge.observe(3, [&frame(n)[..]]);
        assert_eq!((judge.outstanding(), judge.counts(Phase::Start).delivered), (0, 1));
        assert!(judge.was_seen(n));
    }

    #[test]
    fn a_broadcast_is_misdelivered_only_where_groups_are_forbidden() {
        let judge = judge();
        let asks = arp_request(([2, 0, 0, 0, 0, 9], [10, 0, 0, 9].into()), [10, 0, 0, 1].into());
        judge.observe(1, [&asks[..]]);
        assert_eq!(counts(&judge).2, 0);
        judge.forbid_groups();
        judge.observe(1, [&asks[..]]);
        assert_eq!(counts(&judge).2, 1);
        assert!(judge.offences()[0].contains("ff:ff:ff:ff:ff:ff"), "{:?}", judge.offences());
    }
}
