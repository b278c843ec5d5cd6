//! The cost of distinguishing alien names from live ones: bare Concise, behind a Bloom filter, with checksums, with
//! fingerprints in its cells, and behind an exact filter of names.
//!
//! All hold the same names; the aliens are as many other names of the same kind. Filters and checksums are configured
//! to let one alien in 2^[`RATE_BITS`] pass. Live and alien names are looked up in alternating rounds on one thread,
//! each set in a shuffled order. The bench counts what a switch would see: the share of aliens that get an action other
//! than drop. It is a little less than the share that passes, because some of those get a drop.
//!
//! Source: Fig. 12 of "Memory-efficient and Ultra-fast Network Lookup and Forwarding using Othello Hashing", section
//! VII.A. Differs: the exact filter is a (2,4)-Cuckoo of full names.

use std::time::Instant;

use lookup::alien::checked::{self, Checksum, Marked};
use lookup::alien::named::{self, NameHash};
use lookup::alien::{BloomSet, Checked, Filtered, Named, bloom_set, filtered};
use lookup::bloom::{Blocked, Layout, Standard};
use lookup::cuckoo::exact::{self, CuckooSkeleton};
use lookup::hash::{Digest, Hasher};
use lookup::othello::{self, Graph, Sharded};
use lookup::traits::{InsertError, Query, SettingsOf, Single, Skeleton};

use super::{Listener, Options, millions_per_second};
use crate::BenchError;
use crate::contestants::{Input, MAX_BATCH, bursts};
use crate::names::value_of;
use crate::report::{Row, Setting, size_text};

/// One alien in 2^this passes.
pub const RATE_BITS: u8 = 8;
/// Default lookups per run.
const LOOKUPS: u64 = 1 << 23;
/// Minimum number of queries, so that no branch predictor learns them; the maximum is 16 times this.
const MIN_QUERIES: usize = 1 << 20;

/// The contestants, all of which run when none are named.
pub const CONTESTANTS: [(&str, &str); 6] = [
    ("concise", "sharded Othello alone: any alien gets some action"),
    ("bloom", "behind a Bloom filter"),
    ("blocked-bloom", "behind a Bloom filter of one line a name"),
    ("checksum", "with a checksum of 8 bits beside the value"),
    ("fingerprint", "with 8 bits of fingerprint in the cells, the emptiness indicator among them (OFW)"),
    ("exact", "behind a (2,4)-Cuckoo of full names"),
];

/// Runs the bench: for each n one table of live names and one of aliens.
/// # Errors
/// [`BenchError`]; tables completed before the error have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    if options.threads != [1] {
        return Err(BenchError::Setting("this bench runs on one thread; use --threads 1".into()));
    }
    if options.value_bits > 64 - RATE_BITS {
        let (got, max) = (options.value_bits, 64 - RATE_BITS);
        return Err(BenchError::Setting(format!(
            "values have {got} bits; use at most {max}, which leaves room for a checksum"
        )));
    }
    let chosen = options.chosen(&CONTESTANTS)?;
    options.n.iter().try_for_each(|&n| run_size(options, &chosen, n, listener))
}

fn run_size(options: &Options, chosen: &[String], n: u64, listener: &mut dyn Listener) -> Result<(), BenchError> {
    // A longer set begins with the shorter one: the second half is the aliens.
    let all = options.names.generate(2 * n as usize, options.seed);
    let (names, aliens) = all.split_at(n as usize);
    let input = Input {
        names,
        name_len: options.names.name_len(),
        value_bits: options.value_bits,
        family: options.family,
        seed: options.seed,
        build_threads: 1,
        floor_bytes: 0,
    };
    let mut built: Vec<(&str, Box<dyn Side>)> = Vec::new();
    for name in chosen {
        listener.say(&format!("building {name} with {} names", size_text(n)));
        let side = build(name, &input).map_err(|error| input.build_error(name, error))?;
        built.push((name, side));
    }
    let n_queries = (n as usize).clamp(MIN_QUERIES, 16 * MIN_QUERIES);
    let n_queries = options.operations.map_or(n_queries, |lookups| n_queries.min(lookups as usize));
    let live = options.names.queries(names, n_queries, options.seed);
    let alien = options.names.queries(aliens, n_queries, options.seed);
    let batch = options.batch as usize;
    let mut answered = Vec::new();
    for (name, side) in &built {
        if let Some((name_of, got, expected)) = side.first_wrong(&live, batch, options.value_bits) {
            return Err(BenchError::WrongAnswer { contestant: (*name).into(), name: name_of, got, expected });
        }
        answered.push(side.n_answered(aliens, batch) as f64 / aliens.len() as f64);
    }
    let passes = options.operations.unwrap_or(LOOKUPS).div_ceil(n_queries as u64);
    let expected = live.iter().fold(0u64, |sum, &name| sum.wrapping_add(value_of(name, options.value_bits)));
    let expected = expected.wrapping_mul(passes);
    let mut samples = vec![[Vec::new(), Vec::new()]; built.len()];
    for _ in 0..options.runs {
        for ((name, side), samples) in built.iter().zip(&mut samples) {
            for (queries, samples) in [&live, &alien].into_iter().zip(samples) {
                let start = Instant::now();
                let sum = side.sum(queries, batch, passes);
                samples.push(millions_per_second(passes * queries.len() as u64, start.elapsed()));
                if std::ptr::eq(queries, &raw const live) && sum != expected {
                    return Err(BenchError::Checksum { contestant: (*name).into(), got: sum, expected });
                }
            }
        }
    }
    let names = options.names.to_string();
    let setting = Setting { n, value_bits: options.value_bits, names, threads: 1, batch: options.batch, in_flight: 1 };
    for (at, bench) in ["aliens/live", "aliens/alien"].into_iter().enumerate() {
        let rows = built.iter().zip(&samples).zip(&answered).map(|(((name, side), samples), &answered)| {
            let mut row = Row::new(bench, name, &setting, "M/s", samples[at].clone());
            row.bits_per_name = Some(side.size_bits() as f64 / n as f64);
            row.checksum = (at == 0).then_some(expected);
            row.aliens_answered = Some(answered);
            row.note = format!("{:.4} % of aliens get an action", 100.0 * answered);
            row
        });
        listener.table(&rows.collect::<Vec<_>>());
    }
    Ok(())
}

fn build(name: &str, input: &Input<'_>) -> Result<Box<dyn Side>, InsertError> {
    let (key, max_names, value_bits) = (input.secret_key(), input.names.len(), input.value_bits);
    let othello = |value_bits| othello::Settings::new(value_bits, max_names, &key);
    let by_digest = |hasher: Hasher| Names { hasher, name_len: input.name_len };
    let digests = by_digest(input.hasher());
    let name_bytes = input.name_len as u8;
    match name {
        "bloom" => {
            let settings = filtered::Settings { filter: bloom::<Standard>(input), table: othello(value_bits) };
            built::<Filtered<BloomSet<Standard>, Values>, _>(settings, digests, &input.entries())
        }
        "blocked-bloom" => {
            let settings = filtered::Settings { filter: bloom::<Blocked>(input), table: othello(value_bits) };
            built::<Filtered<BloomSet<Blocked>, Values>, _>(settings, digests, &input.entries())
        }
        "checksum" => {
            let (table, checksum) = (othello(value_bits + RATE_BITS), Checksum::new(RATE_BITS, &key));
            let settings = checked::Settings { table, checksum };
            built::<Checked<Graph<Sharded, Marked<u64>>>, _>(settings, digests, &input.entries())
        }
        "fingerprint" => {
            built::<Values, _>(othello(value_bits).with_fingerprints(RATE_BITS), digests, &input.entries())
        }
        "exact" => {
            let filter = exact::Settings::new(name_bytes, 1, max_names, input.family, &key);
            let map = NameHash::<1>::new(name_bytes, input.family, &key);
            let settings = filtered::Settings { filter, table: named::Settings { table: othello(value_bits), map } };
            let entries: Vec<_> = input.names.iter().map(|&name| ([name], value_of(name, value_bits))).collect();
            built::<Filtered<CuckooSkeleton<1, ()>, Named<Values, 1>>, _>(settings, Whole, &entries)
        }
        _ => built::<Values, _>(othello(value_bits), digests, &input.entries()),
    }
}

/// Names with their values.
type Values = Graph<Sharded, u64>;

fn bloom<L: Layout>(input: &Input<'_>) -> bloom_set::Settings<L> {
    let rate = 0.5f64.powi(RATE_BITS.into());
    bloom_set::Settings::new(input.names.len(), rate, &input.secret_key())
}

fn built<S, K>(settings: SettingsOf<S>, keys: K, entries: &[(S::Key, u64)]) -> Result<Box<dyn Side>, InsertError>
where
    S: Skeleton<Payload = u64>,
    K: Keys<Key = S::Key> + 'static,
{
    let (_, query) = Single::<S>::build(settings, entries, 1)?;
    Ok(Box::new(Contestant { query, keys }))
}

/// How names are converted to keys.
trait Keys {
    type Key: Copy;

    fn look_up(&self, names: &[u64], values: &mut [u64], look_up: impl FnOnce(&[Self::Key], &mut [u64]));
}

/// To digests.
struct Names {
    hasher: Hasher,
    name_len: usize,
}

impl Keys for Names {
    type Key = Digest;

    #[inline]
    fn look_up(&self, names: &[u64], values: &mut [u64], look_up: impl FnOnce(&[Digest], &mut [u64])) {
        let mut digests = [Digest(0); MAX_BATCH];
        let digests = &mut digests[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        look_up(digests, values);
    }
}

/// The names themselves.
struct Whole;

impl Keys for Whole {
    type Key = [u64; 1];

    #[inline]
    fn look_up(&self, names: &[u64], values: &mut [u64], look_up: impl FnOnce(&[[u64; 1]], &mut [u64])) {
        look_up(names.as_chunks().0, values);
    }
}

struct Contestant<Q, K> {
    query: Q,
    keys: K,
}

/// The loops, compiled once per contestant.
trait Side {
    fn size_bits(&self) -> u64;
    /// Sum of the answers of `passes` passes over `queries`.
    fn sum(&self, queries: &[u64], batch: usize, passes: u64) -> u64;
    /// The first query not answered by its value: name, answer, value.
    fn first_wrong(&self, queries: &[u64], batch: usize, value_bits: u8) -> Option<(u64, u64, u64)>;
    /// Names that get an answer other than drop.
    fn n_answered(&self, names: &[u64], batch: usize) -> usize;
}

impl<Q: Query, K: Keys<Key = Q::Key>> Contestant<Q, K> {
    /// Calls `then` with the names of every burst and their values.
    #[inline]
    fn bursts(&self, queries: &[u64], batch: usize, mut then: impl FnMut(&[u64], &[u64])) {
        let mut values = [0; MAX_BATCH];
        for names in bursts(queries, batch) {
            let values = &mut values[..names.len()];
            self.keys.look_up(names, values, |keys, values| self.query.lookup_batch(keys, values));
            then(names, values);
        }
    }
}

impl<Q: Query, K: Keys<Key = Q::Key>> Side for Contestant<Q, K> {
    fn size_bits(&self) -> u64 {
        self.query.size_bits()
    }

    fn sum(&self, queries: &[u64], batch: usize, passes: u64) -> u64 {
        let mut sum = 0u64;
        for _ in 0..passes {
            self.bursts(queries, batch, |_, values| {
                sum = values.iter().fold(sum, |sum, &value| sum.wrapping_add(value));
            });
        }
        sum
    }

    fn first_wrong(&self, queries: &[u64], batch: usize, value_bits: u8) -> Option<(u64, u64, u64)> {
        let mut wrong = None;
        self.bursts(queries, batch, |names, values| {
            let answers = names.iter().zip(values).map(|(&name, &got)| (name, got, value_of(name, value_bits)));
            wrong = wrong.or(answers.into_iter().find(|(_, got, expected)| got != expected));
        });
        wrong
    }

    fn n_answered(&self, names: &[u64], batch: usize) -> usize {
        let mut n_answered = 0;
        self.bursts(names, batch, |_, values| n_answered += values.iter().filter(|&&value| value != 0).count());
        n_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameSet;

    struct Tables(Vec<Row>);

    impl Listener for Tables {
        fn table(&mut self, rows: &[Row]) {
            self.0.extend_from_slice(rows);
        }
        fn say(&mut self, _: &str) {}
    }

    fn options(contestants: &[&str]) -> Options {
        Options {
            n: vec![20_000],
            contestants: contestants.iter().map(|&name| name.to_owned()).collect(),
            threads: vec![1],
            value_bits: 8,
            names: NameSet::Mac,
            runs: 1,
            batch: 32,
            in_flight: vec![1],
            seed: 1,
            family: lookup::hash::Family::MulAdd,
            operations: Some(20_000),
        }
    }

    #[test]
    fn aliens_are_answered_as_often_as_each_contestant_says() {
        let mut tables = Tables(Vec::new());
        run(&options(&[]), &mut tables).unwrap();
        assert_eq!(tables.0.len(), 2 * CONTESTANTS.len());
        let row = |name: &str| tables.0.iter().find(|row| row.contestant == name).unwrap();
        let answered = |name: &str| row(name).aliens_answered.unwrap();
        assert!(answered("concise") > 0.5 && answered("exact") == 0.0);
        for name in ["bloom", "blocked-bloom", "checksum", "fingerprint"] {
            // 1 in 256 passes: 78 of 20,000, within six standard deviations, and some get a drop.
            assert!((0.001..0.0066).contains(&answered(name)), "{name}: {}", answered(name));
        }
        let bits = |name: &str| row(name).bits_per_name.unwrap();
        assert!(bits("bloom") > bits("concise") + 11.0 && bits("checksum") > bits("concise") * 1.9);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let mut tables = Tables(Vec::new());
        let unknown = run(&options(&["tcam"]), &mut tables);
        assert!(matches!(unknown, Err(BenchError::UnknownContestant { .. })));
        let threads = run(&Options { threads: vec![2], ..options(&[]) }, &mut tables);
        assert!(matches!(threads, Err(BenchError::Setting(_))));
        let wide = run(&Options { value_bits: 60, ..options(&[]) }, &mut tables);
        assert!(matches!(wide, Err(BenchError::Setting(_))));
    }
}
