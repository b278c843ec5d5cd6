//! Restarts: rows and names restore the same skeleton and views, or are refused.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use fibula_lookup::base::part::PartId;
use fibula_lookup::bloom_fib::{self, Form, Names, Policy};
use fibula_lookup::cuckoo::exact::{self, CuckooSkeleton};
use fibula_lookup::cuckoo::filtable::{self, FiltableSkeleton};
use fibula_lookup::hash::{Digest, Family, SecretKey, mix64};
use fibula_lookup::line::{self, LineSkeleton, Trade};
use fibula_lookup::othello::{self, Graph, Option1, Sharded, Update};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{
    Applied, Change, Image, ImageOf, InsertError, Query, Replicated, RestoreError, Row, SettingsOf, Skeleton, UpdateOf,
    View,
};
use fibula_lookup::tuple_space::{self, TupleSpaceSkeleton};

const N_VIEWS: usize = 3;

/// The value of a payload at a switch. At the last switch, all payloads have the same value.
fn value(view: usize, payload: u32) -> u64 {
    if view == N_VIEWS - 1 { 1 } else { mix64(u64::from(payload) << 8 | view as u64) % 16 }
}

/// The stored rows of a skeleton, and the parts that changed since, by slot.
#[derive(Default)]
struct Store {
    rows: Rows,
    changed: BTreeMap<u32, PartId>,
    gone: Vec<PartId>,
}

impl Store {
    fn note(&mut self, skeleton: &impl Skeleton, change: &Change) {
        let slots = match change {
            Change::None => return,
            Change::Part { slot } => std::slice::from_ref(slot),
            Change::Parts { slots, replaced } => {
                self.changed.retain(|_, id| !replaced.contains(id));
                self.gone.extend(replaced);
                slots
            }
        };
        self.changed.extend(slots.iter().map(|&slot| (slot, skeleton.part_id(slot))));
    }

    fn take(&mut self, skeleton: &mut impl Skeleton) {
        let slots: Vec<u32> = self.changed.keys().copied().collect();
        self.gone.retain(|id| !self.changed.values().any(|changed| changed == id));
        put(&mut self.rows, skeleton.take_rows(&slots, &self.gone));
        self.changed.clear();
        self.gone.clear();
    }
}

/// Rows by their keys.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Puts rows into a store.
fn put(rows: &mut Rows, changed: impl IntoIterator<Item = Row>) {
    for Row { key, value } in changed {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}

/// The rows of a store.
fn stored(rows: &Rows) -> Vec<Row> {
    rows.iter().map(|(key, value)| Row { key: key.clone(), value: Some(value.clone()) }).collect()
}

/// All of these rows; each has a value.
fn all(rows: impl Iterator<Item = Row>) -> Rows {
    rows.map(|row| (row.key, row.value.unwrap())).collect()
}

/// A skeleton with views, each followed by a switch.
struct Network<S: Skeleton> {
    skeleton: S,
    views: Vec<S::View>,
    queries: Vec<S::Query>,
}

/// A change, and the updates of each switch.
type Told<S> = (Change, Vec<Vec<UpdateOf<S>>>);

/// One mutation.
enum Mutation<K> {
    Insert(K, u32),
    Batch(Vec<(K, u32)>),
    Remove(K),
}

impl<S: Skeleton<Payload = u32>> Network<S>
where
    UpdateOf<S>: PartialEq + Debug,
{
    fn of(skeleton: S) -> Self {
        let open = |view| S::View::open(&skeleton, |payload| value(view, payload)).unwrap();
        let (views, queries) = (0..N_VIEWS).map(open).unzip();
        Self { skeleton, views, queries }
    }

    /// A network whose views are restored from stored rows.
    fn restored(skeleton: S, rows: &[Rows]) -> Result<Self, RestoreError> {
        let (mut views, mut queries) = (Vec::new(), Vec::new());
        for (index, rows) in rows.iter().enumerate() {
            let (view, images) = S::View::restore(&skeleton, &stored(rows), |payload| value(index, payload))?;
            views.push(view);
            queries.push(S::Query::from_own(skeleton.settings(), &images));
        }
        Ok(Self { skeleton, views, queries })
    }

    /// Mutates the skeleton, and updates all switches. Returns the change, and the updates of each.
    fn mutate(&mut self, mutation: &Mutation<S::Key>) -> Result<Told<S>, InsertError> {
        let change = match mutation {
            Mutation::Insert(key, payload) => self.skeleton.insert(*key, *payload)?,
            Mutation::Batch(entries) => self.skeleton.insert_batch(entries)?,
            Mutation::Remove(key) => self.skeleton.remove(*key),
        };
        let mut all = Vec::new();
        for (index, (view, query)) in self.views.iter_mut().zip(&mut self.queries).enumerate() {
            let mut updates = Vec::new();
            view.updates(&self.skeleton, &change, |payload| value(index, payload), &mut updates)?;
            updates.iter().for_each(|update| assert_eq!(query.apply(update), Ok(Applied::Applied)));
            let held: Vec<_> = view.held(&self.skeleton).into_iter().map(|(_, held)| held).collect();
            assert_eq!(query.held(), held, "switch {index} has what its view says");
            all.push(updates);
        }
        Ok((change, all))
    }
}

/// Mutates a skeleton at random. Occasionally restarts its controller, and runs the restarted one in parallel.
pub(super) fn restored_skeleton_has_the_same_words<S>(
    settings: &SettingsOf<S>,
    key: impl Fn(u64) -> S::Key,
    n_names: u64,
    seed: u64,
) where
    S: Skeleton<Payload = u32>,
    S::Key: std::hash::Hash + Debug,
    UpdateOf<S>: PartialEq + Debug,
    ImageOf<S>: PartialEq + Debug,
{
    restored_skeleton_has_the_same_words_by::<S>(settings, key, n_names, seed, |_| {});
}

/// The same for updates that are equal after `normalise`.
fn restored_skeleton_has_the_same_words_by<S>(
    settings: &SettingsOf<S>,
    key: impl Fn(u64) -> S::Key,
    n_names: u64,
    seed: u64,
    normalise: impl Fn(&mut UpdateOf<S>),
) where
    S: Skeleton<Payload = u32>,
    S::Key: std::hash::Hash + Debug,
    UpdateOf<S>: PartialEq + Debug,
    ImageOf<S>: PartialEq + Debug,
{
    let mut rng = Rng::new(seed);
    let mut network = Network::of(S::build(settings, &[], 1).unwrap());
    let mut restarted: Option<Network<S>> = None;
    let (mut store, mut of_views, mut names) = (Store::default(), vec![Rows::new(); N_VIEWS], HashMap::new());
    // A store has all rows of a table from the start.
    store.rows = network.skeleton.rows().map(|row| (row.key, row.value.unwrap())).collect();
    let n_operations = n_names * 12;
    for operation in 0..n_operations {
        let context = || format!("seed {seed}, operation {operation}");
        let growing = (operation / (n_names * 2)).is_multiple_of(2);
        let name = key(rng.below(n_names));
        let payload = rng.below(50) as u32;
        let mutation = match rng.below(100) {
            0 if rng.below(20) == 0 => {
                Mutation::Batch((0..n_names / 2).map(|n| (key(n * 2), rng.below(50) as u32)).collect())
            }
            roll if roll < if growing { 80 } else { 25 } => Mutation::Insert(name, payload),
            _ => Mutation::Remove(name),
        };
        match &mutation {
            Mutation::Insert(name, payload) => _ = names.insert(*name, *payload),
            Mutation::Batch(entries) => names.extend(entries.iter().copied()),
            Mutation::Remove(name) => _ = names.remove(name),
        }
        let told = network.mutate(&mutation).unwrap_or_else(|error| panic!("{}: {error}", context()));
        store.note(&network.skeleton, &told.0);
        if let Some(restarted) = &mut restarted {
            let (mut old, mut new) = (told, restarted.mutate(&mutation).unwrap());
            [&mut old, &mut new].into_iter().flat_map(|told| told.1.iter_mut().flatten()).for_each(&normalise);
            assert_eq!(new.1, old.1, "{}", context());
            // Parts may be in other slots after a restart.
            assert!(S::Query::DIVIDED || new.0 == old.0, "{}", context());
        }
        assert_eq!(network.skeleton.len(), names.len(), "{}", context());
        let restart = operation % (n_operations / 23) == 0;
        if restart || rng.below(20) == 0 {
            store.take(&mut network.skeleton);
            network.views.iter_mut().zip(&mut of_views).for_each(|(view, rows)| put(rows, view.take_rows()));
        }
        if !restart {
            continue;
        }
        assert_eq!(store.rows, all(network.skeleton.rows()), "{}", context());
        network
            .views
            .iter()
            .zip(&of_views)
            .for_each(|(view, rows)| assert_eq!(*rows, all(view.rows()), "{}", context()));
        let entries: Vec<_> = names.iter().map(|(&name, &payload)| (name, payload)).collect();
        for (view, query) in network.queries.iter().enumerate() {
            let wrong = entries.iter().find(|&&(name, payload)| query.lookup(name) != value(view, payload));
            assert_eq!(wrong, None, "{}: switch {view}", context());
        }
        let skeleton = S::restore(settings, &stored(&store.rows), &entries);
        let again = skeleton.and_then(|skeleton| Network::restored(skeleton, &of_views));
        let mut again = again.unwrap_or_else(|error| panic!("{}: {error}", context()));
        for (index, (old, new)) in network.views.iter().zip(&mut again.views).enumerate() {
            let of_view = |payload| value(index, payload);
            let (held, slots) = (old.held(&network.skeleton), new.held(&again.skeleton));
            for (&(slot, held), &(new_slot, _)) in held.iter().zip(&slots) {
                // The version that the switch reports: later versions changed none of its words.
                new.set_version(new_slot, held.version);
                let before = old.image(&network.skeleton, slot, of_view).unwrap().under(held.version);
                let after = new.image(&again.skeleton, new_slot, of_view).unwrap().under(held.version);
                assert_eq!(before, after, "{}", context());
            }
            let parts = |held: Vec<(u32, _)>| held.into_iter().map(|(_, held)| held).collect::<Vec<_>>();
            assert_eq!(parts(held), parts(new.held(&again.skeleton)), "{}: nothing to send", context());
            assert_eq!(new.take_rows(), [], "{}", context());
            again.queries[index].overwrite(&network.queries[index].images()).unwrap();
        }
        let mut rows = store.rows.clone();
        put(&mut rows, again.skeleton.take_rows(&[], &[]));
        assert_eq!(rows, store.rows, "{}: a restart changes no row", context());
        restarted = Some(again);
    }
}

/// Restores from rows, some of them damaged: they are refused, or all names answer as before.
pub(super) fn damaged_rows_are_refused<S>(
    settings: &SettingsOf<S>,
    key: impl Fn(u64) -> S::Key,
    n_names: u64,
    n_rounds: usize,
    seed: u64,
) where
    S: Skeleton<Payload = u32>,
    S::Key: Debug,
{
    let mut rng = Rng::new(seed);
    let entries: Vec<_> = (0..n_names).map(|n| (key(n), n as u32 % 256)).collect();
    let mut skeleton = S::build(settings, &entries, 1).unwrap();
    for n in 0..n_names {
        _ = skeleton.insert(key(n_names + n), 1).unwrap();
        _ = skeleton.remove(key(n_names + n));
    }
    let rows: Vec<Row> = skeleton.rows().collect();
    let restored = |rows: &[Row]| S::restore(settings, rows, &entries);
    assert!(restored(&rows).is_ok());
    assert_eq!(restored(&[]).err(), Some(RestoreError::Parts));
    let mut n_refused = 0;
    for _ in 0..n_rounds {
        let mut damaged = rows.clone();
        let at = rng.below(rows.len() as u64) as usize;
        let bytes = match rng.below(8) {
            0 => &mut damaged[at].key,
            _ => damaged[at].value.as_mut().unwrap(),
        };
        let byte = rng.below(bytes.len() as u64) as usize;
        match rng.below(4) {
            0 => bytes.truncate(byte),
            1 => bytes.push(rng.below(256) as u8),
            2 => _ = damaged.swap_remove(at),
            _ => bytes[byte] ^= 1 << rng.below(8),
        }
        match restored(&damaged) {
            Err(_) => n_refused += 1,
            Ok(skeleton) => {
                let (_, query) = S::View::open(&skeleton, u64::from).unwrap();
                let wrong = entries.iter().find(|&&(name, payload)| query.lookup(name) != u64::from(payload));
                assert_eq!(wrong, None, "seed {seed}");
            }
        }
    }
    assert!(n_refused * 3 > n_rounds * 2, "seed {seed}: {n_refused} of {n_rounds} are refused");
}

/// Restores from rows that say where each name is, with one name too few and one too many.
fn other_names_are_refused<S>(settings: &SettingsOf<S>, key: impl Fn(u64) -> S::Key, n_names: u64)
where
    S: Skeleton<Payload = u32>,
{
    let entries: Vec<_> = (0..=n_names).map(|n| (key(n), 1)).collect();
    let (names, _) = entries.split_at(n_names as usize);
    let rows: Vec<Row> = S::build(settings, names, 1).unwrap().rows().collect();
    assert!(S::restore(settings, &rows, names).is_ok());
    assert!(S::restore(settings, &rows, &names[1..]).is_err(), "a slot has no name");
    assert!(S::restore(settings, &rows, &entries).is_err(), "a name has no slot");
}

fn exact_settings(name_bytes: u8, max_names: usize, seed: u64) -> exact::Settings {
    exact::Settings::new(name_bytes, 16, max_names, Family::MulAdd, &SecretKey::from_seed(seed))
}

#[test]
fn a_restored_cuckoo_table_has_the_same_words() {
    let seed = seed();
    let settings = exact_settings(6, 3_000, seed);
    restored_skeleton_has_the_same_words::<CuckooSkeleton<1>>(&settings, |n| [n], 3_000, seed);
    let settings = exact_settings(16, 500, seed);
    restored_skeleton_has_the_same_words::<CuckooSkeleton<2>>(&settings, |n| [n << 20, n], 500, seed);
}

#[test]
fn damaged_rows_of_a_cuckoo_table_are_refused() {
    let seed = seed();
    let settings = exact_settings(6, 1_500, seed);
    damaged_rows_are_refused::<CuckooSkeleton<1>>(&settings, |n| [n], 1_000, 3_000, seed);
    other_names_are_refused::<CuckooSkeleton<1>>(&settings, |n| [n], 1_000);
}

fn filtable_settings(fingerprint_bits: u8, max_names: usize, seed: u64) -> filtable::Settings {
    filtable::Settings::new(12, fingerprint_bits, max_names, &SecretKey::from_seed(seed))
}

#[test]
fn a_restored_filtable_has_the_same_words() {
    let seed = seed();
    // Short fingerprints: names go to level 2 and come back often.
    for fingerprint_bits in [4, 7, 12] {
        let settings = filtable_settings(fingerprint_bits, 2_000, seed);
        let name = |n| Digest(mix64(n ^ seed));
        restored_skeleton_has_the_same_words::<FiltableSkeleton>(&settings, name, 2_000, seed);
    }
}

#[test]
fn damaged_rows_of_a_filtable_are_refused() {
    let seed = seed();
    let settings = filtable_settings(6, 1_500, seed);
    let name = |n| Digest(mix64(n ^ seed));
    damaged_rows_are_refused::<FiltableSkeleton>(&settings, name, 1_000, 3_000, seed);
    other_names_are_refused::<FiltableSkeleton>(&settings, name, 1_000);
}

#[test]
fn a_restored_tuple_space_has_the_same_words() {
    let seed = seed();
    let settings = tuple_space::Settings::new(8, 2, 800, Family::MulAdd, &SecretKey::from_seed(seed));
    let flow = |n: u64| [n, 6 | (n & 0xFF) << 8];
    restored_skeleton_has_the_same_words::<TupleSpaceSkeleton>(&settings, flow, 800, seed);
}

/// All policies, with so few bits that exceptions are many.
fn bloom_settings(max_names: usize, seed: u64) -> impl Iterator<Item = bloom_fib::Settings> {
    let policies = [
        Policy::Bfw { hashes: 5 },
        Policy::Buffalo { bits_a_name: 6, max_hashes: 8 },
        // Counters overflow by far.
        Policy::SummaryCache { bits_a_name: 1, hashes: 32 },
    ];
    let both = |policy| [Form::Separate, Form::Sliced].map(|form| (policy, form));
    let settings =
        move |(policy, form)| bloom_fib::Settings::new(4, max_names, policy, form, &SecretKey::from_seed(seed));
    policies.into_iter().flat_map(both).map(settings)
}

#[test]
fn a_restored_bloom_forwarder_has_the_same_words() {
    let seed = seed();
    for settings in bloom_settings(3_000, seed) {
        println!("{settings:?}");
        restored_skeleton_has_the_same_words::<Names>(&settings, |n| Digest(mix64(n ^ seed)), 1_000, seed);
    }
}

/// Cells come in the order of a walk, which a restart may change.
fn sort_cells(update: &mut Update) {
    if let Update::Cells(update) = update {
        update.cells.sort_unstable();
    }
}

#[test]
fn a_restored_othello_has_the_same_words() {
    let seed = seed();
    let settings = othello::Settings::new(8, 20_000, &SecretKey::from_seed(seed));
    let name = |n| Digest(mix64(n ^ seed));
    for (settings, n_names) in [
        (settings.clone(), 5_000),
        (settings.clone().with_fingerprints(8), 5_000),
        (settings.clone().with_spread(), 500),
    ] {
        restored_skeleton_has_the_same_words_by::<Graph<Sharded>>(&settings, name, n_names, seed, sort_cells);
    }
    restored_skeleton_has_the_same_words_by::<Graph<Option1>>(&settings, name, 500, seed, sort_cells);
}

#[test]
fn damaged_rows_of_an_othello_are_refused() {
    let seed = seed();
    let settings = othello::Settings::new(8, 20_000, &SecretKey::from_seed(seed));
    damaged_rows_are_refused::<Graph<Sharded>>(&settings, |n| Digest(mix64(n ^ seed)), 6_000, 600, seed);
}

#[test]
fn a_restored_line_table_has_the_same_words() {
    let seed = seed();
    let settings = line::Settings::new(8, 40_000, &SecretKey::from_seed(seed));
    for (trade, n_names) in [(Trade::Balanced, 300), (Trade::Fast, 3_000), (Trade::Small, 20_000)] {
        let settings = settings.clone().with_trade(trade);
        restored_skeleton_has_the_same_words::<LineSkeleton>(&settings, |n| Digest(mix64(n ^ seed)), n_names, seed);
    }
}

#[test]
fn damaged_rows_of_a_line_table_are_refused() {
    let seed = seed();
    let settings = line::Settings::new(8, 40_000, &SecretKey::from_seed(seed));
    damaged_rows_are_refused::<LineSkeleton>(&settings, |n| Digest(mix64(n ^ seed)), 15_000, 600, seed);
}
