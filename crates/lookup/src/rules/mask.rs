//! The bits of a flow that a table hashes, and the choice of tables.

use std::collections::{BTreeSet, HashSet};

use super::rule::{Flow, Rule, words};

/// The first bits of each field of a flow: those that all flows of a rule share, or those that a table hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mask {
    /// Bits of the source address.
    pub source: u8,
    /// Bits of the destination address.
    pub destination: u8,
    /// Bits of the source port.
    pub source_port: u8,
    /// Bits of the destination port.
    pub destination_port: u8,
    /// Whether the protocol is among them.
    pub protocol: bool,
}

impl Mask {
    /// Bits in all.
    pub fn n_bits(self) -> u32 {
        let fields = [self.source, self.destination, self.source_port, self.destination_port];
        fields.map(u32::from).iter().sum::<u32>() + 8 * u32::from(self.protocol)
    }

    /// Whether `rule` shares all bits of this mask, so that a table with it can hold the rule.
    pub(super) fn is_in(self, rule: Self) -> bool {
        self.source <= rule.source
            && self.destination <= rule.destination
            && self.source_port <= rule.source_port
            && self.destination_port <= rule.destination_port
            && self.protocol <= rule.protocol
    }

    /// The bits as a flow.
    pub(super) fn flow<const W: usize>(self) -> Flow<W> {
        let address = |len: u8| u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        let port = |len: u8| u64::from(u16::MAX.checked_shl(16 - u32::from(len)).unwrap_or(0));
        let protocol = if self.protocol { 0xFF } else { 0 };
        Flow {
            addresses: words([self.source, self.destination].map(address)),
            rest: port(self.source_port) | port(self.destination_port) << 16 | protocol << 32,
        }
    }

    /// The four lengths and the flag, in five bytes.
    pub(super) fn bytes(self) -> [u8; 5] {
        [self.source, self.destination, self.source_port, self.destination_port, self.protocol.into()]
    }

    /// The mask of its bytes; none if a field has fewer bits.
    pub(super) fn of_bytes<const W: usize>(bytes: [u8; 5]) -> Option<Self> {
        let [source, destination, source_port, destination_port, protocol] = bytes;
        let most = if W == 1 { 32 } else { 128 };
        let fits = source.max(destination) <= most && source_port.max(destination_port) <= 16 && protocol <= 1;
        fits.then_some(Self { source, destination, source_port, destination_port, protocol: protocol == 1 })
    }

    /// A mask within `self` that rules of similar masks share, too: prefixes cut to a multiple of `step` bits, ports
    /// whole or not at all.
    pub(super) fn relaxed(self, step: u8) -> Self {
        let prefix = |len: u8| len - len % step;
        let port = |len: u8| if len == 16 { 16 } else { 0 };
        Self {
            source: prefix(self.source),
            destination: prefix(self.destination),
            source_port: port(self.source_port),
            destination_port: port(self.destination_port),
            protocol: self.protocol,
        }
    }
}

/// Bits of one step of a relaxed prefix.
pub(super) const fn step<const W: usize>() -> u8 {
    if W == 1 { 4 } else { 16 }
}

/// Masks of tables for these rules, so that no run of any table has more than `limit` of them, except for rules with the
/// same bits. Greedy: the mask that holds the most of the rules which no earlier one holds.
///
/// A rule that more than `limit` others share its bits with under every mask is left to whoever inserts it.
pub(super) fn choose<const W: usize>(rules: &[Rule], limit: usize) -> Vec<Mask> {
    let masks: Vec<Mask> = rules.iter().map(Rule::mask).collect();
    let flows: Vec<Flow<W>> = rules.iter().map(Rule::first_flow).collect();
    let mut left: Vec<u32> = (0..rules.len() as u32).collect();
    // The most rules that a mask may hold: they become fewer as others are chosen.
    let mut candidates: Vec<(usize, Mask)> =
        candidates::<W>(&masks).into_iter().map(|mask| (usize::MAX, mask)).collect();
    let (mut chosen, mut counts) = (Vec::new(), Counts::of(rules.len()));
    while !left.is_empty() {
        // As in every greedy cover: a mask whose number of long ago is less than the best number now needs no count.
        candidates.sort_unstable_by_key(|&(n_held, mask)| std::cmp::Reverse((n_held, mask)));
        let mut best = (0, Mask::default());
        for (n_held, mask) in &mut candidates {
            if *n_held <= best.0 {
                break;
            }
            *n_held = held(&left, *mask, &masks, &flows, limit, &mut counts).len();
            best = best.max((*n_held, *mask));
        }
        let holds = held(&left, best.1, &masks, &flows, limit, &mut counts);
        if holds.is_empty() {
            break;
        }
        chosen.push(best.1);
        let holds: HashSet<u32> = holds.into_iter().collect();
        left.retain(|rule| !holds.contains(rule));
    }
    chosen
}

/// The masks among which [`choose`] chooses.
fn candidates<const W: usize>(masks: &[Mask]) -> Vec<Mask> {
    let classes: BTreeSet<Mask> = masks.iter().map(|mask| mask.relaxed(step::<W>())).collect();
    let mut candidates = classes.clone();
    for mask in classes {
        // Prefixes of each class at half the resolution, one of them or none, with and without the ports.
        let prefixes = |len: u8| [len, len - len % (2 * step::<W>()), len - len % (4 * step::<W>()), 0];
        for source in prefixes(mask.source) {
            for destination in prefixes(mask.destination) {
                for ports in 0..4u8 {
                    let port = |bit: u8, len: u8| if ports >> bit & 1 == 1 { len } else { 0 };
                    let [source_port, destination_port] = [port(0, mask.source_port), port(1, mask.destination_port)];
                    let protocol = mask.protocol;
                    candidates.insert(Mask { source, destination, source_port, destination_port, protocol });
                    candidates.insert(Mask { source, destination, source_port, destination_port, protocol: false });
                }
            }
        }
    }
    candidates.into_iter().collect()
}

/// Those of the rules `left` that a table with `mask` holds, up to `limit` in a run.
fn held<const W: usize>(
    left: &[u32],
    mask: Mask,
    masks: &[Mask],
    flows: &[Flow<W>],
    limit: usize,
    counts: &mut Counts,
) -> Vec<u32> {
    counts.clear();
    let bits = mask.flow::<W>();
    let fits = |rule: &u32| {
        let at = *rule as usize;
        if !mask.is_in(masks[at]) {
            return false;
        }
        counts.next(flows[at].masked(&bits).fold()) <= limit
    };
    left.iter().copied().filter(fits).collect()
}

/// How often each key was counted: open addressing, without removals.
struct Counts(Vec<(u64, u32)>);

impl Counts {
    /// For at most `n` keys.
    fn of(n: usize) -> Self {
        Self(vec![(0, 0); (2 * n + 1).next_power_of_two()])
    }

    fn clear(&mut self) {
        self.0.fill((0, 0));
    }

    /// Counts a key once more.
    fn next(&mut self, key: u64) -> usize {
        let mask = self.0.len() - 1;
        let mut at = key as usize & mask;
        while self.0[at].1 > 0 && self.0[at].0 != key {
            at = (at + 1) & mask;
        }
        self.0[at] = (key, self.0[at].1 + 1);
        self.0[at].1 as usize
    }
}
