//! The frames that the demo sends and recognises: probes, ARP and echo, as plain Ethernet and IPv4.
//!
//! A probe is a UDP datagram to [`PROBE_PORT`]. Its payload begins with eight fixed bytes and the probe's number, so
//! that a promiscuous socket anywhere can identify the probe.
//!
//! ```text
//!   0        14         34     42          50           58
//!   | Ethernet | IPv4     | UDP  | "fibprobe" | number (LE) | zeros to the length wanted
//! ```

use std::net::Ipv4Addr;

use etherparse::{ArpHardwareId, ArpOperation, ArpPacket, EtherType, PacketBuilder};

use super::layout::Mac;

/// UDP port of probes; every host has a socket on it, which is never read.
pub(super) const PROBE_PORT: u16 = 7001;
/// Destination address of raw probes to synthetic names: from the benchmark range of RFC 2544.
pub(super) const SYNTHETIC_IP: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

const MAGIC: [u8; 8] = *b"fibprobe";
const PAYLOAD_AT: usize = 42;
/// Bytes of a frame that a sniffer needs: up to and including the number of a probe.
pub(super) const SNAP_LEN: usize = 64;

/// Payload of probe `number`, `len` bytes long (at least 16).
pub(super) fn probe_payload(number: u64, len: usize) -> Vec<u8> {
    let mut payload = vec![0; len.max(16)];
    payload[..8].copy_from_slice(&MAGIC);
    payload[8..16].copy_from_slice(&number.to_le_bytes());
    payload
}

/// A whole frame with a UDP datagram.
pub(super) fn udp(src: (Mac, Ipv4Addr), dst: (Mac, Ipv4Addr), port: u16, payload: &[u8]) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(src.0, dst.0).ipv4(src.1.octets(), dst.1.octets(), 64).udp(port, port);
    let mut frame = Vec::with_capacity(builder.size(payload.len()));
    builder.write(&mut frame, payload).expect("a datagram fits IPv4 and a Vec takes every byte");
    frame
}

/// A whole probe frame.
pub(super) fn probe(src: (Mac, Ipv4Addr), dst: (Mac, Ipv4Addr), number: u64, payload_len: usize) -> Vec<u8> {
    udp(src, dst, PROBE_PORT, &probe_payload(number, payload_len))
}

/// The number of the probe in `frame` (which may be cut at [`SNAP_LEN`]), or `None` for any other frame.
pub(super) fn probe_number(frame: &[u8]) -> Option<u64> {
    let is_udp = frame.get(12..14)? == [0x08, 0x00] && frame.get(14)? == &0x45 && frame.get(23)? == &17;
    let payload = frame.get(PAYLOAD_AT..PAYLOAD_AT + 16)?;
    (is_udp && payload[..8] == MAGIC).then(|| u64::from_le_bytes(payload[8..].try_into().expect("eight bytes")))
}

/// An ARP request for `wanted`, broadcast by `from`.
pub(super) fn arp_request(from: (Mac, Ipv4Addr), wanted: Ipv4Addr) -> Vec<u8> {
    let packet = ArpPacket::new(
        ArpHardwareId::ETHERNET,
        EtherType::IPV4,
        ArpOperation::REQUEST,
        &from.0,
        &from.1.octets(),
        &[0; 6],
        &wanted.octets(),
    )
    .expect("lengths of Ethernet and IPv4 addresses");
    let mut frame = Vec::with_capacity(64);
    PacketBuilder::ethernet2(from.0, [0xff; 6]).arp(packet).write(&mut frame).expect("a Vec takes every byte");
    frame
}

/// What a host of the in-process network does with a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A reply to an ARP request of ours: this address is at that MAC.
    ArpReply { ip: Ipv4Addr, mac: Mac },
    /// An echo request, with the frame that answers it.
    EchoRequest { reply: Vec<u8> },
    /// The answer to an echo request of ours.
    EchoReply { from: Ipv4Addr, seq: u16 },
    /// Anything else.
    Other,
}

/// An ICMP echo request, number `seq`.
pub(super) fn echo_request(src: (Mac, Ipv4Addr), dst: (Mac, Ipv4Addr), seq: u16) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2(src.0, dst.0).ipv4(src.1.octets(), dst.1.octets(), 64).icmpv4_echo_request(1, seq);
    let mut frame = Vec::with_capacity(64);
    builder.write(&mut frame, b"fibula").expect("a Vec takes every byte");
    frame
}

/// Classifies a frame that the host `me` received.
pub(super) fn receive(me: (Mac, Ipv4Addr), frame: &[u8]) -> Received {
    use etherparse::{Icmpv4Type, NetSlice, SlicedPacket, TransportSlice};
    let Ok(sliced) = SlicedPacket::from_ethernet(frame) else { return Received::Other };
    match (&sliced.net, &sliced.transport) {
        (Some(NetSlice::Arp(arp)), _) if arp.operation() == ArpOperation::REPLY => {
            match (arp.sender_hw_addr().try_into(), <[u8; 4]>::try_from(arp.sender_protocol_addr())) {
                (Ok(mac), Ok(ip)) => Received::ArpReply { ip: ip.into(), mac },
                _ => Received::Other,
            }
        }
        (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Icmpv4(icmp))) if ip.header().destination_addr() == me.1 => {
            let from = ip.header().source_addr();
            match icmp.icmp_type() {
                Icmpv4Type::EchoRequest(echo) => {
                    let asker: Mac = frame[6..12].try_into().expect("six bytes");
                    let builder = PacketBuilder::ethernet2(me.0, asker)
                        .ipv4(me.1.octets(), from.octets(), 64)
                        .icmpv4_echo_reply(echo.id, echo.seq);
                    let mut reply = Vec::with_capacity(64);
                    builder.write(&mut reply, icmp.payload()).expect("a Vec takes every byte");
                    Received::EchoRequest { reply }
                }
                Icmpv4Type::EchoReply(echo) => Received::EchoReply { from, seq: echo.seq },
                _ => Received::Other,
            }
        }
        _ => Received::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 0, 1], Ipv4Addr::new(10, 0, 0, 1));
    const B: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 0, 2], Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_probe_is_known_by_its_number_even_cut_short() {
        let frame = probe(A, B, 0x0123_4567_89ab, 200);
        assert_eq!(frame.len(), PAYLOAD_AT + 200);
        assert_eq!(probe_number(&frame), Some(0x0123_4567_89ab));
        assert_eq!(probe_number(&frame[..SNAP_LEN]), Some(0x0123_4567_89ab));
        assert_eq!(probe_number(&frame[..50]), None);
        assert_eq!(probe_number(&echo_request(A, B, 1)), None);
    }

    #[test]
    fn an_echo_request_is_answered_with_its_own_number() {
        let Received::EchoRequest { reply } = receive(B, &echo_request(A, B, 7)) else { panic!("not a request") };
        assert_eq!((&reply[..6], &reply[6..12]), (&A.0[..], &B.0[..]));
        assert_eq!(receive(A, &reply), Received::EchoReply { from: B.1, seq: 7 });
        assert_eq!(receive(B, &reply), Received::Other, "an answer to someone else");
    }

    #[test]
    fn an_arp_reply_tells_the_address() {
        let mut frame = arp_request(A, B.1);
        assert_eq!(receive(B, &frame), Received::Other, "hosts here do not answer; switches do");
        frame[21] = 2; // operation: reply
        assert_eq!(receive(B, &frame), Received::ArpReply { ip: A.1, mac: A.0 });
    }
}
