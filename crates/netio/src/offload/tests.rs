//! Segments against a reader of packets that is none of ours, which also computes their checksums.

mod join;

use super::*;
use crate::backend::loopback;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use proptest::prelude::*;

/// A super-frame as a stack leaves it, and the bytes of its headers.
#[derive(Clone, Debug)]
struct Made {
    frame: Vec<u8>,
    offload: Offload,
    header_len: usize,
}

const CWR_ECE: [u8; 2] = [0x80, 0x40];

/// `tags`: bytes of them, between the addresses and the EtherType.
fn made(kind: Kind, tags: &[u8], payload: &[u8], size: u16) -> Made {
    let (mut frame, eth) = (vec![], PacketBuilder::ethernet2([2; 6], [4; 6]));
    match kind {
        Kind::TcpV4 => {
            let ip = eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
            let tcp = ip.tcp(7, 9, 0xffff_fc00, 500).ack(77).psh().fin().ns();
            let options = [etherparse::TcpOptionElement::Timestamp(3, 4)];
            tcp.options(&options).unwrap().write(&mut frame, payload).unwrap();
        }
        Kind::TcpV6 => eth.ipv6([3; 16], [5; 16], 64).tcp(7, 9, 1, 2).psh().write(&mut frame, payload).unwrap(),
        Kind::Udp => eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(7, 9).write(&mut frame, payload).unwrap(),
    }
    let (start, field) = checksum::unfinish(&mut frame).unwrap();
    if kind == Kind::TcpV4 {
        frame[start + 13] |= CWR_ECE[0] | CWR_ECE[1];
    }
    let header_len = frame.len() - payload.len() + tags.len();
    frame.splice(12..12, tags.iter().copied());
    let offload = Offload::checksum((start + tags.len()) as u16, field as u16).segments(kind, size);
    Made { frame, offload, header_len }
}

use crate::checksum;

/// The fields of a frame that tell it from the other segments, after its checksums were found right.
#[derive(Debug, PartialEq)]
struct Read {
    identification: Option<u16>,
    sequence: Option<u32>,
    flags: u8,
    payload: Vec<u8>,
}

/// Reads a frame without `tags`.
fn read(frame: &[u8], tags: usize) -> Read {
    let mut frame = frame.to_vec();
    frame.drain(12..12 + tags);
    let packet = SlicedPacket::from_ethernet(&frame).unwrap();
    let (identification, addresses) = match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.calc_header_checksum(), header.header_checksum);
            assert_eq!(usize::from(header.total_len), frame.len() - 14);
            (Some(header.identification), Ok(header))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            assert_eq!(usize::from(header.payload_length), frame.len() - 54);
            (None, Err(header))
        }
        other => panic!("{other:?}"),
    };
    match packet.transport.unwrap() {
        TransportSlice::Tcp(tcp) => {
            let (header, payload) = (tcp.to_header(), tcp.payload());
            let expected = match &addresses {
                Ok(ip) => header.calc_checksum_ipv4(ip, payload),
                Err(ip) => header.calc_checksum_ipv6(ip, payload),
            };
            assert_eq!(header.checksum, expected.unwrap());
            let flags = [header.fin, header.psh, header.ece, header.cwr, header.ack];
            let flags = (0..).zip(flags).fold(0, |all, (i, flag)| all | u8::from(flag) << i);
            Read { identification, sequence: Some(header.sequence_number), flags, payload: payload.to_vec() }
        }
        TransportSlice::Udp(udp) => {
            let (header, payload) = (udp.to_header(), udp.payload());
            let expected = match &addresses {
                Ok(ip) => header.calc_checksum_ipv4(ip, payload),
                Err(ip) => header.calc_checksum_ipv6(ip, payload),
            };
            assert_eq!(header.checksum, expected.unwrap());
            assert_eq!(usize::from(header.length), payload.len() + 8);
            Read { identification, sequence: None, flags: 0, payload: payload.to_vec() }
        }
        other => panic!("{other:?}"),
    }
}

fn packet_of(made: &Made) -> Packet {
    let mut packet = Packet::large();
    packet.fill(&made.frame).unwrap();
    packet.set_offload(made.offload);
    packet
}

/// All segments, complete, by both ways to make them.
fn cut(made: &Made) -> Vec<Vec<u8>> {
    let packet = packet_of(made);
    let segments = Segments::of(&packet).unwrap();
    (0..segments.len())
        .map(|i| {
            let mut whole = Packet::new(2048.max(usize::from(made.offload.size) + 300));
            segments.write(i, &mut whole).unwrap();
            let mut buffer = [0; MAX_HEADER];
            let (header, payload) = segments.cut(i, &mut buffer);
            segments.complete(header, payload);
            assert_eq!([header, payload].concat(), whole.frame(), "segment {i}");
            whole.frame().to_vec()
        })
        .collect()
}

const TAGS: [&[u8]; 4] =
    [&[], &[0x81, 0, 0, 7], &[0x88, 0xb5, 64, 0], &[0x88, 0xb5, 64, 0, 0x88, 0xa8, 0, 1, 0x81, 0, 0, 7]];

proptest! {
    #[test]
    fn segments_are_what_their_sender_would_have_sent_one_by_one(
        kind in prop::sample::select(vec![Kind::TcpV4, Kind::TcpV6, Kind::Udp]),
        tags in prop::sample::select(TAGS.to_vec()),
        payload in prop::collection::vec(any::<u8>(), 2..5000),
        size in 1u16..1500,
    ) {
        let size = size.min(payload.len() as u16 - 1);
        let made = made(kind, tags, &payload, size);
        prop_assert_eq!(packet_of(&made).wire_len(), made.header_len + usize::from(size));
        let frames = cut(&made);
        prop_assert_eq!(frames.len(), payload.len().div_ceil(size.into()));
        let reads: Vec<Read> = frames.iter().map(|frame| read(frame, tags.len())).collect();
        let mut sent: Vec<u8> = vec![];
        for (i, read) in reads.iter().enumerate() {
            let is_last = i + 1 == reads.len();
            prop_assert!(is_last || read.payload.len() == usize::from(size));
            prop_assert_eq!(read.identification, reads[0].identification.map(|first| first.wrapping_add(i as u16)));
            prop_assert_eq!(read.sequence, reads[0].sequence.map(|first| first.wrapping_add(sent.len() as u32)));
            if kind == Kind::TcpV4 {
                // The first says that the window was reduced, the last ends the stream, and all acknowledge.
                let expected = 0b10100 | if i == 0 { 0b01000 } else { 0 } | if is_last { 0b00011 } else { 0 };
                prop_assert_eq!(read.flags, expected, "segment {} of {}", i, reads.len());
            }
            sent.extend(&read.payload);
        }
        prop_assert_eq!(sent, payload);
    }

    #[test]
    fn a_header_of_virtio_says_what_it_said_before_it_was_read(
        kind in prop::sample::select(vec![None, Some(Kind::TcpV4), Some(Kind::TcpV6), Some(Kind::Udp)]),
        n in 100..2000usize,
    ) {
        let Made { mut frame, offload, header_len } = made(kind.unwrap_or(Kind::Udp), &[], &vec![1; n], 60);
        let offload = kind.map_or(Offload::checksum(offload.start, offload.field), |_| offload);
        let header = offload.write(&frame);
        if kind.is_some() {
            prop_assert_eq!(usize::from(u16::from_ne_bytes([header[2], header[3]])), header_len);
        }
        let before = frame.clone();
        prop_assert_eq!(Offload::read(header, 0, &mut frame), Ok(offload));
        prop_assert_eq!(&frame, &before);
        // A tag was put in meanwhile.
        frame.splice(12..12, [0x81, 0, 0, 7]);
        let mut shifted = offload;
        shifted.shift(12, 4);
        prop_assert_eq!(Offload::read(header, 4, &mut frame), Ok(shifted));
    }

    /// Frames and what is said of them may be anything that a guest writes.
    #[test]
    fn nothing_that_a_guest_says_makes_it_panic(
        mut frame in prop::collection::vec(any::<u8>(), 14..400),
        header in any::<[u8; HEADER_BYTES]>(),
        of in 0..4usize,
    ) {
        let kinds = [Kind::TcpV4, Kind::TcpV6, Kind::Udp];
        let (header, likely) = match kinds.get(of) {
            None => (header, frame.clone()),
            Some(kind) => {
                let Made { frame: mut good, offload, .. } = made(*kind, &[], &frame, 50);
                // Some of it is as it should be.
                good[usize::from(header[9]) % 54..].iter_mut().zip(&frame).take(3).for_each(|(to, from)| *to = *from);
                (offload.write(&good), good)
            }
        };
        frame = likely;
        let Ok(offload) = Offload::read(header, 0, &mut frame) else { return Ok(()) };
        let mut packet = Packet::from_frame(&frame);
        packet.set_offload(offload);
        packet.wire_len();
        renew(&mut packet);
        if let Ok(segments) = Segments::of(&packet) {
            let mut of_one = Packet::new(2048);
            (0..segments.len()).for_each(|i| segments.write(i, &mut of_one).unwrap());
        }
        complete(&mut packet);
    }
}

#[test]
fn what_is_left_moves_with_tags_and_ends_with_the_frame() {
    let Made { frame, offload, .. } = made(Kind::TcpV4, &[], &[7; 3000], 1000);
    let mut packet = Packet::large();
    packet.fill(&frame).unwrap();
    packet.set_offload(offload);
    assert!(packet.insert(12, [0x88, 0xb5, 64, 0]));
    assert_eq!(packet.offload().start(), offload.start().map(|start| start + 4));
    assert!(packet.remove(12, 4));
    assert_eq!(packet.offload(), offload);
    let mut copy = Packet::large();
    copy.copy_of(&packet).unwrap();
    assert_eq!((copy.frame(), copy.offload()), (packet.frame(), offload));
    packet.fill(&frame).unwrap();
    assert!(packet.offload().is_none());
}

#[test]
fn addresses_that_change_are_in_the_sum_that_is_renewed() {
    for kind in [Kind::TcpV4, Kind::TcpV6, Kind::Udp] {
        let made = made(kind, TAGS[1], &[9; 2500], 1000);
        let mut packet = packet_of(&made);
        let ip = if kind == Kind::TcpV6 { 26 } else { 30 };
        packet.frame_mut()[ip..ip + 4].copy_from_slice(&[192, 0, 2, 99]);
        if kind != Kind::TcpV6 {
            packet.frame_mut()[28..30].fill(0);
            let sum = !fold(sum(&packet.frame()[18..38]));
            packet.frame_mut()[28..30].copy_from_slice(&sum.to_be_bytes());
        }
        renew(&mut packet);
        let changed = Made { frame: packet.frame().to_vec(), ..made };
        assert_eq!(
            cut(&changed).iter().map(|frame| read(frame, 4).payload.len()).collect::<Vec<_>>(),
            [1000, 1000, 500]
        );
    }
}

/// A VXLAN, with a checksum of its outer UDP as well, GRE, and IP in IP.
#[test]
fn tunnels_have_right_lengths_and_sums_in_each_segment() {
    let inner = made(Kind::TcpV4, &[], &[5; 3001], 1000);
    let outer = |protocol: u8, body: &[u8]| {
        let mut frame = vec![];
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
            .write(&mut frame, protocol.into(), body)
            .unwrap();
        frame
    };
    let mut vxlan = vec![];
    let body = [&[8, 0, 0, 0, 0, 0, 5, 0][..], &inner.frame].concat();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        .udp(99, 4789)
        .write(&mut vxlan, &body)
        .unwrap();
    checksum::unfinish(&mut vxlan).unwrap();
    let gre = outer(47, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 9][..], &inner.frame].concat());
    let ip_in_ip = outer(4, &inner.frame[14..]);
    for (frame, before) in [(vxlan, 50), (gre, 42), (ip_in_ip, 20)] {
        let mut offload = inner.offload;
        offload.start += before;
        let before = usize::from(before);
        let made = Made { frame, offload, header_len: inner.header_len + before };
        assert!(!made.offload.is_plain(&made.frame), "the kernel would not know what it is");
        let mut left = 3001;
        for (i, segment) in cut(&made).iter().enumerate() {
            let ip = etherparse::Ipv4HeaderSlice::from_slice(&segment[14..]).unwrap().to_header();
            assert_eq!(
                (ip.calc_header_checksum(), usize::from(ip.total_len)),
                (ip.header_checksum, segment.len() - 14)
            );
            if before == 50 {
                let packet = SlicedPacket::from_ethernet(segment).unwrap();
                let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP") };
                assert_eq!(udp.to_header().calc_checksum_ipv4(&ip, udp.payload()).unwrap(), udp.checksum());
            }
            let inner =
                if before == 20 { [&segment[..14], &segment[34..]].concat() } else { segment[before..].to_vec() };
            let read = read(&inner, 0);
            assert_eq!(read.sequence, Some(0xffff_fc00_u32.wrapping_add(1000 * i as u32)));
            left -= read.payload.len();
        }
        assert_eq!(left, 0);
    }
}

#[test]
fn a_device_that_takes_no_offloads_gets_complete_frames_in_order_and_buffers_are_conserved() {
    let settings = loopback::Settings { ring_frames: 100, max_frame: 2048 };
    let (mut a, mut b) = loopback::pair("a", "b", &settings).unwrap();
    let mut pool = Pool::with_large(64, 2048, 4);
    let long = made(Kind::TcpV4, &[], &(0..60_000).map(|i| (i / 7) as u8).collect::<Vec<_>>(), 1448);
    let short = made(Kind::Udp, &[], &[3; 700], 1000);
    let mut burst = Burst::new();
    for (made, is_super) in [(&short, false), (&long, true), (&short, false)] {
        let mut packet = if is_super { pool.take_large() } else { pool.take() }.unwrap();
        packet.fill(&made.frame).unwrap();
        let partial = Offload::checksum(made.offload.start, made.offload.field);
        packet.set_offload(if is_super { made.offload } else { partial });
        burst.push(packet);
    }
    assert_eq!(transmit(&mut a, &mut pool, &mut burst).unwrap(), 3);
    assert_eq!((pool.available(), pool.available_large(), burst.len()), (64, 4, 0));
    let mut got = vec![];
    while let Some(read) = b.recv(|frame| read(frame, 0)).unwrap() {
        got.push(read.payload);
    }
    assert_eq!(got.len(), 2 + 60_000_usize.div_ceil(1448));
    assert!(got[0] == [3; 700] && got[got.len() - 1] == [3; 700]);
    assert!(got[1..got.len() - 1].concat() == long.frame[long.header_len..]);
    let counts = a.counters().snapshot();
    assert_eq!((counts.tx_segments, counts.tx_refused), (60_000_u64.div_ceil(1448), 0));

    // Of one that does not fit the ring nothing counts as sent, and the frame is the caller's.
    for _ in 0..3 {
        let mut packet = pool.take_large().unwrap();
        packet.fill(&long.frame).unwrap();
        packet.set_offload(long.offload);
        burst.push(packet);
    }
    assert_eq!(transmit(&mut a, &mut pool, &mut burst).unwrap(), 2);
    assert_eq!((burst.len(), pool.available(), pool.available_large()), (1, 64, 3));
}
