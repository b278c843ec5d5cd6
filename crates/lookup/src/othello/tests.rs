//! Small cases, in which everything that is rare in a real table happens often.

use super::graph::Graph;
use super::sizing::{Sharded, Sides, Tiny};
use super::update::{CellsUpdate, ShardImage, Update};
use super::{Colouring, Othello, OthelloQuery, Settings, cell_prf};
use crate::base::part::{Change, PartId};
use crate::hash::tweak::mix;
use crate::hash::{Digest, SecretKey, mix64};
use crate::testkit::conformance::{self, Scope};
use crate::testkit::oracle::Names;
use crate::testkit::{kernels, seed};
use crate::traits::{Applied, ApplyError, Control, InsertError, Query, Replicated, RestoreError, Row, Skeleton, View};

fn settings(value_bits: u8, max_names: usize, seed: u64) -> Settings {
    Settings::new(value_bits, max_names, &SecretKey::from_seed(seed))
}

/// Names that every sequence uses.
const N_NAMES: usize = 4;

/// A control half, what the query half that follows it holds, and what both must answer.
#[derive(Clone)]
struct Scene {
    graph: Graph<Tiny, u64>,
    colouring: Colouring,
    held: ShardImage,
    oracle: [Option<u64>; N_NAMES],
}

/// The answers of a query half, alone and in a batch.
fn answers(query: &OthelloQuery<Tiny>, names: &[Digest; N_NAMES]) -> [u64; N_NAMES] {
    let mut values = [0; N_NAMES];
    query.lookup_batch(names, &mut values);
    assert_eq!(values, names.map(|name| query.lookup(name)));
    values
}

impl Scene {
    /// One operation on one of four names (a value is inserted, or the name removed), and what must hold after it.
    /// `query` first gets what the scene holds.
    fn operate(&mut self, query: &mut OthelloQuery<Tiny>, names: &[Digest; N_NAMES], at: usize, value: Option<u64>) {
        self.oracle[at] = value;
        let change = if let Some(value) = value {
            self.graph.insert(names[at], value).expect("four names fit into eight cells and a stash")
        } else {
            self.graph.remove(names[at])
        };
        let mut updates = Vec::new();
        self.colouring.updates(&self.graph, &change, |value| value, &mut updates).unwrap();
        query.overwrite(std::slice::from_ref(&self.held)).expect("an image of its own");
        for update in &updates {
            match update {
                Update::Cells(update) if update.fresh => self.store_in_place(query, names, at, update),
                _ => {}
            }
            assert_eq!(query.apply(update), Ok(Applied::Applied), "{update:?}");
            assert_eq!(query.apply(update), Ok(Applied::AlreadyThere), "{update:?}");
            self.held = query.images().remove(0);
        }
        for ((name, value), answer) in names.iter().zip(self.oracle).zip(answers(query, names)) {
            if let Some(expected) = value.or_else(|| self.graph.must_drop(*name).then_some(0)) {
                assert_eq!(answer, expected, "{name:?} of {:?}", self.oracle);
            }
        }
        // Cells are canonical: after the updates they are those of a fresh colouring.
        let fresh = self.colouring.image(&self.graph, 0, |value| value).unwrap();
        assert_eq!(self.held, ShardImage { version: self.held.version, ..fresh });
    }

    /// Stores the first cells of an update. No name but the new one may see them, and the new one drops until the last
    /// cell is there. Leaves `query` as it was.
    fn store_in_place(
        &self,
        query: &mut OthelloQuery<Tiny>,
        names: &[Digest; N_NAMES],
        new: usize,
        update: &CellsUpdate,
    ) {
        let (before, seed) = (answers(query, names), self.graph.settings().seed);
        assert!(update.cells.len() <= 1 + usize::from(self.graph.settings().fingerprint_bits > 0));
        for n_stored in 1..=update.cells.len() {
            let cells = update.cells[..n_stored].to_vec();
            let turn = |digest, &(cell, value): &(u32, u64)| {
                digest ^ cell_prf(seed, cell, self.held.words[cell as usize]) ^ cell_prf(seed, cell, value)
            };
            let digest = cells.iter().fold(self.held.digest, turn);
            let part = Update::Cells(CellsUpdate { digest, cells, ..update.clone() });
            assert_eq!(query.apply(&part), Ok(Applied::Applied), "{part:?}");
            for (index, (&name, answer)) in names.iter().zip(answers(query, names)).enumerate() {
                if index == new {
                    let expected = if n_stored == update.cells.len() { self.oracle[new] } else { Some(0) };
                    assert_eq!(Some(answer), expected, "{n_stored} cells of {update:?}");
                } else if self.oracle[index].is_some() || self.graph.must_drop(name) {
                    assert_eq!(answer, before[index], "{n_stored} cells of {update:?} changed another name");
                }
            }
            query.overwrite(std::slice::from_ref(&self.held)).expect("an image of its own");
        }
    }

    /// Runs all sequences of `depth` more operations. Returns how many.
    fn explore(&self, query: &mut OthelloQuery<Tiny>, names: &[Digest; N_NAMES], depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        // Remove, insert with value 0 (drop) and with value 1.
        let operations = (0..12).map(|operation| (operation / 3, (operation as u64 % 3).checked_sub(1)));
        let after = operations.map(|(name, value)| {
            let mut scene = self.clone();
            scene.operate(query, names, name, value);
            scene.explore(query, names, depth - 1)
        });
        after.sum()
    }
}

fn explore(settings: Settings, depth: u32) {
    let names = [1, 2, 3, 4].map(|name| Digest(mix64(name)));
    let graph = Graph::<Tiny, u64>::new(settings);
    let (colouring, mut images) = Colouring::export(&graph, |value| value).unwrap();
    let held = images.remove(0);
    let mut query = OthelloQuery::from_own(graph.settings(), std::slice::from_ref(&held));
    let scene = Scene { graph, colouring, held, oracle: [None; N_NAMES] };
    assert_eq!(scene.explore(&mut query, &names, depth as usize), 12usize.pow(depth));
}

#[test]
fn every_sequence_of_six_operations_on_four_names_over_four_cells_a_side_conforms() {
    explore(settings(64, 100, 3), 6);
}

#[test]
fn every_sequence_of_operations_conforms_with_fingerprints_and_with_the_emptiness_indicator_alone() {
    explore(settings(54, 100, 3).with_fingerprints(10), 5);
    explore(settings(63, 100, 5).with_fingerprints(1), 5);
}

#[test]
fn every_sequence_of_operations_conforms_where_aliens_are_spread() {
    explore(settings(64, 100, 7).with_spread(), 5);
}

#[test]
fn shards_that_live_on_their_stash_conform() {
    let seed = seed();
    let scope = Scope { n_operations: 200_000, n_names: 10, n_values: 1 << 16, check_every: 500, seed };
    let kinds =
        [settings(64, 100, seed), settings(40, 100, seed).with_fingerprints(24), settings(64, 100, seed).with_spread()];
    for settings in kinds {
        let names = Names::until(
            |table: &Othello<Tiny>, name| table.skeleton().must_drop(name),
            |update| matches!(update, Update::Shards(_)),
        );
        conformance::random(&mut Othello::new(settings), names, |name| Digest(mix64(name ^ seed)), &scope);
    }
}

#[test]
fn too_many_cycles_are_a_typed_error_and_change_nothing() {
    let mut table = Othello::<Tiny>::new(settings(64, 100, 1));
    let mut query = table.export();
    let mut updates = Vec::new();
    let mut n_in = 0;
    for name in 1..40 {
        let before = updates.len();
        match table.insert(Digest(mix64(name)), name, &mut updates) {
            Ok(()) => n_in += 1,
            Err(error) => {
                assert!(matches!(error, InsertError::Unsolvable { n_names, .. } if n_names == n_in + 1), "{error}");
                assert_eq!(updates.len(), before);
                break;
            }
        }
    }
    assert!((8..=15).contains(&n_in), "a forest of 8 vertices and a stash of 8 names: {n_in}");
    updates.iter().for_each(|update| assert!(query.apply(update).is_ok()));
    assert_eq!(query.stats().n_stashed, n_in - 7);
    let names: Vec<_> = (1..=64u64).map(|name| 1 + name % n_in as u64).collect();
    let digests: Vec<_> = names.iter().map(|&name| Digest(mix64(name))).collect();
    let mut values = [0; 64];
    query.lookup_batch(&digests, &mut values);
    assert_eq!(names, values, "stashed names in whole bursts");
    for (&name, &digest) in names.iter().zip(&digests) {
        assert_eq!((query.lookup(digest), table.get(digest)), (name, Some(name)));
    }
}

#[test]
fn shards_that_do_not_replace_whole_shards_exactly_once_are_refused() {
    let entries: Vec<_> = (0..20_000u64).map(|name| (Digest(mix64(name)), name & 255)).collect();
    let (_, mut query) = Othello::<Sharded>::build(settings(8, 40_000, 5), &entries, 1).unwrap();
    let shards = query.images();
    assert!(shards.len() >= 4);
    let settings = query.settings();
    let with = |image: &ShardImage, prefix: u32, depth: u8| {
        let mut image = ShardImage { id: PartId { prefix, depth }, version: 9, ..image.clone() };
        // The digest covers the id. The refusal reports the right one.
        if let Err(ApplyError::WrongDigest { got, .. }) =
            OthelloQuery::<Sharded>::from_images(&settings, &[image.clone()])
        {
            image.digest = got;
        }
        image
    };
    let depth = shards[0].id.depth;
    let good = with(&shards[0], 0, depth);
    let child = with(&shards[0], 0, depth + 1);
    let grandchild = with(&shards[0], 2, depth + 2);
    let parent = with(&shards[0], 0, depth - 1);
    let far = with(&shards[0], 7, depth + 2);
    let refused: [&[&ShardImage]; 6] =
        [&[&good, &good], &[&child], &[&good, &child], &[&child, &grandchild], &[&parent, &good], &[&child, &far]];
    for images in refused {
        let images: Vec<_> = images.iter().map(|&image| image.clone()).collect();
        let ids: Vec<_> = images.iter().map(|image| image.id).collect();
        let outcome = query.apply(&Update::Shards(images));
        assert!(matches!(outcome, Err(ApplyError::Malformed { .. })), "{ids:?}: {outcome:?}");
        assert_eq!(query.images(), shards);
    }
    // These do cover whole shards: a split two levels deep, and a merge of all of it with its neighbour.
    let great = [with(&shards[0], 2, depth + 2), with(&shards[0], 3, depth + 2)];
    query.apply(&Update::Shards(vec![child, great[1].clone(), great[0].clone()])).unwrap();
    assert_eq!(query.held().len(), shards.len() + 2);
    query.apply(&Update::Shards(vec![ShardImage { version: 10, ..parent }])).unwrap();
    assert_eq!(query.held().len(), shards.len() - 1);
}

#[test]
fn a_late_message_never_takes_back_a_newer_shard() {
    let entries: Vec<_> = (0..20_000u64).map(|name| (Digest(mix64(name)), name & 255)).collect();
    let (mut table, mut query) = Othello::<Sharded>::build(settings(8, 40_000, 5), &entries, 1).unwrap();
    let mut late = Vec::new();
    let changed: Vec<_> = entries.iter().map(|&(name, value)| (name, value ^ 1)).collect();
    table.insert_batch(&changed, &mut late).unwrap();
    let [Update::Shards(images)] = &late[..] else { panic!("one message for a bulk batch") };
    let mut newer = Vec::new();
    table.insert(entries[0].0, 77, &mut newer).unwrap();
    query.overwrite(&images[..1]).unwrap();
    let first_of_shard = entries.iter().find(|(name, _)| images[0].id.span().contains(&(name.0 >> 32))).unwrap().0;
    let mut again = Vec::new();
    table.insert(first_of_shard, 78, &mut again).unwrap();
    newer.iter().chain(&again).for_each(|update| drop(query.apply(update)));
    assert_eq!(query.lookup(first_of_shard), 78);
    assert!(matches!(query.apply(&late[0]), Err(ApplyError::Gap { .. })));
    assert_eq!(query.lookup(first_of_shard), 78);
}

#[test]
fn stored_sizes_and_tweaks_out_of_range_are_refused() {
    let mut graph = Graph::<Sharded, u64>::new(settings(8, 10, 1));
    let _ = graph.insert(Digest(5), 1);
    let rows: Vec<Row> = graph.rows().collect();
    let restored = |at: usize, bytes: &[u8]| {
        let mut rows = rows.clone();
        rows[0].value.as_mut().unwrap()[at..][..bytes.len()].copy_from_slice(bytes);
        Graph::<Sharded, u64>::restore(graph.settings(), &rows, &[(Digest(5), 1)])
    };
    let sides = |a: u32, b: u32| [a.to_le_bytes(), b.to_le_bytes()].concat();
    assert!(restored(0, &[]).is_ok());
    for (at, bytes) in
        [(0, sides(0, 0)), (0, sides(1 << 31, 1 << 31)), (0, sides(9, 9)), (8, (1u16 << 15).to_le_bytes().to_vec())]
    {
        assert!(matches!(restored(at, &bytes), Err(RestoreError::OutOfRange { .. })), "{bytes:?} at {at}");
    }
}

#[test]
fn names_that_share_more_bits_than_the_directory_sees_are_a_typed_error() {
    let names: Vec<_> = (0..30_000).map(|name| (Digest(mix64(name) >> 24), 1)).collect();
    let built = Othello::<Sharded>::build(settings(8, 40_000, 1), &names, 1);
    assert!(matches!(built.err(), Some(InsertError::Crowded { n_names: 30_000, .. })));
}

#[test]
fn equal_digests_are_found_and_named_instead_of_tried_for_ever() {
    let mut entries: Vec<_> = (1..3000).map(|name| (Digest(mix64(name)), 1)).collect();
    entries.push(entries[1234]);
    let error = Othello::<Sharded>::build(settings(8, 9000, 1), &entries, 1).err();
    assert_eq!(error, Some(InsertError::DuplicateDigest { digest: mix64(1235) }));
}

#[test]
fn limits_are_typed_errors() {
    let mut table = Othello::<Sharded>::new(settings(3, 2, 1));
    let mut updates = Vec::new();
    assert_eq!(table.insert(Digest(1), 8, &mut updates), Err(InsertError::ValueTooWide { value: 8, value_bits: 3 }));
    table.insert(Digest(1), 7, &mut updates).unwrap();
    table.insert(Digest(2), 7, &mut updates).unwrap();
    assert_eq!(table.insert(Digest(3), 1, &mut updates), Err(InsertError::TooManyNames { max: 2 }));
    // A name in the table may still change, and a removed one makes room.
    table.insert(Digest(2), 6, &mut updates).unwrap();
    assert!(table.remove(Digest(1), &mut updates));
    table.insert(Digest(3), 1, &mut updates).unwrap();
    assert_eq!(table.insert(Digest(1), 1, &mut updates), Err(InsertError::TooManyNames { max: 2 }));
}

#[test]
fn a_removed_name_never_forwards_again_while_its_tombstone_stands() {
    // One after another, with changes to other names after each removal: recolouring must not bring the action back.
    let mut table = Othello::<Sharded>::new(settings(8, 20_000, 2));
    let mut updates = Vec::new();
    let name = |n: u64| Digest(mix64(n + 77));
    for n in 0..4_000 {
        table.insert(name(n), 1 + n % 200, &mut updates).unwrap();
    }
    let mut query = table.export();
    updates.clear();
    for n in 0..2_000 {
        table.remove(name(n), &mut updates);
        table.insert(name(n + 2_000), 1 + n % 100, &mut updates).unwrap();
        updates.drain(..).for_each(|update| assert!(query.apply(&update).is_ok()));
        for removed in n.saturating_sub(150)..=n {
            if table.skeleton().must_drop(name(removed)) {
                assert_eq!(query.lookup(name(removed)), 0, "removed {removed} after {n}");
            }
        }
    }
}

#[test]
fn the_vector_loop_answers_like_the_scalar_one() {
    for (value_bits, fingerprint_bits) in
        [(8, 0), (16, 0), (32, 0), (64, 0), (4, 4), (8, 8), (15, 1), (20, 12), (40, 24)]
    {
        let entries: Vec<_> =
            (0..30_000u64).map(|name| (Digest(mix64(name)), mix64(name + 1) >> (64 - value_bits))).collect();
        let settings = settings(value_bits, 40_000, 5).with_fingerprints(fingerprint_bits);
        let (_, query) = Othello::<Sharded>::build(settings, &entries, 2).unwrap();
        let keys: Vec<_> = (0..40_003u64).map(|name| Digest(mix64(name))).collect();
        let mut values = vec![0; keys.len()];
        query.lookup_batch(&keys, &mut values);
        // Batches of 31 take the scalar loop.
        let mut scalar = vec![0; keys.len()];
        for (keys, values) in keys.chunks(31).zip(scalar.chunks_mut(31)) {
            query.lookup_batch(keys, values);
        }
        assert_eq!(values, scalar, "{value_bits} bits");
        for (index, &key) in keys.iter().enumerate() {
            assert_eq!(values[index], query.lookup(key), "name {index}, {value_bits} bits");
        }
    }
}

#[test]
fn tweaks_are_independent_tries() {
    // The share of tweaks under which a set of names is acyclic must be near sqrt(1 - c^2), also for tweaks that follow
    // a failure. A weak mix would repeat its cycles.
    let n = 4_000u64;
    let names: Vec<u64> = (0..n).map(|name| mix64(name * 3 + 1) >> 6).collect();
    let side = (n * 12 / 10) as u32;
    let sides = Sides { a: side, b: side };
    let mut outcomes = Vec::new();
    for tweak in 0..400 {
        let mut parent: Vec<u32> = (0..2 * side).collect();
        let find = |parent: &mut Vec<u32>, mut at: u32| {
            while parent[at as usize] != at {
                parent[at as usize] = parent[parent[at as usize] as usize];
                at = parent[at as usize];
            }
            at
        };
        outcomes.push(names.iter().all(|&name| {
            let (u, v) = sides.endpoints(name, tweak);
            let (u, v) = (find(&mut parent, u), find(&mut parent, v));
            parent[u as usize] = v;
            u != v
        }));
    }
    let share = |hits: usize, of: usize| hits as f64 / of as f64;
    let after_failure: Vec<bool> = outcomes.windows(2).filter(|pair| !pair[0]).map(|pair| pair[1]).collect();
    let all = share(outcomes.iter().filter(|&&hit| hit).count(), outcomes.len());
    let after = share(after_failure.iter().filter(|&&hit| hit).count(), after_failure.len());
    // 0.553 in theory. Four standard deviations of 400 and of about 180 tries.
    assert!((0.45..0.66).contains(&all), "{all}");
    assert!((0.40..0.71).contains(&after), "{after}");
    assert_ne!(mix(1, 0), mix(1, 1));
}

#[test]
fn changes_that_change_nothing_say_so() {
    let mut graph = Graph::<Sharded, u32>::new(settings(8, 10, 1));
    assert_eq!(graph.remove(Digest(5)), Change::None);
    assert!(matches!(graph.insert(Digest(5), 1), Ok(Change::Part { .. })));
    assert_eq!(graph.insert(Digest(5), 1), Ok(Change::None));
    assert!(matches!(graph.insert(Digest(5), 2), Ok(Change::Part { .. })));
    let image = OthelloQuery::<Sharded>::from_images(graph.settings(), &[]);
    assert!(image.is_err(), "no shards cover nothing");
}

#[test]
fn every_kernel_gives_the_same_answers() {
    fn check<S: super::Sizing>(settings: &Settings) {
        let value = |n: u64| mix64(n + 1) >> (64 - settings.value_bits);
        let entries: Vec<_> = (0..9_000).map(|n| (Digest(mix64(n)), value(n))).collect();
        let (_, query) = Othello::<S>::build(settings.clone(), &entries, 1).expect("9,000 names fit");
        let live: Vec<Digest> = entries.iter().map(|entry| entry.0).collect();
        kernels::agree(&query, &live);
    }
    for value_bits in [1, 5, 8, 16, 24, 32, 64] {
        for fingerprint_bits in [0, 8].into_iter().filter(|bits| value_bits + bits <= 64) {
            let settings = settings(value_bits, 9_000, seed()).with_fingerprints(fingerprint_bits);
            check::<Sharded>(&settings);
            check::<super::Option1>(&settings);
        }
    }
}

#[test]
fn every_kernel_finds_names_in_stashes() {
    // Four cells are a word of 16-bit values.
    let mut table: Othello<Tiny> = Othello::new(settings(16, 64, 1));
    let names: Vec<Digest> = (0..8).map(|n| Digest(mix64(n))).collect();
    for (value, &name) in names.iter().enumerate() {
        table.insert(name, value as u64 + 1, &mut Vec::new()).expect("eight names fit into cells and stashes");
    }
    let query = table.export();
    assert!(query.stats().n_stashed > 0, "no name is in a stash: the test shows nothing");
    kernels::agree(&query, &names);
}
