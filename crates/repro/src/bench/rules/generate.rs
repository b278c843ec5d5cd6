//! Sets of rules that resemble those of ClassBench, and flows that match them.
//!
//! ClassBench's seeds (Taylor, Turner, 2007) describe twelve sets of operators of three kinds: access lists, firewalls and
//! chains of IP filters. Here each kind has shares of field forms like those; addresses come from nested networks, so that
//! prefixes of different lengths overlap. A rule before another one has a higher priority.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use lookup::rules::{ALL_PORTS, Prefix, Rule};

use super::Fields;
use crate::names::Random;

/// What a set resembles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Access lists: one port of few services, destinations in detail.
    Acl,
    /// Firewalls: many wildcards, ranges of ports.
    Firewall,
    /// Chains of IP filters: between both.
    Chain,
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "acl" => Ok(Self::Acl),
            "fw" => Ok(Self::Firewall),
            "ipc" => Ok(Self::Chain),
            _ => Err(format!("there are no rules of kind {text:?}; use acl, fw or ipc")),
        }
    }
}

/// Share of each form, in percent.
struct Shares {
    /// Bits of source and of destination prefixes.
    lens: [&'static [(u8, u64)]; 2],
    /// Source ports and destination ports: any, from 1024 on, one, another range.
    ports: [[u64; 4]; 2],
    /// TCP, UDP, ICMP, any.
    protocols: [u64; 4],
}

impl Kind {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Firewall => "fw",
            Self::Chain => "ipc",
        }
    }

    fn shares(self) -> Shares {
        match self {
            Self::Acl => Shares {
                lens: [
                    &[(0, 12), (8, 2), (16, 6), (21, 6), (23, 8), (24, 24), (26, 4), (28, 8), (30, 6), (32, 24)],
                    &[(0, 1), (16, 3), (20, 4), (22, 4), (24, 20), (27, 8), (29, 8), (30, 8), (32, 44)],
                ],
                ports: [[100, 0, 0, 0], [24, 6, 58, 12]],
                protocols: [66, 18, 4, 12],
            },
            Self::Firewall => Shares {
                lens: [
                    &[(0, 36), (8, 2), (16, 8), (19, 4), (24, 14), (27, 4), (28, 8), (32, 24)],
                    &[(0, 18), (12, 2), (16, 6), (21, 4), (24, 16), (26, 6), (28, 8), (30, 4), (32, 36)],
                ],
                ports: [[74, 12, 10, 4], [30, 12, 46, 12]],
                protocols: [52, 28, 6, 14],
            },
            Self::Chain => Shares {
                lens: [
                    &[(0, 14), (8, 4), (16, 10), (20, 6), (24, 22), (26, 6), (28, 8), (31, 2), (32, 28)],
                    &[(0, 10), (8, 2), (16, 8), (20, 6), (24, 22), (27, 6), (29, 6), (32, 40)],
                ],
                ports: [[82, 6, 10, 2], [44, 8, 40, 8]],
                protocols: [48, 24, 8, 20],
            },
        }
    }
}

fn draw<T: Copy>(of: impl IntoIterator<Item = (T, u64)> + Clone, random: &mut Random) -> T {
    let mut at = random.below(of.clone().into_iter().map(|(_, share)| share).sum());
    for (what, share) in of {
        if at < share {
            return what;
        }
        at -= share;
    }
    unreachable!("shares end above what is drawn below their sum")
}

/// An address in nested networks: `n` networks of 16 bits or more, with some subnets each, with some hosts each.
fn address(n: u64, random: &mut Random) -> u32 {
    let network = random.below(n.isqrt().max(4)) as u32;
    // Spread over the space, always the same way.
    let top = (network.wrapping_mul(0x9E37_79B1) >> 16) << 16;
    let subnet = (random.below(24) as u32).wrapping_mul(0x29) & 0xFF;
    let host = (random.below(12) as u32).wrapping_mul(0x35) & 0xFF;
    top | subnet << 8 | host
}

fn ports(shares: [u64; 4], services: &[u16], random: &mut Random) -> RangeInclusive<u16> {
    let service = services[random.below(services.len() as u64) as usize];
    match draw(shares.into_iter().enumerate(), random) {
        0 => ALL_PORTS,
        1 => 1024..=u16::MAX,
        2 => service..=service,
        _ => service..=service.saturating_add(1 + random.below(200) as u16),
    }
}

/// `n` rules, no two with the same pattern.
pub fn generate(kind: Kind, n: usize, seed: u64) -> Vec<Rule> {
    let mut random = Random::new(seed ^ 0x7275_6c65 ^ (kind as u64) << 40);
    let shares = kind.shares();
    let services: Vec<u16> = [20, 21, 22, 23, 25, 53, 67, 80, 110, 123, 135, 139, 143, 161, 389, 443, 445, 1433, 1521]
        .into_iter()
        .chain((0..80).map(|_| random.below(20_000) as u16))
        .collect();
    let mut rules: Vec<Rule> = Vec::with_capacity(n);
    let mut known = HashSet::new();
    while rules.len() < n {
        let prefix = |at: usize, random: &mut Random| {
            let len = draw(shares.lens[at].iter().copied(), random);
            Prefix::new(IpAddr::V4(address(n as u64, random).into()), len)
        };
        let [source, destination] = [0, 1].map(|at| prefix(at, &mut random));
        let protocols = [Some(6), Some(17), Some(1), None].into_iter().zip(shares.protocols);
        let protocol = draw(protocols, &mut random);
        let has_ports = matches!(protocol, Some(6 | 17));
        let mut of = |at: usize| if has_ports { ports(shares.ports[at], &services, &mut random) } else { ALL_PORTS };
        let [source_ports, destination_ports] = [0, 1].map(&mut of);
        let value = rules.len() as u32 + 1;
        let rule = Rule { source, destination, source_ports, destination_ports, protocol, priority: 0, value };
        if known.insert(Rule { value: 0, ..rule.clone() }) {
            rules.push(Rule { priority: (n - rules.len()) as u32, ..rule });
        }
    }
    rules
}

/// A rule as a line of ClassBench.
pub(crate) fn classbench(rule: &Rule) -> String {
    let prefix = |prefix: Prefix| format!("{}/{}", prefix.v4(), prefix.len());
    let ports = |ports: &RangeInclusive<u16>| format!("{} : {}", ports.start(), ports.end());
    let (protocol, mask) = rule.protocol.map_or((0, 0), |protocol| (protocol, 0xFF));
    let [source, destination] = [rule.source, rule.destination].map(prefix);
    let [from, to] = [&rule.source_ports, &rule.destination_ports].map(ports);
    format!("@{source} {destination} {from} {to} {protocol:#04x}/{mask:#04X}")
}

/// `n` flows, each of a random rule: any address, port and protocol of it.
pub fn flows(rules: &[Rule], n: usize, seed: u64) -> Vec<Fields> {
    let mut random = Random::new(seed ^ 0x666c_6f77);
    let mut within = |start: u32, n_more: u32| start + (random.next_u64() % (u64::from(n_more) + 1)) as u32;
    let mut flow = |at: usize| {
        let rule = &rules[at];
        let mut address = |prefix: Prefix| {
            let hosts = u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            within(prefix.v4().to_bits(), hosts)
        };
        let addresses = [address(rule.source), address(rule.destination)];
        let mut port = |ports: &RangeInclusive<u16>| {
            within((*ports.start()).into(), u32::from(ports.end() - ports.start())) as u16
        };
        let ports = [port(&rule.source_ports), port(&rule.destination_ports)];
        Fields { addresses, ports, protocol: rule.protocol.unwrap_or(6) }
    };
    let mut choice = Random::new(seed ^ 0x6f72_6472);
    (0..n).map(|_| flow(choice.below(rules.len() as u64) as usize)).collect()
}
