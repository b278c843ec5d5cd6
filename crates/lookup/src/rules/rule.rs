//! Rules, the flows that they match, and both as words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::Mask;
use crate::hash::mix64;

/// Bits of a priority.
pub const PRIORITY_BITS: u32 = 24;
/// Bits of a value.
pub const VALUE_BITS: u32 = 22;
/// Bits that count the bits of a pattern.
const N_BITS_BITS: u32 = 9;
/// Where the value starts in the last word of a rule: behind the protocol and the flag that compares it.
const VALUE_AT: u32 = 9;
const N_BITS_AT: u32 = VALUE_AT + VALUE_BITS;
pub(super) const PRIORITY_AT: u32 = N_BITS_AT + N_BITS_BITS;
pub(super) const ANY_PROTOCOL: u64 = 1 << 8;

/// The most masked flows under which one table has a rule: each range of ports may lie in two blocks.
pub(super) const PIECES: u8 = 4;

const _: () = assert!(PRIORITY_AT + PRIORITY_BITS == 64);

/// The addresses of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    /// The first bits, from the top; then zeros.
    bits: u128,
    len: u8,
}

impl Prefix {
    /// All addresses.
    pub const ANY: Self = Self { bits: 0, len: 0 };

    /// The addresses that begin with the first `len` bits of `address`; its other bits are ignored.
    /// # Panics
    /// When the address has fewer bits.
    pub fn new(address: IpAddr, len: u8) -> Self {
        let (bits, max) = aligned(address);
        assert!(len <= max, "a prefix of {len} bits of {address}");
        Self { bits: bits & high_bits(len), len }
    }

    /// How many bits it compares.
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether it compares no bit.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Its first address.
    pub fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from_bits((self.bits >> 96) as u32)
    }

    /// Its first address.
    pub fn v6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.bits)
    }
}

fn aligned(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

fn high_bits(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

/// A rule: a pattern, its priority, and the answer for flows that match it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Source addresses.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// Source ports.
    pub source_ports: RangeInclusive<u16>,
    /// Destination ports.
    pub destination_ports: RangeInclusive<u16>,
    /// The protocol; none: any.
    pub protocol: Option<u8>,
    /// Of the rules that match, one with the highest priority answers.
    pub priority: u32,
    /// The answer: 1 to 2^22 - 1.
    pub value: u32,
}

/// All ports.
pub const ALL_PORTS: RangeInclusive<u16> = 0..=u16::MAX;

impl Rule {
    /// Every flow.
    pub fn any(priority: u32, value: u32) -> Self {
        Self {
            source: Prefix::ANY,
            destination: Prefix::ANY,
            source_ports: ALL_PORTS,
            destination_ports: ALL_PORTS,
            protocol: None,
            priority,
            value,
        }
    }

    /// The bits of a flow that all flows of the rule share, by field.
    pub(super) fn mask(&self) -> Mask {
        let common = |ports: &RangeInclusive<u16>| (ports.start() ^ ports.end()).leading_zeros() as u8;
        Mask {
            source: self.source.len,
            destination: self.destination.len,
            source_port: common(&self.source_ports),
            destination_port: common(&self.destination_ports),
            protocol: self.protocol.is_some(),
        }
    }

    /// The most bits that a table may hash of it: as [`mask`](Self::mask), except that a range of ports may lie in two
    /// aligned blocks. Then the table has it under both ([`keys`](Self::keys)).
    pub(super) fn finest(&self) -> Mask {
        let of_block = |ports: &RangeInclusive<u16>| (ports.end() - ports.start()).leading_zeros() as u8;
        Mask {
            source_port: of_block(&self.source_ports),
            destination_port: of_block(&self.destination_ports),
            ..self.mask()
        }
    }

    /// The masked flows under which a table with these bits has it: up to [`PIECES`], each with its number.
    pub(super) fn keys<const W: usize>(&self, bits: &Flow<W>) -> impl Iterator<Item = (u8, Flow<W>)> {
        let first = self.first_flow::<W>().masked(bits);
        let last = rest([*self.source_ports.end(), *self.destination_ports.end()], 0) & bits.rest;
        let ports = [0xFFFF, 0xFFFF << 16];
        (0..PIECES).filter_map(move |piece| {
            let (mut key, mut is_other) = (first, true);
            for port in ports.into_iter().zip(0..).filter(|&(_, at)| piece >> at & 1 == 1).map(|(port, _)| port) {
                is_other &= (first.rest ^ last) & port != 0;
                key.rest = key.rest & !port | last & port;
            }
            is_other.then_some((piece, key))
        })
    }

    /// Whether it matches every flow that has this key under a mask.
    pub(super) fn covers<const W: usize>(&self, mask: Mask, key: &Flow<W>) -> bool {
        let all_ports = |ports: &RangeInclusive<u16>, start: u64, len: u8| {
            let start = start as u16;
            *ports.start() <= start && start | u16::MAX.checked_shr(len.into()).unwrap_or(0) <= *ports.end()
        };
        self.source.len <= mask.source
            && self.destination.len <= mask.destination
            && (self.protocol.is_none() || mask.protocol)
            && all_ports(&self.source_ports, key.rest, mask.source_port)
            && all_ports(&self.destination_ports, key.rest >> 16, mask.destination_port)
    }

    /// Whether it matches every flow that `other` matches.
    pub(super) fn contains(&self, other: &Self) -> bool {
        let prefix =
            |outer: Prefix, inner: Prefix| outer.len <= inner.len && inner.bits & high_bits(outer.len) == outer.bits;
        let ports = |outer: &RangeInclusive<u16>, inner: &RangeInclusive<u16>| {
            outer.start() <= inner.start() && inner.end() <= outer.end()
        };
        prefix(self.source, other.source)
            && prefix(self.destination, other.destination)
            && ports(&self.source_ports, &other.source_ports)
            && ports(&self.destination_ports, &other.destination_ports)
            && (self.protocol.is_none() || self.protocol == other.protocol)
    }

    /// A flow that it matches: the first of each field.
    pub fn first_flow<const W: usize>(&self) -> Flow<W> {
        let protocol = self.protocol.unwrap_or(0);
        let ports = [*self.source_ports.start(), *self.destination_ports.start()];
        Flow { addresses: words([self.source.bits, self.destination.bits]), rest: rest(ports, protocol) }
    }

    /// Its pattern and priority: the rule without its value.
    pub(super) fn without_value(&self) -> Self {
        Self { value: 0, ..self.clone() }
    }

    /// Its last word. Of two rules that match, the one with the larger last word answers.
    pub(super) fn rank(&self) -> u64 {
        let protocol = self.protocol.map_or(ANY_PROTOCOL, u64::from);
        let n_bits = u64::from(self.mask().n_bits());
        let ranked = u64::from(self.priority) << PRIORITY_AT | n_bits << N_BITS_AT;
        ranked | u64::from(self.value) << VALUE_AT | protocol
    }

    /// Its words: addresses, their masks, ports, and the rest.
    pub(super) fn encode<const W: usize>(&self) -> Vec<u64> {
        let mut out = self.first_flow::<W>().addresses.to_vec();
        out.extend(words::<W>([self.source.len, self.destination.len].map(high_bits)));
        let span = |ports: &RangeInclusive<u16>| u64::from(ports.end() - ports.start());
        let [source, destination] = [&self.source_ports, &self.destination_ports];
        let starts = u64::from(*source.start()) | u64::from(*destination.start()) << 16;
        out.push(starts | span(source) << 32 | span(destination) << 48);
        out.push(self.rank());
        out
    }

    /// The rule of its words.
    pub(super) fn decode<const W: usize>(words: &[u64]) -> Self {
        let [starts, last] = [words[2 * W], words[2 * W + 1]];
        let prefix = |at: usize| {
            let (bits, mask) = (of_words::<W>(&words[..W], at), of_words::<W>(&words[W..2 * W], at));
            Prefix { bits, len: mask.leading_ones() as u8 }
        };
        let ports = |at: u32| {
            let start = (starts >> at) as u16;
            start..=start.wrapping_add((starts >> (32 + at)) as u16)
        };
        Self {
            source: prefix(0),
            destination: prefix(1),
            source_ports: ports(0),
            destination_ports: ports(16),
            protocol: (last & ANY_PROTOCOL == 0).then_some(last as u8),
            priority: (last >> PRIORITY_AT) as u32,
            value: value_of(last),
        }
    }
}

/// The value in the last word of a rule.
#[inline(always)]
pub(super) fn value_of(last: u64) -> u32 {
    (last >> VALUE_AT) as u32 & ((1 << VALUE_BITS) - 1)
}

/// Whether a rule matches a flow. Of two that do, the one with the larger last word wins.
#[inline(always)]
pub(super) fn matches<const W: usize>(rule: impl Fn(usize) -> u64, flow: &Flow<W>) -> bool {
    let mut differs = 0;
    for (i, address) in flow.addresses.iter().enumerate() {
        differs |= (rule(i) ^ address) & rule(W + i);
    }
    let (ports, last) = (rule(2 * W), rule(2 * W + 1));
    let outside = |at: u32| ((flow.rest >> at) as u16).wrapping_sub((ports >> at) as u16) > (ports >> (32 + at)) as u16;
    let other = (last ^ flow.rest >> 32) as u8 != 0 && last & ANY_PROTOCOL == 0;
    !((differs != 0) | outside(0) | outside(16) | other)
}

/// A flow, as a key of lookups: `W` words of addresses, 1 for IPv4 and 4 for IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow<const W: usize> {
    pub(super) addresses: [u64; W],
    /// Source port, destination port, protocol, from the lowest bit.
    pub(super) rest: u64,
}

impl<const W: usize> Flow<W> {
    /// Its bits that are in `mask`.
    #[inline(always)]
    pub(super) fn masked(&self, mask: &Self) -> Self {
        let addresses = std::array::from_fn(|i| self.addresses[i] & mask.addresses[i]);
        Self { addresses, rest: self.rest & mask.rest }
    }

    /// A flow with its fields from several: the source from itself, the destination and ports from `other`, the protocol of
    /// `third`.
    pub(super) fn crossed(&self, other: &Self, third: &Self) -> Self {
        let half = 0xFFFF_FFFF;
        // One word: the source in its high half. Several: the source first.
        let address = |i: usize| match W {
            1 => self.addresses[i] & !half | other.addresses[i] & half,
            _ if i < W / 2 => self.addresses[i],
            _ => other.addresses[i],
        };
        Self { addresses: std::array::from_fn(address), rest: other.rest & half | third.rest & !half }
    }

    /// All its words as one, for the choice of tables. Lookups hash with a key.
    pub(super) fn fold(&self) -> u64 {
        self.addresses.iter().fold(mix64(self.rest.wrapping_add(1)), |fold, &word| mix64(fold ^ word))
    }
}

impl<const W: usize> Default for Flow<W> {
    fn default() -> Self {
        Self { addresses: [0; W], rest: 0 }
    }
}

fn rest(ports: [u16; 2], protocol: u8) -> u64 {
    u64::from(ports[0]) | u64::from(ports[1]) << 16 | u64::from(protocol) << 32
}

impl Flow<1> {
    /// A flow of IPv4: addresses and ports, each of the source first.
    pub fn v4(addresses: [Ipv4Addr; 2], ports: [u16; 2], protocol: u8) -> Self {
        let [source, destination] = addresses.map(|address| u64::from(address.to_bits()));
        Self { addresses: [source << 32 | destination], rest: rest(ports, protocol) }
    }
}

impl Flow<4> {
    /// A flow of IPv6: addresses and ports, each of the source first.
    pub fn v6(addresses: [Ipv6Addr; 2], ports: [u16; 2], protocol: u8) -> Self {
        Self { addresses: words(addresses.map(Ipv6Addr::to_bits)), rest: rest(ports, protocol) }
    }
}

/// Left-aligned addresses of source and destination as words.
pub(super) fn words<const W: usize>(addresses: [u128; 2]) -> [u64; W] {
    std::array::from_fn(|i| match W {
        1 => (addresses[0] >> 96 << 32 | addresses[1] >> 96) as u64,
        _ => (addresses[i / 2] >> (64 * (1 - i % 2))) as u64,
    })
}

/// One of the addresses of [`words`].
fn of_words<const W: usize>(words: &[u64], at: usize) -> u128 {
    match W {
        1 => u128::from(words[0] >> (32 * (1 - at)) & 0xFFFF_FFFF) << 96,
        _ => u128::from(words[2 * at]) << 64 | u128::from(words[2 * at + 1]),
    }
}
