//! Which of several equally good ways a frame takes: the same for all frames of a flow, so that none overtakes another.
//!
//! A flow is, for IP, both addresses, the protocol and the ports, if the protocol has ports; for anything else the two MAC
//! addresses. All fragments of a packet must go the same way, and only the first one surely has the rest, so fragments count by
//! their addresses alone. A flow that sends some packets whole and others in fragments may use two ways.
//!
//! The hash of a flow gives a slot, and each slot has the way with the largest hash of slot and port (highest random weight). So
//! when a way goes, because it is down or left the controller's tables, only its flows move, and when it comes back only they return.
//! Of n ways each has a share of 1/n, give or take 10 % of that or less. Every data plane hashes with a number of its own: if
//! neighbours chose alike, all flows that the first sends to the second would go the same way from there.
//!
//! Where ways have weights, the hash u of slot and port, as a fraction of 1, stands for a time -ln(u) / weight, and a slot has the way
//! with the shortest time. Such times are distributed exponentially, and the first is that of a way with a probability of its
//! weight over the sum of all. Equal weights give the table without weights. When a weight grows, flows move to this
//! way only, and when it shrinks from it only, whatever the others are. Only ratios count, so it does not matter that those of an
//! action are reduced. To hash each way as many times as it weighs would need no logarithm, but 512 × 64 mixes a way, and a ratio that is
//! reduced would move flows. A share is a number of the 512 slots, give or take its root: a way with less than 1 % may have none.
//!
//! Cost: two mixes of a word for IPv4, five for IPv6, the headers parsed again, and one read of a table of 512 bytes, with weights or
//! without. Making the table takes 512 mixes a way, by each worker, when a table of actions is new or a link changes; a controller
//! that sends 65,535 different sets of ways makes a worker spend 32 MiB and some tenths of a second. Where weights differ, whatever they
//! are, it takes 512 divisions a way, which is no longer; and, for all sets together, 4 KiB and 512 logarithms a port, some 10 µs.

use crate::parse::{self, Network};
use arrayvec::ArrayVec;
use fib::action::{MAX_WAYS, PortId};
use lookup::hash::mix64;
use std::collections::BTreeMap;

const SLOT_BITS: u32 = 9;
const N: usize = 1 << SLOT_BITS;

/// A port that leads to a destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Way {
    pub(crate) id: PortId,
    /// Its index among the ports of a worker.
    pub(crate) index: u8,
    /// At least 1.
    pub(crate) weight: u16,
}

/// The ports of slots, by their indices among the ports of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slots([u8; N]);

impl Slots {
    /// Spreads flows over ports, by ids and indices. Ids decide, so that workers with other ports choose alike.
    /// # Panics
    /// If there is none.
    pub(crate) fn new(ways: &[(PortId, u8)]) -> Self {
        let key = |slot: usize, (id, _): &(PortId, u8)| (hash(slot, *id), *id);
        Self(std::array::from_fn(|slot| ways.iter().max_by_key(|way| key(slot, way)).expect("a way").1))
    }

    /// As [`Slots::new`], each port for as many flows as its weight says.
    /// # Panics
    /// If there is none.
    pub(crate) fn weighed(ways: &[Way], times: &mut Times) -> Self {
        if ways.iter().all(|way| way.weight == ways[0].weight) {
            let ways: ArrayVec<_, MAX_WAYS> = ways.iter().map(|way| (way.id, way.index)).collect();
            return Self::new(&ways);
        }
        ways.iter().for_each(|way| times.find(way.id));
        let timed: ArrayVec<(&Way, &[f64; N]), MAX_WAYS> = ways.iter().map(|way| (way, &*times.0[&way.id])).collect();
        Self(std::array::from_fn(|slot| {
            let keyed = timed.iter().map(|(way, times)| (times[slot] / f64::from(way.weight), *way));
            let first = keyed.min_by(|(a, one), (b, other)| {
                // Of hashes that are equal as fractions, the larger one comes first, as without weights.
                let others = || (hash(slot, other.id), other.id).cmp(&(hash(slot, one.id), one.id));
                a.total_cmp(b).then_with(others)
            });
            first.expect("a way").1.index
        }))
    }

    /// The port that a flow takes.
    #[inline]
    pub(crate) fn port(&self, flow: u64) -> u8 {
        self.0[Self::slot(flow)]
    }

    /// The port that a flow takes if it may take only these: that of the next slot that has one of them.
    #[cold]
    pub(crate) fn other(&self, flow: u64, may_take: impl Fn(u8) -> bool) -> Option<u8> {
        let (before, after) = self.0.split_at(Self::slot(flow));
        after.iter().chain(before).copied().find(|port| may_take(*port))
    }

    fn slot(flow: u64) -> usize {
        (flow >> (u64::BITS - SLOT_BITS)) as usize
    }
}

/// The times of ports that have been found, by slots. They serve all tables that are made together.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<PortId, Box<[f64; N]>>);

impl Times {
    fn find(&mut self, id: PortId) {
        self.0.entry(id).or_insert_with(|| Box::new(std::array::from_fn(|slot| time(hash(slot, id)))));
    }
}

fn hash(slot: usize, id: PortId) -> u64 {
    mix64(mix64(slot as u64 + 1) ^ u64::from(id.0))
}

/// The time that a hash stands for, of weight 1: the larger, the shorter.
fn time(hash: u64) -> f64 {
    // Between 0 and 1, excluding both.
    let fraction = ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -fraction.ln()
}

/// The hash of the flow of a frame, whose EtherType is at `type_at`.
pub(crate) fn flow(frame: &[u8], type_at: usize, seed: u64) -> u64 {
    let Ok(network) = parse::network(frame, type_at) else {
        return words(mix64(seed), &frame[..12]);
    };
    let addresses = match &network {
        Network::V4(ip) => &ip[12..20],
        Network::V6(ip) => &ip[8..40],
    };
    // The first fragment may say more than the others, or end in the middle of it.
    let rest = network.transport().ok().filter(|transport| !transport.is_fragment).map_or(0, |transport| {
        // A packet that ends before its ports has none.
        let ports = transport.ports().unwrap_or_default();
        u64::from(u32::from_be_bytes(ports)) << 8 | u64::from(transport.protocol)
    });
    words(mix64(seed ^ rest), addresses)
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

    #[test]
    fn ways_have_like_shares_and_only_flows_of_a_way_that_goes_move() {
        let ways = [(3, 0), (7, 9), (9, 4), (200, 253)].map(|(id, index)| (PortId(id), index));
        let all = Slots::new(&ways);
        for (_, index) in ways {
            let share = all.0.iter().filter(|at| **at == index).count();
            // A quarter of 512, and three standard deviations.
            assert!((98..=158).contains(&share), "{index}: {share}");
        }
        let less = Slots::new(&[ways[0], ways[1], ways[3]]);
        assert!(all.0.iter().zip(&less.0).all(|(all, less)| if *all == 4 { less != all } else { less == all }));
        // Another order, and another place at another worker.
        let elsewhere = Slots::new(&ways.map(|(id, index)| (id, 253 - index)));
        assert!(all.0.iter().zip(&elsewhere.0).all(|(here, there)| *here == 253 - there));
        assert_eq!(Slots::new(&[ways[3], ways[1], ways[2], ways[0]]), all);
        assert_eq!(Slots::new(&ways[..1]), Slots([0; 512]));
        // A flow that may not take its way takes each of the others with its share.
        let flows: Vec<u64> = (0..512).map(|slot| slot << (u64::BITS - SLOT_BITS)).collect();
        let other = |flow: u64| all.other(flow, |port| port != all.port(flow));
        assert!(flows.iter().all(|flow| other(*flow).is_some_and(|port| port != all.port(*flow))));
        for (_, index) in &ways[1..] {
            let n = flows.iter().filter(|flow| all.port(**flow) == 0 && other(**flow) == Some(*index)).count();
            assert!((15..=80).contains(&n), "{index}: {n} of some 128");
        }
        assert_eq!(Slots::new(&ways[..1]).other(0, |port| port != 0), None);
    }

    /// Ports 1, 2, ... with these weights.
    fn weighed(weights: &[u16]) -> Slots {
        let way = |(index, weight): (u8, &u16)| Way { id: PortId(u16::from(index)), index, weight: *weight };
        Slots::weighed(&(1..).zip(weights).map(way).collect::<Vec<_>>(), &mut Times::default())
    }

    fn share(slots: &Slots, index: u8) -> usize {
        slots.0.iter().filter(|at| **at == index).count()
    }

    #[test]
    fn ways_have_shares_as_their_weights_say() {
        for weights in [&[3, 1][..], &[1, 3], &[1, 64], &[5, 1, 1, 2, 1, 1, 1, 4], &[1024, 1, 512], &[8, 2]] {
            let (slots, sum) = (weighed(weights), f64::from(weights.iter().sum::<u16>()));
            for (index, weight) in (1..).zip(weights) {
                let part = f64::from(*weight) / sum;
                let (mean, deviation) = (512.0 * part, (512.0 * part * (1.0 - part)).sqrt());
                let got = share(&slots, index) as f64;
                assert!((got - mean).abs() <= 4.0 * deviation, "{weights:?}: {got} slots of {mean:.0} for {weight}");
            }
        }
        // Equal weights, whatever they are: as without weights.
        let ports: Vec<(PortId, u8)> = (1..=5).map(|index| (PortId(u16::from(index)), index)).collect();
        assert_eq!((weighed(&[1; 5]), weighed(&[1024; 5])), (Slots::new(&ports), Slots::new(&ports)));
        assert_eq!(weighed(&[7]), Slots([1; 512]));
        // Only ratios count.
        assert_eq!(weighed(&[6, 2, 4]), weighed(&[3, 1, 2]));
        assert!(weighed(&[3, 1, 2]) != weighed(&[3, 1, 1]));
    }

    #[test]
    fn only_flows_that_must_move_do_so_when_a_weight_changes_or_a_way_goes() {
        let moved = |before: &[u16], after: &[u16]| {
            let (before, after) = (weighed(before), weighed(after));
            let moved = before.0.into_iter().zip(after.0).filter(|(before, after)| before != after);
            moved.collect::<Vec<_>>()
        };
        // Flows move to the way whose weight grows, even where the others' are not 1, and where all weights were equal.
        for (before, after) in [([3, 1, 2], [3, 4, 2]), ([1, 1, 1], [1, 2, 1]), ([2, 1, 2], [2, 2, 2])] {
            let moved = moved(&before, &after);
            assert!(moved.iter().all(|(_, to)| *to == 2) && moved.len() > 20, "{before:?} to {after:?}: {moved:?}");
        }
        // Flows move from the way whose weight shrinks, to all others.
        let shrinks = moved(&[4, 8, 2], &[4, 2, 2]);
        assert!(
            shrinks.iter().all(|(from, _)| *from == 2)
                && [1, 3].iter().all(|to| shrinks.iter().any(|(_, at)| at == to))
        );
        // The remaining ways have reduced weights.
        let whole = weighed(&[4, 2, 3]);
        let less = weighed(&[2, 1]);
        assert!(whole.0.iter().zip(&less.0).all(|(whole, less)| if *whole == 3 {
            less != whole
        } else {
            less == whole
        }));
        let two = weighed(&[2, 2, 1]);
        assert!(two.0.iter().zip(&weighed(&[1, 1]).0).all(|(two, less)| *two == 3 || less == two));
    }

    fn udp4() -> Vec<u8> {
        let mut udp = vec![2; 12];
        udp.extend([0x08, 0x00, 0x45, 0, 0, 32, 0, 9, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        udp.extend([0, 5, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4]);
        udp
    }

    /// Destination options, and UDP behind them.
    fn udp6() -> Vec<u8> {
        let mut udp = vec![2; 12];
        udp.extend([0x86, 0xdd, 0x60, 1, 2, 3, 0, 20, 60, 64]);
        udp.extend((0..32).collect::<Vec<u8>>());
        udp.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        udp.extend([0, 5, 0, 7, 0, 12, 0, 0, 1, 2, 3, 4]);
        udp
    }

    fn with(frame: &[u8], at: usize, byte: u8) -> Vec<u8> {
        let mut frame = frame.to_vec();
        frame[at] = byte;
        frame
    }

    fn hash(frame: &[u8]) -> u64 {
        flow(frame, 12, 1)
    }

    #[test]
    fn a_flow_is_addresses_protocol_and_ports() {
        // The protocol, addresses and ports; not MAC addresses, identification or flow label, hop limit, checksum, payload.
        let cases = [
            (udp4(), &[23, 26, 29, 30, 33, 34, 35, 36, 37][..], &[0, 6, 18, 22, 24, 42][..]),
            (udp6(), &[22, 29, 30, 53, 54, 62, 63, 65][..], &[0, 6, 17, 21, 68, 70, 73][..]),
        ];
        for (frame, its, others) in cases {
            for at in its {
                assert_ne!(hash(&with(&frame, *at, 66)), hash(&frame), "byte {at}");
            }
            for at in others {
                assert_eq!(hash(&with(&frame, *at, 66)), hash(&frame), "byte {at}");
            }
            assert_ne!(flow(&frame, 12, 2), hash(&frame), "each data plane has its own");
            let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
            assert_eq!(hash(&tagged), hash(&frame), "a VLAN is none of it");
            assert_eq!(flow(&[&frame[..12], &[9; 4], &frame[12..]].concat(), 16, 1), hash(&frame), "nor a shim");
            (14..frame.len()).for_each(|end| _ = hash(&frame[..end]));
        }
    }

    #[test]
    fn all_fragments_of_a_packet_are_one_flow() {
        let whole = udp4();
        let first = with(&whole, 20, 0x20);
        let mut later = with(&whole, 21, 1);
        later[34..38].fill(77);
        assert_eq!(hash(&first), hash(&later));
        assert_ne!(hash(&first), hash(&with(&first, 33, 77)), "of these addresses");

        // A fragment header before the destination options, which only the first fragment has.
        let whole = udp6();
        let fragment = |offset: u8, rest: &[u8]| {
            let mut frame = [&whole[..54], &[60, 0, 0, offset | 1, 0, 0, 0, 9], rest].concat();
            frame[20] = 44;
            frame[19] = (frame.len() - 54) as u8;
            frame
        };
        let first = fragment(0, &whole[54..]);
        assert_eq!(hash(&first), hash(&fragment(8, &[1; 24])));
        // Its options do not end in it.
        assert_eq!(hash(&first), hash(&fragment(0, &[17, 9, 1, 4, 0, 0, 0, 0])));
        assert_ne!(hash(&first), hash(&with(&first, 53, 77)), "of these addresses");
    }

    #[test]
    fn what_is_no_ip_packet_goes_by_its_mac_addresses() {
        let arp = with(&udp4(), 13, 6);
        assert_eq!(hash(&arp), hash(&with(&arp, 30, 8)));
        assert_ne!(hash(&arp), hash(&with(&arp, 11, 1)));
        assert_eq!(hash(&udp4()[..30]), hash(&udp4()[..14]));
    }
}
