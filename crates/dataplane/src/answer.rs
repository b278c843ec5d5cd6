//! Answers ARP requests and IPv6 neighbour solicitations from the RIB. The answer is written into the frame
//! that asked.
//!
//! Questions are not flooded: the switch that receives a request answers it with the MAC address of the requested
//! host. The asker cannot tell the difference. A request for the sender's own address (an ARP probe or
//! announcement, duplicate address detection) is not answered, because every host would then find its own address
//! taken. If the RIB gives the address to *another* host, the request is answered, and the newcomer learns that the
//! address is taken. An answer goes to the source address of the frame, on the port where it came in. A frame whose
//! Ethernet source or IPv6 source is a group is not answered.
//!
//! Sources: RFC 826, RFC 5227, RFC 4861 (sections 4.3, 4.4, 7.2.4), RFC 4862 (5.4). Cost: this is the slow path; it
//! takes a read lock.

use crate::counters::DropReason;
use crate::gateway::packet;
use crate::mac::Mac;
use crate::neighbours::Neighbours;
use crate::parse::{ARP, ICMPV6, IPV4, IPV6, SERVICE_VLAN, VLAN, ether_type};
use crate::shim;
use netio::Packet;
use netio::checksum::{fold, sum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETHER_IPV4: [u8; 2] = [0x08, 0x00];
const ARP_LEN: usize = 28;
const IPV6_HEADER: usize = 40;
const SOLICITATION_LEN: usize = 24;
const ADVERTISEMENT_LEN: usize = 32;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Turns a frame to a group address, sent by a host, into the answer to it.
/// # Errors
/// The reason why there is no answer. The caller drops the packet.
pub(crate) fn answer(packet: &mut Packet, type_at: usize, neighbours: &Neighbours) -> Result<(), DropReason> {
    let frame = packet.frame();
    let broadcast = frame[..6] == [0xff; 6];
    let from_group = frame[6] & 1 != 0;
    let (ether_type, at) = ether_type(frame, type_at)?;
    match ether_type {
        ARP if broadcast && from_group => Err(DropReason::ArpUnknown),
        IPV6 if from_group => Err(DropReason::Multicast),
        ARP if broadcast => answer_arp(packet.frame_mut(), at, neighbours),
        IPV6 => answer_ipv6(packet, at, neighbours),
        VLAN | SERVICE_VLAN => Err(DropReason::VlanTags),
        _ if broadcast => Err(DropReason::Broadcast),
        _ => Err(DropReason::Multicast),
    }
}

fn mac_at(frame: &[u8], at: usize) -> Mac {
    frame[at..at + 6].try_into().unwrap_or_default()
}

/// ```text
///  at + 0 hardware type | 2 protocol | 4 lengths | 6 operation | 8 sender MAC | 14 sender IP | 18 target MAC | 24 target IP
/// ```
pub(crate) fn answer_arp(frame: &mut [u8], at: usize, neighbours: &Neighbours) -> Result<(), DropReason> {
    let arp = frame.get(at..at + ARP_LEN).ok_or(DropReason::Truncated)?;
    let request = [0, 1, ETHER_IPV4[0], ETHER_IPV4[1], 6, 4, 0, 1];
    if arp[..8] != request {
        return Err(DropReason::ArpUnknown);
    }
    let ip = |at: usize| <[u8; 4]>::try_from(&arp[at..at + 4]).unwrap_or_default();
    let (asker, asker_ip, wanted) = (mac_at(arp, 8), ip(14), ip(24));
    if asker_ip == wanted {
        return Err(DropReason::ArpOwn);
    }
    let owner = neighbours.get(IpAddr::V4(Ipv4Addr::from(wanted))).ok_or(DropReason::ArpUnknown)?;
    if owner == asker || owner == mac_at(frame, 6) {
        return Err(DropReason::ArpOwn);
    }
    let asker_at_link = mac_at(frame, 6);
    frame[..6].copy_from_slice(&asker_at_link);
    frame[6..12].copy_from_slice(&owner);
    let arp = &mut frame[at..at + ARP_LEN];
    arp[7] = 2;
    arp[8..14].copy_from_slice(&owner);
    arp[14..18].copy_from_slice(&wanted);
    arp[18..24].copy_from_slice(&asker);
    arp[24..28].copy_from_slice(&asker_ip);
    Ok(())
}

/// ```text
///  solicitation:   at + 40 type 135 | 41 code 0 | 42 checksum | 44 reserved | 48 target | 64 options
///  advertisement:  at + 40 type 136 | 41 code 0 | 42 checksum | 44 flags    | 48 target | 64 option 2, 1 unit, MAC
/// ```
pub(crate) fn answer_ipv6(packet: &mut Packet, at: usize, neighbours: &Neighbours) -> Result<(), DropReason> {
    const HOP_BY_HOP: u8 = 0;
    let frame = packet.frame();
    let ip = frame.get(at..).unwrap_or_default();
    let header = ip.get(..IPV6_HEADER).ok_or(DropReason::Truncated)?;
    let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = ip.get(IPV6_HEADER..IPV6_HEADER + payload_len).ok_or(DropReason::Truncated)?;
    match (header[6], payload.first()) {
        // Multicast listener reports have a hop-by-hop header (RFC 2710, RFC 3810) of 8 bytes before the ICMPv6 header.
        (HOP_BY_HOP, Some(&ICMPV6)) if matches!(payload.get(8), Some(131 | 132 | 143)) => {
            return Err(DropReason::ListenerReport);
        }
        (ICMPV6, Some(131 | 132 | 143)) => return Err(DropReason::ListenerReport),
        (ICMPV6, Some(133)) => return Err(DropReason::RouterSolicitation),
        (ICMPV6, Some(135)) => {}
        _ => return Err(DropReason::Multicast),
    }
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap_or_default());
    // A hop limit of 255 proves that the packet was sent on this link (RFC 4861, 7.1.1).
    let sent_here = header[7] == 255 && header[8] != 0xff;
    if payload_len < SOLICITATION_LEN || payload[1] != 0 || !sent_here || icmpv6_checksum(ip, payload_len) != 0 {
        return Err(DropReason::NdUnknown);
    }
    let (asker_ip, wanted, asker) = (address(8), address(48), mac_at(frame, 6));
    let owner = neighbours.get(IpAddr::V6(wanted)).ok_or(DropReason::NdUnknown)?;
    if owner == asker {
        return Err(DropReason::NdOwn);
    }
    // An asker without an address checks whether its future address is free. The answer goes to all nodes, and only
    // this port receives it.
    let (to, flags) = if asker_ip.is_unspecified() { (ALL_NODES, 0x20) } else { (asker_ip, 0x60) };

    let mut answer = [0u8; 14 + 8 + IPV6_HEADER + ADVERTISEMENT_LEN];
    let answer = &mut answer[..at + IPV6_HEADER + ADVERTISEMENT_LEN];
    answer[..6].copy_from_slice(&asker);
    answer[6..12].copy_from_slice(&owner);
    answer[12..at].copy_from_slice(&frame[12..at]);
    let ip = &mut answer[at..];
    ip[0] = 0x60;
    ip[5] = ADVERTISEMENT_LEN as u8;
    ip[6] = ICMPV6;
    ip[7] = 255;
    ip[8..24].copy_from_slice(&wanted.octets());
    ip[24..40].copy_from_slice(&to.octets());
    ip[40] = 136;
    ip[44] = flags;
    ip[48..64].copy_from_slice(&wanted.octets());
    ip[64..66].copy_from_slice(&[2, 1]);
    ip[66..72].copy_from_slice(&owner);
    let checksum = icmpv6_checksum(ip, ADVERTISEMENT_LEN);
    ip[42..44].copy_from_slice(&checksum.to_be_bytes());
    packet.fill(answer).map_err(|_| DropReason::NoHeadroom)
}

/// Turns an echo request to an address of the switch itself, from a host or a trunk, into the answer, which leaves by the same port. Returns
/// false for any other frame.
pub(crate) fn answer_own_echo(packet: &mut Packet, type_at: usize, from_trunk: bool, neighbours: &Neighbours) -> bool {
    let frame = packet.frame_mut();
    let Ok((IPV4 | IPV6, at)) = ether_type(frame, type_at) else { return false };
    let is_answered = packet::answer_own_echo(frame, at, |ip| neighbours.own(ip));
    if is_answered && from_trunk {
        frame[shim::AT + 2..shim::AT + shim::LEN].copy_from_slice(&[shim::INITIAL_HOPS, 0]);
    }
    is_answered
}

/// The ICMPv6 checksum over pseudo-header and payload (RFC 8200, 8.1). It is 0 for a packet that contains the right
/// checksum.
pub(crate) fn icmpv6_checksum(ip: &[u8], payload_len: usize) -> u16 {
    !fold(sum(&ip[8..IPV6_HEADER + payload_len]) + payload_len as u64 + u64::from(ICMPV6))
}
