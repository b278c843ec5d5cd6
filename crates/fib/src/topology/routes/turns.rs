//! What becomes of a frame that a switch sends away from the destination, by the rules of switches: where it turns, and whether it
//! comes by the links again that are down.
//!
//! ```text
//!            S ══x══ P ... D      S has lost its way to D and has no loop-free neighbour. It sends the frame to N, marked
//!   M ── N ──┘                    as a detour. N gets it by its own way, so it takes another one, or else its alternate M.
//!   └─ ... ────────── D           If M's own way is N, M turns it in turn.
//! ```
//! Each switch that turns a frame at its alternate is farther from D than the one before: the frame came by its own way. As soon as
//! one does not, the frame follows shortest paths. So it comes to an end, whatever else is down, and after fewer hops than three
//! times the switches that there are. It arrives if no shortest path from there leads through S.
//!
//! Cost: a search from each such switch, over those that are farther from D than S; mostly none is.

use super::Neighbour;

/// A condition to leave out: a test leaves out each in turn, and must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// Ways of the switch that turns it do not lead through the one that has lost its own.
    NotByWaysThroughHere,
    /// Nor does its alternate.
    NotByAlternateThroughHere,
}

/// The ways of a switch to one destination, by the places of their links among its own.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Own {
    /// The link of the path that is taken where flows are not spread.
    pub(super) chosen: usize,
    /// All ways, a bit each, if there are several.
    pub(super) set: u64,
    pub(super) alternate: Option<usize>,
    /// Where a frame goes that is turned here and leaves by the alternate, up to the switch that sends it on for good.
    pub(super) onward: Option<Arrival>,
}

/// A frame comes to a switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    from: usize,
    at: usize,
    /// The place of the link that it comes by.
    entry: usize,
}

impl Own {
    pub(super) fn has(&self, place: usize) -> bool {
        if self.set == 0 { self.chosen == place } else { place < u64::BITS as usize && self.set >> place & 1 != 0 }
    }

    fn places(self) -> impl Iterator<Item = usize> {
        let (single, mut set) = ((self.set == 0).then_some(self.chosen), self.set);
        let several = std::iter::from_fn(move || {
            let place = (set != 0).then(|| set.trailing_zeros() as usize)?;
            set &= set - 1;
            Some(place)
        });
        single.into_iter().chain(several)
    }
}

/// All paths to one destination.
pub(super) struct Paths<'a> {
    pub(super) to: usize,
    pub(super) neighbours: &'a [Vec<Neighbour>],
    /// Of each link of each switch: its place among those of the switch at its other end.
    pub(super) far_places: &'a [Vec<usize>],
    pub(super) transit: &'a [bool],
    pub(super) distance: &'a [u64],
    pub(super) own: &'a [Option<Own>],
    pub(super) left_out: Option<Rule>,
}

/// Switches that were visited, and those to visit.
#[derive(Default)]
pub(super) struct Visits {
    round: u32,
    seen: Vec<u32>,
    open: Vec<usize>,
}

impl Visits {
    pub(super) fn of(n: usize) -> Self {
        Self { round: 0, seen: vec![0; n], open: Vec::new() }
    }

    fn begin(&mut self, at: usize) {
        self.round += 1;
        self.open.clear();
        self.visit(at);
    }

    fn visit(&mut self, at: usize) {
        if std::mem::replace(&mut self.seen[at], self.round) != self.round {
            self.open.push(at);
        }
    }
}

impl Paths<'_> {
    /// Whether a shortest path from a switch leads through another one, or it is that one.
    fn leads_through(&self, from: usize, other: usize, visits: &mut Visits) -> bool {
        if from == other || self.distance[from] <= self.distance[other] {
            return from == other;
        }
        visits.begin(from);
        while let Some(at) = visits.open.pop() {
            let Some(own) = self.own[at] else { continue };
            for way in own.places() {
                let next = self.neighbours[at][way].1;
                if next == other {
                    return true;
                }
                if self.distance[next] > self.distance[other] {
                    visits.visit(next);
                }
            }
        }
        false
    }

    /// Whether a shortest path from a neighbour leads through a switch that is next on a way from here, and not the destination; or it is
    /// that one. Then the alternate is none if that switch is what is gone.
    pub(super) fn meets_next(&self, here: usize, place: usize, visits: &mut Visits) -> bool {
        let via = self.neighbours[here][place].1;
        let mut next = self.own[here].into_iter().flat_map(Own::places).map(|way| self.neighbours[here][way].1);
        next.any(|next| if next == self.to { via == next } else { self.leads_through(via, next, visits) })
    }

    fn behind(&self, here: usize, place: usize) -> Arrival {
        Arrival { from: here, at: self.neighbours[here][place].1, entry: self.far_places[here][place] }
    }

    /// The ways by which a frame is turned that came by an own way: none goes back, by a parallel link either.
    fn others(&self, Arrival { from, at, .. }: Arrival) -> impl Iterator<Item = usize> {
        let ways = self.own[at].into_iter().flat_map(Own::places).map(move |way| self.neighbours[at][way].1);
        ways.filter(move |next| *next != from)
    }

    /// Whether a switch that a frame comes to sends it on by its alternate.
    fn takes_alternate(&self, arrival: Arrival) -> bool {
        let has_entry = self.own[arrival.at].is_some_and(|own| own.has(arrival.entry));
        has_entry && self.others(arrival).next().is_none()
    }

    /// See [`Own::onward`]: of a switch with an alternate.
    pub(super) fn onward(&self, here: usize, alternate: usize) -> Option<Arrival> {
        let arrival = self.behind(here, alternate);
        if !self.takes_alternate(arrival) {
            return Some(arrival);
        }
        let own =
            self.own[arrival.at].filter(|own| own.alternate.is_some_and(|k| self.neighbours[arrival.at][k].1 != here));
        own?.onward
    }

    /// Whether a neighbour that has a switch among its own ways, by this link, gets frames from there to the destination another way.
    pub(super) fn turns(&self, here: usize, place: usize, visits: &mut Visits) -> bool {
        let first = self.behind(here, place);
        if first.at == self.to || !self.transit[first.at] || !self.own[first.at].is_some_and(|own| own.has(first.entry))
        {
            return false;
        }
        let last = match self.takes_alternate(first) {
            true => {
                let own = self.own[first.at]
                    .filter(|own| own.alternate.is_some_and(|k| self.neighbours[first.at][k].1 != here));
                own.and_then(|own| own.onward)
            }
            false => Some(first),
        };
        let Some(last) = last else { return false };
        let holds = |rule| self.left_out != Some(rule);
        if last.at == self.to {
            true
        } else if self.own[last.at].is_some_and(|own| own.has(last.entry)) {
            !holds(Rule::NotByWaysThroughHere) || self.others(last).all(|next| !self.leads_through(next, here, visits))
        } else {
            !holds(Rule::NotByAlternateThroughHere) || !self.leads_through(last.at, here, visits)
        }
    }
}
