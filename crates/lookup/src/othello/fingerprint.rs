//! OFW: an Othello whose cells also distinguish alien names from live ones. With no fingerprint it is Concise.
//!
//! ```text
//! cell:  | emptiness indicator, 1 | fingerprint, l_f - 1 | value, l_p |      l_f = 0: | value, l_p |
//! ```
//! The two cells of an edge must XOR to the value and the fingerprint of its name, so the colouring is the one of
//! Concise. The emptiness indicator belongs to the vertex: it is 1 if a name or a tombstone touches the vertex. A
//! lookup ANDs the indicators of the two cells and XORs the rest. If the indicator of the result is 0, or its
//! fingerprint is not that of the name, the name is an alien and the answer is 0 (drop). No branch depends on the
//! name. Roots have value 0 and fingerprint 0.
//!
//! * A removed name certainly drops while it has a tombstone: the tombstone's value is 0, and its fingerprint is
//!   inverted. Its indicators stay until the shard is solved without it.
//! * The fingerprint is a function of the digest alone. A rebuild, a split or another switch does not change which
//!   names share one.
//! * An alien passes with probability `2^-(l_f - 1) * (1 - e_a) * (1 - e_b)`: [`Settings::false_positive_rate`]. It
//!   then gets the XOR of some names' values, which may be 0 too. Measured over 1,000 filters of 1,000 to 2,000 names:
//!   0.1 % above the formula, because an acyclic graph touches a few more cells than a random one.
//!
//! Cost compared with Concise: l_f bits more per cell, and one multiplication per lookup. Source: Shi, Qian, Wang,
//! "Re-designing Compact-structure based Forwarding for Programmable Networks", sections IV.C and V.C.

use super::Settings;
use super::sizing::Sides;
use crate::base::cells::value_mask;

/// The multiplier of the fingerprint. It differs from that of positions (the fraction of pi, made odd).
const FINGERPRINT_MIX: u64 = 0x243F_6A88_85A3_08D3;

/// The positions of value, fingerprint and emptiness indicator in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CellFormat {
    pub(super) value_bits: u8,
    pub(super) fingerprint_bits: u8,
}

impl CellFormat {
    pub(super) fn cell_bits(self) -> u8 {
        self.value_bits + self.fingerprint_bits
    }

    pub(super) fn check(self) -> Check {
        let Self { value_bits, fingerprint_bits } = self;
        let touched = if fingerprint_bits == 0 { 0 } else { 1 << (self.cell_bits() - 1) };
        let value = value_mask(value_bits);
        let fingerprint = value_mask(self.cell_bits()) & !value & !touched;
        Check { value, fingerprint, touched, shift: u32::from(65 - self.cell_bits()) & 63 }
    }
}

/// The fields of a cell, as masks. They separate the answer for a name from that for an alien.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    /// The field of the value.
    pub(super) value: u64,
    /// The field of the fingerprint. It is also the value of a tombstone's edge, because that inverts the fingerprint.
    pub(super) fingerprint: u64,
    /// The emptiness indicator.
    pub(super) touched: u64,
    shift: u32,
}

impl Check {
    /// The fingerprint of a name, in its field.
    #[inline(always)]
    pub(super) fn fingerprint_of(self, digest: u64) -> u64 {
        ((digest ^ digest >> 32).wrapping_mul(FINGERPRINT_MIX) >> self.shift) & self.fingerprint
    }

    /// Bits that are not 0 if the two cells are not those of a name. They are 0 for every live name.
    #[inline(always)]
    fn mismatch(self, first: u64, second: u64, digest: u64) -> u64 {
        (first ^ second ^ self.fingerprint_of(digest)) & self.fingerprint | !(first & second) & self.touched
    }

    /// The value of a name from its two cells. The bits above a cell are arbitrary. 0 for an alien.
    #[inline(always)]
    pub(super) fn answer(self, first: u64, second: u64, digest: u64) -> u64 {
        let aliens = u64::from(self.mismatch(first, second, digest) != 0).wrapping_sub(1);
        (first ^ second) & self.value & aliens
    }
}

impl Settings {
    /// The probability that an alien is taken for one of `n_names` names of a shard: equation (9) of the paper.
    ///
    /// `n_names` includes tombstones. `e_a` and `e_b`, the shares of cells that no name touches, follow from the sizes
    /// of the shard.
    pub fn false_positive_rate(&self, n_names: usize, sides: Sides) -> f64 {
        let touched = |cells: u32| 1.0 - (1.0 - 1.0 / f64::from(cells)).powf(n_names as f64);
        match self.fingerprint_bits {
            0 => 1.0,
            bits => touched(sides.a) * touched(sides.b) / 2f64.powi(i32::from(bits) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::hash::{Digest, SecretKey, mix64};
    use crate::othello::{Colouring, Graph, Sharded};
    use crate::testkit::Rng;
    use crate::traits::{Query, Replicated, Skeleton, View};

    fn settings(fingerprint_bits: u8, seed: u64) -> Settings {
        Settings::new(16 - fingerprint_bits, 3_000, &SecretKey::from_seed(seed)).with_fingerprints(fingerprint_bits)
    }

    #[test]
    fn every_format_gives_values_back_and_turns_wrong_fingerprints_and_untouched_cells_into_drop() {
        for value_bits in 1..=64u8 {
            for fingerprint_bits in 0..=64 - value_bits {
                let check = CellFormat { value_bits, fingerprint_bits }.check();
                assert_eq!(check.value & check.fingerprint | check.fingerprint & check.touched, 0);
                let all = check.value | check.fingerprint | check.touched;
                assert_eq!(all, value_mask(value_bits + fingerprint_bits));
                for name in 0..4 {
                    let (digest, root) = (mix64(name + 5), mix64(name + 99) & all | check.touched);
                    let value = check.value & mix64(name + 7) | 1;
                    let other = root ^ value ^ check.fingerprint_of(digest);
                    let above = !all & mix64(name);
                    assert_eq!(check.answer(root | above, other, digest), value);
                    if fingerprint_bits > 0 {
                        assert_eq!(check.answer(root, other & !check.touched, digest), 0);
                        assert_eq!(check.answer(root & !check.touched, other & !check.touched, digest), 0);
                    }
                    if fingerprint_bits > 1 {
                        assert_eq!(check.answer(root, other ^ check.fingerprint, digest), 0, "inverted");
                        assert_eq!(check.answer(root, other ^ 1 << value_bits, digest), 0, "one bit off");
                    }
                }
            }
        }
    }

    /// Aliens asked of each filter.
    const ALIENS: u64 = 3_000;

    /// Share of aliens that pass a filter of `graph`, and what the formula says.
    fn false_positives(graph: &Graph<Sharded, u64>, rng: &mut Rng) -> (f64, f64) {
        let (_, query) = Colouring::open(graph, |value| value).unwrap();
        let shards = query.images();
        let [shard] = &shards[..] else { panic!("one shard, so that its names are known") };
        let check = graph.settings().check();
        let cell = |cell: u32| shard.words[cell as usize / 4] >> (cell % 4 * 16);
        let mut passed = 0u32;
        for _ in 0..ALIENS {
            let alien = rng.next_u64();
            let (u, v) = shard.sides.endpoints(alien, shard.tweak);
            let passes = check.mismatch(cell(u), cell(v), alien) == 0;
            passed += u32::from(passes);
            assert!(passes || query.lookup(Digest(alien)) == 0);
        }
        let n_names = graph.len() + graph.tombstones().count();
        (f64::from(passed) / ALIENS as f64, graph.settings().false_positive_rate(n_names, shard.sides))
    }

    /// Measures `n` filters and compares with the formula. The standard error includes the spread between filters.
    ///
    /// The seed is fixed, because three sigma are exceeded once in 370 seeds.
    fn compare(fingerprint_bits: u8, n: u64, mut graph: impl FnMut(Settings, &mut Rng) -> Graph<Sharded, u64>) {
        const SEED: u64 = 20_260;
        let mut rng = Rng::new(SEED);
        let samples = (0..n).map(|index| {
            let graph = graph(settings(fingerprint_bits, SEED + index), &mut rng);
            false_positives(&graph, &mut rng)
        });
        let samples: Vec<(f64, f64)> = samples.collect();
        let mean = |pick: fn(&(f64, f64)) -> f64| samples.iter().map(pick).sum::<f64>() / n as f64;
        let (measured, expected) = (mean(|s| s.0), mean(|s| s.1));
        let squares: f64 = samples.iter().map(|s| (s.0 - s.1 - measured + expected).powi(2)).sum();
        let sigma = (squares / (n - 1) as f64 / n as f64).sqrt();
        let off = (measured - expected) / sigma;
        println!(
            "seed {SEED}, l_f = {fingerprint_bits}: measured {measured:.6}, formula {expected:.6}, {off:+.2} sigma"
        );
        assert!(off.abs() < 3.0, "l_f = {fingerprint_bits}: {measured} measured, {expected} expected, {off:.2} sigma");
    }

    #[test]
    fn aliens_pass_as_often_as_the_formula_says() {
        for fingerprint_bits in [1, 2, 4, 8] {
            compare(fingerprint_bits, 1_000, |settings, rng| {
                let entries: Vec<_> =
                    (0..1_000 + rng.below(1_000)).map(|_| (Digest(rng.next_u64()), rng.below(256))).collect();
                Graph::build(&settings, &entries, 1).unwrap()
            });
        }
    }

    #[test]
    fn aliens_pass_as_often_as_the_formula_says_after_thirty_turnovers() {
        let full = std::env::var_os("FIBULA_DEEP").is_some();
        for fingerprint_bits in if full { vec![1, 4, 8] } else { vec![8] } {
            let n_names = if full { 2_000 } else { 200 };
            compare(fingerprint_bits, 1_000, |settings, rng| {
                let mut names = VecDeque::from_iter((0..n_names).map(|_| Digest(rng.next_u64())));
                let entries: Vec<_> = names.iter().map(|&name| (name, rng.below(256))).collect();
                let mut graph = Graph::build(&settings, &entries, 1).unwrap();
                for _ in 0..30 * n_names {
                    let (oldest, new) = (names.pop_front().unwrap(), Digest(rng.next_u64()));
                    names.push_back(new);
                    let _ = graph.remove(oldest);
                    let _ = graph.insert(new, rng.below(256)).unwrap();
                }
                graph
            });
        }
    }
}
