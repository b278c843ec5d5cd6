//! Three switches whose bundles are joined by cables that lose frames, are cut one way, unplugged, moved to another port or another
//! switch, or looped, and that restart: what must hold at any time, and rules of LACP without which it does not.

use super::aggregate::{Aggregate, Identity, MemberState, Settings};
use super::lacp::{Manner, Rule};
use super::pdu::{End, Pdu, State};
use fib::action::PortId;
use lookup::testkit::{Rng, seed};
use std::cell::Cell;
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(100);
const MEMBERS: usize = 3;
const SWITCHES: usize = 3;
/// Rounds after which a switch that hears itself reports that: its PDUs are on their way for one.
const FLIGHT: u32 = 3;
/// Rounds after which an unheard partner counts as missing: three seconds.
const MISSED_AFTER: u32 = 32;
/// Rounds for which everything must be well before all members are in use: a few PDUs, of which three a second are sent.
const UP_AFTER: u32 = 45;
/// For two switches that have just started and lose nothing.
const UP_AFTER_START: u32 = 8;

thread_local! {
    static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
}

pub(super) fn holds(rule: Rule) -> bool {
    LEFT_OUT.get() != Some(rule)
}

/// A member of a switch.
type Place = (usize, usize);

/// When a member was last in some state.
#[derive(Clone, Copy, Default)]
struct Last {
    /// Which member it had in its bundle, and when.
    in_sync: Option<(u32, End)>,
    /// From which member it took frames, and when.
    collected: Option<(u32, End)>,
}

struct World {
    now: Instant,
    round: u32,
    manners: [Manner; SWITCHES],
    switches: Vec<Aggregate>,
    /// Where each member leads.
    cables: [[Option<Place>; MEMBERS]; SWITCHES],
    /// Whether a member's PDUs are lost.
    cut: [[bool; MEMBERS]; SWITCHES],
    /// The percentage of lost PDUs.
    lost: u64,
    /// Which member hears another's PDUs instead, and whose.
    tapped: Option<(Place, Place)>,
    flying: Vec<(Place, Pdu)>,
    last: [[Last; MEMBERS]; SWITCHES],
    /// Since when the cable of a member, and what it carries here, have been as they are.
    since: [[u32; MEMBERS]; SWITCHES],
    heard: [[u32; MEMBERS]; SWITCHES],
    said: [[Vec<u32>; MEMBERS]; SWITCHES],
}

fn identity(switch: usize) -> Identity {
    Identity {
        system: [2, 0, 0, 0, 0, switch as u8 + 1],
        key: 10 + switch as u16,
        first: 1,
        port: PortId(1),
        session: 1,
    }
}

impl World {
    fn new(manners: [Manner; SWITCHES]) -> Self {
        let now = Instant::now();
        let mut world = Self {
            now,
            round: 0,
            manners,
            switches: Vec::new(),
            cables: Default::default(),
            cut: Default::default(),
            lost: 0,
            tapped: None,
            flying: Vec::new(),
            last: Default::default(),
            since: Default::default(),
            heard: Default::default(),
            said: Default::default(),
        };
        world.switches = (0..SWITCHES).map(|switch| world.started(switch)).collect();
        for switch in 0..SWITCHES {
            (0..MEMBERS).for_each(|member| world.switches[switch].carrier(member, false, now));
        }
        for member in 0..MEMBERS {
            world.plug((0, member), (1, member));
        }
        world
    }

    fn started(&self, switch: usize) -> Aggregate {
        let settings = Settings { lacp: Some(self.manners[switch]), min_links: 1, hellos: None };
        Aggregate::new(identity(switch), settings, MEMBERS, self.now)
    }

    fn restart(&mut self, switch: usize) {
        self.switches[switch] = self.started(switch);
        for member in 0..MEMBERS {
            let has_carrier = self.cables[switch][member].is_some();
            self.switches[switch].carrier(member, has_carrier, self.now);
            self.said[switch][member].clear();
            self.since[switch][member] = self.round;
        }
    }

    fn unplug(&mut self, (switch, member): Place) {
        if let Some((far, there)) = self.cables[switch][member].take() {
            self.cables[far][there] = None;
            for (switch, member) in [(switch, member), (far, there)] {
                self.switches[switch].carrier(member, false, self.now);
                self.since[switch][member] = self.round;
            }
        }
    }

    /// Joins two members, or one with itself.
    fn plug(&mut self, one: Place, other: Place) {
        self.unplug(one);
        self.unplug(other);
        self.flying.retain(|(to, _)| *to != one && *to != other);
        for ((switch, member), to) in [(one, other), (other, one)] {
            self.cables[switch][member] = Some(to);
            self.switches[switch].carrier(member, true, self.now);
            self.since[switch][member] = self.round;
        }
    }

    /// As [`plug`](Self::plug), but unnoticed: a media converter keeps the carriers.
    fn replug(&mut self, one: Place, other: Place) {
        let far = |world: &Self, (switch, member): Place| world.cables[switch][member];
        let (Some(before), Some(elsewhere)) = (far(self, one), far(self, other)) else { return };
        if before == other || one == other || before == one || elsewhere == other {
            return;
        }
        for (a, b) in [(one, other), (before, elsewhere)] {
            for ((switch, member), to) in [(a, b), (b, a)] {
                self.cables[switch][member] = Some(to);
                self.since[switch][member] = self.round;
            }
        }
    }

    /// For a while a member hears what another sends to its partner, and is not heard itself.
    fn tap(&mut self, rng: &mut Rng, (switch, member): Place, heard: Place) -> Result<(), String> {
        self.unplug((switch, member));
        self.cables[switch][member] = Some(heard);
        self.cut[switch][member] = true;
        self.tapped = Some(((switch, member), heard));
        self.switches[switch].carrier(member, true, self.now);
        self.since[switch][member] = self.round;
        let result = (0..3 * MISSED_AFTER).try_for_each(|_| self.round(rng));
        self.switches[switch].carrier(member, false, self.now);
        (self.cables[switch][member], self.tapped) = (None, None);
        self.cut[switch][member] = false;
        result
    }

    fn round(&mut self, rng: &mut Rng) -> Result<(), String> {
        self.round += 1;
        self.now += ROUND;
        for ((switch, member), pdu) in std::mem::take(&mut self.flying) {
            if self.cables[switch][member].is_some() {
                self.switches[switch].hear(member, &pdu, self.now);
                self.heard[switch][member] = self.round;
            }
            self.switches[switch].judge(self.now);
        }
        for switch in 0..SWITCHES {
            self.switches[switch].judge(self.now);
            for (member, pdu) in self.switches[switch].say(self.now) {
                let member = usize::from(member);
                self.said[switch][member].push(self.round);
                let to =
                    self.cables[switch][member].filter(|_| !self.cut[switch][member] && rng.below(100) >= self.lost);
                self.flying.extend(to.map(|to| (to, pdu)));
                let tap = self.tapped.filter(|(_, heard)| *heard == (switch, member));
                self.flying.extend(tap.map(|(to, _)| (to, pdu)));
            }
        }
        self.check()?;
        for switch in 0..SWITCHES {
            for member in 0..MEMBERS {
                let (actor, partner) =
                    (self.switches[switch].actor_at(member), self.switches[switch].partner_at(member));
                let last = &mut self.last[switch][member];
                let Some(partner) = partner.copied() else { continue };
                if actor.state.has(State::IN_SYNC) {
                    last.in_sync = Some((self.round, partner));
                }
                if actor.state.has(State::COLLECTS) {
                    last.collected = Some((self.round, partner));
                }
            }
        }
        Ok(())
    }

    /// Whether `then` was about this end, and no longer ago than information is believed.
    fn is_lately(&self, then: Option<(u32, End)>, of: End) -> bool {
        then.is_some_and(|(round, end)| self.round - round <= MISSED_AFTER && End { state: of.state, ..end } == of)
    }

    fn check(&self) -> Result<(), String> {
        for (switch, aggregate) in self.switches.iter().enumerate() {
            let mut partner = None;
            for member in 0..MEMBERS {
                let at = format!("round {}: {switch}.{member}", self.round);
                let is = aggregate.actor_at(member);
                let sends = aggregate.distributes() >> member & 1 != 0;
                if sends != (aggregate.state(member).0 == MemberState::Up)
                    || (sends && aggregate.collects() >> member & 1 == 0)
                {
                    return Err(format!("{at} is {:?}, and sends {sends}", aggregate.state(member).0));
                }
                let Some((far, there)) = self.cables[switch][member] else {
                    if sends {
                        return Err(format!("{at} sends without carrier"));
                    }
                    continue;
                };
                // Information from before the cable was moved is believed for as long as present information.
                let age = self.round - self.since[switch][member];
                if age > 2 * MISSED_AFTER {
                    let (its, takes) = (self.last[far][there], is.state.has(State::COLLECTS));
                    if takes && !self.is_lately(its.in_sync, is) {
                        return Err(format!("{at} takes frames, and {far}.{there} has not chosen it"));
                    }
                    if sends && !self.is_lately(its.collected, is) {
                        return Err(format!("{at} sends frames, and {far}.{there} takes none of it"));
                    }
                }
                let silent_for = self.round - self.heard[switch][member].max(self.since[switch][member]);
                if is.state.has(State::DISTRIBUTES) && silent_for > MISSED_AFTER {
                    return Err(format!("{at} sends, and has heard nothing for {silent_for}"));
                }
                if sends && (far, there) == (switch, member) && age > FLIGHT {
                    return Err(format!("{at} sends to itself"));
                }
                let its = aggregate.partner_at(member).filter(|_| sends).map(|end| end.bundle());
                if its.is_some() && *partner.get_or_insert(its) != its {
                    return Err(format!("{at} sends to another than the others"));
                }
                let lately = self.said[switch][member].iter().filter(|round| self.round - *round < 10).count();
                if lately > 3 {
                    return Err(format!("{at} has spoken {lately} times in a second"));
                }
            }
        }
        Ok(())
    }

    /// Whether both ends use all members, which lead from one to the other.
    fn are_joined(&self) -> Result<(), String> {
        for (switch, aggregate) in self.switches[..2].iter().enumerate() {
            if aggregate.distributes() != (1 << MEMBERS) - 1 {
                let states: Vec<_> =
                    (0..MEMBERS).map(|member| (aggregate.state(member).0, aggregate.actor_at(member).state)).collect();
                return Err(format!("round {}: all is well, and {switch} has {states:?}", self.round));
            }
        }
        Ok(())
    }
}

fn run(rng: &mut Rng) -> Result<(), String> {
    let manner = |is_active| Manner { is_active, is_fast: true };
    let passive = rng.below(3) as usize;
    let mut world = World::new(std::array::from_fn(|switch| manner(switch != passive)));
    for round in 0..UP_AFTER {
        world.round(rng)?;
        if round > UP_AFTER_START {
            world.are_joined()?;
        }
    }
    for _ in 0..8 {
        let (switch, member, there) = (rng.below(2) as usize, rng.below(3) as usize, rng.below(3) as usize);
        match rng.below(9) {
            0 => world.cut[switch][member] = true,
            1 => world.unplug((switch, member)),
            2 => world.plug((switch, member), (2, there)),
            3 => world.plug((switch, member), (switch, member)),
            4 => world.restart(switch),
            5 => world.replug((0, member), (1, there)),
            6 => world.lost = 50,
            7 => {
                world.plug((2, there), (1, there));
                world.tap(rng, (0, member), (1, there))?;
            }
            _ => {
                world.plug((0, member), (2, there));
                world.replug((0, member), (1, there));
            }
        }
        for _ in 0..1 + rng.below(60) {
            world.round(rng)?;
        }
        if rng.below(2) == 0 {
            (world.cut, world.lost) = Default::default();
            for member in 0..MEMBERS {
                // Members that are well stay as they are.
                if world.cables[0][member].is_none_or(|(far, _)| far != 1) {
                    let free = (0..MEMBERS).find(|there| world.cables[1][*there].is_none_or(|(far, _)| far != 0));
                    world.plug((0, member), (1, free.unwrap_or(member)));
                }
            }
            for _ in 0..UP_AFTER {
                world.round(rng)?;
            }
            world.are_joined()?;
        }
    }
    Ok(())
}

#[test]
fn both_ends_agree_under_random_faults_and_do_not_without_any_of_the_rules() {
    let seed = seed();
    (0..300).try_for_each(|i| run(&mut Rng::new(seed + i)).map_err(|what| format!("run {i}: {what}"))).unwrap();
    for rule in [
        Rule::BothInSync,
        Rule::KnowsUs,
        Rule::TakenFirst,
        Rule::Expires,
        Rule::SaysNews,
        Rule::NotTooOften,
        Rule::OnePartner,
        Rule::NotItself,
        Rule::CarrierCounts,
    ] {
        LEFT_OUT.set(Some(rule));
        let is_noticed = (0..300).any(|i| run(&mut Rng::new(seed + i)).is_err());
        LEFT_OUT.set(None);
        assert!(is_noticed, "nothing is wrong without {rule:?}");
    }
}
