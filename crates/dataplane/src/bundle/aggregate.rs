//! The state of one bundle at a switch: which of its members take frames and which send some. Pure, like its inputs: the state of LACP
//! ([`Lacp`]), of hellos at a trunk ([`Session`]), and of carriers.
//!
//! A member **takes** frames as soon as LACP lets it, and always without LACP. It **sends** frames while its carrier is there, LACP
//! lets it, and, at a trunk, its own hellos say that its cable carries frames both ways. All members that send lead to one partner:
//! the partner of those in use or, if all are new, the one with the most members. A member that leads elsewhere is left
//! out, whatever it reports. With fewer than `min_links` members that could send none does, and the port is down.

use super::lacp::{Lacp, Manner, Mux, Receive, Rule, holds};
use super::pdu::{End, Partner, Pdu, State};
use crate::links::{Event, Hello, LinkState, Neighbour, Session, Tally, Timing};
use fib::action::PortId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a member is left out after the switch heard itself there.
const LOOPED: Duration = Duration::from_secs(3);

/// How long after the start the partner of most members is chosen anew, no matter who spoke first: as long as the standard waits.
const CHOOSES_ANEW: Duration = Duration::from_secs(2);

/// The settings of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How LACP is spoken; none: it is off.
    pub lacp: Option<Manner>,
    /// The fewest members that must send; with fewer none does.
    pub min_links: usize,
    /// How hellos watch each member; none: they do not, as at host ports.
    pub hellos: Option<Timing>,
}

/// The identity of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The switch, in LACP.
    pub system: [u8; 6],
    /// The bundle's number among those of the switch.
    pub key: u16,
    /// The number of the first member, among those of the switch; the others follow.
    pub first: u16,
    /// The port that the members form.
    pub port: PortId,
    /// Identifies this start of the switch in hellos.
    pub session: u64,
}

/// The state of a member, with the reason if it is not used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It takes frames and sends some.
    Up,
    /// Its device has no carrier.
    NoCarrier,
    /// Its partner does not speak LACP.
    NoPartner,
    /// The switch hears itself.
    Looped,
    /// Its partner does not bundle this link, and it is not alone.
    Individual,
    /// Its partner, or the switch there, differs from that of the others.
    OtherPartner,
    /// Its partner has not taken it into its bundle yet.
    Negotiating,
    /// Its hellos do not say that it carries frames both ways.
    Watched(LinkState),
    /// It could send, and fewer than `min_links` could.
    TooFew,
}

impl MemberState {
    /// The name, as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::NoCarrier => "no_carrier",
            Self::NoPartner => "no_partner",
            Self::Looped => "looped",
            Self::Individual => "individual",
            Self::OtherPartner => "other_partner",
            Self::Negotiating => "negotiating",
            Self::Watched(state) => state.name(),
            Self::TooFew => "too_few",
        }
    }

    /// What an operator can do about it; empty where time helps.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Up | Self::Negotiating => "",
            Self::NoCarrier => "check its cable and the other end",
            Self::NoPartner => {
                "the other end does not speak LACP: bundle the link there, or write lacp = \"off\" at both ends"
            }
            Self::Looped => "the switch hears itself there: check where the cable leads",
            Self::Individual => "the other end does not bundle this link: add it to the bundle there",
            Self::OtherPartner => {
                "it leads elsewhere than the other members: check where the cable leads, and the bundles there"
            }
            Self::Watched(_) => "hellos do not pass in both directions: check its cable and the other end",
            Self::TooFew => "fewer members than min_links can be used",
        }
    }
}

/// One member.
#[derive(Debug)]
struct Member {
    has_carrier: bool,
    lacp: Option<Lacp>,
    session: Option<Session>,
    /// Until when the switch counts as having heard itself there.
    looped_until: Option<Instant>,
    state: MemberState,
    since: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Aggregate {
    settings: Settings,
    identity: Identity,
    members: Vec<Member>,
    born: Instant,
    partner: Option<Group>,
    /// When a member, alone since, reported that it is no longer bundled, and the partner of the others then.
    alone_since: Option<(Instant, Group)>,
    neighbour: Option<Neighbour>,
    /// Whether a neighbour has ever sent a hello, so that silent members lead nowhere.
    has_hellos: bool,
    collects: u32,
    distributes: u32,
    tally: Arc<Tally>,
    /// What was last reported to others.
    shown: Option<Shown>,
}

/// The state that others need to know.
#[derive(PartialEq, Eq, Debug)]
struct Shown {
    collects: u32,
    distributes: u32,
    link: LinkState,
    neighbour: Option<Neighbour>,
    states: Vec<MemberState>,
}

impl Aggregate {
    /// A bundle of this many members, at most 32. All count as having a carrier until the contrary is reported.
    pub fn new(identity: Identity, settings: Settings, n_members: usize, now: Instant) -> Self {
        let tally = Arc::<Tally>::default();
        let member = |place: u16| {
            let Identity { system, key, first, port, session } = identity;
            let port_number = first.wrapping_add(place);
            let own = End {
                system_priority: PRIORITY,
                system,
                key,
                port_priority: PRIORITY,
                port: port_number,
                state: State(0),
            };
            Member {
                has_carrier: true,
                lacp: settings.lacp.map(|manner| Lacp::new(own, manner, now)),
                session: settings
                    .hellos
                    .map(|timing| Session::counting(port, session, timing, now, Arc::clone(&tally))),
                looped_until: None,
                state: MemberState::Negotiating,
                since: now,
            }
        };
        let members: Vec<Member> = (0..n_members as u16).map(member).collect();
        let mut aggregate = Self {
            settings,
            identity,
            members,
            born: now,
            partner: None,
            alone_since: None,
            neighbour: None,
            has_hellos: false,
            collects: 0,
            distributes: 0,
            tally,
            shown: None,
        };
        aggregate.judge(now);
        aggregate
    }

    /// The hellos of all members together.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// The members that take frames, as a bit each.
    pub fn collects(&self) -> u32 {
        self.collects
    }

    /// The members that send frames, as a bit each.
    pub fn distributes(&self) -> u32 {
        self.distributes
    }

    /// The state of a member, and since when.
    pub fn state(&self, place: usize) -> (MemberState, Instant) {
        (self.members[place].state, self.members[place].since)
    }

    /// The other end of a member, according to LACP.
    pub fn partner_at(&self, place: usize) -> Option<&End> {
        self.members[place].lacp.as_ref()?.partner()
    }

    /// The other end of a member, according to its hellos.
    pub fn neighbour_at(&self, place: usize) -> Option<&Neighbour> {
        self.members[place].session.as_ref()?.neighbour()
    }

    /// The other end of the bundle, according to hellos.
    pub fn neighbour(&self) -> Option<&Neighbour> {
        self.neighbour.as_ref().or_else(|| (0..self.members.len()).find_map(|place| self.neighbour_at(place)))
    }

    /// The state of the bundle as a link.
    pub fn link_state(&self) -> LinkState {
        let sessions = || self.members.iter().filter_map(|member| Some((member, member.session.as_ref()?.state().0)));
        let in_use = (0..).zip(sessions()).find(|(place, _)| self.distributes >> place & 1 != 0);
        if let Some((_, (_, state))) = in_use {
            return state;
        }
        if self.distributes != 0 {
            return LinkState::Unwatched;
        }
        if self.members.iter().all(|member| !member.has_carrier) {
            return LinkState::NoCarrier;
        }
        // The problem of the first member that has a carrier.
        let wrong = sessions().find(|(member, _)| member.has_carrier).map(|(_, state)| state);
        wrong.filter(|state| !matches!(state, LinkState::Up | LinkState::Unwatched)).unwrap_or(LinkState::Unbundled)
    }

    /// Notes that the carrier of a member came or went.
    pub fn carrier(&mut self, place: usize, has_carrier: bool, now: Instant) {
        let member = &mut self.members[place];
        member.has_carrier = has_carrier || !holds(Rule::CarrierCounts);
        let has_carrier = member.has_carrier;
        member.lacp.iter_mut().for_each(|lacp| lacp.carrier(has_carrier, now));
        member.session.iter_mut().for_each(|session| _ = session.carrier(has_carrier, now));
    }

    /// Takes a PDU that came at a member. Returns whether it is one of this switch itself.
    pub fn hear(&mut self, place: usize, pdu: &Pdu, now: Instant) -> bool {
        let member = &mut self.members[place];
        let is_own = pdu.actor.system == self.identity.system && holds(Rule::NotItself);
        if is_own {
            member.looped_until = Some(now + LOOPED);
        } else {
            member.lacp.iter_mut().for_each(|lacp| lacp.hear(pdu, now));
        }
        is_own
    }

    /// Takes a hello that came at a member. Returns whether its neighbour has restarted, and is to be sent a hello at once.
    pub fn hear_hello(&mut self, place: usize, hello: &Hello, now: Instant) -> bool {
        self.members[place].session.as_mut().is_some_and(|session| session.hear(hello, now) == Event::Anew)
    }

    /// Sets the network that the switch belongs to.
    pub fn joined(&mut self, cluster: u64) {
        self.members
            .iter_mut()
            .filter_map(|member| member.session.as_mut())
            .for_each(|session| session.joined(cluster));
    }

    /// Notes that this switch stood still for this long.
    pub fn excuse(&mut self, stood_still: Duration) {
        for member in &mut self.members {
            member.session.iter_mut().for_each(|session| session.excuse(stood_still));
            member.lacp.iter_mut().for_each(|lacp| lacp.excuse(stood_still));
        }
    }

    /// The latest time to [judge](Self::judge) and to [send](Self::say) what is due.
    pub fn deadline(&self) -> Option<Instant> {
        let of = |member: &Member| {
            let lacp = member.lacp.as_ref().and_then(Lacp::deadline);
            let session = member.session.as_ref().and_then(Session::deadline);
            [lacp, session, member.looped_until].into_iter().flatten().min()
        };
        self.members.iter().filter_map(of).min()
    }

    /// The PDUs that members send now.
    pub fn say(&mut self, now: Instant) -> Vec<(u8, Pdu)> {
        let members = (0..).zip(&mut self.members);
        members.filter_map(|(place, member)| Some((place, member.lacp.as_mut()?.say(now)?))).collect()
    }

    /// The hello of members at a trunk.
    pub fn hellos(&self, switch: &str) -> Vec<(u8, Hello)> {
        let members = (0..).zip(&self.members);
        members.filter_map(|(place, member)| Some((place, member.session.as_ref()?.hello(switch)))).collect()
    }

    /// Takes the time into account, and decides. Returns whether anything changed that others need to know.
    pub fn judge(&mut self, now: Instant) -> bool {
        for member in &mut self.members {
            member.looped_until = member.looped_until.filter(|until| now < *until);
            member.lacp.iter_mut().for_each(|lacp| lacp.judge(now));
            member.session.iter_mut().for_each(|session| _ = session.judge(now));
        }
        self.select(now);
        self.choose_neighbour(now);
        let states: Vec<MemberState> = self.members.iter().map(|member| self.state_of(member)).collect();
        let n_usable = states.iter().filter(|state| **state == MemberState::Up).count();
        (self.collects, self.distributes) = (0, 0);
        for (place, (member, mut state)) in self.members.iter_mut().zip(states).enumerate() {
            if state == MemberState::Up && n_usable < self.settings.min_links {
                state = MemberState::TooFew;
            }
            self.distributes |= u32::from(state == MemberState::Up) << place;
            let collects = member.lacp.as_ref().is_none_or(|lacp| lacp.mux() >= Mux::Collecting);
            self.collects |= u32::from(collects) << place;
            if state != member.state {
                (member.state, member.since) = (state, now);
            }
        }
        let (collects, distributes, link) = (self.collects, self.distributes, self.link_state());
        let states = self.members.iter().map(|member| member.state).collect();
        let shown = Some(Shown { collects, distributes, link, neighbour: self.neighbour().cloned(), states });
        std::mem::replace(&mut self.shown, shown) != self.shown
    }

    /// Puts the members into the bundle that have the most common partner, or the previous one.
    fn select(&mut self, now: Instant) {
        let of = |member: &Member| {
            let may_be = member.has_carrier && member.looped_until.is_none();
            let end = member.lacp.as_ref().and_then(Lacp::partner).filter(|_| may_be)?;
            Some(group(end))
        };
        let partners: Vec<Option<Group>> = self.members.iter().map(of).collect();
        // A member in use whose partner no longer bundles it is alone from now on: the others' information is older.
        let is_alone = |(member, group): (&Member, &Option<Group>)| {
            let is_in_use = member.lacp.as_ref().is_some_and(|lacp| lacp.mux() >= Mux::Attached);
            // Its key may differ too.
            let is_same = |partner: &Partner| {
                self.partner.is_some_and(|(before, port)| before.system == partner.system && port.is_none())
            };
            group.filter(|(partner, port)| is_in_use && port.is_some() && is_same(partner))
        };
        let alone = self.members.iter().zip(&partners).find_map(is_alone);
        let speaks_since = |(since, before): (Instant, Group)| {
            let heard = |member: &Member| member.lacp.as_ref().and_then(Lacp::heard).is_some_and(|heard| heard > since);
            self.members.iter().zip(&partners).any(|(member, group)| *group == Some(before) && heard(member))
        };
        let uses = |member: &Member| member.lacp.as_ref().is_some_and(|lacp| lacp.mux() >= Mux::Collecting);
        let is_in_use =
            self.members.iter().zip(&partners).any(|(member, group)| uses(member) && *group == self.partner);
        // The others have spoken since, so this member is the one that has left.
        let is_over = self.alone_since.is_some_and(speaks_since);
        if let Some(alone) = alone {
            self.alone_since = self.partner.map(|before| (now, before));
            self.partner = Some(alone);
        } else {
            let stays = self.alone_since.is_some() || (is_in_use && now >= self.born + CHOOSES_ANEW);
            let before = self.partner.filter(|before| stays && !is_over && partners.contains(&Some(*before)));
            let bundled: Vec<Option<Group>> =
                partners.iter().map(|group| group.filter(|one| is_bundled(*one))).collect();
            self.partner = before.or_else(|| most(&bundled, None)).or_else(|| most(&partners, None));
            self.alone_since = self.alone_since.filter(|_| self.partner.is_some_and(|group| !is_bundled(group)));
        }
        for (member, partner) in self.members.iter_mut().zip(partners) {
            let is_selected = partner.is_some() && (partner == self.partner || !holds(Rule::OnePartner));
            member.lacp.iter_mut().for_each(|lacp| lacp.select(is_selected));
        }
    }

    fn choose_neighbour(&mut self, now: Instant) {
        let of = |member: &Member| {
            let session = member.session.as_ref().filter(|session| session.state().0 == LinkState::Up)?;
            session.neighbour().cloned()
        };
        let neighbours: Vec<Option<Neighbour>> = self.members.iter().map(of).collect();
        let before = self.neighbour.take().filter(|_| now >= self.born + CHOOSES_ANEW);
        self.neighbour = most(&neighbours, before);
        self.has_hellos |= self.neighbour.is_some();
    }

    /// The state of a member, regardless of the others.
    fn state_of(&self, member: &Member) -> MemberState {
        if !member.has_carrier {
            return MemberState::NoCarrier;
        }
        if member.looped_until.is_some() {
            return MemberState::Looped;
        }
        if let Some(session) = &member.session {
            let (state, _) = session.state();
            if session.is_down() {
                return MemberState::Watched(state);
            }
            if state == LinkState::Up && session.neighbour() != self.neighbour.as_ref() {
                return MemberState::OtherPartner;
            }
            // A silent member may lead to a switch without hellos, unless any member has ever received one.
            if state != LinkState::Up && self.has_hellos {
                return MemberState::Watched(state);
            }
        }
        let Some(lacp) = &member.lacp else { return MemberState::Up };
        match (lacp.receive(), lacp.partner()) {
            (Receive::NoCarrier, _) => MemberState::NoCarrier,
            (_, None) => MemberState::NoPartner,
            (_, Some(end)) if Some(group(end)) != self.partner && holds(Rule::OnePartner) => {
                if end.state.has(State::AGGREGATES) { MemberState::OtherPartner } else { MemberState::Individual }
            }
            _ if lacp.mux() == Mux::Distributing => MemberState::Up,
            _ => MemberState::Negotiating,
        }
    }
}

/// The other end of members that may be in one bundle; a member that the partner does not bundle is alone, as its port is.
type Group = (Partner, Option<u16>);

fn is_bundled((_, alone): Group) -> bool {
    alone.is_none()
}

fn group(end: &End) -> Group {
    (end.bundle(), (!end.state.has(State::AGGREGATES)).then_some(end.port))
}

/// The default priority of systems and ports.
const PRIORITY: u16 = 0x8000;

/// The previous choice, if it is still there; else the most common one, the first of equals.
fn most<T: Clone + PartialEq>(all: &[Option<T>], before: Option<T>) -> Option<T> {
    let count = |one: &T| all.iter().flatten().filter(|other| *other == one).count();
    if let Some(before) = before.filter(|before| count(before) > 0) {
        return Some(before);
    }
    all.iter().flatten().rev().max_by_key(|one| count(one)).cloned()
}

#[cfg(test)]
impl Aggregate {
    /// The information that a member sends about itself.
    pub(super) fn actor_at(&self, place: usize) -> End {
        self.members[place].lacp.as_ref().map(Lacp::actor).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
