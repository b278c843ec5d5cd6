//! The settings of a gateway: its addresses, the ports outside, and the routes.

use crate::mac::Mac;
use fib::action::PortId;
use fib::text::address::AnyPrefix;
use std::net::IpAddr;

/// The next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hop {
    /// A host of the network, by its name.
    Inside,
    /// None: packets are dropped.
    Discard,
    /// A neighbour at a port outside.
    Outside {
        /// The port.
        port: PortId,
        /// The next router; none if the destination itself is on the link.
        via: Option<IpAddr>,
    },
    /// The gateway itself.
    Own,
}

/// A route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The destinations.
    pub prefix: AnyPrefix,
    /// Their next hop.
    pub hop: Hop,
}

/// A port outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outside {
    /// Its number.
    pub port: PortId,
    /// The gateway's addresses on the link, each with the prefix length of the link.
    pub addresses: Vec<(IpAddr, u8)>,
}

impl Outside {
    pub(super) fn address_towards(&self, ip: IpAddr) -> Option<IpAddr> {
        let same_link = |&&(own, len): &&(IpAddr, u8)| AnyPrefix::of(own, len).covers(ip);
        self.addresses.iter().find(same_link).map(|&(own, _)| own)
    }

    /// Its address of the family of `ip`; on the same link, if there is one.
    pub(super) fn address_for(&self, ip: IpAddr) -> Option<IpAddr> {
        let of_family = |&&(own, _): &&(IpAddr, u8)| own.is_ipv4() == ip.is_ipv4();
        self.address_towards(ip).or_else(|| self.addresses.iter().find(of_family).map(|&(own, _)| own))
    }

    /// Whether an address is that of all hosts on the link, or of none.
    pub(super) fn is_of_many(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip else { return false };
        self.addresses.iter().any(|&(own, len)| {
            let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            let is_on_link = AnyPrefix::of(own, len).covers(IpAddr::V4(ip));
            is_on_link && len < 31 && matches!(ip.to_bits() & hosts, bits if bits == 0 || bits == hosts)
        })
    }

    pub(super) fn has_on_link(&self, ip: IpAddr) -> bool {
        self.address_towards(ip).is_some()
    }
}

/// The settings of a gateway; see [`config`](super::config).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Its MAC address, which is its name inside.
    pub mac: Mac,
    /// The port of this name. No device has it.
    pub port: PortId,
    /// Its addresses inside.
    pub addresses: Vec<IpAddr>,
    /// The ports outside.
    pub outside: Vec<Outside>,
    /// Further routes. Those to the links outside and to the gateway's own addresses are added to them.
    pub routes: Vec<Route>,
}
