//! When packets arrive, and for which names: synthetic, or from a capture.
//!
//! [`Synthetic`] is for use without a capture, and its results must be labelled synthetic. Packets of a flow come in
//! trains, which overlap. Trains begin at random times (Poisson), each of a flow drawn by its popularity (Zipf), and
//! have a geometric number of packets with exponential gaps. With one packet per train the arrivals are Poisson.
//! Names are numbers: their bytes, padded with zeros, little-endian.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;

use crate::random::{Random, Zipf, mix64};

/// Packets per second in the papers' trace (CAIDA, December 2013), on average.
pub const PAPERS_RATE_PPS: f64 = 210_000.0;
const PS_A_SECOND: f64 = 1e12;

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of arrival, in picoseconds.
    pub at_ps: u64,
    /// The name that is looked up.
    pub name: u64,
}

/// Synthetic traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Packets per second, before the speed-up.
    pub rate_pps: f64,
    /// Factor by which it is played faster.
    pub speed_up: f64,
    /// Mean packets of a train, at least 1.
    pub train_packets: f64,
    /// Mean time between two packets of a train, in nanoseconds, before the speed-up.
    pub train_gap_ns: f64,
    /// The popularity of the name of rank r is in proportion to 1/r^exponent.
    pub exponent: f64,
    /// Seed of all randomness.
    pub seed: u64,
}

impl Default for Traffic {
    /// The papers' rate. The rest is ours: trains of 4 packets at 1 Gb/s of 1,500 bytes each, popularity 1/rank.
    fn default() -> Self {
        Self {
            rate_pps: PAPERS_RATE_PPS,
            speed_up: 1.0,
            train_packets: 4.0,
            train_gap_ns: 12_000.0,
            exponent: 1.0,
            seed: 1,
        }
    }
}

/// An endless stream of packets of synthetic traffic.
#[derive(Clone, Debug)]
pub struct Synthetic<'a> {
    names: &'a [u64],
    zipf: Zipf,
    random: Random,
    /// Step from rank to name, so that popular names are not neighbours.
    stride: u64,
    mean_to_train_ps: f64,
    mean_gap_ps: f64,
    goes_on: f64,
    next_train_ps: f64,
    /// The next packet of each unfinished train.
    trains: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Traffic {
    /// Packets for `names`.
    /// # Panics
    /// When there is no name, a rate or speed-up is not positive, or a train has less than a packet.
    pub fn packets(self, names: &[u64]) -> Synthetic<'_> {
        let Self { rate_pps, speed_up, train_packets, train_gap_ns, exponent, seed } = self;
        assert!(!names.is_empty(), "traffic needs names");
        assert!(rate_pps > 0.0 && speed_up > 0.0 && train_packets >= 1.0 && train_gap_ns >= 0.0, "{self:?}");
        let n = names.len() as u64;
        let stride = (mix64(seed) % n..).find(|&stride| stride > 0 && gcd(stride, n) == 1).expect("n + 1 is one");
        let mut random = Random::new(seed);
        let mean_to_train_ps = PS_A_SECOND / rate_pps / speed_up * train_packets;
        Synthetic {
            names,
            zipf: Zipf::with_exponent(n, exponent),
            stride,
            mean_to_train_ps,
            mean_gap_ps: train_gap_ns * 1e3 / speed_up,
            goes_on: 1.0 - 1.0 / train_packets,
            next_train_ps: random.exponential(mean_to_train_ps),
            random,
            trains: BinaryHeap::new(),
        }
    }
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Iterator for Synthetic<'_> {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let begins_ps = self.next_train_ps as u64;
        let goes_on = self.trains.peek().filter(|Reverse((at_ps, _))| *at_ps <= begins_ps).map(|packet| packet.0);
        let (at_ps, name) = if let Some(packet) = goes_on {
            self.trains.pop();
            packet
        } else {
            self.next_train_ps += self.random.exponential(self.mean_to_train_ps);
            let rank = self.zipf.draw(&mut self.random) - 1;
            let index = u128::from(rank) * u128::from(self.stride) % self.names.len() as u128;
            (begins_ps, self.names[index as usize])
        };
        // Not drawn if it can never hold: then a packet takes one draw for its time and one for its name.
        if self.goes_on > 0.0 && self.random.unit() <= self.goes_on {
            let next_ps = at_ps + self.random.exponential(self.mean_gap_ps) as u64;
            self.trains.push(Reverse((next_ps, name)));
        }
        Some(Arrival { at_ps, name })
    }
}

/// Which field of a packet is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Destination MAC address, 6 bytes.
    MacDestination,
    /// Destination IPv4 address, 4 bytes.
    Ipv4Destination,
}

/// Why a capture cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It is damaged, or not a capture.
    #[error(
        "record {record} cannot be read: {source}; the file must be classic pcap (`editcap -F pcap IN OUT` converts pcapng)"
    )]
    Damaged {
        /// Which packet, counted from 1; 0 is the file's header.
        record: usize,
        /// What the reader says.
        source: pcap_file::PcapError,
    },
    /// Its packets have no such field.
    #[error("a capture of link type {link:?} has no {field:?}; use an Ethernet capture, or raw IP for an IPv4 address")]
    Link {
        /// What the capture has.
        link: DataLink,
        /// What was asked for.
        field: Field,
    },
    /// No packet has it.
    #[error("none of the {n_packets} packets has a {field:?}; choose another field or capture")]
    NoName {
        /// Packets of the capture.
        n_packets: usize,
        /// What was asked for.
        field: Field,
    },
}

/// The packets of a capture that have a name, in the order of their times, the first at 0, `speed_up` times as fast as
/// captured.
/// # Errors
/// [`CaptureError`].
pub fn capture(input: impl Read, field: Field, speed_up: f64) -> Result<Vec<Arrival>, CaptureError> {
    let mut reader = PcapReader::new(input).map_err(|source| CaptureError::Damaged { record: 0, source })?;
    let link = reader.header().datalink;
    let ip_at: fn(&[u8]) -> Option<usize> = match (link, field) {
        (DataLink::ETHERNET, _) => ipv4_in_ethernet,
        (DataLink::RAW | DataLink::IPV4, Field::Ipv4Destination) => |_| Some(0),
        _ => return Err(CaptureError::Link { link, field }),
    };
    let (mut packets, mut n_packets) = (Vec::new(), 0);
    while let Some(packet) = reader.next_packet() {
        n_packets += 1;
        let packet = packet.map_err(|source| CaptureError::Damaged { record: n_packets, source })?;
        let bytes = match field {
            Field::MacDestination => packet.data.get(..6),
            Field::Ipv4Destination => ip_at(&packet.data).and_then(|at| ipv4_destination(&packet.data[at..])),
        };
        if let Some(bytes) = bytes {
            let name = bytes.iter().rev().fold(0, |name, &byte| name << 8 | u64::from(byte));
            packets.push((packet.timestamp, name));
        }
    }
    packets.sort_by_key(|packet| packet.0);
    let first = packets.first().ok_or(CaptureError::NoName { n_packets, field })?.0;
    let at_ps = |at: std::time::Duration| ((at - first).as_nanos() as f64 * 1e3 / speed_up) as u64;
    Ok(packets.into_iter().map(|(at, name)| Arrival { at_ps: at_ps(at), name }).collect())
}

/// Where the IPv4 packet of a frame begins, behind VLAN tags.
fn ipv4_in_ethernet(frame: &[u8]) -> Option<usize> {
    let mut type_at = 12;
    loop {
        match frame.get(type_at..type_at + 2)? {
            [0x81, 0x00] | [0x88, 0xA8] => type_at += 4,
            [0x08, 0x00] => return Some(type_at + 2),
            _ => return None,
        }
    }
}

fn ipv4_destination(packet: &[u8]) -> Option<&[u8]> {
    (packet.first()? >> 4 == 4).then(|| packet.get(16..20))?
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use lookup::testkit::seed;
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

    use super::*;

    const NAMES: [u64; 100] = {
        let mut names = [0; 100];
        let mut at = 0;
        while at < 100 {
            names[at] = 1_000 + at as u64;
            at += 1;
        }
        names
    };

    /// Mean of the packets in 1 ms, and their variance divided by that mean.
    fn counts(traffic: Traffic) -> (f64, f64) {
        let n = 2_000_000;
        let mut by_ms = HashMap::<u64, f64>::new();
        let mut last = 0;
        for packet in traffic.packets(&NAMES).take(n) {
            assert!(packet.at_ps >= last, "packets come in order");
            last = packet.at_ps;
            *by_ms.entry(last / 1_000_000_000).or_default() += 1.0;
        }
        // The last millisecond is incomplete.
        by_ms.remove(&(last / 1_000_000_000));
        let n_ms = by_ms.len() as f64;
        let mean = by_ms.values().sum::<f64>() / n_ms;
        let variance = by_ms.values().map(|count| (count - mean).powi(2)).sum::<f64>() / n_ms;
        (mean, variance / mean)
    }

    #[test]
    fn packets_come_at_the_rate_and_as_bursty_as_they_should() {
        for speed_up in [1.0, 3.0] {
            let expected = 210.0 * speed_up;
            let poisson = Traffic { train_packets: 1.0, speed_up, seed: seed(), ..Traffic::default() };
            let (mean, dispersion) = counts(poisson);
            assert!((mean / expected - 1.0).abs() < 0.01, "{mean} packets a ms");
            assert!((dispersion - 1.0).abs() < 0.1, "variance of Poisson counts is their mean: {dispersion}");
            let (mean, dispersion) = counts(Traffic { train_packets: 4.0, ..poisson });
            assert!((mean / expected - 1.0).abs() < 0.02, "{mean} packets a ms in trains");
            // Trains much shorter than 1 ms: the dispersion is that of a geometric number with mean m, 2 m - 1.
            assert!((dispersion / 7.0 - 1.0).abs() < 0.15, "{dispersion}");
        }
    }

    #[test]
    fn sped_up_traffic_is_the_same_traffic() {
        let traffic = Traffic { train_packets: 1.0, seed: seed(), ..Traffic::default() };
        let fast = Traffic { speed_up: 100.0, ..traffic };
        for (slow, fast) in traffic.packets(&NAMES).zip(fast.packets(&NAMES)).take(10_000) {
            assert_eq!(slow.name, fast.name);
            assert!(slow.at_ps.abs_diff(fast.at_ps * 100) <= 200, "{slow:?} and {fast:?}");
        }
    }

    #[test]
    fn popular_names_come_more_often() {
        let mut counts = HashMap::<u64, u32>::new();
        let n = 500_000;
        for packet in (Traffic { seed: seed(), ..Traffic::default() }).packets(&NAMES).take(n) {
            *counts.entry(packet.name).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        assert!(counts.len() == NAMES.len() && counts.iter().all(|(name, _)| NAMES.contains(name)));
        counts.sort_unstable_by_key(|count| Reverse(count.1));
        let all: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1, 2, 5] {
            let expected = n as f64 / all / rank as f64;
            let got = f64::from(counts[rank - 1].1);
            assert!((got / expected - 1.0).abs() < 0.1, "rank {rank}: {got} of {expected:.0}");
        }
    }

    fn file(link: DataLink, frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let header =
            PcapHeader { datalink: link, ts_resolution: pcap_file::TsResolution::NanoSecond, ..Default::default() };
        let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
        for (at_ns, frame) in frames {
            let at = Duration::from_secs(1_400_000_000) + Duration::from_nanos(*at_ns);
            writer.write_packet(&PcapPacket::new(at, frame.len() as u32, frame)).unwrap();
        }
        writer.into_writer()
    }

    #[test]
    fn captures_are_played_in_the_order_of_their_times() {
        let ip = |last: u8| [vec![0x45; 16], vec![10, 0, 0, last], vec![0; 8]].concat();
        let raw = [(5_000, ip(1)), (7_000, vec![0x60; 40]), (4_000, ip(2)), (9_000, vec![0x45; 10])];
        let played = capture(&file(DataLink::RAW, &raw)[..], Field::Ipv4Destination, 100.0).unwrap();
        let name = |last: u8| u64::from(u32::from_le_bytes([10, 0, 0, last]));
        assert_eq!(played, [Arrival { at_ps: 0, name: name(2) }, Arrival { at_ps: 10_000, name: name(1) }]);

        let frame = |tags: &[u8], type_of: [u8; 2]| {
            let addresses = [2, 0, 0, 0, 0, 9, 1, 1, 1, 1, 1, 1];
            [&addresses[..], tags, &type_of[..], &ip(3)[..]].concat()
        };
        let tagged = frame(&[0x88, 0xA8, 0, 1, 0x81, 0, 0, 2], [8, 0]);
        let frames = [(0, frame(&[], [8, 0])), (1, tagged), (2, frame(&[], [8, 6])), (3, vec![2, 0, 0, 0, 0, 9])];
        let ethernet = file(DataLink::ETHERNET, &frames);
        let names = |field| -> Vec<u64> {
            capture(&ethernet[..], field, 1.0).unwrap().into_iter().map(|packet| packet.name).collect()
        };
        assert_eq!(names(Field::Ipv4Destination), [name(3); 2]);
        assert_eq!(names(Field::MacDestination), [0x0900_0000_0002; 4]);
    }

    #[test]
    fn captures_that_cannot_be_played_say_why() {
        let refused = |bytes: &[u8], field| capture(bytes, field, 1.0).unwrap_err();
        let raw = file(DataLink::RAW, &[(0, vec![0x60; 40])]);
        assert!(matches!(refused(&raw, Field::MacDestination), CaptureError::Link { .. }));
        assert!(matches!(refused(&raw, Field::Ipv4Destination), CaptureError::NoName { n_packets: 1, .. }));
        assert!(matches!(refused(&raw[..50], Field::Ipv4Destination), CaptureError::Damaged { record: 1, .. }));
        assert!(matches!(
            refused(b"no capture at all, is it", Field::Ipv4Destination),
            CaptureError::Damaged { record: 0, .. }
        ));
    }
}
