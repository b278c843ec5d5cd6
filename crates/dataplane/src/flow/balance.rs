//! The load balancer: chooses the server of a virtual address for a new flow.
//!
//! Every virtual address has a Maglev table ([`maglev`]): a flow goes to the server in the slot that its digest gives. A
//! flow keeps its server regardless of changes to the table, because its entry names the server. Cost: a new flow reads one
//! slot. When the servers change, the table is filled on a copy, in milliseconds.

use super::packet::{Address, Endpoint};
use crate::mac::Mac;
use crate::maglev::{self, MAX_WEIGHT, NOBODY, SLOTS};
use lookup::hash::mix64;

/// The most servers of a virtual address.
pub const MAX_SERVERS: usize = 1000;
/// The most virtual addresses of a switch. Each has a table of 128 KiB.
pub const MAX_VIRTUALS: usize = 256;
/// A server as configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Server {
    /// The address and port where it listens.
    pub endpoint: Endpoint,
    /// Its share, relative to the sum of all weights; with 0 it gets no new flows.
    pub weight: u16,
    /// Its MAC address, unless the network knows it.
    pub mac: Option<Mac>,
}

/// Whether a server gets new flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerState {
    /// It gets new flows.
    Active,
    /// It gets no new flows, but keeps its present ones.
    Drained,
    /// It is drained, and removed when its last flow ends.
    Removed,
}

impl ServerState {
    /// The name of the state.
    pub fn name(self) -> &'static str {
        match self {
            ServerState::Active => "active",
            ServerState::Drained => "drained",
            ServerState::Removed => "removed",
        }
    }
}

/// A server and its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// As configured.
    pub server: Server,
    /// Whether it gets new flows.
    pub state: ServerState,
    /// Whether its health check found it down: then it gets none either.
    pub is_down: bool,
    /// The number of its present flows.
    pub flows: u64,
    /// The number of flows that it has had so far.
    pub total: u64,
}

impl Member {
    /// Whether it gets new flows.
    pub fn takes_new_flows(&self) -> bool {
        self.state == ServerState::Active && !self.is_down
    }

    /// Its state in a word.
    pub fn state_name(&self) -> &'static str {
        if self.state == ServerState::Active && self.is_down { "down" } else { self.state.name() }
    }
}

/// The reason why the servers were not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// There is no such server.
    #[error("this virtual address has no server {0}; `fibula flow server list` lists those it has")]
    Unknown(String),
    /// Too many servers.
    #[error("the virtual address has {MAX_SERVERS} servers, the most there can be; remove one first")]
    TooMany,
    /// Server and virtual address are of different versions of IP.
    #[error("a server and its virtual address must both be IPv4 or both IPv6")]
    Family,
    /// The server is the virtual address itself, so its packets would come back.
    #[error("the server has the address and port of the virtual address itself; give another")]
    Itself,
    /// The port is 0.
    #[error("the server has port 0; give a port from 1 to 65535")]
    Port,
    /// A weight out of range.
    #[error("weight {0} is out of range; give 0 to {MAX_WEIGHT}")]
    Weight(u16),
}

/// The servers of one virtual address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Balancer {
    /// The servers by index, which flows keep. The indices of removed servers are used again.
    members: Vec<Option<Member>>,
    places: Box<[u16]>,
    address: Address,
}

impl Balancer {
    /// # Errors
    /// [`ServerError`].
    pub fn new(address: Address, servers: &[Server]) -> Result<Self, ServerError> {
        let mut this = Self { members: vec![], places: vec![NOBODY; SLOTS].into(), address };
        for server in servers {
            this.put(*server)?;
        }
        this.fill();
        Ok(this)
    }

    /// The servers, including removed ones that still have flows.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }

    /// The index of the server for a new flow with this digest; none if no server takes new flows.
    #[inline]
    pub fn choose(&self, digest: u64) -> Option<(u16, Server)> {
        let index = self.places[maglev::slot(digest)];
        let member = self.members.get(usize::from(index))?.as_ref()?;
        Some((index, member.server))
    }

    /// Whether a server gets new flows.
    pub fn takes_new_flows(&self, index: u16) -> bool {
        let member = self.members.get(usize::from(index)).and_then(Option::as_ref);
        member.is_some_and(Member::takes_new_flows)
    }

    /// Counts a flow that begins.
    pub fn begin(&mut self, index: u16) {
        if let Some(Some(member)) = self.members.get_mut(usize::from(index)) {
            member.flows += 1;
            member.total += 1;
        }
    }

    /// Counts a flow that ends.
    pub fn end(&mut self, index: u16) {
        let Some(slot) = self.members.get_mut(usize::from(index)) else { return };
        if let Some(member) = slot {
            member.flows = member.flows.saturating_sub(1);
            if member.flows == 0 && member.state == ServerState::Removed {
                *slot = None;
            }
        }
    }

    /// Adds a server, or changes it. A server that was drained or removed takes new flows again.
    /// # Errors
    /// [`ServerError`]; nothing changes then.
    pub fn add(&mut self, server: Server) -> Result<(), ServerError> {
        self.put(server)?;
        self.fill();
        Ok(())
    }

    fn put(&mut self, server: Server) -> Result<(), ServerError> {
        if server.endpoint.address.is_v4() != self.address.is_v4() {
            return Err(ServerError::Family);
        }
        if server.endpoint.address == self.address {
            return Err(ServerError::Itself);
        }
        if server.endpoint.port == 0 {
            return Err(ServerError::Port);
        }
        if server.weight > MAX_WEIGHT {
            return Err(ServerError::Weight(server.weight));
        }
        let known = self.members.iter_mut().flatten().find(|member| member.server.endpoint == server.endpoint);
        if let Some(member) = known {
            let mac = server.mac.or(member.server.mac);
            *member = Member { server: Server { mac, ..server }, state: ServerState::Active, ..*member };
            return Ok(());
        }
        if self.members().count() >= MAX_SERVERS {
            return Err(ServerError::TooMany);
        }
        let member = Some(Member { server, state: ServerState::Active, is_down: false, flows: 0, total: 0 });
        match self.members.iter_mut().find(|slot| slot.is_none()) {
            Some(free) => *free = member,
            None => self.members.push(member),
        }
        Ok(())
    }

    /// Drains a server: it gets no new flows from now on. With `forget` it is removed when its last flow ends.
    /// # Errors
    /// [`ServerError::Unknown`].
    pub fn drain(&mut self, endpoint: Endpoint, forget: bool) -> Result<(), ServerError> {
        let is_it = |slot: &&mut Option<Member>| slot.is_some_and(|member| member.server.endpoint == endpoint);
        let slot = self.members.iter_mut().find(is_it);
        let Some(slot) = slot else {
            return Err(ServerError::Unknown(endpoint_text(endpoint)));
        };
        if let Some(member) = slot {
            member.state = if forget { ServerState::Removed } else { ServerState::Drained };
            if forget && member.flows == 0 {
                *slot = None;
            }
        }
        self.fill();
        Ok(())
    }

    /// Sets whether a server is down.
    /// # Errors
    /// [`ServerError::Unknown`].
    pub fn set_down(&mut self, endpoint: Endpoint, is_down: bool) -> Result<(), ServerError> {
        let known = self.members.iter_mut().flatten().find(|member| member.server.endpoint == endpoint);
        known.ok_or_else(|| ServerError::Unknown(endpoint_text(endpoint)))?.is_down = is_down;
        self.fill();
        Ok(())
    }

    /// Takes over the servers and slots of `planned`, a changed copy of `before`, and keeps the counts of flows.
    /// Returns false and changes nothing if the servers are no longer those of `before`. Cost: O(servers), not
    /// O(slots).
    pub(crate) fn adopt(&mut self, before: &Self, planned: &mut Self) -> bool {
        let who = |slot: &Option<Member>| slot.map(|member| (member.server, member.state, member.is_down));
        if !self.members.iter().map(who).eq(before.members.iter().map(who)) {
            return false;
        }
        for (index, new) in planned.members.iter_mut().enumerate() {
            let Some(Some(old)) = self.members.get(index) else { continue };
            match new {
                Some(new) if new.server.endpoint == old.server.endpoint => {
                    (new.flows, new.total) = (old.flows, old.total);
                }
                // The plan removes it because it had no flow then.
                None if old.flows > 0 => *new = Some(Member { state: ServerState::Removed, ..*old }),
                _ => {}
            }
        }
        let idle = |slot: &Option<Member>| slot.is_some_and(|m| m.state == ServerState::Removed && m.flows == 0);
        planned.members.iter_mut().filter(|slot| idle(slot)).for_each(|slot| *slot = None);
        std::mem::swap(&mut self.members, &mut planned.members);
        std::mem::swap(&mut self.places, &mut planned.places);
        true
    }

    /// Fills the slots with the servers that take new flows. If all of them are down, they take flows nevertheless: then
    /// it is more likely that the checks are wrong.
    fn fill(&mut self) {
        let is_one_up = self.members().any(|member| member.takes_new_flows() && member.server.weight > 0);
        let takes = |member: &Member| member.state == ServerState::Active && !(member.is_down && is_one_up);
        let active = |(index, member): (u16, &Option<Member>)| {
            let Member { server, .. } = member.filter(takes)?;
            let Endpoint { address, port } = server.endpoint;
            let name = mix64(mix64(address.0 as u64 ^ (address.0 >> 64) as u64) ^ u64::from(port));
            Some(maglev::Server { index, name, weight: server.weight })
        };
        maglev::fill(&mut self.places, (0..).zip(&self.members).filter_map(active));
    }
}

/// An endpoint in the usual notation.
pub fn endpoint_text(endpoint: Endpoint) -> String {
    std::net::SocketAddr::new(endpoint.address.into(), endpoint.port).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u16, weight: u16) -> Server {
        let address = Address::v4([10, 0, (last >> 8) as u8, last as u8]);
        Server { endpoint: Endpoint { address, port: 80 }, weight, mac: None }
    }

    fn balancer(weights: &[u16]) -> Balancer {
        let servers: Vec<Server> = weights.iter().zip(1..).map(|(&weight, last)| server(last, weight)).collect();
        Balancer::new(Address::v4([10, 0, 9, 9]), &servers).unwrap()
    }

    fn shares(balancer: &Balancer, n: usize) -> Vec<usize> {
        (0..n as u16).map(|i| balancer.places.iter().filter(|&&place| place == i).count()).collect()
    }

    #[test]
    fn places_are_shared_by_weight() {
        for weights in [&[1][..], &[1, 1], &[1, 2, 3], &[1000, 1, 7, 0, 400], &[1; 100]] {
            let total: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
            let balancer = balancer(weights);
            assert_eq!(shares(&balancer, weights.len()).iter().sum::<usize>(), SLOTS);
            for (share, &weight) in shares(&balancer, weights.len()).iter().zip(weights) {
                let due = (SLOTS as u64 * u64::from(weight)) as f64 / total as f64;
                assert!((*share as f64 - due).abs() <= 1.0, "{weights:?}: {share} of {due}");
            }
        }
    }

    #[test]
    fn one_heavy_server_among_many_light_ones_takes_no_longer_than_others() {
        let mut weights = [1; MAX_SERVERS];
        weights[0] = MAX_WEIGHT;
        let shares = shares(&balancer(&weights), MAX_SERVERS);
        assert!(shares[0].abs_diff(SLOTS * 1000 / 1999) <= 1, "{}", shares[0]);
        assert!(shares[1..].iter().all(|share| (32..=33).contains(share)));
    }

    #[test]
    fn a_plan_is_adopted_with_the_flows_of_now_or_not_at_all() {
        let mut live = balancer(&[1, 1]);
        let before = live.clone();
        let mut planned = live.clone();
        planned.drain(server(1, 1).endpoint, true).unwrap();
        assert_eq!(planned.members().count(), 1);
        live.begin(0);
        assert!(live.adopt(&before, &mut planned));
        let member = *live.members().next().unwrap();
        assert_eq!((member.flows, member.state), (1, ServerState::Removed));
        assert!((0..1000).all(|digest| live.choose(digest).unwrap().0 == 1));
        let before = live.clone();
        let mut planned = live.clone();
        planned.add(server(3, 1)).unwrap();
        live.end(0);
        assert!(!live.adopt(&before, &mut planned), "the last flow of a removed server ended in between");
        assert_eq!(live.members().count(), 1);
    }

    #[test]
    fn digests_spread_over_places_whatever_their_bits() {
        let balancer = balancer(&[3, 1]);
        for shift in [0, 16, 40] {
            let first = (0..40_000u64).filter(|i| balancer.choose(i << shift).unwrap().0 == 0).count();
            // The number is binomial with n = 40,000 and p = 3/4, so one sigma is 87.
            assert!(first.abs_diff(30_000) < 5 * 87, "{first}");
        }
    }

    #[test]
    fn few_places_change_hands_among_servers_that_stay() {
        let before = balancer(&[1; 20]);
        let mut after = balancer(&[1; 20]);
        after.drain(server(7, 1).endpoint, false).unwrap();
        let pairs = before.places.iter().zip(&*after.places);
        let moved = pairs.filter(|&(&was, &is)| was != 6 && was != is).count();
        assert!(moved < SLOTS / 20, "{moved}");
        assert_eq!(shares(&after, 20)[6], 0);
        after.add(server(7, 1)).unwrap();
        assert_eq!(after.places, before.places);
    }

    #[test]
    fn a_server_that_is_down_is_not_chosen_and_has_its_places_back_when_it_is_up() {
        let mut balancer = balancer(&[1, 1, 1]);
        let before = balancer.clone();
        balancer.set_down(server(2, 1).endpoint, true).unwrap();
        assert!((0..1000).all(|digest| balancer.choose(digest).unwrap().0 != 1));
        assert!(!balancer.takes_new_flows(1) && balancer.takes_new_flows(0) && !balancer.takes_new_flows(7));
        assert_eq!(balancer.members().map(Member::state_name).collect::<Vec<_>>(), ["active", "down", "active"]);
        // A drained server is down too: adding it again does not bring it up.
        balancer.drain(server(2, 1).endpoint, false).unwrap();
        balancer.add(server(2, 1)).unwrap();
        assert!(!balancer.takes_new_flows(1));
        // If all are down, all are used as before.
        balancer.set_down(server(1, 1).endpoint, true).unwrap();
        assert_eq!(shares(&balancer, 3), [0, 0, SLOTS]);
        balancer.set_down(server(3, 1).endpoint, true).unwrap();
        assert_eq!(balancer.places, before.places);
        balancer.set_down(server(2, 1).endpoint, false).unwrap();
        assert_eq!(shares(&balancer, 3), [0, SLOTS, 0]);
        for last in [1, 3] {
            balancer.set_down(server(last, 1).endpoint, false).unwrap();
        }
        assert_eq!(balancer.places, before.places);
        assert!(balancer.set_down(server(9, 1).endpoint, true).is_err());
    }

    #[test]
    fn a_removed_server_is_forgotten_with_its_last_flow_and_its_place_is_used_again() {
        let mut balancer = balancer(&[1, 1]);
        balancer.begin(0);
        balancer.begin(0);
        balancer.drain(server(1, 1).endpoint, true).unwrap();
        assert!((0..1000).all(|digest| balancer.choose(digest).unwrap().0 == 1));
        balancer.end(0);
        assert_eq!(balancer.members().count(), 2);
        balancer.end(0);
        assert_eq!(balancer.members().count(), 1);
        assert_eq!(balancer.drain(server(1, 1).endpoint, true), Err(ServerError::Unknown("10.0.0.1:80".to_owned())));
        balancer.add(server(3, 1)).unwrap();
        assert!((0..1000).any(|digest| balancer.choose(digest).unwrap() == (0, server(3, 1))));
        // A removed server that is added again while it has flows keeps their count.
        balancer.begin(0);
        balancer.drain(server(3, 1).endpoint, true).unwrap();
        balancer.add(server(3, 5)).unwrap();
        let member = balancer.members().next().unwrap();
        assert_eq!((member.flows, member.state, member.server.weight), (1, ServerState::Active, 5));
    }

    #[test]
    fn without_servers_nobody_is_chosen() {
        assert_eq!(balancer(&[]).choose(7), None);
        assert_eq!(balancer(&[0, 0]).choose(7), None);
        let mut balancer = balancer(&[1]);
        balancer.drain(server(1, 1).endpoint, false).unwrap();
        assert_eq!(balancer.choose(7), None);
        let v6 = Server { endpoint: Endpoint { address: Address(7), port: 1 }, weight: 1, mac: None };
        assert_eq!(balancer.add(v6), Err(ServerError::Family));
        let own = Endpoint { address: Address::v4([10, 0, 9, 9]), port: 81 };
        assert_eq!(balancer.add(Server { endpoint: own, weight: 1, mac: None }), Err(ServerError::Itself));
        let no_port = Endpoint { port: 0, ..server(2, 1).endpoint };
        assert_eq!(balancer.add(Server { endpoint: no_port, weight: 1, mac: None }), Err(ServerError::Port));
        assert_eq!(balancer.add(server(2, 1001)), Err(ServerError::Weight(1001)));
    }
}
