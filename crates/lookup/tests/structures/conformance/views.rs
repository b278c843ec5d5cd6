//! One skeleton with several views: names and their places once for all switches, separate values at each switch.
//!
//! [`Views`] is a control structure whose query half is that of all switches together: a lookup is for a name at a
//! switch, an update for one switch.

use std::fmt::Debug;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fibula_lookup::alien::checked::{Checksum, Marked};
use fibula_lookup::alien::named::{self, NameHash};
use fibula_lookup::alien::{BloomSet, Checked, Filtered, Named, bloom_set, checked, filtered};
use fibula_lookup::bloom::Standard;
use fibula_lookup::bloom_fib::{self, Form, Policy};
use fibula_lookup::cuckoo::exact::{self, CuckooSkeleton};
use fibula_lookup::cuckoo::filtable::{self, FiltableSkeleton};
use fibula_lookup::hash::{Digest, Family, SecretKey, mix64};
use fibula_lookup::line::{self, LineSkeleton};
use fibula_lookup::othello::gateway::{self, GatewaySkeleton};
use fibula_lookup::othello::{self, Graph, Option1, Sharded};
use fibula_lookup::static_map::{self, Bloomier, Entries, Orthogonal, SetSep, Sorted};
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::{Live, Oracle, bytes_of, over_bytes};
use fibula_lookup::testkit::{Rng, seed};
use fibula_lookup::traits::{
    Applied, ApplyError, Change, Control, HeldPart, Image, InsertError, Query, Replicated, SettingsOf, Skeleton,
    UpdateOf, View,
};
use fibula_lookup::tuple_space::{self, TupleSpaceSkeleton};

/// Switches.
const N_VIEWS: usize = 3;
/// Bits of a value.
const VALUE_BITS: u8 = 4;

/// The value at a switch of a name that belongs to `host`.
fn port(switch: usize, host: u64) -> u64 {
    mix64((switch as u64) << 32 | host) >> (64 - VALUE_BITS)
}

/// A skeleton that [`Views`] can drive.
trait Shared: Skeleton<Payload = u64, Key: Hash + Debug, Query: Query<Update: Debug>> {}

impl<S: Skeleton<Payload = u64, Key: Hash + Debug, Query: Query<Update: Debug>>> Shared for S {}

/// A skeleton and the views of all switches.
struct Views<S: Shared> {
    skeleton: S,
    views: Vec<S::View>,
}

impl<S: Shared> Views<S> {
    fn new(settings: &SettingsOf<S>) -> Self {
        let skeleton = S::build(settings, &[], 1).unwrap();
        let view = |switch| S::View::export(&skeleton, |host| port(switch, host)).unwrap().0;
        let views = (0..N_VIEWS).map(view).collect();
        Self { skeleton, views }
    }

    fn emit(&mut self, change: &Change, updates: &mut Vec<(usize, UpdateOf<S>)>) -> Result<(), InsertError> {
        for (switch, view) in self.views.iter_mut().enumerate() {
            let mut own = Vec::new();
            view.updates(&self.skeleton, change, |host| port(switch, host), &mut own)?;
            updates.extend(own.into_iter().map(|update| (switch, update)));
        }
        Ok(())
    }

    /// The query structure of a switch that has all updates.
    fn query(&self, switch: usize) -> S::Query {
        let view = &self.views[switch];
        let image = |(slot, held): (u32, HeldPart)| {
            view.image(&self.skeleton, slot, |host| port(switch, host)).unwrap().under(held.version)
        };
        let images: Vec<_> = view.held(&self.skeleton).into_iter().map(image).collect();
        S::Query::from_own(self.skeleton.settings(), &images)
    }
}

impl<S: Shared> Control for Views<S> {
    type Key = S::Key;
    type Query = Switches<S::Query>;

    fn insert(&mut self, name: S::Key, host: u64, updates: &mut Vec<(usize, UpdateOf<S>)>) -> Result<(), InsertError> {
        let change = self.skeleton.insert(name, host)?;
        self.emit(&change, updates)
    }

    fn insert_batch(
        &mut self,
        entries: &[(S::Key, u64)],
        updates: &mut Vec<(usize, UpdateOf<S>)>,
    ) -> Result<(), InsertError> {
        let change = self.skeleton.insert_batch(entries)?;
        self.emit(&change, updates)
    }

    fn remove(&mut self, name: S::Key, updates: &mut Vec<(usize, UpdateOf<S>)>) -> bool {
        let n_before = self.skeleton.len();
        let change = self.skeleton.remove(name);
        self.emit(&change, updates).unwrap();
        self.skeleton.len() < n_before
    }

    fn get(&self, name: S::Key) -> Option<u64> {
        self.skeleton.get(name)
    }

    fn export(&self) -> Switches<S::Query> {
        Switches((0..N_VIEWS).map(|switch| self.query(switch)).collect())
    }

    fn len(&self) -> usize {
        self.skeleton.len()
    }
}

/// The query structures of all switches.
struct Switches<Q>(Vec<Q>);

impl<Q: Query> Query for Switches<Q> {
    type Key = (usize, Q::Key);
    type Update = (usize, Q::Update);

    fn lookup(&self, (switch, name): (usize, Q::Key)) -> u64 {
        self.0[switch].lookup(name)
    }

    fn lookup_batch(&self, keys: &[(usize, Q::Key)], values: &mut [u64]) {
        for (switch, query) in self.0.iter().enumerate() {
            let (places, names): (Vec<usize>, Vec<Q::Key>) =
                (0..).zip(keys).filter(|(_, key)| key.0 == switch).map(|(at, key)| (at, key.1)).unzip();
            let mut found = vec![0; names.len()];
            query.lookup_batch(&names, &mut found);
            places.into_iter().zip(found).for_each(|(at, found)| values[at] = found);
        }
    }

    fn apply(&mut self, (switch, update): &(usize, Q::Update)) -> Result<Applied, ApplyError> {
        self.0[*switch].apply(update)
    }

    fn size_bits(&self) -> u64 {
        self.0.iter().map(Query::size_bits).sum()
    }
}

/// Every live name has the value of its host at each switch: that of [`port`] for the switch's number plus this one.
struct Ports(usize);

impl<S: Shared> Oracle<Views<S>> for Ports {
    fn probes(&self, name: S::Key, _rng: &mut Rng) -> Vec<(usize, S::Key)> {
        (0..N_VIEWS).map(|switch| (switch, name)).collect()
    }

    fn expected(&self, control: &Views<S>, live: &Live<Views<S>>, (switch, name): (usize, S::Key)) -> Option<u64> {
        let dropped = || control.skeleton.must_drop(name).then_some(0);
        live.get(&name).map(|&host| port(switch + self.0, host)).or_else(dropped)
    }

    fn state(&self, query: &Switches<S::Query>) -> Vec<u8> {
        query.0.iter().flat_map(bytes_of).collect()
    }

    fn carried(
        &self,
        query: &Switches<S::Query>,
        (switch, update): &(usize, UpdateOf<S>),
    ) -> Option<(usize, UpdateOf<S>)> {
        Some((*switch, over_bytes(&query.0[*switch], update)?))
    }
}

fn secret() -> SecretKey {
    SecretKey::from_seed(1)
}

fn digest(number: u64) -> Digest {
    Digest(mix64(number))
}

fn name(number: u64) -> [u64; 1] {
    [mix64(number) >> 16]
}

fn othello(max_names: usize) -> othello::Settings {
    othello::Settings::new(VALUE_BITS, max_names, &secret())
}

fn exact_names(max_names: usize, value_bits: u8) -> exact::Settings {
    exact::Settings::new(6, value_bits, max_names, Family::MulAdd, &secret())
}

fn bloom_fib(max_names: usize, policy: Policy, form: Form) -> bloom_fib::Settings {
    bloom_fib::Settings::new(VALUE_BITS, max_names, policy, form, &secret())
}

/// A filter of all names, as of one port.
fn front(max_names: usize) -> bloom_fib::Settings {
    bloom_fib::Settings::new(1, max_names, Policy::buffalo(0.1, 1), Form::Separate, &secret())
}

fn fixed(_max_names: usize) -> static_map::Settings {
    static_map::Settings::new(VALUE_BITS, &secret())
}

fn behind_exact_names<T>(max_names: usize, table: T) -> filtered::Settings<exact::Settings, named::Settings<T, 1>> {
    let map = NameHash::new(6, Family::MulAdd, &secret());
    filtered::Settings { filter: exact_names(max_names, 1), table: named::Settings { table, map } }
}

/// For each skeleton: its settings for a number of names, the key of a number, and how many names and operations.
macro_rules! skeletons {
    ($($test:ident: $skeleton:ty, $settings:expr, $key:expr, $scopes:expr;)*) => {$(
        #[test]
        fn $test() {
            let seed = seed();
            for (n_names, n_operations) in $scopes {
                let scope = Scope { n_operations, n_names, n_values: 40, check_every: n_operations / 5, seed };
                let mut views = Views::<$skeleton>::new(&$settings(2 * n_names as usize));
                conformance::random(&mut views, Ports(0), |number| $key(number ^ seed), &scope);
            }
        }
    )*};
}

/// Few names, many times over; and enough for several parts.
const ALL: [(u64, usize); 2] = [(10, 5_000), (6_000, 25_000)];
/// The same for structures that do more per change.
const SOME: [(u64, usize); 2] = [(10, 3_000), (1_000, 6_000)];
/// The same for structures that are rebuilt for every change.
const FEW: [(u64, usize); 2] = [(10, 300), (60, 200)];

skeletons! {
    every_switch_of_an_othello_conforms: Graph<Sharded, u64>, othello, digest, ALL;
    every_switch_of_an_othello_of_one_shard_conforms: Graph<Option1, u64>, othello, digest, SOME;
    every_switch_of_an_othello_with_fingerprints_conforms:
        Graph<Sharded, u64>, |max| othello(max).with_fingerprints(4), digest, ALL;
    every_switch_of_an_othello_that_spreads_aliens_conforms:
        Graph<Sharded, u64>, |max| othello(max).with_spread(), digest, ALL;
    every_switch_of_a_line_table_conforms:
        LineSkeleton<u64>, |max| line::Settings::new(VALUE_BITS, max, &secret()), digest, ALL;
    every_switch_of_a_filtable_conforms:
        FiltableSkeleton<u64>, |max| filtable::Settings::new(VALUE_BITS, 8, max, &secret()), digest, ALL;
    every_switch_of_a_cuckoo_table_conforms: CuckooSkeleton<1, u64>, |max| exact_names(max, VALUE_BITS), name, ALL;
    every_switch_of_a_gateway_conforms: GatewaySkeleton<1, u64>,
        |max| gateway::Settings::new(6, VALUE_BITS, max, Family::MulAdd, &secret()), name, ALL;
    every_switch_of_a_bfw_conforms:
        bloom_fib::Names<u64>, |max| bloom_fib(max, Policy::Bfw { hashes: 5 }, Form::Separate), digest, SOME;
    every_switch_of_a_buffalo_conforms: bloom_fib::Names<u64>,
        |max| bloom_fib(max, Policy::Buffalo { bits_a_name: 6, max_hashes: 8 }, Form::Separate), digest, SOME;
    every_switch_of_a_summary_cache_conforms: bloom_fib::Names<u64>,
        |max| bloom_fib(max, Policy::SummaryCache { bits_a_name: 4, hashes: 4 }, Form::Sliced), digest, SOME;
    every_switch_of_a_bgw_conforms: Filtered<CuckooSkeleton<1, ()>, Named<bloom_fib::Names<u64>, 1>>,
        |max| behind_exact_names(max, bloom_fib(max, Policy::Bfw { hashes: 5 }, Form::Separate)), name, SOME;
    every_switch_of_an_othello_behind_exact_names_conforms: Filtered<CuckooSkeleton<1, ()>, Named<Graph<Sharded, u64>, 1>>,
        |max| behind_exact_names(max, othello(max)), name, SOME;
    every_switch_of_an_othello_behind_a_bloom_filter_conforms: Filtered<BloomSet<Standard>, Graph<Sharded, u64>>,
        |max| filtered::Settings { filter: bloom_set::Settings::new(max, 0.1, &secret()), table: othello(max) }, digest, SOME;
    every_switch_of_an_othello_behind_a_filter_that_grows_conforms: Filtered<bloom_fib::Names<()>, Graph<Sharded, u64>>,
        |max| filtered::Settings { filter: front(max), table: othello(max) }, digest, SOME;
    every_switch_of_a_table_with_checksums_conforms: Checked<LineSkeleton<Marked<u64>>>,
        |max| checked::Settings {
            table: line::Settings::new(VALUE_BITS + 5, max, &secret()),
            checksum: Checksum::new(5, &secret()),
        }, digest, SOME;
    every_switch_of_a_tuple_space_conforms: TupleSpaceSkeleton<u64>,
        |max| tuple_space::Settings::new(VALUE_BITS, 0, max, Family::MulAdd, &secret()),
        |number| [mix64(number), number & 0xFF_FFFF], SOME;
    every_switch_of_a_bloomier_filter_conforms: Entries<Bloomier, u64>, fixed, digest, FEW;
    every_switch_of_a_setsep_conforms: Entries<SetSep, u64>, fixed, digest, FEW;
    every_switch_of_orthogonal_filters_conforms: Entries<Orthogonal, u64>, fixed, digest, FEW;
    every_switch_of_a_sorted_map_conforms: Entries<Sorted<1>, u64>, fixed, name, FEW;
}

#[test]
fn a_switch_with_the_values_of_another_does_not_conform() {
    let scope = Scope { n_operations: 50, n_names: 10, n_values: 40, check_every: 10, seed: 1 };
    let run = |ports| {
        let mut views = Views::<Graph<Sharded, u64>>::new(&othello(100));
        conformance::random(&mut views, ports, digest, &scope);
    };
    run(Ports(0));
    assert!(catch_unwind(AssertUnwindSafe(|| run(Ports(1)))).is_err());
}
