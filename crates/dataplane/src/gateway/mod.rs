//! The gateway between a network that forwards by names and the IP networks outside.
//!
//! ```text
//!   host ports, trunks            |  gateway  |          ports outside
//!   names, hop limit in the shim  |           |  prefixes, TTL
//!
//!   frame to the gateway's name ──► shim off ──► longest prefix ──► TTL - 1 ──► MAC of the next hop ──► out
//!   in by name ◄── exact check ◄── MAC of the host ◄── TTL - 1 ◄── longest prefix ◄── frame to the gateway's MAC
//! ```
//! The gateway has a name of its own (a MAC address with an IP address). The controller has this name like any other,
//! at a port of this switch without a device. A packet from outside for an address inside gets the MAC address that the
//! RIB has for it, and goes on like a host's frame: the exact check of valid names drops packets for unknown names. A
//! packet crosses one router, so its TTL is decremented once; inside, the hop limit of the shim bounds its way.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | `[gateway]` of `switch.toml` |
//! | `settings` | the settings in it |
//! | `routes` | the longest prefixes of a burst |
//! | `packet` | headers, TTL, echoes |
//! | [`errors`] | errors of ICMP about packets that are not sent on |
//! | [`outside`] | neighbours outside: ARP and neighbour solicitations |
//!
//! The gateway answers ARP, neighbour solicitations and echo requests for its own addresses, and sends errors to the senders of
//! packets that it does not send on. Limits: it does not fragment, does not know how long the packets of hosts inside may be, and supports
//! no VLAN tags outside. Its routes are replaced whole, between two bursts ([`Gateway::reroute`]). Cost: routes are looked up in a
//! batch for each burst (see
//! [`lookup::lpm::trie`]). Packets for hosts take one read lock a burst for the hosts' addresses.

pub mod config;
pub mod errors;
pub mod outside;
pub(crate) mod packet;
mod routes;
mod settings;

pub use settings::{Hop, Outside, Route, Settings};

use crate::answer::{answer_arp, answer_ipv6};
use crate::counters::DropReason;
use crate::flow::Tracking;
use crate::mac::Mac;
use crate::neighbours::Neighbours;
use arc_swap::ArcSwap;
use arrayvec::ArrayVec;
use errors::{Limits, Trouble};
use fib::action::PortId;
use lookup::traits::InsertError;
use netio::{BURST, Burst, Packet};
use outside::{Found, Neighbourhood, Neighbourly, neighbourly, question, told_by_arp};
use packet::{AT, Carried, carried, count_down, echo, may_be_routed};
use routes::{Queue, Routes};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The side that a packet comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Side {
    Inside,
    Outside(PortId),
}

/// The fate of a routed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It has the MAC address of a host now, and goes there by that name.
    Inside,
    /// It leaves by that port.
    Outside(PortId),
    /// It was turned into its answer, which leaves by the port it came from.
    Answer,
    Drop(DropReason),
}

/// A frame that asks a neighbour outside for its MAC address.
pub(crate) struct Question {
    pub(crate) port: PortId,
    pub(crate) frame: Vec<u8>,
}

struct Link {
    settings: Outside,
    /// The addresses that the gateway answers for on the link.
    own: Neighbours,
}

/// The state that the routers of all workers share.
struct Shared {
    mac: Mac,
    links: HashMap<PortId, Link>,
    /// The addresses that the gateway answers for inside.
    own: Neighbours,
    /// The same addresses.
    inside: Vec<IpAddr>,
    routes: ArcSwap<Routes>,
    neighbours: Neighbourhood,
}

/// A gateway. It makes the router of each worker.
#[derive(Clone)]
pub(crate) struct Gateway {
    shared: Arc<Shared>,
    port: PortId,
}

impl Gateway {
    /// Makes a gateway.
    /// # Errors
    /// There are more next hops or routes than a table holds.
    pub(crate) fn new(settings: &Settings) -> Result<Self, InsertError> {
        let own =
            |ips: &mut dyn Iterator<Item = IpAddr>| Neighbours::with_own(ips.map(|ip| (ip, settings.mac)).collect());
        let links = settings.outside.iter().map(|outside| {
            let own = own(&mut outside.addresses.iter().map(|&(ip, _)| ip));
            (outside.port, Link { settings: outside.clone(), own })
        });
        let shared = Shared {
            mac: settings.mac,
            links: links.collect(),
            own: own(&mut settings.addresses.iter().copied()),
            inside: settings.addresses.clone(),
            routes: ArcSwap::new(Routes::new(settings)?),
            neighbours: Neighbourhood::default(),
        };
        Ok(Self { shared: Arc::new(shared), port: settings.port })
    }

    /// Replaces the routes: every burst that begins later is routed by them. Ignores the rest of `settings`.
    /// # Errors
    /// As those of [`Gateway::new`]; the previous routes stay.
    pub(crate) fn reroute(&self, settings: &Settings) -> Result<(), InsertError> {
        self.shared.routes.store(Routes::new(settings)?);
        Ok(())
    }

    /// Makes the router of one worker.
    pub(crate) fn router(&self) -> Router {
        let routes = self.shared.routes.load_full();
        let (v4, v6) = routes.queues();
        Router {
            shared: Arc::clone(&self.shared),
            v4,
            v6,
            routes,
            port: self.port,
            outcomes: [Outcome::Drop(DropReason::Runt); BURST],
            troubled: 0,
            troubles: [Trouble::NoRoute; BURST],
            limits: Limits::new(Instant::now()),
            tracking: None,
            questions: ArrayVec::new(),
        }
    }
}

/// The router of one worker.
pub(crate) struct Router {
    shared: Arc<Shared>,
    /// The routes for the burst.
    routes: Arc<Routes>,
    v4: Queue<u32>,
    v6: Queue<u128>,
    /// The port that the gateway's name is at.
    pub(crate) port: PortId,
    /// The fates of the packets that were routed last, by their index in the burst.
    pub(crate) outcomes: [Outcome; BURST],
    /// Those of them whose senders may be told why, as a bit each, and what to tell.
    pub(crate) troubled: u32,
    troubles: [Trouble; BURST],
    limits: Limits,
    /// For errors alone, once there was one where connections are tracked.
    tracking: Option<Box<Tracking>>,
    /// Questions that were not sent yet.
    pub(crate) questions: ArrayVec<Question, BURST>,
}

impl Router {
    /// Which frames of a burst without shims have the gateway's MAC address as destination.
    pub(crate) fn addressed(&self, burst: &Burst) -> u32 {
        let ours = |bits, (i, packet): (usize, &Packet)| {
            bits | u32::from(packet.frame().get(..6) == Some(&self.shared.mac)) << i
        };
        burst.iter().enumerate().fold(0, ours)
    }

    /// Routes the packets of a burst whose bits are set in `which`. They have no shim. Those in `to_us` came to the
    /// gateway's MAC address; the flow stage may have changed it since. `hosts` are the neighbours inside, and `longest` the longest frame
    /// that a port outside takes.
    pub(crate) fn route(
        &mut self,
        burst: &mut Burst,
        (which, to_us): (u32, u32),
        from: Side,
        hosts: &Neighbours,
        longest: impl Fn(PortId) -> usize,
    ) {
        self.take_routes();
        let now = Instant::now();
        self.troubled = 0;
        let mut destinations = [None; BURST];
        let mut rest = which;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            match self.look_at(&mut burst[i], to_us >> i & 1 != 0, (from, now)) {
                Ok((source, destination)) => {
                    destinations[i] = Some((source, destination));
                    self.queue(destination, i);
                }
                Err(outcome) => self.outcomes[i] = outcome,
            }
        }
        let mut values = [0; BURST];
        self.v4.resolve().chain(self.v6.resolve()).for_each(|(i, value)| values[i] = value);
        for i in 0..burst.len() {
            let Some((source, destination)) = destinations[i] else { continue };
            // For a super-frame the segments count.
            let wire_len = burst[i].wire_len();
            let frame = burst[i].frame_mut();
            let hop = self.hop(values[i]);
            self.outcomes[i] = match hop {
                Some(Hop::Own) => self.answer_echo(frame, source, (from, now), hosts),
                hop => count_down(frame)
                    .and_then(|()| fits(wire_len, hop, &longest))
                    .and_then(|()| self.send(frame, destination, hop, (from, now), hosts))
                    .unwrap_or_else(Outcome::Drop),
            };
            if let Outcome::Drop(reason) = self.outcomes[i] {
                self.note_trouble(i, frame, hop, reason, &longest);
            }
        }
    }

    /// Takes the present routes, if they changed.
    fn take_routes(&mut self) {
        let now = self.shared.routes.load();
        if !Arc::ptr_eq(&now, &self.routes) {
            (self.v4, self.v6) = now.queues();
            self.routes = Arc::clone(&now);
        }
    }

    fn queue(&mut self, destination: IpAddr, i: usize) {
        match destination {
            IpAddr::V4(ip) => self.v4.push(ip.into(), i),
            IpAddr::V6(ip) => self.v6.push(ip.into(), i),
        }
    }

    fn hop(&self, value: u64) -> Option<Hop> {
        self.routes.hops.get((value as usize).wrapping_sub(1)).copied()
    }

    /// Source and destination of a packet that is to be routed, or the fate of another.
    fn look_at(
        &mut self,
        packet: &mut Packet,
        to_us: bool,
        (from, now): (Side, Instant),
    ) -> Result<(IpAddr, IpAddr), Outcome> {
        let carried = carried(packet.frame()).map_err(Outcome::Drop)?;
        let to_group = packet.frame()[0] & 1 != 0;
        let own = match from {
            Side::Inside => &self.shared.own,
            Side::Outside(port) => &self.shared.links.get(&port).ok_or(Outcome::Drop(DropReason::NoPort))?.own,
        };
        // An answer that goes inside is forwarded by the name of the host that asked.
        let answered = |answered: Result<(), DropReason>| match answered {
            Ok(()) if from == Side::Inside => Outcome::Inside,
            Ok(()) => Outcome::Answer,
            Err(reason) => Outcome::Drop(reason),
        };
        let learnt = |told: Option<(IpAddr, Mac)>| {
            from != Side::Inside && told.is_some_and(|(ip, mac)| self.shared.neighbours.learn(ip, mac, now))
        };
        match carried {
            Carried::Arp => {
                let learnt = learnt(told_by_arp(packet.frame()));
                let outcome = answered(answer_arp(packet.frame_mut(), AT, own));
                Err(if learnt && matches!(outcome, Outcome::Drop(_)) {
                    Outcome::Drop(DropReason::NeighbourLearnt)
                } else {
                    outcome
                })
            }
            Carried::Ip { source, destination } => match neighbourly(packet.frame()) {
                Some(Neighbourly::Solicitation) => Err(answered(answer_ipv6(packet, AT, own))),
                Some(Neighbourly::Advertisement(ip, mac)) => Err(Outcome::Drop(if learnt(Some((ip, mac))) {
                    DropReason::NeighbourLearnt
                } else {
                    DropReason::NdUnknown
                })),
                None if to_us && may_be_routed(source, destination) => Ok((source, destination)),
                None if to_us => Err(Outcome::Drop(DropReason::NotRoutable)),
                None if to_group => Err(Outcome::Drop(DropReason::Multicast)),
                None => Err(Outcome::Drop(DropReason::NotForGateway)),
            },
        }
    }

    /// Sends a packet to its next hop. Its TTL was decremented already.
    fn send(
        &mut self,
        frame: &mut [u8],
        destination: IpAddr,
        hop: Option<Hop>,
        (from, now): (Side, Instant),
        hosts: &Neighbours,
    ) -> Result<Outcome, DropReason> {
        match hop {
            None | Some(Hop::Discard) => Err(DropReason::NoRoute),
            Some(Hop::Own) => Err(DropReason::NotRoutable),
            Some(Hop::Inside) => {
                let mac = hosts.get(destination).ok_or(DropReason::Alien)?;
                packet::address(frame, mac, self.shared.mac);
                Ok(Outcome::Inside)
            }
            Some(Hop::Outside { port, via }) => {
                if from == Side::Outside(port) {
                    return Err(DropReason::InputPort);
                }
                let next = via.unwrap_or(destination);
                let Found { mac, ask } = self.shared.neighbours.find(next, now);
                if ask {
                    self.ask(port, next);
                }
                packet::address(frame, mac.ok_or(DropReason::NoNeighbour)?, self.shared.mac);
                Ok(Outcome::Outside(port))
            }
        }
    }

    /// Notes what the sender of the `i`th packet, which is dropped, may be told.
    #[cold]
    fn note_trouble(
        &mut self,
        i: usize,
        frame: &[u8],
        hop: Option<Hop>,
        reason: DropReason,
        longest: &impl Fn(PortId) -> usize,
    ) {
        let trouble = match (reason, hop) {
            (DropReason::TtlExpired, _) => Trouble::TimeExceeded,
            (DropReason::NoRoute, None) => Trouble::NoRoute,
            (DropReason::Alien, _) => Trouble::NoHost,
            (DropReason::TooBig, Some(Hop::Outside { port, .. })) => Trouble::TooBig((longest(port) - AT) as u32),
            (DropReason::NotRoutable, Some(Hop::Own)) if packet::is_datagram(frame) => Trouble::NoPort,
            (DropReason::NoNeighbour, Some(Hop::Outside { port, via })) => {
                let next = via.or_else(|| packet::destination(frame));
                let is_silent = next.is_some_and(|next| self.shared.neighbours.is_silent(next));
                if !is_silent || via.is_none() && self.is_of_many(port, next) {
                    return;
                }
                Trouble::NoHost
            }
            _ => return,
        };
        self.troubled |= 1 << i;
        self.troubles[i] = trouble;
    }

    fn is_of_many(&self, port: PortId, ip: Option<IpAddr>) -> bool {
        let link = self.shared.links.get(&port);
        ip.zip(link).is_some_and(|(ip, link)| link.settings.is_of_many(ip))
    }

    /// Writes the error about the `i`th packet, which came from a side, into another packet; if one is allowed, and within budget.
    pub(crate) fn complain(&mut self, frame: &[u8], i: usize, from: Side, error: &mut Packet) -> bool {
        let Ok(Carried::Ip { source, .. }) = carried(frame) else { return false };
        let own = match from {
            Side::Inside => self.shared.inside.iter().find(|own| own.is_ipv4() == source.is_ipv4()).copied(),
            Side::Outside(port) if self.is_of_many(port, Some(source)) => None,
            Side::Outside(port) => self.shared.links.get(&port).and_then(|link| link.settings.address_for(source)),
        };
        let Some(own) = own.filter(|_| errors::may_be_about(frame)) else { return false };
        self.limits.take((from, source), Instant::now()) && errors::write(frame, self.troubles[i], own, error)
    }

    /// Working memory of the flow stage for one error.
    pub(crate) fn tracking(&mut self) -> &mut Tracking {
        self.tracking.get_or_insert_default()
    }

    /// Routes the error about the `i`th packet. Returns whether it has a way.
    pub(crate) fn send_own(&mut self, error: &mut Packet, i: usize, hosts: &Neighbours) -> bool {
        let Ok(Carried::Ip { destination, .. }) = carried(error.frame()) else { return false };
        self.queue(destination, 0);
        let value = self.v4.resolve().chain(self.v6.resolve()).map(|(_, value)| value).next().unwrap_or(0);
        let from = (Side::Inside, Instant::now());
        let sent = self.send(error.frame_mut(), destination, self.hop(value), from, hosts);
        self.outcomes[i] = sent.unwrap_or_else(Outcome::Drop);
        sent.is_ok()
    }

    fn ask(&mut self, port: PortId, wanted: IpAddr) {
        let own = self.shared.links.get(&port).and_then(|link| link.settings.address_towards(wanted));
        if let Some(own) = own {
            // There is room: a packet of the burst causes at most one question.
            let _ = self.questions.try_push(Question { port, frame: question(wanted, own, self.shared.mac) });
        }
    }

    /// Answers an echo request to the gateway. The answer goes where the route of the asker leads.
    fn answer_echo(&mut self, frame: &mut [u8], asker: IpAddr, from: (Side, Instant), hosts: &Neighbours) -> Outcome {
        if !echo(frame) {
            return Outcome::Drop(DropReason::NotRoutable);
        }
        self.queue(asker, 0);
        let value = self.v4.resolve().chain(self.v6.resolve()).map(|(_, value)| value).next().unwrap_or(0);
        // It may leave by the port where it came in.
        self.send(frame, asker, self.hop(value), (Side::Inside, from.1), hosts).unwrap_or_else(Outcome::Drop)
    }
}

/// The smallest MTU that a link of IPv4 has in practice: shorter frames are not looked at.
const SHORT: usize = 576 + AT;

/// Whether a packet is short enough on the wire for the link that it leaves by. Its frame may have padding.
fn fits(wire_len: usize, hop: Option<Hop>, longest: &impl Fn(PortId) -> usize) -> Result<(), DropReason> {
    let Some(Hop::Outside { port, .. }) = hop.filter(|_| wire_len > SHORT) else { return Ok(()) };
    let longest = longest(port);
    if longest == 0 || wire_len <= longest { Ok(()) } else { Err(DropReason::TooBig) }
}
