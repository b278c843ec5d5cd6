//! Changes an IP packet in place, as a router does.
//!
//! Sources: RFC 1812 (4.2.2, 5.2.2, 5.3.1) and RFC 8200 for forwarding, RFC 1141 for the checksum, RFC 792 and RFC 4443
//! for echoes. Cost: the first cache line of the frame; for an echo the whole packet.

use crate::counters::DropReason;
use crate::mac::Mac;
use crate::parse::{ICMPV6, network};
use crate::shim;
use netio::checksum::{fold, sum};
use std::net::IpAddr;

/// The offset of the IP header in a frame without tags and shim.
pub(super) const AT: usize = 14;
/// The TTL of packets that start here.
const OWN_TTL: u8 = 64;

const ICMP: u8 = 1;
const UDP: u8 = 17;

/// The payload of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carried {
    /// An ARP message.
    Arp,
    /// A complete IP packet with a valid header.
    Ip {
        /// Its source address.
        source: IpAddr,
        /// Its destination address.
        destination: IpAddr,
    },
}

/// Reads a frame without shim.
/// # Errors
/// The reason why it is not routed.
pub(super) fn carried(frame: &[u8]) -> Result<Carried, DropReason> {
    let ether_type = frame.get(12..AT).ok_or(DropReason::Runt)?;
    let packet = &frame[AT..];
    match ether_type {
        [0x08, 0x06] => Ok(Carried::Arp),
        [0x08, 0x00] => {
            let header = packet.get(..20).ok_or(DropReason::Truncated)?;
            let header_len = usize::from(header[0] & 15) * 4;
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            if header[0] >> 4 != 4 || header_len < 20 || total < header_len {
                return Err(DropReason::BadHeader);
            }
            if packet.len() < total {
                return Err(DropReason::Truncated);
            }
            if fold(sum(&packet[..header_len])) != 0xffff {
                return Err(DropReason::BadHeader);
            }
            let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&header[at..at + 4]).unwrap_or_default());
            Ok(Carried::Ip { source: address(12), destination: address(16) })
        }
        [0x86, 0xdd] => {
            let header = packet.get(..40).ok_or(DropReason::Truncated)?;
            if header[0] >> 4 != 6 {
                return Err(DropReason::BadHeader);
            }
            if packet.len() < 40 + usize::from(u16::from_be_bytes([header[4], header[5]])) {
                return Err(DropReason::Truncated);
            }
            let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap_or_default());
            Ok(Carried::Ip { source: address(8), destination: address(24) })
        }
        _ => Err(DropReason::NoName),
    }
}

/// Whether a packet may be forwarded from one link to another: both addresses are of hosts, and neither is valid on one
/// machine or link only (RFC 1812, 5.3.7; RFC 4291, 2.5).
pub(super) fn may_be_routed(source: IpAddr, destination: IpAddr) -> bool {
    let is_host = |address: IpAddr| match address {
        IpAddr::V4(ip) => {
            let first = ip.octets()[0];
            first != 0 && first != 127 && first < 224 && !ip.is_link_local()
        }
        IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_unicast_link_local()),
    };
    is_host(source) && is_host(destination)
}

/// Decrements the TTL or hop limit of a packet.
/// # Errors
/// It may not be forwarded any further.
pub(super) fn count_down(frame: &mut [u8]) -> Result<(), DropReason> {
    let is_v4 = frame[12] == 0x08;
    let ttl = &mut frame[AT + if is_v4 { 8 } else { 7 }];
    if *ttl <= 1 {
        return Err(DropReason::TtlExpired);
    }
    *ttl -= 1;
    if is_v4 {
        // The word of TTL and protocol is smaller by 0x0100 now, so the checksum is larger by it, in ones' complement.
        let field = &mut frame[AT + 10..AT + 12];
        let checksum = u32::from(u16::from_be_bytes([field[0], field[1]])) + 0x0100;
        field.copy_from_slice(&((checksum + (checksum >> 16)) as u16).to_be_bytes());
    }
    Ok(())
}

/// Whether a packet is of UDP.
pub(super) fn is_datagram(frame: &[u8]) -> bool {
    network(frame, shim::AT).and_then(|packet| packet.transport()).is_ok_and(|transport| transport.protocol == UDP)
}

/// The destination of a packet.
pub(super) fn destination(frame: &[u8]) -> Option<IpAddr> {
    match carried(frame) {
        Ok(Carried::Ip { destination, .. }) => Some(destination),
        _ => None,
    }
}

/// Writes the MAC addresses for the next link into a frame.
pub(super) fn address(frame: &mut [u8], destination: Mac, source: Mac) {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
}

/// Answers an echo request to an address of the switch itself that a host sent to the MAC address that the switch gives for it: a virtual
/// address of the balancer, or an outside one of NAT. `at` is the offset of the IP header. Returns false for any other frame.
pub(crate) fn answer_own_echo(frame: &mut [u8], at: usize, own: impl Fn(IpAddr) -> Option<Mac>) -> bool {
    let protocol = match frame.get(at - 2..at) {
        Some([0x08, 0x00]) => frame.get(at + 9) == Some(&ICMP),
        Some([0x86, 0xdd]) => frame.get(at + 6) == Some(&ICMPV6),
        _ => false,
    };
    if !protocol {
        return false;
    }
    let to: Option<Mac> = frame.first_chunk().copied();
    let packet = &mut frame[at - AT..];
    let Ok(Carried::Ip { source, destination }) = carried(packet) else { return false };
    let is_between_hosts = may_be_routed(source, destination) || is_link_local(source);
    // A frame to another MAC address is for a host that has the same address, and answers for itself.
    let mac = own(destination).filter(|mac| is_between_hosts && to == Some(*mac));
    let Some(mac) = mac else { return false };
    if !echo(packet) {
        return false;
    }
    let asker: Mac = frame[6..12].try_into().unwrap_or_default();
    address(frame, asker, mac);
    true
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Turns a valid echo request ([`Carried::Ip`]) into the answer. Returns false if it is another packet, or is damaged.
pub(super) fn echo(frame: &mut [u8]) -> bool {
    let is_v4 = frame[12] == 0x08;
    let ip = &mut frame[AT..];
    let (protocol, at, end) = if is_v4 {
        let fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff;
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        (if fragment == 0 { ip[9] } else { 0 }, usize::from(ip[0] & 15) * 4, total)
    } else {
        (ip[6], 40, 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])))
    };
    let (request, answer) = match protocol {
        ICMP if is_v4 => ([8, 0], 0),
        ICMPV6 if !is_v4 => ([128, 0], 129),
        _ => return false,
    };
    if end < at + 8 || ip[at..at + 2] != request {
        return false;
    }
    let pseudo = if is_v4 { 0 } else { sum(&ip[8..40]) + u64::from(ICMPV6) + (end - at) as u64 };
    if fold(pseudo + sum(&ip[at..end])) != 0xffff {
        return false;
    }
    // Exchanging the addresses does not change the checksum.
    let (addresses, len) = if is_v4 { (12, 4) } else { (8, 16) };
    let (source, destination) = ip[addresses..addresses + 2 * len].split_at_mut(len);
    source.swap_with_slice(destination);
    ip[at] = answer;
    ip[at + 2..at + 4].fill(0);
    let checksum = !fold(pseudo + sum(&ip[at..end]));
    ip[at + 2..at + 4].copy_from_slice(&checksum.to_be_bytes());
    if is_v4 {
        ip[8] = OWN_TTL;
        ip[10..12].fill(0);
        let checksum = !fold(sum(&ip[..at]));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        ip[7] = OWN_TTL;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header with `ttl` and `protocol`, and a valid checksum.
    fn frame(ttl: u8, protocol: u8, body: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; AT + 20];
        frame[12..14].copy_from_slice(&[8, 0]);
        let ip = &mut frame[AT..];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
        (ip[8], ip[9]) = (ttl, protocol);
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 7]);
        let checksum = !fold(sum(&ip[..20]));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(body);
        frame
    }

    #[test]
    fn counting_down_keeps_the_checksum_right_for_every_ttl_and_protocol() {
        for ttl in 0..=255 {
            for protocol in 0..=255 {
                let mut frame = frame(ttl, protocol, &[]);
                assert!(carried(&frame).is_ok());
                match count_down(&mut frame) {
                    Ok(()) => assert_eq!(frame[AT + 8], ttl - 1),
                    Err(reason) => assert!(ttl <= 1 && reason == DropReason::TtlExpired),
                }
                assert!(carried(&frame).is_ok(), "ttl {ttl}, protocol {protocol}");
            }
        }
    }

    #[test]
    fn damaged_headers_are_not_routed() {
        let good = frame(64, 17, &[0; 8]);
        for at in AT..AT + 20 {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(carried(&bad).is_err(), "bit {bit} of byte {at}");
            }
        }
        for len in 0..good.len() {
            assert!(carried(&good[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_echo_request_becomes_its_answer_and_nothing_else_does() {
        let mut icmp = vec![8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7];
        let checksum = !fold(sum(&icmp));
        icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
        let request = frame(3, ICMP, &icmp);
        let mut answer = request.clone();
        assert!(echo(&mut answer));
        let (source, destination) = ([192, 0, 2, 7].into(), [10, 0, 0, 1].into());
        assert_eq!(carried(&answer), Ok(Carried::Ip { source, destination }));
        assert_eq!((answer[AT + 8], answer[AT + 20], fold(sum(&answer[AT + 20..]))), (64, 0, 0xffff));
        assert_eq!(answer[AT + 24..], request[AT + 24..]);
        assert!(!echo(&mut answer), "an answer is no request");
        let mut damaged = request.clone();
        damaged[AT + 28] ^= 1;
        assert!(!echo(&mut damaged));
        assert!(!echo(&mut frame(3, 17, &icmp)));
        assert!(!echo(&mut frame(3, ICMP, &icmp[..7])));
    }

    #[test]
    fn addresses_of_one_link_stay_there() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(may_be_routed(ip("10.0.0.1"), ip("192.0.2.1")));
        assert!(may_be_routed(ip("fd00::1"), ip("2001:db8::1")));
        for never in ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255"] {
            assert!(!may_be_routed(ip(never), ip("10.0.0.1")) && !may_be_routed(ip("10.0.0.1"), ip(never)), "{never}");
        }
        for never in ["::", "::1", "fe80::1", "ff02::1"] {
            assert!(!may_be_routed(ip(never), ip("fd00::1")) && !may_be_routed(ip("fd00::1"), ip(never)), "{never}");
        }
    }
}
