//! Source NAT: chooses the outside address and port of a flow that an inside host begins.
//!
//! An inside address always gets the same outside address (RFC 4787, paired pooling). A flow gets its own port of the
//! outside address and protocol: the port of the host if it is free, otherwise the next free one after a position that
//! the digest of the flow gives, so that ports cannot be predicted (RFC 6056). The port is free again when the flow
//! ends. An inside host may have eight times as many ports of a protocol as its outside address has left, so that one
//! host does not take them from the others (RFC 6888, REQ-4). A port is used for one flow at a time, whatever the destination. So there are at most as many flows as ports,
//! an answer finds its flow by the port alone, and an answer to a free port belongs to no flow.
//!
//! Cost: 8 KiB for an address and protocol. A new flow reads one word for every 64 used ports after its position, at
//! most 1024 words. Limits: TCP, UDP and ICMP echo.

use super::packet::{Address, Endpoint, ICMP, ICMPV6, TCP, Tuple, UDP};
use super::rules::Prefix;
use super::share::SHARE;
use crate::mac::Mac;
use lookup::hash::mix64;
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The most outside addresses.
pub const MAX_ADDRESSES: usize = 256;

/// Source NAT as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NatSettings {
    /// Inside hosts. Their flows are translated, except those to other inside hosts.
    pub inside: Vec<Prefix>,
    /// The outside addresses.
    pub addresses: Vec<Address>,
    /// Ports that flows may get.
    pub ports: RangeInclusive<u16>,
    /// The MAC address with which the switch answers for the outside addresses.
    pub mac: Mac,
}

/// The reason why a flow gets no port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatError {
    /// The protocol is none of TCP, UDP and ICMP echo, so it has no port by which to tell flows apart.
    #[error("only TCP, UDP and ICMP echo can be translated")]
    Protocol,
    /// No outside address has the version of IP of the flow.
    #[error("no outside address has the IP version of the flow; add one to flow.nat.addresses")]
    Family,
    /// All ports of this outside address are in use.
    #[error("all ports of the outside address are in use; add addresses, or widen flow.nat.ports")]
    Exhausted(Address),
    /// The host has eight times as many ports of this outside address as are left.
    #[error("the host has its share of the ports of the outside address; add addresses, or widen flow.nat.ports")]
    Share(Address),
}

/// The ports of one address and protocol. A bit is set if its port is in use.
struct Ports {
    bits: Box<[u64; 1024]>,
    n_used: u64,
}

impl Ports {
    fn new() -> Self {
        Self { bits: Box::new([0; 1024]), n_used: 0 }
    }

    fn take(&mut self, range: &RangeInclusive<u16>, wanted: u16, start: u64) -> Option<u16> {
        if range.contains(&wanted) && self.set(wanted) {
            return Some(wanted);
        }
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        let n = last - first + 1;
        let from = first + ((u128::from(start) * u128::from(n)) >> 64) as u32;
        let port = self.free_in(from, last).or_else(|| self.free_in(first, from - u32::from(from > 0)))?;
        self.set(port);
        Some(port)
    }

    /// Takes a port if it is free.
    fn set(&mut self, port: u16) -> bool {
        let (word, bit) = (&mut self.bits[usize::from(port) / 64], 1 << (port % 64));
        let free = *word & bit == 0;
        self.n_used += u64::from(free);
        *word |= bit;
        free
    }

    /// The first free port from `first` to `last`.
    fn free_in(&self, first: u32, last: u32) -> Option<u16> {
        let mut port = first;
        while port <= last {
            let free = !self.bits[port as usize / 64] >> (port % 64);
            if free != 0 {
                let found = port + free.trailing_zeros();
                return (found <= last).then_some(found as u16);
            }
            port = (port / 64 + 1) * 64;
        }
        None
    }

    fn release(&mut self, port: u16) {
        let (word, bit) = (&mut self.bits[usize::from(port) / 64], 1 << (port % 64));
        self.n_used -= u64::from(*word & bit != 0);
        *word &= !bit;
    }
}

/// The port of a protocol's flows: TCP, UDP, echo.
fn kind(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(0),
        UDP => Some(1),
        ICMP | ICMPV6 => Some(2),
        _ => None,
    }
}

/// Source NAT of a switch.
pub struct Nat {
    settings: NatSettings,
    /// An outside address and its ports, by protocol.
    addresses: Vec<(Address, [Ports; 3])>,
    /// The number of ports that each inside host has, by protocol.
    held: HashMap<(Address, usize), u64>,
}

impl Nat {
    /// Makes source NAT in which all ports are free.
    pub fn new(settings: NatSettings) -> Self {
        let ports = |&address: &Address| (address, std::array::from_fn(|_| Ports::new()));
        let addresses = settings.addresses.iter().map(ports).collect();
        Self { settings, addresses, held: HashMap::new() }
    }

    /// The settings.
    pub fn settings(&self) -> &NatSettings {
        &self.settings
    }

    fn is_inside(&self, address: Address) -> bool {
        self.settings.inside.iter().any(|prefix| prefix.contains(address))
    }

    /// Whether a flow is to be translated.
    pub fn applies(&self, tuple: &Tuple) -> bool {
        self.is_inside(tuple.source.address) && !self.is_inside(tuple.destination.address)
    }

    /// Takes a port for a flow, and returns its new source. Release it with [`Nat::release`].
    /// # Errors
    /// [`NatError`]; no port is taken.
    pub fn allocate(&mut self, tuple: &Tuple, digest: u64) -> Result<Endpoint, NatError> {
        let kind = kind(tuple.protocol).ok_or(NatError::Protocol)?;
        let Address(source) = tuple.source.address;
        let is_v4 = tuple.source.address.is_v4();
        let n = self.addresses.iter().filter(|(address, _)| address.is_v4() == is_v4).count();
        let pick = (u128::from(mix64(source as u64 ^ (source >> 64) as u64)) * n as u128) >> 64;
        let mut ours = self.addresses.iter_mut().filter(|(address, _)| address.is_v4() == is_v4);
        let (address, ports) = ours.nth(pick as usize).ok_or(NatError::Family)?;
        let (ports, held) = (&mut ports[kind], self.held.get(&(tuple.source.address, kind)).copied().unwrap_or(0));
        let free = (self.settings.ports.len() as u64).saturating_sub(ports.n_used);
        if free > 0 && held >= SHARE * free {
            return Err(NatError::Share(*address));
        }
        let port = ports.take(&self.settings.ports, tuple.source.port, mix64(digest ^ 1));
        let port = port.ok_or(NatError::Exhausted(*address))?;
        *self.held.entry((tuple.source.address, kind)).or_default() += 1;
        Ok(Endpoint { address: *address, port })
    }

    /// Releases a port of an inside host.
    pub fn release(&mut self, protocol: u8, endpoint: Endpoint, inside: Address) {
        let ours = self.addresses.iter_mut().find(|(address, _)| *address == endpoint.address);
        let (Some((_, ports)), Some(kind)) = (ours, kind(protocol)) else { return };
        ports[kind].release(endpoint.port);
        if let Some(held) = self.held.get_mut(&(inside, kind)) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&(inside, kind));
            }
        }
    }

    /// Ports in use.
    pub fn in_use(&self) -> u64 {
        self.addresses.iter().flat_map(|(_, ports)| ports).map(|ports| ports.n_used).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn settings(ports: RangeInclusive<u16>) -> NatSettings {
        NatSettings {
            inside: vec!["10.0.0.0/8".parse().unwrap()],
            addresses: vec![Address::v4([192, 0, 2, 1]), Address::v4([192, 0, 2, 2])],
            ports,
            mac: [2; 6],
        }
    }

    fn flow(host: u8, port: u16, protocol: u8) -> Tuple {
        let source = Endpoint { address: Address::v4([10, 0, 0, host]), port };
        let destination = Endpoint { address: Address::v4([198, 51, 100, 1]), port: 80 };
        Tuple { source, destination, protocol, vlan: 0 }
    }

    #[test]
    fn every_port_of_the_range_is_given_once_and_then_none() {
        let range = 1000..=1234;
        for start in [0, u64::MAX, 1 << 62] {
            let mut owners = std::collections::HashMap::new();
            let mut nat = Nat::new(settings(range.clone()));
            let mut given = HashSet::new();
            // Hosts that get the same address: one alone does not get all ports.
            let address = |nat: &mut Nat, host| {
                let got = nat.allocate(&flow(host, 7, TCP), 0).unwrap();
                nat.release(TCP, got, flow(host, 7, TCP).source.address);
                got.address
            };
            let first = address(&mut nat, 1);
            let hosts: Vec<u8> = (1..=255).filter(|&host| address(&mut nat, host) == first).collect();
            let host = |i: u64| hosts[i as usize % hosts.len()];
            for i in 0..235 {
                let endpoint = nat.allocate(&flow(host(i), 7, TCP), start ^ (i << 50)).unwrap();
                owners.insert(endpoint, flow(host(i), 7, TCP).source.address);
                assert!(range.contains(&endpoint.port) && given.insert(endpoint));
            }
            assert_eq!(given.iter().map(|endpoint| endpoint.address).collect::<HashSet<_>>().len(), 1);
            assert_eq!(nat.allocate(&flow(1, 7, TCP), 3), Err(NatError::Exhausted(first)));
            assert_eq!(nat.in_use(), 235);
            // The other protocols have ports of their own.
            let other = nat.allocate(&flow(1, 7, UDP), 3).unwrap();
            nat.release(UDP, other, flow(1, 7, UDP).source.address);
            let some = *given.iter().next().unwrap();
            nat.release(TCP, some, owners[&some]);
            assert_eq!(nat.allocate(&flow(1, 7, TCP), 5), Ok(some));
        }
    }

    #[test]
    fn the_whole_range_of_numbers_can_be_used() {
        let one = Address::v4([192, 0, 2, 1]);
        let mut nat = Nat::new(NatSettings { addresses: vec![one], ..settings(0..=65_535) });
        // Each is used by another host.
        let host = |i: u64| Endpoint { address: Address::v4([10, 1, (i >> 8) as u8, i as u8]), port: 7 };
        let mut port = |i: u64| nat.allocate(&Tuple { source: host(i), ..flow(1, 7, ICMP) }, i).unwrap().port;
        let given: HashSet<_> = (0..65_536).map(&mut port).collect();
        assert_eq!(given.len(), 65_536);
        assert_eq!(nat.allocate(&flow(1, 7, ICMP), 0), Err(NatError::Exhausted(one)));
    }

    #[test]
    fn a_host_gets_its_share_of_the_ports_and_leaves_the_rest() {
        let one = Address::v4([192, 0, 2, 1]);
        let mut nat = Nat::new(NatSettings { addresses: vec![one], ..settings(1000..=1089) });
        let n = (0..90).take_while(|&i| nat.allocate(&flow(1, 7, UDP), i).is_ok()).count();
        assert_eq!((n, nat.allocate(&flow(1, 7, UDP), 0)), (80, Err(NatError::Share(one))));
        // The ports of another protocol are separate.
        let kept = nat.allocate(&flow(1, 7, TCP), 0).unwrap();
        assert!(nat.allocate(&flow(2, 7, UDP), 0).is_ok());
        nat.release(TCP, kept, flow(1, 7, TCP).source.address);
        assert_eq!(nat.held.len(), 2, "who has no port is not kept");
    }

    #[test]
    fn a_host_keeps_its_port_where_it_can_and_its_address_always() {
        let mut nat = Nat::new(settings(1024..=65_535));
        let first = nat.allocate(&flow(1, 5000, TCP), 9).unwrap();
        assert_eq!(first.port, 5000);
        for i in 0..1000 {
            assert_eq!(nat.allocate(&flow(1, 5000, TCP), i).unwrap().address, first.address);
        }
        assert_ne!(nat.allocate(&flow(1, 80, TCP), 9).unwrap().port, 80, "not of the range");
        let addresses: HashSet<_> = (0..100).map(|h| nat.allocate(&flow(h, 1, UDP), 9).unwrap().address).collect();
        assert_eq!(addresses.len(), 2);
    }

    #[test]
    fn only_flows_that_leave_are_translated_and_only_those_with_ports() {
        let mut nat = Nat::new(settings(1..=9));
        let out = flow(1, 7, TCP);
        assert!(nat.applies(&out) && !nat.applies(&out.reversed()));
        assert!(!nat.applies(&Tuple { destination: flow(2, 1, TCP).source, ..out }));
        assert_eq!(nat.allocate(&flow(1, 7, 47), 0), Err(NatError::Protocol));
        let v6 = Tuple { source: Endpoint { address: Address(7), port: 1 }, ..out };
        assert_eq!(nat.allocate(&v6, 0), Err(NatError::Family));
    }
}
