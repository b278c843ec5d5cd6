//! Which of several equally good ways a frame takes: the same for all frames of a flow, so that none overtakes another.
//!
//! A flow is, for IP, both addresses, the protocol and the ports, if the protocol has ports; for anything else the two MAC
//! addresses. All fragments of a packet must go the same way, and only the first one has the ports, so a packet in fragments
//! counts without them. A flow that sends some packets whole and others in fragments may use two ways.
//!
//! The hash of a flow gives a slot, and a Maglev table ([`maglev`]) gives the port of each slot: as many slots for each way, to
//! one. The slots of a way that is down have ports of a second table, of the ways that are up. So while a link is down its flows
//! alone go another way, and when it comes up they come back. Every data plane hashes with a number of its own: if neighbours
//! chose alike, all flows that the first sends to the second would go the same way from there.
//!
//! Cost: two mixes of a word for IPv4, five for IPv6, and one read of a table of 251 bytes. Frames to a name with one way pay nothing.

use crate::maglev;
use crate::parse;
use lookup::hash::mix64;

/// A prime; shares are exact to 0.4 %.
const SLOTS: usize = 251;

/// The ports of slots, by their indices among the ports of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slots([u8; SLOTS]);

impl Slots {
    /// Spreads flows over `ways`, which are not empty: over those that are up, if any is.
    pub(crate) fn new(ways: &[u8], is_up: impl Fn(u8) -> bool) -> Self {
        let of = |is_in: &dyn Fn(u8) -> bool| {
            let ways = ways.iter().filter(|way| is_in(**way));
            let mut slots = [maglev::NOBODY; SLOTS];
            maglev::fill(
                &mut slots,
                ways.map(|&way| maglev::Server { index: way.into(), name: mix64(way.into()), weight: 1 }),
            );
            slots.map(|way| way as u8)
        };
        let whole = of(&|_| true);
        let up = if ways.iter().any(|way| is_up(*way)) { of(&is_up) } else { whole };
        Self(std::array::from_fn(|slot| if is_up(whole[slot]) { whole[slot] } else { up[slot] }))
    }

    /// The port that a flow takes.
    #[inline]
    pub(crate) fn port(&self, flow: u64) -> u8 {
        self.0[((u128::from(flow) * SLOTS as u128) >> 64) as usize]
    }
}

/// The hash of the flow of a frame, whose EtherType is at `type_at`.
#[inline]
pub(crate) fn flow(frame: &[u8], type_at: usize, seed: u64) -> u64 {
    let packet = parse::network(frame, type_at).and_then(|network| network.transport());
    let Ok(transport) = packet else {
        return words(mix64(seed), &frame[..12]);
    };
    // A packet that ends before its ports has none.
    let ports = if transport.is_fragment { [0; 4] } else { transport.ports().unwrap_or_default() };
    let last = u64::from(u32::from_be_bytes(ports)) << 8 | u64::from(transport.protocol);
    words(mix64(seed ^ last), transport.addresses)
}

fn words(start: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(start, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix64(hash ^ u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(slots: Slots) -> Vec<(u8, usize)> {
        let mut shares = std::collections::BTreeMap::new();
        slots.0.iter().for_each(|way| *shares.entry(*way).or_insert(0) += 1);
        shares.into_iter().collect()
    }

    #[test]
    fn ways_have_equal_shares_and_only_flows_of_a_way_that_is_down_move() {
        let all = Slots::new(&[3, 7, 9, 200], |_| true);
        assert_eq!(shares(all).len(), 4);
        assert!(shares(all).iter().all(|(_, n)| (62..=63).contains(n)), "{:?}", shares(all));
        let less = Slots::new(&[3, 7, 9, 200], |way| way != 9);
        assert_eq!(shares(less).len(), 3);
        assert!(shares(less).iter().all(|(_, n)| (75..=92).contains(n)), "{:?}", shares(less));
        assert!(all.0.iter().zip(&less.0).all(|(all, less)| all == less || *all == 9));
        // If none works, each may still do.
        assert_eq!(Slots::new(&[3, 7, 9, 200], |_| false), all);
    }

    /// The bytes that are the flow, and others that are not.
    #[test]
    fn a_flow_is_addresses_protocol_and_ports() {
        let mut udp = vec![2; 12];
        udp.extend([0x08, 0x00, 0x45, 0, 0, 32, 0, 9, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        udp.extend([0, 5, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4]);
        let hash = |frame: &[u8]| flow(frame, 12, 1);
        let with = |at: usize, byte: u8| {
            let mut frame = udp.clone();
            frame[at] = byte;
            frame
        };
        for part_of_it in [23, 26, 29, 30, 33, 34, 35, 36, 37] {
            assert_ne!(hash(&with(part_of_it, 6)), hash(&udp), "byte {part_of_it}");
        }
        // MAC addresses, identification, hop limit, checksum, payload.
        for other in [0, 6, 18, 22, 24, 42] {
            assert_eq!(hash(&with(other, 66)), hash(&udp), "byte {other}");
        }
        assert_ne!(flow(&udp, 12, 2), hash(&udp), "each data plane has its own");
        // All fragments of a packet, though the first alone has ports.
        let first = with(20, 0x20);
        let mut later = with(21, 1);
        assert_eq!(hash(&first), hash(&later));
        later[34..38].fill(77);
        assert_eq!(hash(&first), hash(&later));
        // What is no IP packet, or ends early, has the flow of its MAC addresses.
        let mut arp = with(13, 6);
        arp[30] = 8;
        assert_eq!(hash(&arp), hash(&with(13, 6)));
        arp[11] = 1;
        assert_ne!(hash(&arp), hash(&with(13, 6)));
        (14..udp.len()).for_each(|end| _ = hash(&udp[..end]));
        assert_eq!(hash(&udp[..30]), hash(&udp[..14]));
    }
}
