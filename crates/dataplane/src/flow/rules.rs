//! Rules decide which new flows may begin. The first rule that matches decides; if none matches, the default does.
//!
//! A rule sees the first packet of a flow as it arrives, before translation. A field that a rule does not name matches
//! everything. Cost: a few ns for each rule before the one that matches, for new flows only.

use super::packet::{Address, Tuple};
use fib::action::PortId;
use fib::text::address::prefix_or_address;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The most rules. They are tried one after another.
pub const MAX_RULES: usize = 1000;

/// Addresses with the same first bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: Address,
    mask: u128,
}

impl Prefix {
    /// Whether it contains an address. An IPv4 prefix contains no IPv6 addresses, and vice versa.
    #[inline]
    pub fn contains(&self, address: Address) -> bool {
        address.0 & self.mask == self.address.0 && address.is_v4() == self.address.is_v4()
    }

    /// Whether its addresses are IPv4.
    pub fn is_v4(&self) -> bool {
        self.address.is_v4()
    }
}

impl FromStr for Prefix {
    type Err = String;

    /// Reads it in the dialect of [`fib::text::address`]; an address stands for itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let prefix = prefix_or_address(text)?;
        let width = if prefix.is_v4() { 32 } else { 128 };
        let address = Address::from(prefix.address());
        let host = width - prefix.len();
        let mask = if host == 128 { 0 } else { u128::MAX << host };
        Ok(Self { address, mask })
    }
}

/// A rule. A field that is absent matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rule {
    /// Whether the flows that it matches may begin.
    pub accept: bool,
    /// Protocol numbers.
    pub protocols: Vec<u8>,
    /// The source of the flow.
    pub source: Option<Prefix>,
    /// The destination of the flow.
    pub destination: Option<Prefix>,
    /// Destination ports; a rule with them matches TCP and UDP only.
    pub ports: Option<RangeInclusive<u16>>,
    /// The port of the switch where the flow comes in.
    pub in_port: Option<PortId>,
}

impl Rule {
    fn matches(&self, tuple: &Tuple, in_port: PortId) -> bool {
        let has_ports = matches!(tuple.protocol, super::packet::TCP | super::packet::UDP);
        (self.protocols.is_empty() || self.protocols.contains(&tuple.protocol))
            && self.ports.as_ref().is_none_or(|ports| has_ports && ports.contains(&tuple.destination.port))
            && self.in_port.is_none_or(|port| port == in_port)
            && self.source.is_none_or(|prefix| prefix.contains(tuple.source.address))
            && self.destination.is_none_or(|prefix| prefix.contains(tuple.destination.address))
    }
}

/// The rules of a switch, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
    /// Whether a flow that no rule matches may begin.
    pub accept_others: bool,
}

impl Rules {
    /// Whether a flow may begin.
    pub fn accept(&self, tuple: &Tuple, in_port: PortId) -> bool {
        let first = self.rules.iter().find(|rule| rule.matches(tuple, in_port));
        first.map_or(self.accept_others, |rule| rule.accept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::packet::{Endpoint, TCP, UDP};
    use std::net::IpAddr;

    fn tuple(source: &str, destination: &str, port: u16, protocol: u8) -> Tuple {
        let end = |ip: &str, port| Endpoint { address: ip.parse::<IpAddr>().unwrap().into(), port };
        Tuple { source: end(source, 999), destination: end(destination, port), protocol, vlan: 0 }
    }

    #[test]
    fn prefixes_match_their_addresses_and_no_others() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "fd00::1", "1.2.3.4"),
            ("fd00::/64", "fd00::ffff:1", "fd00:0:0:1::"),
            ("fd00::7/128", "fd00::7", "fd00::6"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            let contains = |ip: &str| prefix.contains(ip.parse::<IpAddr>().unwrap().into());
            assert!(contains(inside) && !contains(outside), "{prefix:?}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.1/8", "fd00::/129", "::/-1", "10.0.0.0/x", "10/8", "fd00::1/64"] {
            let message = wrong.parse::<Prefix>().unwrap_err();
            assert!(message.contains("refix"), "{wrong}: {message}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let web = Rule { accept: true, protocols: vec![TCP], ports: Some(80..=89), ..Rule::default() };
        let blocked = Rule { source: Some("10.6.0.0/16".parse().unwrap()), ..Rule::default() };
        let from_inside = Rule { accept: true, in_port: Some(PortId(1)), ..Rule::default() };
        let server = Some("10.0.0.9/32".parse().unwrap());
        let dns = Rule { accept: true, protocols: vec![UDP], destination: server, ..Rule::default() };
        let mut rules = Rules { rules: vec![web, blocked, from_inside, dns], accept_others: false };
        for (source, destination, port, protocol, in_port, accepted) in [
            ("10.6.0.1", "10.0.0.1", 80, TCP, 2, true),
            ("10.6.0.1", "10.0.0.1", 80, UDP, 1, false),
            ("10.6.0.1", "10.0.0.1", 79, TCP, 1, false),
            ("10.7.0.1", "10.0.0.1", 79, TCP, 1, true),
            ("10.7.0.1", "10.0.0.1", 79, TCP, 2, false),
            ("10.7.0.1", "10.0.0.9", 53, UDP, 2, true),
            ("10.7.0.1", "10.0.0.9", 80, 132, 2, false),
        ] {
            let tuple = tuple(source, destination, port, protocol);
            assert_eq!(rules.accept(&tuple, PortId(in_port)), accepted, "{tuple:?}");
        }
        rules.accept_others = true;
        assert!(rules.accept(&tuple("10.7.0.1", "10.0.0.1", 79, TCP), PortId(2)));
    }
}
