//! The choice of tables for a whole set of rules.
//!
//! Greedy: the mask that holds the most of the rules which no earlier one holds, from a grid of masks. Both the grid and the
//! masks that are chosen are bounded, so the choice takes a bounded number of steps a rule, whatever the rules
//! ([`MOST_CANDIDATES`], [`MOST_LOOKS`]).

use std::collections::BTreeSet;

use super::mask::Mask;
use super::rule::Rule;

/// The most masks among which tables are chosen. A grid with more is made coarser. With ports whole or not at all there are at
/// most 648.
const MOST_CANDIDATES: usize = 1024;
/// Times that the choice looks at each rule, at most and on average: once with each mask, and three times as often later. What
/// it has not decided then is left to anyone who inserts.
const MOST_LOOKS: usize = 4 * MOST_CANDIDATES;

/// How a layout is made: how coarse the masks are, and how many rules a run should have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The rules that a run should have at most.
    pub(super) run: usize,
    /// Bits of one step of a prefix in a mask.
    pub(super) step: u8,
    /// Whether tables hash a part of a port; else they hash ports whole or not at all.
    pub(super) parts_ports: bool,
}

impl Way {
    /// Bits of one step of a prefix for flows with `W` words of addresses.
    pub(super) const fn step<const W: usize>() -> u8 {
        if W == 1 { 4 } else { 16 }
    }

    /// The most bits that a table may hash of a rule.
    pub(super) fn finest(self, rule: &Rule) -> Mask {
        if self.parts_ports { rule.finest() } else { rule.mask() }
    }

    /// A mask within `mask` that rules of similar masks share, too.
    pub(super) fn relaxed(self, mask: Mask) -> Mask {
        relaxed(mask, self.step, if self.parts_ports { 2 } else { 16 })
    }
}

/// A mask with prefixes and ports cut to multiples of these steps.
fn relaxed(mask: Mask, step: u8, port_step: u8) -> Mask {
    let cut = |len: u8, step: u8| len - len % step;
    Mask {
        source: cut(mask.source, step),
        destination: cut(mask.destination, step),
        source_port: cut(mask.source_port, port_step),
        destination_port: cut(mask.destination_port, port_step),
        protocol: mask.protocol,
    }
}

/// Masks of tables for these rules, so that no run of any table has more than `way.run` of them, except for rules with the
/// same bits. Adds the steps that it took to `steps`.
///
/// A rule that more others share its bits with under every mask is left to anyone who inserts it.
pub(super) fn choose<const W: usize>(rules: &[&Rule], way: Way, steps: &mut u64) -> Vec<Mask> {
    let finest: Vec<Mask> = rules.iter().map(|rule| way.finest(rule)).collect();
    let mut left: Vec<u32> = (0..rules.len() as u32).collect();
    // The most rules that a mask may hold: they become fewer as others are chosen.
    let mut candidates: Vec<(usize, Mask)> =
        candidates(&finest, way).into_iter().map(|mask| (usize::MAX, mask)).collect();
    let n_keys = finest.iter().zip(rules).map(|(mask, rule)| rule.keys(&mask.flow::<W>()).count()).sum();
    let (mut chosen, mut counts) = (Vec::new(), Counts::of(n_keys));
    let mut looks = rules.len().saturating_mul(MOST_LOOKS);
    while !left.is_empty() {
        // As in every greedy cover: a mask whose number of long ago is less than the best number now needs no count.
        candidates.sort_unstable_by_key(|&(n_held, mask)| std::cmp::Reverse((n_held, mask)));
        let mut best = (0, Mask::default());
        for (n_held, mask) in &mut candidates {
            if *n_held <= best.0 || looks < left.len() {
                break;
            }
            looks -= left.len();
            *n_held = held::<W>(&left, *mask, &finest, rules, way.run, &mut counts).len();
            best = best.max((*n_held, *mask));
        }
        if best.0 == 0 {
            break;
        }
        let holds = held::<W>(&left, best.1, &finest, rules, way.run, &mut counts);
        chosen.push(best.1);
        // What it does not hold now, it would hold in longer runs only.
        candidates.retain(|&(_, mask)| mask != best.1);
        let mut holds = holds.into_iter().peekable();
        left.retain(|rule| holds.next_if_eq(rule).is_none());
    }
    *steps += (rules.len().saturating_mul(MOST_LOOKS) - looks) as u64;
    chosen
}

/// The masks among which [`choose`] chooses.
fn candidates(finest: &[Mask], way: Way) -> Vec<Mask> {
    let mut port_step = if way.parts_ports { 2 } else { 16 };
    let step = way.step;
    loop {
        let classes: BTreeSet<Mask> = finest.iter().map(|&mask| relaxed(mask, step, port_step)).collect();
        let mut candidates = classes.clone();
        for mask in classes {
            // Prefixes of each class at half the resolution, one of them or none, with and without the ports.
            let prefixes = |len: u8| [len, len - len % (2 * step), len - len % (4 * step), 0];
            for source in prefixes(mask.source) {
                for destination in prefixes(mask.destination) {
                    for ports in 0..4u8 {
                        let port = |bit: u8, len: u8| if ports >> bit & 1 == 1 { len } else { 0 };
                        let [source_port, destination_port] =
                            [port(0, mask.source_port), port(1, mask.destination_port)];
                        for protocol in [mask.protocol, false] {
                            candidates.insert(Mask { source, destination, source_port, destination_port, protocol });
                        }
                    }
                }
            }
            if candidates.len() > MOST_CANDIDATES {
                break;
            }
        }
        // With ports whole or not at all there are nine prefixes of each side at most: 648 masks.
        if candidates.len() <= MOST_CANDIDATES || port_step == 16 {
            return candidates.into_iter().collect();
        }
        port_step *= 2;
    }
}

/// Those of the rules `left` that a table with `mask` holds, up to `limit` in a run.
fn held<const W: usize>(
    left: &[u32],
    mask: Mask,
    finest: &[Mask],
    rules: &[&Rule],
    limit: usize,
    counts: &mut Counts,
) -> Vec<u32> {
    counts.clear();
    let bits = mask.flow::<W>();
    let fits = |&rule: &u32| {
        let at = rule as usize;
        if !mask.is_in(finest[at]) {
            return false;
        }
        let keys = || rules[at].keys(&bits).map(|(_, key)| key.fold());
        if keys().any(|key| *counts.of_key(key) as usize >= limit) {
            return false;
        }
        keys().for_each(|key| *counts.of_key(key) += 1);
        true
    };
    left.iter().copied().filter(fits).collect()
}

/// Number of times that each key was counted: open addressing, without removals. Each entry has the round in which it was made.
struct Counts {
    entries: Vec<(u64, u32, u32)>,
    round: u32,
}

impl Counts {
    /// For at most `n` keys.
    fn of(n: usize) -> Self {
        Self { entries: vec![(0, 0, 0); (2 * n + 1).next_power_of_two()], round: 0 }
    }

    fn clear(&mut self) {
        self.round += 1;
    }

    /// The count of a key.
    fn of_key(&mut self, key: u64) -> &mut u32 {
        let mask = self.entries.len() - 1;
        let mut at = key as usize & mask;
        while self.entries[at].1 == self.round && self.entries[at].0 != key {
            at = (at + 1) & mask;
        }
        let entry = &mut self.entries[at];
        if entry.1 != self.round {
            *entry = (key, self.round, 0);
        }
        &mut entry.2
    }
}
