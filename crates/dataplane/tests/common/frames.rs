//! Frames of all sorts, and frames that are nearly so.

use super::{ethernet, mac_bytes, to_mac};
use etherparse::PacketBuilder;
use fib::name::NameKind;
use proptest::prelude::*;
use std::net::Ipv6Addr;

pub const SOURCE: [u8; 6] = [2, 0, 0, 0, 9, 9];
pub const GATEWAY: [u8; 6] = [2, 0, 0, 0, 8, 8];

pub fn udp4(payload: &[u8], destination_port: u16) -> Vec<u8> {
    let mut frame = vec![];
    PacketBuilder::ethernet2(SOURCE, GATEWAY)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(4000, destination_port)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

pub fn udp6(payload: &[u8], destination_port: u16) -> Vec<u8> {
    let mut frame = vec![];
    PacketBuilder::ethernet2(SOURCE, GATEWAY)
        .ipv6(v6(1), v6(2), 64)
        .udp(4000, destination_port)
        .write(&mut frame, payload)
        .unwrap();
    frame
}

pub fn v6(last: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

/// Puts a VLAN tag into a frame.
pub fn tagged(frame: &[u8], tpid: u16) -> Vec<u8> {
    let tpid = tpid.to_be_bytes();
    [&frame[..12], &[tpid[0], tpid[1], 0x20, 7], &frame[12..]].concat()
}

/// Puts an extension header between the IPv6 header and the rest.
pub fn extended(frame: &[u8], kind: u8, header: &[u8]) -> Vec<u8> {
    let mut out = [&frame[..54], header, &frame[54..]].concat();
    out[54] = frame[20];
    out[20] = kind;
    let len = u16::from_be_bytes([frame[18], frame[19]]) + header.len() as u16;
    out[18..20].copy_from_slice(&len.to_be_bytes());
    out
}

pub fn gtp(teid: u32) -> Vec<u8> {
    let mut payload = vec![0x30, 0xff, 0, 4];
    payload.extend(teid.to_be_bytes());
    payload.extend([1, 2, 3, 4]);
    payload
}

pub fn arp(operation: u8, sender: (u64, [u8; 4]), target: [u8; 4]) -> Vec<u8> {
    let mut payload = vec![0, 1, 8, 0, 6, 4, 0, operation];
    payload.extend(mac_bytes(sender.0));
    payload.extend(sender.1);
    payload.extend([0; 6]);
    payload.extend(target);
    ethernet([0xff; 6], mac_bytes(sender.0), 0x0806, &payload)
}

pub fn solicitation(asker: u64, from: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let octets = target.octets();
    let group = [0x33, 0x33, 0xff, octets[13], octets[14], octets[15]];
    let to = Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | u16::from(octets[13]),
        u16::from_be_bytes([octets[14], octets[15]]),
    );
    let mut body = octets.to_vec();
    if !from.is_unspecified() {
        body.extend([1, 1]);
        body.extend(mac_bytes(asker));
    }
    let mut frame = vec![];
    PacketBuilder::ethernet2(mac_bytes(asker), group)
        .ipv6(from.octets(), to.octets(), 255)
        .icmpv6_raw(135, 0, [0; 4])
        .write(&mut frame, &body)
        .unwrap();
    frame
}

pub fn any_kind() -> impl Strategy<Value = NameKind> {
    prop_oneof![
        Just(NameKind::Mac),
        Just(NameKind::Ipv4),
        Just(NameKind::Ipv6),
        Just(NameKind::FiveTuple),
        Just(NameKind::Teid),
        (1..=64u8).prop_map(NameKind::Fixed),
    ]
}

/// Bytes that are nearly a frame: a good one, cut, with some bytes replaced.
pub fn nearly_a_frame() -> impl Strategy<Value = Vec<u8>> {
    let pad = [0u8, 0, 1, 4, 0, 0, 0, 0];
    let base = prop_oneof![
        Just(udp4(b"hello", 9)),
        Just(udp6(b"hello", 9)),
        Just(to_mac(3)),
        Just(tagged(&udp4(&gtp(7), 2152), 0x8100)),
        Just(tagged(&tagged(&udp6(b"hello", 9), 0x8100), 0x88a8)),
        Just(extended(&extended(&udp6(&gtp(7), 2152), 60, &pad), 0, &pad)),
        Just(extended(&udp6(b"hello", 9), 44, &[0, 0, 0, 1, 0, 0, 0, 1])),
        Just(arp(1, (1, [10, 0, 0, 1]), [10, 0, 0, 2])),
        Just(tagged(&arp(1, (1, [0; 4]), [10, 0, 0, 2]), 0x8100)),
        Just(solicitation(1, v6(1).into(), v6(2).into())),
    ];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (base, changes, any::<prop::sample::Index>()).prop_map(|(mut frame, changes, cut)| {
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(cut.index(frame.len() * 4));
        frame
    })
}
