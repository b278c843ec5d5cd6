//! Every structure, small, under the conformance test: a random sequence of operations, and every short one.
//!
//! The table below is the list of structures. What is large or rare in a structure is tested elsewhere.

mod mutants;
mod views;

use std::fmt::Debug;
use std::hash::Hash;

use fibula_lookup::alien::checked::{Checksum, Marked};
use fibula_lookup::alien::named::{self, NameHash};
use fibula_lookup::alien::{BloomSet, Filtered, Named, bloom_set};
use fibula_lookup::bloom::{Layout, OneHashing, Shape, Standard};
use fibula_lookup::bloom_fib::{self, BloomFib, Form, Policy};
use fibula_lookup::cuckoo::exact::{self, Cuckoo, CuckooSkeleton};
use fibula_lookup::cuckoo::filtable::{self, Filtable};
use fibula_lookup::hash::{Digest, Family, SecretKey, mix64};
use fibula_lookup::line::{self, LineSkeleton, LineTable};
use fibula_lookup::lpm::bloom::{BloomLpm, Keyed, Settings, Steps};
use fibula_lookup::lpm::trie::{self, PrefixTrie};
use fibula_lookup::othello::gateway::Gateway;
use fibula_lookup::othello::{self, Graph, Option1, Option2, Othello, Sharded};
use fibula_lookup::static_map::{self, Bloomier, Orthogonal, Rebuilt, SetSep, Sorted};
use fibula_lookup::testkit::Rng;
use fibula_lookup::testkit::conformance::{self, Scope};
use fibula_lookup::testkit::oracle::Names;
use fibula_lookup::traits::{Query, Single, Skeleton};
use fibula_lookup::tuple_space::{self, TupleSpace};

use super::alien::{checked, filtered};
use super::prefixes::numbered;
use super::tuple_space::{BestRule, Rules, pattern};
use super::{lpm, lpm_bloom};

/// The most names.
const MAX: usize = 200;

/// A removed name drops while it has a tombstone. An Othello removes the tombstones of a shard when it rebuilds it.
pub(crate) fn tombstones<S>() -> Names<Single<S>>
where
    S: Skeleton<Payload = u64, Key: Hash + Debug, Query: Query<Update = othello::Update>>,
{
    let is_new_shard = |update: &othello::Update| matches!(update, othello::Update::Shards(_));
    Names::until(|table: &Single<S>, name| table.skeleton().must_drop(name), is_new_shard).in_bytes()
}

/// A removed name of a Filtable drops while it has a tombstone; a removal may drop the oldest tombstone.
pub(crate) fn filtable() -> Names<Filtable> {
    Names::until(|table: &Filtable, name| table.skeleton().must_drop(name), |_| true).in_bytes()
}

/// An Othello behind a Bloom filter.
type BehindBloom<L> = Single<Filtered<BloomSet<L>, Graph<Sharded, u64>>>;

/// A removed name of an Othello behind a Bloom filter drops, whether the filter lets it pass or not.
pub(crate) fn behind_bloom<L: Layout>() -> Names<BehindBloom<L>> {
    Names::until(
        |pair: &BehindBloom<L>, name| pair.skeleton().must_drop(name),
        |update| matches!(update.of_table(), Some(othello::Update::Shards(_))),
    )
    .in_bytes()
}

fn secret() -> SecretKey {
    SecretKey::from_seed(1)
}

fn digest(number: u64) -> Digest {
    Digest(mix64(number + 1))
}

fn name(number: u64) -> [u64; 1] {
    [number]
}

fn othello(value_bits: u8) -> othello::Settings {
    othello::Settings::new(value_bits, MAX, &secret())
}

fn bloom_fib(policy: Policy, form: Form) -> BloomFib {
    BloomFib::new(bloom_fib::Settings::new(2, MAX, policy, form, &secret()))
}

fn fixed() -> static_map::Settings {
    static_map::Settings::new(2, &secret())
}

fn names_of_6_bytes(value_bits: u8) -> exact::Settings {
    exact::Settings::new(6, value_bits, MAX, Family::MulAdd, &secret())
}

fn named<S>(table: S) -> named::Settings<S, 1> {
    named::Settings { table, map: NameHash::new(6, Family::MulAdd, &secret()) }
}

fn lpm_settings() -> Settings<Keyed<OneHashing>> {
    let filter = Keyed::new(Shape::new(40_000, 4).unwrap(), Family::MulAdd, &secret());
    Settings { steps: Steps::few::<u32>(), filter, max_entries: 40_000, family: Family::MulAdd, key: secret() }
}

/// For each structure: a new one, its oracle, the key of a number; and the operations of the random sequence, the names
/// and the length of the short ones.
macro_rules! structures {
    ($($structure:ident: $new:expr, $oracle:expr, $key:expr, $n_operations:expr, ($n_names:expr, $depth:expr);)*) => {$(
        mod $structure {
            use super::*;

            #[test]
            fn a_random_sequence_conforms() {
                let seed = fibula_lookup::testkit::seed();
                // Miri interprets, and is far slower.
                let (n_operations, n_names) = if cfg!(miri) { (16, 8) } else { ($n_operations, 50) };
                let scope = Scope { n_operations, n_names, n_values: 4, check_every: n_operations / 8, seed };
                conformance::random(&mut $new, $oracle, $key, &scope);
            }

            #[test]
            fn every_short_sequence_conforms() {
                conformance::exhaustive(|| ($new, $oracle), $key, $n_names, 2, $depth);
            }
        }
    )*};
}

structures! {
    concise: Othello::<Sharded>::new(othello(2)), tombstones(), digest, 10_000, (3, 4);
    concise_option_1: Othello::<Option1>::new(othello(2)), tombstones(), digest, 10_000, (3, 4);
    concise_option_2: Othello::<Option2>::new(othello(2)), tombstones(), digest, 10_000, (3, 4);
    ofw: Othello::<Sharded>::new(othello(2).with_fingerprints(2)), tombstones(), digest, 10_000, (3, 4);
    spread: Othello::<Sharded>::new(othello(2).with_spread()), tombstones(), digest, 10_000, (3, 3);
    line_table: LineTable::new(line::Settings::new(2, MAX, &secret())), Names::aliens().in_bytes(), digest, 10_000, (3, 4);
    ogw: Gateway::<1>::new(names_of_6_bytes(2)), Names::exact().in_bytes(), name, 10_000, (3, 5);
    cuckoo: Cuckoo::<1>::new(names_of_6_bytes(2)), Names::exact().in_bytes(), name, 10_000, (3, 5);
    cfw: Filtable::new(filtable::Settings::new(2, 6, MAX, &secret())), filtable(), digest, 10_000, (3, 5);
    bfw: bloom_fib(Policy::Bfw { hashes: 3 }, Form::Separate), Names::aliens().in_bytes(), digest, 4_000, (3, 5);
    buffalo: bloom_fib(Policy::Buffalo { bits_a_name: 6, max_hashes: 8 }, Form::Separate),
        Names::aliens().in_bytes(), digest, 4_000, (3, 5);
    summary_cache: bloom_fib(Policy::SummaryCache { bits_a_name: 4, hashes: 4 }, Form::Sliced),
        Names::aliens().in_bytes(), digest, 4_000, (3, 5);
    bloomier: Rebuilt::<Bloomier>::new(fixed()), Names::aliens().in_bytes(), digest, 500, (3, 4);
    setsep: Rebuilt::<SetSep>::new(fixed()), Names::aliens().in_bytes(), digest, 500, (3, 4);
    orthogonal: Rebuilt::<Orthogonal>::new(fixed()), Names::aliens().in_bytes(), digest, 500, (3, 3);
    sorted: Rebuilt::<Sorted<1>>::new(fixed()), Names::exact().in_bytes(), name, 500, (3, 4);
    tss: TupleSpace::new(tuple_space::Settings::new(2, 0, MAX, Family::MulAdd, &secret())),
        Names::exact().in_bytes(), |number| [number; 2], 10_000, (3, 4);
    rules: Rules::new(2, 1), BestRule, |number| pattern(&mut Rng::new(number)), 2_000, (3, 4);
    checked: checked::<Graph<Sharded, Marked<u64>>>(othello(5), Checksum::new(3, &secret())),
        tombstones(), digest, 10_000, (3, 4);
    behind_a_bloom_filter: filtered::<BloomSet<Standard>, Graph<Sharded, u64>>(
            bloom_set::Settings::new(MAX, 0.2, &secret()),
            othello(2),
        ),
        behind_bloom(), digest, 10_000, (3, 4);
    behind_a_bloom_filter_that_grows: filtered::<bloom_fib::Names<()>, LineSkeleton<u64>>(
            bloom_fib::Settings::new(1, MAX, Policy::buffalo(0.2, 1), Form::Separate, &secret()),
            line::Settings::new(2, MAX, &secret()),
        ),
        Names::aliens().in_bytes(), digest, 4_000, (3, 4);
    behind_an_exact_filter: filtered::<CuckooSkeleton<1, ()>, Named<Graph<Sharded, u64>, 1>>(
            names_of_6_bytes(1),
            named(othello(2)),
        ),
        Names::exact().in_bytes(), name, 10_000, (3, 4);
    bgw: filtered::<CuckooSkeleton<1, ()>, Named<bloom_fib::Names<u64>, 1>>(
            names_of_6_bytes(1),
            named(bloom_fib::Settings::new(2, MAX, Policy::Bfw { hashes: 3 }, Form::Separate, &secret())),
        ),
        Names::exact().in_bytes(), name, 4_000, (3, 4);
    trie_ipv4: PrefixTrie::<u32>::new(trie::Settings::new(MAX, &secret())), lpm::oracle(), |n| numbered(n, 1), 400, (2, 3);
    trie_ipv6: PrefixTrie::<u128>::new(trie::Settings::new(MAX, &secret())),
        lpm::oracle(), |n| numbered(n, 1), 400, (2, 3);
    prefixes_behind_bloom: BloomLpm::<u32, _, 1>::new(lpm_settings()),
        lpm_bloom::oracle(&lpm_settings()), |n| numbered(n, 1), 400, (3, 3);
}
