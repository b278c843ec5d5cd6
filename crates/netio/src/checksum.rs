//! The Internet checksum (RFC 1071), and the completion of checksums that a sender left to absent hardware.
//!
//! A local stack that sends over a virtual link leaves TCP and UDP checksums incomplete (Linux: `CHECKSUM_PARTIAL`):
//! the field holds the folded sum of the pseudo-header, and a NIC is to add the sum of the segment. A switch that
//! copies such a frame to a real wire, or to another stack, must complete the sum, or the receiver drops the frame.
//! Cost: one pass over the segment, only for such frames.

const ETHER_IPV4: u16 = 0x0800;
const ETHER_IPV6: u16 = 0x86dd;
const ETHER_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTO_TCP: u8 = 6;
const PROTO_UDP: u8 = 17;
const PROTO_ICMPV6: u8 = 58;
/// Extension headers examined before a packet is left alone.
const MAX_EXTENSIONS: usize = 8;

/// Completes the checksum of the TCP, UDP or ICMPv6 segment in `frame`, if its field holds the pseudo-header's folded sum. Returns
/// false, and changes nothing, if not. For frames for which it is unknown whether it is left to do: one checksum in 65,536 is
/// complete and looks so, and stays what it is, because the sum over a segment with the right checksum gives this checksum again.
pub(crate) fn complete(frame: &mut [u8]) -> bool {
    let Some(Segment { start, field, end, pseudo_header }) = locate(frame) else { return false };
    let Some(found) = frame[..end].get(field..field + 2) else { return false };
    // One's complement has two zeros.
    let found = u16::from_be_bytes([found[0], found[1]]);
    if pseudo_header.is_none_or(|expected| found % 0xffff != expected % 0xffff) {
        return false;
    }
    let sum = !fold(sum(&frame[start..end]));
    // In UDP an all-zero field means "no checksum"; its sum is sent as the other zero.
    let sum = if sum == 0 { 0xffff } else { sum };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

/// Makes the checksum of the TCP, UDP or ICMPv6 segment in `frame` the sum of its pseudo-header, as if the rest were left to hardware.
/// Returns where the segment begins, and how far behind that the checksum is; none, and nothing is changed, if there is no such segment.
pub(crate) fn unfinish(frame: &mut [u8]) -> Option<(usize, usize)> {
    let Segment { start, field, pseudo_header, .. } = locate(frame)?;
    let sum = pseudo_header?;
    frame.get_mut(field..field + 2)?.copy_from_slice(&sum.to_be_bytes());
    Some((start, field - start))
}

/// A segment in a frame.
struct Segment {
    start: usize,
    /// Offset of its checksum.
    field: usize,
    end: usize,
    /// Folded sum of the addresses, the protocol and the length; unknown behind a routing header, where the last
    /// address counts.
    pseudo_header: Option<u16>,
}

fn locate(frame: &[u8]) -> Option<Segment> {
    let be16 = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let mut at = 12;
    let mut ether_type = be16(at)?;
    for _ in 0..2 {
        if ETHER_VLAN.contains(&ether_type) {
            at += 4;
            ether_type = be16(at)?;
        }
    }
    let ip = at + 2;
    let mut routed = false;
    let (protocol, addresses, start, end) = match ether_type {
        ETHER_IPV4 => {
            let header = usize::from(frame.get(ip)? & 15) * 4;
            let fragment = be16(ip + 6)?;
            if header < 20 || fragment & 0x3fff != 0 {
                return None;
            }
            (*frame.get(ip + 9)?, frame.get(ip + 12..ip + 20)?, ip + header, ip + usize::from(be16(ip + 2)?))
        }
        ETHER_IPV6 => {
            let end = ip + 40 + usize::from(be16(ip + 4)?);
            let (mut next, mut at) = (*frame.get(ip + 6)?, ip + 40);
            for _ in 0..MAX_EXTENSIONS {
                match next {
                    0 | 43 | 60 => {
                        routed |= next == 43;
                        next = *frame.get(at)?;
                        at += 8 + 8 * usize::from(*frame.get(at + 1)?);
                    }
                    _ => break,
                }
            }
            (next, frame.get(ip + 8..ip + 40)?, at, end)
        }
        _ => return None,
    };
    let field = match protocol {
        PROTO_TCP => 16,
        PROTO_UDP => 6,
        PROTO_ICMPV6 => 2,
        _ => return None,
    };
    if start > end || end > frame.len() {
        return None;
    }
    let pseudo_header = (!routed).then(|| fold(sum(addresses) + u64::from(protocol) + (end - start) as u64));
    Some(Segment { start, field: start + field, end, pseudo_header })
}

/// The sum of the words of `bytes`, to be [folded](fold). An odd last byte is the first of a word.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    if bytes.len() >= LONG {
        return long_sum(bytes);
    }
    let mut words = bytes.chunks_exact(2);
    let total: u64 = words.by_ref().map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    total + words.remainder().first().map_or(0, |&last| u64::from(last) << 8)
}

/// From this many bytes on, words are summed in the processor's byte order, 8 bytes at a time: the sum of words whose bytes are
/// exchanged is the sum with its bytes exchanged.
const LONG: usize = 64;

fn long_sum(bytes: &[u8]) -> u64 {
    let mut parts = bytes.chunks_exact(8);
    let mut total = 0u64;
    for part in parts.by_ref() {
        let part = u64::from_ne_bytes([part[0], part[1], part[2], part[3], part[4], part[5], part[6], part[7]]);
        total += (part & 0xffff_ffff) + (part >> 32);
    }
    u64::from(u16::from_be(fold(total))) + sum(parts.remainder())
}

/// Folds a sum to 16 bits in one's complement. Over data with its own, correct checksum it is all ones.
#[inline]
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    fn good(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut frame = vec![];
        build(&mut frame);
        frame
    }

    /// Replaces the checksum by the pseudo-header's folded sum, as a stack with offloads leaves it.
    fn unfinish(frame: &[u8]) -> Vec<u8> {
        let Segment { start, field, end, pseudo_header } = locate(frame).unwrap();
        let mut partial = frame.to_vec();
        let full = u16::from_be_bytes([frame[field], frame[field + 1]]);
        partial[field..field + 2].fill(0);
        let rest = fold(sum(&partial[start..end]));
        // full = !(pseudo + rest), so pseudo = !full - rest in one's complement.
        let pseudo = fold(u64::from(!full) + u64::from(!rest));
        assert_eq!(pseudo % 0xffff, pseudo_header.unwrap() % 0xffff);
        partial[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        partial
    }

    fn frames(payload: &[u8]) -> Vec<Vec<u8>> {
        let eth = || PacketBuilder::ethernet2([2; 6], [4; 6]);
        let v4 = |p: &mut Vec<u8>| eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(7, 9).write(p, payload).unwrap();
        let v6 = |p: &mut Vec<u8>| eth().ipv6([3; 16], [5; 16], 64).tcp(7, 9, 1, 2).write(p, payload).unwrap();
        let vlan = |p: &mut Vec<u8>| {
            eth()
                .single_vlan(7.try_into().unwrap())
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .tcp(7, 9, 1, 2)
                .write(p, payload)
                .unwrap()
        };
        vec![good(v4), good(v6), good(vlan)]
    }

    #[test]
    fn an_unfinished_checksum_becomes_what_the_sender_would_have_written() {
        for payload in [&b""[..], b"x", b"odd", &[0xff; 1400]] {
            for whole in frames(payload) {
                let mut frame = unfinish(&whole);
                assert!(complete(&mut frame));
                assert_eq!(frame, whole);
                assert!(matches!(
                    SlicedPacket::from_ethernet(&frame).unwrap().transport,
                    Some(TransportSlice::Udp(_) | TransportSlice::Tcp(_))
                ));
            }
        }
    }

    #[test]
    fn a_tunnel_around_an_unfinished_segment_is_left_alone() {
        for inner in frames(b"inner") {
            let inner = unfinish(&inner);
            for outer_checksum in [[0; 2], [0x12, 0x34]] {
                let mut tunnel = good(|p| {
                    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
                    builder.udp(7, 4789).write(p, &inner).unwrap();
                });
                tunnel[40..42].copy_from_slice(&outer_checksum);
                let before = tunnel.clone();
                assert!(!complete(&mut tunnel));
                assert_eq!(tunnel, before);
            }
        }
    }

    /// A payload for which the sum of the rest is nothing, so that the checksum looks like one that is left.
    #[test]
    fn a_complete_checksum_that_looks_unfinished_stays_as_it_is() {
        let mut payload = vec![0x5a; 100];
        let found = (0..=u16::MAX).find(|word| {
            payload[..2].copy_from_slice(&word.to_be_bytes());
            let frame = &frames(&payload)[0];
            let Segment { field, pseudo_header, .. } = locate(frame).unwrap();
            pseudo_header == Some(u16::from_be_bytes([frame[field], frame[field + 1]]))
        });
        assert!(found.is_some());
        let whole = frames(&payload).remove(0);
        let mut frame = whole.clone();
        assert!(complete(&mut frame));
        assert_eq!(frame, whole);
    }

    #[test]
    fn padding_behind_the_packet_is_not_summed() {
        for whole in frames(b"short") {
            let mut padded = unfinish(&whole);
            padded.extend([0xee; 20]);
            assert!(complete(&mut padded));
            assert_eq!(&padded[..whole.len()], &whole[..]);
        }
    }

    proptest! {
        #[test]
        fn a_sum_is_that_of_the_words_whatever_its_length(bytes in prop::collection::vec(any::<u8>(), 0..400), from in 0..9usize) {
            let bytes = &bytes[from.min(bytes.len())..];
            let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
            let words: u64 = bytes.chunks(2).map(word).sum();
            prop_assert_eq!(fold(sum(bytes)) % 0xffff, fold(words) % 0xffff);
            prop_assert_eq!(sum(bytes) == 0, words == 0);
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..4usize) {
            if bytes.len() > 20 {
                let ether_type: [u8; 2] = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]][kind];
                bytes[12..14].copy_from_slice(&ether_type);
            }
            complete(&mut bytes);
        }
    }
}
