//! OFW: fingerprints and emptiness indicators, against names, removed names and aliens.

use fibula_lookup::base::part::Change;
use fibula_lookup::hash::{Digest, SecretKey, mix64};
use fibula_lookup::othello::{
    Colouring, Graph, Option1, Option2, Othello, OthelloQuery, Settings, Sharded, Sizing, Update,
};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{Applied, Control, Query, Replicated, Skeleton, View};

use super::conformance::tombstones;

fn settings(value_bits: u8, fingerprint_bits: u8, max_names: usize, seed: u64) -> Settings {
    Settings::new(value_bits, max_names, &SecretKey::from_seed(seed)).with_fingerprints(fingerprint_bits)
}

/// `everyday`, or `full` if `FIBULA_DEEP` is set.
fn deep(everyday: usize, full: usize) -> usize {
    if std::env::var_os("FIBULA_DEEP").is_some() { full } else { everyday }
}

fn run<S: Sizing>(value_bits: u8, fingerprint_bits: u8, n_names: u64, n_operations: usize, seed: u64) {
    let n_values = 1 << value_bits;
    let scope = Scope { n_operations, n_names, n_values, check_every: n_operations.div_ceil(5), seed };
    let settings = settings(value_bits, fingerprint_bits, n_names as usize * 2, seed);
    let mut table = Othello::<S>::new(settings);
    conformance::random(&mut table, tombstones(), |name| Digest(mix64(name ^ seed)), &scope);
}

#[test]
fn every_width_of_cell_conforms_in_every_sizing() {
    let seed = seed();
    for cell_bits in 2..=64u8 {
        // Every cell width, with varying shares of fingerprint.
        let fingerprint_bits = 1 + (u32::from(cell_bits) * 7 % (u32::from(cell_bits) - 1)) as u8;
        run::<Sharded>(cell_bits - fingerprint_bits, fingerprint_bits, 300, 2_000, seed);
        run::<Option1>(cell_bits - fingerprint_bits, fingerprint_bits, 300, 500, seed);
        run::<Option2>(cell_bits - fingerprint_bits, fingerprint_bits, 300, 500, seed);
    }
}

#[test]
fn fingerprints_conform_while_shards_split_and_merge() {
    let seed = seed();
    run::<Sharded>(8, 8, 12_000, deep(150_000, 2_000_000), seed);
    run::<Sharded>(6, 5, 8_000, deep(100_000, 1_000_000), seed);
}

#[test]
fn few_names_conform_under_many_operations() {
    let seed = seed();
    run::<Sharded>(2, 2, 8, deep(60_000, 1_000_000), seed);
    run::<Sharded>(2, 1, 8, deep(60_000, 1_000_000), seed);
    run::<Option1>(2, 6, 8, deep(20_000, 300_000), seed);
}

/// A table with a follower. Names are numbered from the oldest in the table.
struct Churn {
    table: Othello,
    query: OthelloQuery,
    names: std::ops::Range<u64>,
    salt: u64,
}

impl Churn {
    fn new(settings: Settings, n_names: u64, salt: u64) -> Self {
        let names = 0..n_names;
        let mut churn =
            Self { table: Othello::new(settings.clone()), query: Othello::new(settings).export(), names, salt };
        let entries: Vec<_> = (0..n_names).map(|name| (churn.digest(name), churn.value(name))).collect();
        churn.table.insert_batch(&entries, &mut Vec::new()).unwrap();
        churn.query = churn.table.export();
        churn
    }

    fn digest(&self, name: u64) -> Digest {
        Digest(mix64(name.wrapping_add(self.salt)))
    }

    fn value(&self, name: u64) -> u64 {
        mix64(name ^ self.salt ^ 0x5555) & (u64::MAX >> (64 - self.table.skeleton().settings().value_bits))
    }

    /// Removes the oldest name and adds a new one, `n` times.
    fn turn(&mut self, n: u64) {
        let mut updates = Vec::new();
        for _ in 0..n {
            let (old, new) = (self.names.start, self.names.end);
            self.names = old + 1..new + 1;
            assert!(self.table.remove(self.digest(old), &mut updates));
            self.table.insert(self.digest(new), self.value(new), &mut updates).unwrap();
            updates.drain(..).for_each(|update| assert_eq!(self.query.apply(&update), Ok(Applied::Applied)));
        }
    }
}

#[test]
fn thirty_turnovers_keep_every_name_and_every_tombstone_drops() {
    let seed = seed();
    let n_names = deep(2_500, 20_000) as u64;
    let mut churn = Churn::new(settings(8, 8, n_names as usize, seed), n_names, seed);
    for _ in 0..30 {
        churn.turn(n_names);
        for name in churn.names.clone() {
            assert_eq!(churn.query.lookup(churn.digest(name)), churn.value(name), "seed {seed}, name {name}");
        }
        let mut n_tombstones = 0;
        for tombstone in churn.table.skeleton().tombstones() {
            assert_eq!(churn.query.lookup(tombstone), 0, "seed {seed}");
            n_tombstones += 1;
        }
        // At most 5 % of all edges of a shard, tombstones included.
        assert!(n_tombstones * 20 <= n_names as usize + n_tombstones, "seed {seed}: {n_tombstones}");
        assert_eq!(churn.query.images(), churn.table.export().images(), "seed {seed}");
    }
}

#[test]
fn a_name_put_in_again_and_again_is_in_once() {
    let seed = seed();
    let mut table = Othello::<Sharded>::new(settings(8, 8, 2_000, seed));
    let mut updates = Vec::new();
    let name = |n: u64| Digest(mix64(n ^ seed));
    for round in 0..5 {
        for n in 0..1_000 {
            table.insert(name(n), (n + round) % 256, &mut updates).unwrap();
        }
    }
    for n in 0..1_000 {
        assert!(table.remove(name(n), &mut updates));
        table.insert(name(n), n % 256, &mut updates).unwrap();
    }
    assert_eq!((table.len(), table.skeleton().tombstones().count()), (1_000, 0));
    let query = table.export();
    assert!((0..1_000).all(|n| query.lookup(name(n)) == n % 256), "seed {seed}");
}

#[test]
fn a_removed_name_drops_while_its_tombstone_stands_whatever_is_recoloured() {
    let seed = seed();
    let mut churn = Churn::new(settings(8, 6, 20_000, seed), 4_000, seed);
    for _ in 0..2_000 {
        churn.turn(1);
        let newest_removed = churn.names.start;
        for removed in newest_removed.saturating_sub(100)..newest_removed {
            if churn.table.skeleton().must_drop(churn.digest(removed)) {
                assert_eq!(churn.query.lookup(churn.digest(removed)), 0, "seed {seed}, name {removed}");
            }
        }
    }
}

#[test]
fn fingerprints_tell_names_apart_wherever_these_stand() {
    // The fingerprint must not depend on the cells: aliens on the very cells of a name pass as rarely as others.
    let mut rng = Rng::new(20_260);
    let entries: Vec<_> = (0..2_000u64).map(|name| (Digest(mix64(name)), 1 + name % 4_000)).collect();
    let (bare, _) = Othello::<Sharded>::build(settings(12, 1, 3_000, 1), &entries, 1).unwrap();
    let (_, query) = Othello::<Sharded>::build(settings(12, 5, 3_000, 1), &entries, 1).unwrap();
    let bare = bare.export();
    let (mut same_cells, mut passed) = (0u32, 0u32);
    while same_cells < 100_000 {
        let alien = Digest(rng.next_u64());
        // At least on touched cells: the indicator alone lets it pass.
        if bare.lookup(alien) != 0 {
            same_cells += 1;
            passed += u32::from(query.lookup(alien) != 0);
        }
    }
    // One in 16, three standard deviations.
    assert!((6_250 - 230..6_250 + 230).contains(&passed), "{passed}");
}

#[test]
fn many_switches_share_one_graph_and_follow_it() {
    let seed = seed();
    let mut rng = Rng::new(seed);
    let mut graph = Graph::<Sharded>::new(settings(7, 9, 40_000, seed));
    let name = |n: u64| Digest(mix64(n ^ seed));
    for n in 0..9_000 {
        let _ = graph.insert(name(n), n as u32).unwrap();
    }
    let value = |switch: usize, host: u32| mix64(u64::from(host) + switch as u64) & 0x7F;
    let open = |switch| Colouring::open(&graph, |host| value(switch, host)).unwrap();
    let mut switches: Vec<_> = (0..3).map(open).collect();
    let (mut updates, mut bytes) = (Vec::new(), Vec::new());
    for step in 0..20_000 {
        let n = rng.below(15_000);
        let change =
            if rng.below(3) == 0 { graph.remove(name(n)) } else { graph.insert(name(n), n as u32 + step).unwrap() };
        for (switch, (colouring, query)) in switches.iter_mut().enumerate() {
            colouring.updates(&graph, &change, |host| value(switch, host), &mut updates).unwrap();
            for update in updates.drain(..) {
                bytes.clear();
                update.encode(graph.settings().cell_bits(), &mut bytes);
                let update = Update::decode(&bytes, graph.settings().cell_bits()).unwrap();
                assert_eq!(query.apply(&update), Ok(Applied::Applied), "seed {seed}, step {step}");
            }
        }
        assert!(!matches!(change, Change::Parts { ref slots, .. } if slots.is_empty()));
    }
    for (switch, (colouring, query)) in switches.iter().enumerate() {
        for (digest, host) in graph.iter() {
            assert_eq!(query.lookup(digest), value(switch, host), "seed {seed}");
        }
        for tombstone in graph.tombstones() {
            assert_eq!(query.lookup(tombstone), 0, "seed {seed}");
        }
        let held: Vec<_> = colouring.held(&graph).into_iter().map(|(_, held)| held).collect();
        assert_eq!(query.held(), held, "seed {seed}");
        let (_, fresh) = Colouring::open(&graph, |host| value(switch, host)).unwrap();
        let cells = |query: &OthelloQuery| query.images().into_iter().map(|shard| shard.words).collect::<Vec<_>>();
        assert_eq!(cells(query), cells(&fresh), "seed {seed}");
    }
}

#[test]
fn answers_agree_with_those_of_readers() {
    let entries: Vec<_> = (0..9_000u64).map(|name| (Digest(mix64(name)), name & 255)).collect();
    let (_, query) = Othello::<Sharded>::build(settings(8, 8, 20_000, 3), &entries, 1).unwrap();
    let keys: Vec<_> = (0..20_000).map(|name| Digest(mix64(name))).collect();
    let mut answers = [vec![0; keys.len()], vec![0; keys.len()]];
    query.lookup_batch(&keys, &mut answers[0]);
    query.reader().pin().lookup_batch(&keys, &mut answers[1]);
    assert!(answers[0] == answers[1]);
    assert!(answers[0][..9_000].iter().zip(&entries).all(|(answer, entry)| *answer == entry.1));
    let passed = answers[0][9_000..].iter().filter(|&&value| value != 0).count();
    assert!(passed < 100, "{passed} of 11,000 aliens, 27 expected");
}
