//! The ICMP errors that a gateway sends about packets that it does not send on.
//!
//! | the packet | IPv4: type, code | IPv6 |
//! |---|---|---|
//! | has passed as many routers as allowed | 11, 0 | 3, 0 |
//! | has no route | 3, 0 | 1, 0 |
//! | is for a missing host inside, or a silent next hop outside | 3, 1 | 1, 3 |
//! | is longer than the link outside takes | 3, 4, and the MTU | 2, 0, and the MTU |
//! | is UDP, to the gateway itself | 3, 3 | 1, 4 |
//!
//! There is none about an ICMP error or a redirect, a frame or packet to many, a fragment other than the first, or a packet whose
//! source is not one host. An error quotes what fits 576 bytes (IPv4) or 1280 (IPv6) of the packet, and comes from the gateway's address
//! on the side where the packet came in. A route that discards is silent.
//!
//! A worker sends [`PER_SECOND`] errors a second to a destination, and [`ALL_PER_SECOND`] in all: destinations share one of
//! [`SHARES`] budgets by their hash.
//!
//! Sources: RFC 792, RFC 1191, RFC 1812 (4.3.2, 5.2.7), RFC 4443 (2.4, 3). Differs: an IPv4 packet that may be fragmented is reported as
//! too long like one that may not, because the gateway does not fragment.

use super::Side;
use super::packet::AT;
use crate::answer::icmpv6_checksum;
use crate::budget::Budget;
use crate::parse::{ICMPV6, network};
use crate::shim;
use netio::Packet;
use netio::checksum::{fold, sum};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::Instant;

/// Errors a second to a destination, and at once: enough for some hops of a traceroute.
pub const PER_SECOND: u32 = 10;
const AT_ONCE: u32 = 20;
/// Errors a second to all destinations.
pub const ALL_PER_SECOND: u32 = 1000;
/// Budgets that destinations share.
pub const SHARES: usize = 256;

/// The longest errors: RFC 1812 (4.3.2.3), RFC 4443 (3.1).
const LONGEST_V4: usize = 576;
const LONGEST_V6: usize = 1280;
const ICMP: u8 = 1;
const ICMP_HEADER: usize = 8;
const TTL: u8 = 64;
/// Internetwork control (RFC 1812, 4.3.2.5).
const PRECEDENCE: u8 = 0xc0;

/// Why a sender is to be told that its packet was not sent on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    TimeExceeded,
    NoRoute,
    NoHost,
    NoPort,
    /// The longest packet that the link takes.
    TooBig(u32),
}

impl Trouble {
    /// Type, code, and the word after the checksum.
    fn header(self, is_v4: bool) -> (u8, u8, u32) {
        match (self, is_v4) {
            (Self::TimeExceeded, true) => (11, 0, 0),
            (Self::TimeExceeded, false) => (3, 0, 0),
            (Self::NoRoute, true) => (3, 0, 0),
            (Self::NoRoute, false) => (1, 0, 0),
            (Self::NoHost, true) => (3, 1, 0),
            (Self::NoHost, false) => (1, 3, 0),
            (Self::NoPort, true) => (3, 3, 0),
            (Self::NoPort, false) => (1, 4, 0),
            (Self::TooBig(mtu), true) => (3, 4, mtu.min(0xffff)),
            (Self::TooBig(mtu), false) => (2, 0, mtu),
        }
    }
}

/// Whether there may be an error about a frame with a packet that a gateway would route, whose addresses are therefore those of hosts.
pub(super) fn may_be_about(frame: &[u8]) -> bool {
    if frame[0] & 1 != 0 {
        return false;
    }
    let Ok(transport) = network(frame, shim::AT).and_then(|packet| packet.transport()) else { return false };
    if transport.later_fragment || transport.ends_in_extension() {
        return false;
    }
    let kind = transport.payload.first();
    match (transport.protocol, frame[12] == 8) {
        (ICMP, true) => kind.is_some_and(|kind| !matches!(kind, 3 | 4 | 5 | 11 | 12)),
        (ICMPV6, false) => kind.is_some_and(|kind| *kind >= 128 && *kind != 137),
        _ => true,
    }
}

/// Writes the error about the packet in `frame`, from `own`, into another packet; without Ethernet addresses. False if it does not
/// fit.
pub(super) fn write(frame: &[u8], trouble: Trouble, own: IpAddr, error: &mut Packet) -> bool {
    let ip = &frame[AT..];
    let (kind, code, word) = trouble.header(own.is_ipv4());
    let icmp = |quote: &[u8]| [&[kind, code, 0, 0][..], &word.to_be_bytes(), quote].concat();
    let mut bytes = vec![0; 12];
    bytes.extend(&frame[12..AT]);
    match own {
        IpAddr::V4(own) => {
            let total = usize::from(u16::from_be_bytes([ip[2], ip[3]])).min(ip.len());
            let mut message = icmp(&ip[..total.min(LONGEST_V4 - 20 - ICMP_HEADER)]);
            let checksum = !fold(sum(&message));
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            let mut header = [0; 20];
            (header[0], header[1], header[8], header[9]) = (0x45, PRECEDENCE, TTL, ICMP);
            header[2..4].copy_from_slice(&((20 + message.len()) as u16).to_be_bytes());
            header[12..16].copy_from_slice(&own.octets());
            header[16..20].copy_from_slice(&ip[12..16]);
            let checksum = !fold(sum(&header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            bytes.extend(header);
            bytes.extend(message);
        }
        IpAddr::V6(own) => {
            let total = (40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]))).min(ip.len());
            let message = icmp(&ip[..total.min(LONGEST_V6 - 40 - ICMP_HEADER)]);
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend((message.len() as u16).to_be_bytes());
            bytes.extend([ICMPV6, TTL]);
            bytes.extend(own.octets());
            bytes.extend(&ip[8..24]);
            bytes.extend(&message);
            let checksum = icmpv6_checksum(&bytes[AT..], message.len());
            bytes[AT + 42..AT + 44].copy_from_slice(&checksum.to_be_bytes());
        }
    }
    error.fill(&bytes).is_ok()
}

/// The budget of errors that may still be sent.
pub(super) struct Limits {
    all: Budget,
    shares: Vec<Option<Budget>>,
    hasher: RandomState,
}

impl Limits {
    pub(super) fn new(now: Instant) -> Self {
        let all = Budget::with_burst(ALL_PER_SECOND, ALL_PER_SECOND / 10, now);
        Self { all, shares: (0..SHARES).map(|_| None).collect(), hasher: RandomState::new() }
    }

    /// Spends an error to a destination, if there is one left.
    pub(super) fn take(&mut self, (side, to): (Side, IpAddr), now: Instant) -> bool {
        let share = self.hasher.hash_one((side, to)) as usize % SHARES;
        let share = self.shares[share].get_or_insert_with(|| Budget::with_burst(PER_SECOND, AT_ONCE, now));
        share.take(now) && self.all.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn errors_to_one_destination_leave_those_to_others() {
        let start = Instant::now();
        let mut limits = Limits::new(start);
        let to = |last: u8| (Side::Inside, IpAddr::from([10, 0, 0, last]));
        let n = |limits: &mut Limits, last, at| (0..1000).filter(|_| limits.take(to(last), at)).count();
        assert_eq!(n(&mut limits, 1, start), 20);
        let other = (2..100).find(|last| limits.take(to(*last), start));
        assert!(other.is_some(), "another share");
        assert_eq!(n(&mut limits, 1, start + Duration::from_secs(1)), 10);
        let of_all = |limits: &mut Limits, at| {
            (0..4000_u32).filter(|i| limits.take((Side::Inside, IpAddr::from(i.to_be_bytes())), at)).count()
        };
        assert!(of_all(&mut limits, start + Duration::from_secs(9)) <= 100);
    }
}
