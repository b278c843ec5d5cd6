//! Segments that are joined, against the cutting of super-frames, which undoes it.

use super::*;

/// A stream's frames, of one that neither ends nor is congested.
fn stream(kind: Kind, tags: &[u8], payload: &[u8], size: u16) -> Made {
    let mut made = made(kind, tags, payload, size);
    made.frame[usize::from(made.offload.start) + 13] = 0x18;
    made
}

/// Frames as a port has them: joined where they may be.
fn joined(frames: &[Vec<u8>], header: [u8; HEADER_BYTES]) -> Vec<Packet> {
    let (mut packets, mut rest) = (vec![], frames);
    while let [first, behind @ ..] = rest {
        let mut packet = Packet::large();
        packet.fill(first).unwrap();
        let mut followers = behind.iter().map_while(|frame| Segment::of(frame, header));
        let mut taken = 0;
        if let (Some(first), Some(second)) = (Segment::of(first, header), followers.next())
            && let Some(mut join) = Join::begin(first, &second)
        {
            let mut last = second;
            packet.append(last.payload()).unwrap();
            for next in followers {
                if !join.takes(&next) {
                    break;
                }
                packet.append(next.payload()).unwrap();
                last = next;
            }
            join.finish(&mut packet, 0, &last);
            taken = join.n_segments() - 1;
        }
        packets.push(packet);
        rest = &behind[taken..];
    }
    packets
}

/// The frames that a packet is on a wire.
fn on_wire(packet: &Packet) -> Vec<Vec<u8>> {
    let Some(kind) = packet.offload().kind() else { return vec![packet.frame().to_vec()] };
    let frame = packet.frame().to_vec();
    let header_len = packet.offload().header_len(kind, &frame);
    cut(&Made { frame, offload: packet.offload(), header_len })
}

const VERIFIED: [u8; HEADER_BYTES] = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const TCP_KINDS: [Kind; 2] = [Kind::TcpV4, Kind::TcpV6];

proptest! {
    #[test]
    fn segments_are_joined_to_the_super_frame_that_they_were(
        kind in prop::sample::select(TCP_KINDS.to_vec()),
        tags in prop::sample::select(TAGS[..3].to_vec()),
        payload in prop::collection::vec(any::<u8>(), 600..9000),
        size in 256u16..1500,
        is_verified in any::<bool>(),
    ) {
        let size = size.min(payload.len() as u16 - 1);
        let made = stream(kind, tags, &payload, size);
        let packets = joined(&cut(&made), if is_verified { VERIFIED } else { [0; HEADER_BYTES] });
        prop_assert_eq!(packets.len(), 1);
        prop_assert_eq!(packets[0].offload(), made.offload);
        prop_assert!(packets[0].frame() == made.frame);
    }

    /// Whatever comes, in whatever order, and changed on the way with or without right checksums: on the wire it is the same again.
    #[test]
    fn what_is_joined_is_on_a_wire_what_it_was(
        kinds in [prop::sample::select(TCP_KINDS.to_vec()), prop::sample::select(TCP_KINDS.to_vec())],
        tags in prop::sample::select(TAGS.to_vec()),
        order in prop::collection::vec(0..12usize, 1..10),
        is_in_order in any::<bool>(),
        (at, of, by, is_repaired) in (0..10usize, 0..1200usize, 1u8.., any::<bool>()),
    ) {
        let mut all = vec![];
        for kind in kinds {
            all.extend(cut(&stream(kind, tags, &(0..3000).map(|i| i as u8).collect::<Vec<_>>(), 500)));
        }
        let mut frames: Vec<_> = match is_in_order {
            true => all,
            false => order.iter().map(|&i| all[i].clone()).collect(),
        };
        let at = at % frames.len();
        let frame = &mut frames[at];
        let of = if of < 100 { of } else { of % frame.len() };
        frame[of] ^= by;
        if is_repaired {
            let mut bare = frame.clone();
            bare.drain(12..12 + tags.len());
            if let Some(ip) = bare.get(14..34).filter(|ip| ip[0] == 0x45) {
                let mut ip = ip.to_vec();
                ip[10..12].fill(0);
                let checksum = !fold(sum(&ip));
                bare[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            if let Some((start, field)) = checksum::unfinish(&mut bare) {
                put_checksum(&mut bare, start, start + field);
            }
            frame.truncate(12 + tags.len());
            frame.extend_from_slice(&bare[12..]);
        }
        let again: Vec<_> = joined(&frames, [0; HEADER_BYTES]).iter().flat_map(on_wire).collect();
        prop_assert!(again == frames);
    }
}

#[test]
fn what_ends_a_stream_or_is_urgent_or_wrong_is_not_joined() {
    let made = stream(Kind::TcpV4, &[], &[7; 3000], 1000);
    let n_packets = |change: &dyn Fn(&mut [Vec<u8>])| {
        let mut frames = cut(&made);
        change(&mut frames);
        joined(&frames, VERIFIED).len()
    };
    let tcp = usize::from(made.offload.start);
    assert_eq!(n_packets(&|_| {}), 1);
    for flags in [0x11, 0x14, 0x12, 0x30, 0x90, 0x00, 0x50] {
        assert_eq!(n_packets(&|frames| frames[1][tcp + 13] = flags), 3, "flags {flags:x}");
    }
    for (what, at) in
        [("an address", 3), ("a time to live", 22), ("a port", tcp), ("a window", tcp + 15), ("a time", tcp + 25)]
    {
        assert!(n_packets(&|frames| frames[1][at] ^= 4) > 1, "{what}");
    }
    // A message to a group is read here; a push ends what was joined; a hole ends it, too.
    assert_eq!(n_packets(&|frames| frames.iter_mut().for_each(|frame| frame[0] |= 1)), 3);
    assert_eq!(n_packets(&|frames| frames[1][tcp + 13] |= 8), 2);
    assert_eq!(n_packets(&|frames| frames[1][tcp + 7] ^= 1), 3);
    // Bits changed on the way.
    let mut frames = cut(&made);
    frames[1][200] ^= 1;
    assert_eq!(joined(&frames, [0; HEADER_BYTES]).len(), 3);
    frames = cut(&made);
    frames[1][24] ^= 1;
    assert_eq!(joined(&frames, VERIFIED).len(), 3, "the kernel verifies no header of IP");
}

#[test]
fn an_ip_packet_is_no_longer_than_it_may_be() {
    for kind in TCP_KINDS {
        let made = stream(kind, &[], &[7; 3000], 1448);
        let (tcp, first) = (usize::from(made.offload.start), &cut(&made)[0]);
        let numbered = |n: u16| {
            let mut frame = first.clone();
            let sequence = u32::from_be_bytes(frame[tcp + 4..tcp + 8].try_into().unwrap());
            frame[tcp + 4..tcp + 8].copy_from_slice(&sequence.wrapping_add(1448 * u32::from(n)).to_be_bytes());
            if kind == Kind::TcpV4 {
                frame[18..20].copy_from_slice(&n.to_be_bytes());
                frame[24..26].fill(0);
                let checksum = !fold(sum(&frame[14..34]));
                frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
            frame
        };
        let packets = joined(&(0..60).map(numbered).collect::<Vec<_>>(), VERIFIED);
        let [long, rest] = &packets[..] else { panic!("{} packets", packets.len()) };
        assert!((65_535 - 1448..=65_535).contains(&(long.len() - 14)), "{}", long.len());
        assert_eq!(on_wire(long).len() + on_wire(rest).len(), 60);
    }
}
