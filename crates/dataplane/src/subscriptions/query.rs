//! The queries of a switch to the hosts at a port: which groups they want (IGMPv3 and MLDv2; older hosts take them for theirs).
//!
//! They are sent from addresses that do not outdo a router that also asks: 0.0.0.0, which takes no part in elections (RFC 4541,
//! 2.1.1), and a link-local address that is above each that is made of a MAC address, because with MLD the lowest one goes on asking (RFC
//! 3810, 7.6.2). A router with a random address above it, one of 65536, falls silent behind its port. Only the hosts of one port hear
//! a query, so all switches send the same.
//!
//! Sources: RFC 3376 (4.1, 8), RFC 3810 (5.1, 9). Differs: only the interval is configurable; the other times keep the share that
//! they have of the 125 seconds there.

use crate::mac::Mac;
use crate::parse::{ICMPV6, IPV4, IPV6};
use netio::checksum::{fold, sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// The Ethernet source of queries: locally administered, and not a host's.
pub const SOURCE: Mac = [0x02, 0x66, 0x69, 0x62, 0x75, 0x6c];
/// No address made of a MAC address has an odd first byte behind the prefix, as this one (RFC 4291, appendix A).
const SOURCE_IPV6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xffff, 0x69ff, 0xfe62, 0x756c);

const ALL_IPV4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_IPV6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// The shortest frame of Ethernet, without its checksum.
const SHORTEST: usize = 60;

/// How many unanswered queries end a subscription.
pub const ROBUSTNESS: u32 = 2;

/// The shortest time that IGMP can ask for.
const SHORTEST_RESPONSE: Duration = Duration::from_millis(100);

/// The interval of the RFCs, in seconds.
const USUAL_S: u32 = 125;
/// The longest one here: longer ones have another form in a question.
pub const LONGEST_S: u32 = 127;

/// When to ask, and how long an answer holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The time between two queries.
    pub interval: Duration,
}

impl Timing {
    /// The timing with this many seconds between two queries, at least 1 and at most [`LONGEST_S`].
    pub fn new(interval_s: u32) -> Self {
        Self { interval: Duration::from_secs(interval_s.clamp(1, LONGEST_S).into()) }
    }

    /// Hosts spread their answers over this time.
    pub fn response(self) -> Duration {
        (self.interval * 10 / USUAL_S).max(SHORTEST_RESPONSE)
    }

    /// The time between the first queries at a port, of which there are [`ROBUSTNESS`].
    pub fn startup(self) -> Duration {
        self.interval / 4
    }

    /// How long a subscription holds that is not repeated.
    pub fn holds(self) -> Duration {
        self.interval * ROBUSTNESS + self.response()
    }

    /// How long the last host of a group may take to say that it still wants it.
    pub fn last(self) -> Duration {
        (self.interval / USUAL_S).max(SHORTEST_RESPONSE)
    }
}

/// The queries for all groups, of both protocols.
pub fn general(timing: Timing) -> [Vec<u8>; 2] {
    let response = timing.response();
    [igmp(ALL_IPV4, Ipv4Addr::UNSPECIFIED, response, timing), mld(ALL_IPV6, Ipv6Addr::UNSPECIFIED, response, timing)]
}

/// The query for one group.
pub fn of_group(group: IpAddr, timing: Timing) -> Vec<u8> {
    match group {
        IpAddr::V4(group) => igmp(group, group, timing.last(), timing),
        IpAddr::V6(group) => mld(group, group, timing.last(), timing),
    }
}

fn variables(timing: Timing) -> [u8; 2] {
    [ROBUSTNESS as u8, timing.interval.as_secs() as u8]
}

/// ```text
///  14 IPv4, 24 bytes with a router alert
///  38 type 0x11 | 39 most of the response, 1/10 s | 40 checksum | 42 group | 46 robustness | 47 interval, s | 48 no sources
/// ```
fn igmp(to: Ipv4Addr, group: Ipv4Addr, response: Duration, timing: Timing) -> Vec<u8> {
    let [a, b, c, d] = to.octets();
    let mut frame = [&[0x01, 0x00, 0x5e, b & 0x7f, c, d][..], &SOURCE, &IPV4.to_be_bytes()].concat();
    // 0xc0: the precedence of what keeps a network going.
    let mut header = vec![0x46, 0xc0, 0, 36, 0, 0, 0x40, 0, 1, 2, 0, 0, 0, 0, 0, 0, a, b, c, d, 0x94, 4, 0, 0];
    put_checksum(&mut header, 10, 0);
    let tenths = (response.as_millis() / 100).clamp(1, 127) as u8;
    let mut message = [&[0x11, tenths, 0, 0][..], &group.octets(), &variables(timing), &[0, 0]].concat();
    put_checksum(&mut message, 2, 0);
    frame.extend(header);
    frame.extend(message);
    frame.resize(SHORTEST, 0);
    frame
}

/// ```text
///  14 IPv6, 40 bytes | 54 hop-by-hop options, 8 bytes, with a router alert
///  62 type 130 | 63 code | 64 checksum | 66 most of the response, ms | 68 reserved | 70 group | 86 robustness | 87 interval, s | 88
/// ```
fn mld(to: Ipv6Addr, group: Ipv6Addr, response: Duration, timing: Timing) -> Vec<u8> {
    const MESSAGE: u8 = 28;
    let octets = to.octets();
    let mut frame = [&[0x33, 0x33][..], &octets[12..], &SOURCE, &IPV6.to_be_bytes()].concat();
    let addresses = [SOURCE_IPV6.octets(), octets].concat();
    let ms = (response.as_millis() as u16).clamp(1, 0x7fff).to_be_bytes();
    let mut message = [&[130, 0, 0, 0][..], &ms, &[0, 0], &group.octets(), &variables(timing), &[0, 0]].concat();
    put_checksum(&mut message, 2, sum(&addresses) + u64::from(MESSAGE) + u64::from(ICMPV6));
    frame.extend([0x60, 0, 0, 0, 0, 8 + MESSAGE, 0, 1]);
    frame.extend(addresses);
    frame.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
    frame.extend(message);
    frame
}

fn put_checksum(bytes: &mut [u8], at: usize, more: u64) {
    let checksum = !fold(sum(bytes) + more);
    bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim;
    use crate::subscriptions::report::{Message, read};

    #[test]
    fn questions_are_whole_and_the_times_keep_their_shares() {
        let usual = Timing::new(USUAL_S);
        assert_eq!((usual.response(), usual.holds()), (Duration::from_secs(10), Duration::from_secs(260)));
        assert_eq!((usual.last(), usual.startup()), (Duration::from_secs(1), Duration::from_millis(31_250)));
        assert_eq!(Timing::new(0), Timing::new(1));
        for interval in [1, 30, USUAL_S, LONGEST_S] {
            let timing = Timing::new(interval);
            let groups: [IpAddr; 2] = ["239.255.1.2".parse().unwrap(), "ff15::1:2:3".parse().unwrap()];
            for frame in general(timing).into_iter().chain(groups.map(|group| of_group(group, timing))) {
                assert_eq!(read(&frame, shim::AT), Some(Ok(Message::Query)), "{frame:02x?}");
                assert!(frame.len() >= SHORTEST && frame[0] & 1 == 1 && frame[6..12] == SOURCE);
            }
        }
        assert_eq!(general(Timing::new(30))[0][39..48], [24, 0xec, 0xc9, 0, 0, 0, 0, 2, 30]);
        assert_eq!(general(usual)[1][..6], [0x33, 0x33, 0, 0, 0, 1]);
        // The lowest address would be elected: no router's is above it that is made of the last MAC address of a station.
        let source = Ipv6Addr::from(*general(usual)[1][22..].first_chunk::<16>().unwrap());
        assert!(source.is_unicast_link_local() && source > "fe80::feff:ffff:feff:ffff".parse::<Ipv6Addr>().unwrap());
        assert_eq!(of_group("239.255.1.2".parse().unwrap(), usual)[..6], [1, 0, 0x5e, 0x7f, 1, 2]);
    }
}
