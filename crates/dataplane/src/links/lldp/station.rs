//! One end of a cable in LLDP: when it speaks, and the neighbours heard there. It decides from its inputs and their times; it has no
//! clock.
//!
//! It speaks at once when it starts, when its carrier comes and when a new neighbour is heard, [`QUICK`] times a second apart, then once in an
//! interval, and never more often than each second. A neighbour is known until its information has expired, until it announces that it
//! leaves, or until the carrier goes: the neighbour at the other end of the next cable announces itself.

use super::pdu::{OURS, Said};
use fib::name::clip;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most neighbours of a port that are kept: those that were heard last.
pub const MOST_NEIGHBOURS: usize = 4;

/// Frames that follow each other quickly (IEEE 802.1AB, txFastInit), and the time between two of them.
pub(super) const QUICK: u8 = 4;
pub(super) const QUICKLY: Duration = Duration::from_secs(1);

/// A neighbour at the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its latest information.
    pub said: Said,
    /// When it was first heard.
    pub since: Instant,
    /// When it was last heard.
    pub heard: Instant,
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.said.name.as_ref().unwrap_or(&self.said.chassis.text);
        write!(f, "{}, port {}", clip(name), clip(&self.said.port.text))
    }
}

impl Neighbour {
    /// Whether it claims to be a fibula switch, which is known better by its hellos, and for longer than this information holds.
    pub fn is_ours(&self) -> bool {
        self.said.description.as_ref().is_some_and(|description| description.starts_with(OURS))
    }

    fn until(&self) -> Instant {
        self.heard + Duration::from_secs(self.said.ttl_s.into())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Station {
    /// The time between two frames; none: it never speaks.
    interval: Option<Duration>,
    /// None: the carrier is not known yet.
    has_carrier: Option<bool>,
    /// The number of quick frames left.
    quick: u8,
    /// When it spoke last.
    spoke: Option<Instant>,
    /// When it speaks next.
    next: Option<Instant>,
    neighbours: Vec<Arc<Neighbour>>,
}

impl Station {
    /// A station that speaks once in an interval, or only listens. A carrier is assumed until the contrary is reported.
    pub fn new(interval: Option<Duration>, now: Instant) -> Self {
        let mut station =
            Self { interval, has_carrier: None, quick: 0, spoke: None, next: None, neighbours: Vec::new() };
        station.hurry(now);
        station
    }

    /// The neighbours, in the order in which they were first heard.
    pub fn neighbours(&self) -> &[Arc<Neighbour>] {
        &self.neighbours
    }

    /// Notes that the carrier came or went. Returns whether the neighbours changed.
    pub fn carrier(&mut self, has_carrier: bool, now: Instant) -> bool {
        let before = self.has_carrier.replace(has_carrier);
        if has_carrier {
            if before != Some(true) {
                self.hurry(now);
            }
            return false;
        }
        if holds(Rule::SilentWithoutCarrier) {
            self.next = None;
        }
        let had_any = !self.neighbours.is_empty() && holds(Rule::CableIsAll);
        if had_any {
            self.neighbours.clear();
        }
        had_any
    }

    /// Takes the announcement of a neighbour. Returns whether the neighbours or their information changed.
    pub fn hear(&mut self, said: Said, now: Instant) -> bool {
        if self.has_carrier == Some(false) {
            // It was on its way.
            return false;
        }
        let known = self.neighbours.iter().position(|known| known.said.is_from_same(&said));
        if said.ttl_s == 0 && holds(Rule::FarewellCounts) {
            return known.map(|known| self.neighbours.remove(known)).is_some();
        }
        let neighbour = |since| Arc::new(Neighbour { said, since, heard: now });
        if let Some(known) = known {
            self.neighbours[known] = neighbour(self.neighbours[known].since);
            return true;
        }
        if self.neighbours.len() == MOST_NEIGHBOURS && holds(Rule::Bounded) {
            let oldest = (0..MOST_NEIGHBOURS).min_by_key(|at| self.neighbours[*at].heard);
            oldest.into_iter().for_each(|oldest| _ = self.neighbours.remove(oldest));
        }
        self.neighbours.push(neighbour(now));
        self.hurry(now);
        true
    }

    /// Takes the time into account. Returns whether the neighbours changed.
    pub fn judge(&mut self, now: Instant) -> bool {
        let before = self.neighbours.len();
        self.neighbours.retain(|neighbour| now < neighbour.until() || !holds(Rule::Expires));
        self.neighbours.len() != before
    }

    /// Whether it is to speak now; if so, it counts as having spoken.
    pub fn speaks(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| self.next.is_some_and(|next| next <= now)) else { return false };
        self.quick = self.quick.saturating_sub(1);
        self.spoke = Some(now);
        let wait = if self.quick > 0 && holds(Rule::QuickAtFirst) { QUICKLY.min(interval) } else { interval };
        self.next = Some(now + wait);
        true
    }

    /// The latest time to [judge](Self::judge) and to ask whether it [speaks](Self::speaks).
    pub fn deadline(&self) -> Option<Instant> {
        self.neighbours.iter().map(|neighbour| neighbour.until()).chain(self.next).min()
    }

    /// Speaks as soon as it may, and a few times soon after.
    fn hurry(&mut self, now: Instant) {
        if self.interval.is_none() || self.has_carrier == Some(false) {
            return;
        }
        self.quick = QUICK;
        let earliest = self.spoke.map_or(now, |spoke| now.max(spoke + QUICKLY));
        let soon = if holds(Rule::NotTooOften) { earliest } else { now };
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }
}

/// The rules of a station. A test leaves out each in turn, and must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// At first it speaks a few times in quick succession.
    QuickAtFirst,
    /// It never speaks more than once a second.
    NotTooOften,
    /// It does not speak without carrier.
    SilentWithoutCarrier,
    /// A neighbour that is no longer heard is gone.
    Expires,
    /// A neighbour that announces that it leaves is gone.
    FarewellCounts,
    /// A neighbour that was behind another cable is gone.
    CableIsAll,
    /// Invented neighbours take a bounded amount of memory.
    Bounded,
}

#[cfg(not(test))]
const fn holds(_: Rule) -> bool {
    true
}

#[cfg(test)]
use model::holds;

#[cfg(test)]
mod model;
