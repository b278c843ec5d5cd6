//! The contestants: each holds a set of names with values and answers bursts of names.
//!
//! To add one, implement [`Contestant`] and, for its readers, [`Burst`]; list it in [`ALL`].

mod as_published;
mod bfw_calls;
mod bloom;
mod concise;
mod cuckoo;
pub(crate) mod dpdk;
mod floor;
mod gateway;
mod header;
mod line;
mod orthogonal;
mod parts;
mod published;
mod statics;
mod table;
mod valid;

use std::fmt;

use crate::BenchError;
use crate::names::value_of;
use ::lookup::base::arena::{Arena, LINE};
use ::lookup::base::prefetch::{BURST, prefetch};
use ::lookup::base::touches::Touch;
use ::lookup::hash::{Digest, Family, Hasher, SecretKey};
use ::lookup::publish::ring::Ring;
use ::lookup::traits::{BatchReader, Replicated};

pub(crate) use bloom::bloom_settings;
pub(crate) use cuckoo::{filtable_settings, query as cuckoo_query};
#[cfg(feature = "dpdk")]
pub(crate) use dpdk::Hash as RteHash;
pub(crate) use dpdk::start as start_dpdk;
pub(crate) use parts::names as parts;

/// The largest burst.
pub const MAX_BATCH: usize = 256;

/// What a contestant is built from.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// Distinct names; the value of each is its [`value_of`].
    pub names: &'a [u64],
    /// Bytes of a name.
    pub name_len: usize,
    /// Bits of a value, 1 to 64.
    pub value_bits: u8,
    /// The digest family of structures that take digests.
    pub family: Family,
    /// Seed of the secret key and of the structures' own randomness.
    pub seed: u64,
    /// Threads to build with, if a structure can use them.
    pub build_threads: usize,
    /// Size of the floor's arrays in bytes.
    pub floor_bytes: usize,
}

impl Input<'_> {
    /// The hasher of contestants that take digests.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.family, &self.secret_key())
    }

    /// The secret key derived from the seed.
    pub fn secret_key(&self) -> SecretKey {
        SecretKey::from_seed(self.seed)
    }

    /// Digest and value of each name, in order.
    pub fn entries(&self) -> Vec<(Digest, u64)> {
        let mut entries = vec![(Digest(0), 0); self.names.len()];
        let chunk = self.names.len().div_ceil(self.build_threads.max(1)).max(1);
        std::thread::scope(|scope| {
            for (names, entries) in self.names.chunks(chunk).zip(entries.chunks_mut(chunk)) {
                scope.spawn(move || {
                    let hasher = self.hasher();
                    let mut digests = [Digest(0); MAX_BATCH];
                    for (names, entries) in names.chunks(MAX_BATCH).zip(entries.chunks_mut(MAX_BATCH)) {
                        let digests = &mut digests[..names.len()];
                        hasher.digest_words(names, self.name_len, digests);
                        for ((entry, &digest), &name) in entries.iter_mut().zip(digests.iter()).zip(names) {
                            *entry = (digest, value_of(name, self.value_bits));
                        }
                    }
                });
            }
        });
        entries
    }

    pub(crate) fn build_error(&self, contestant: &str, reason: impl std::fmt::Display) -> BenchError {
        let n = self.names.len() as u64;
        BenchError::Build { contestant: contestant.into(), n, reason: reason.to_string() }
    }

    /// The value of each name, in order.
    pub fn values(&self) -> Vec<u64> {
        self.names.iter().map(|&name| value_of(name, self.value_bits)).collect()
    }
}

/// A structure that holds the names of an [`Input`].
pub trait Contestant {
    /// Memory that lookups need, in bits.
    fn size_bits(&self) -> u64;

    /// A reader for one thread.
    fn reader(&self) -> Box<dyn Reader + '_>;

    /// Whether lookups return the values of the names; only the floor does not.
    fn answers(&self) -> bool {
        true
    }

    /// Reports to `touch` what a lookup of `name` reads, if the structure supports it: see [`::lookup::base::touches`].
    fn touches(&self, _name: u64, _touch: &mut dyn FnMut(Touch)) {}

    /// A remark for the table.
    fn note(&self) -> String {
        String::new()
    }
}

/// Answers bursts of names. Readers of contestants implement this; the timed loop around it is compiled once per
/// contestant, so that it contains no indirect call.
pub trait Burst {
    /// Writes the values of `names`, at most [`MAX_BATCH`], to `values`, which has the same length.
    fn lookup(&mut self, names: &[u64], values: &mut [u64]);

    /// Whether a burst can be in flight while others begin and finish.
    fn has_phases(&self) -> bool {
        false
    }

    /// Begins a burst of at most [`BURST`] names, as [`BatchReader::begin`].
    fn begin(&mut self, names: &[u64]) {
        let _ = names;
    }

    /// Finishes the oldest burst in flight, as [`BatchReader::finish`].
    fn finish(&mut self, names: &[u64], values: &mut [u64]) {
        self.lookup(names, values);
    }
}

/// A reader of digests, pinned once per burst, as in a worker of a switch; it first hashes the names of the burst.
struct Hashed<'a, R> {
    reader: R,
    hasher: &'a Hasher,
    name_len: usize,
    digests: [Digest; MAX_BATCH],
    in_flight: Ring<[Digest; BURST]>,
}

impl<'a, R> Hashed<'a, R> {
    fn new(reader: R, hasher: &'a Hasher, name_len: usize) -> Self {
        let in_flight = Ring::new(|_| [Digest(0); BURST]);
        Self { reader, hasher, name_len, digests: [Digest(0); MAX_BATCH], in_flight }
    }
}

impl<R: BatchReader<[Digest]>> Burst for Hashed<'_, R> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        let digests = &mut self.digests[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        self.reader.lookup_batch(digests, values);
    }

    fn has_phases(&self) -> bool {
        self.reader.has_phases()
    }

    #[inline]
    fn begin(&mut self, names: &[u64]) {
        let digests = &mut self.in_flight.push()[..names.len()];
        self.hasher.digest_words(names, self.name_len, digests);
        self.reader.begin(digests);
    }

    #[inline]
    fn finish(&mut self, names: &[u64], values: &mut [u64]) {
        let digests = &self.in_flight.pop()[..names.len()];
        self.reader.finish(digests, values);
    }
}

/// A structure that takes whole names.
struct Whole<Q>(Q);

impl<Q: Replicated<Key = [u64; 1]>> Contestant for Whole<Q> {
    fn size_bits(&self) -> u64 {
        self.0.size_bits()
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(WholeReader(self.0.reader()))
    }
}

/// A reader of whole names, pinned once per burst, as in a worker of a switch.
struct WholeReader<R>(R);

impl<R: BatchReader<[[u64; 1]]>> Burst for WholeReader<R> {
    #[inline]
    fn lookup(&mut self, names: &[u64], values: &mut [u64]) {
        self.0.lookup_batch(names.as_chunks().0, values);
    }

    fn has_phases(&self) -> bool {
        self.0.has_phases()
    }

    #[inline]
    fn begin(&mut self, names: &[u64]) {
        self.0.begin(names.as_chunks().0);
    }

    #[inline]
    fn finish(&mut self, names: &[u64], values: &mut [u64]) {
        self.0.finish(names.as_chunks().0, values);
    }
}

/// How queries are put to a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Names per call.
    pub batch: usize,
    /// Bursts in flight: with more than one, a burst is finished after the next ones are begun.
    pub in_flight: usize,
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names a call, {} in flight", self.batch, self.in_flight)
    }
}

impl Calls {
    /// Bursts of `batch` names, `in_flight` of them at a time.
    pub(crate) fn new(batch: u32, in_flight: u32) -> Self {
        Self { batch: batch as usize, in_flight: in_flight as usize }
    }
}

/// The loops over a whole array of queries.
pub trait Reader: Send {
    /// Whether bursts can be in flight.
    fn has_phases(&self) -> bool;

    /// Sum of the answers of `passes` passes over `queries`.
    fn sum(&mut self, queries: &[u64], calls: Calls, passes: u64) -> u64;

    /// The first query not answered by its value: name, answer, value.
    fn first_wrong(&mut self, queries: &[u64], calls: Calls, value_bits: u8) -> Option<(u64, u64, u64)>;
}

impl<B: Burst + Send> Reader for B {
    fn has_phases(&self) -> bool {
        Burst::has_phases(self)
    }

    fn sum(&mut self, queries: &[u64], calls: Calls, passes: u64) -> u64 {
        sum(self, queries, calls, passes)
    }

    fn first_wrong(&mut self, queries: &[u64], calls: Calls, value_bits: u8) -> Option<(u64, u64, u64)> {
        first_wrong(self, queries, calls, value_bits)
    }
}

/// The same structure in a file of /dev/shm, as a switch shows its table.
fn shared<Q: Replicated>(contestant: &'static str, query: &Q) -> Result<Q, BenchError> {
    query
        .moved_to(&mut |bytes| Arena::on_file(tempfile::tempfile_in("/dev/shm")?, bytes))
        .map_err(|error| BenchError::Unavailable { contestant, reason: format!("/dev/shm: {error}") })
}

/// Hands the answers to `queries` to `answers`, call by call.
#[inline(always)]
fn each_call(burst: &mut impl Burst, queries: &[u64], calls: Calls, mut answers: impl FnMut(&[u64], &[u64])) {
    let mut values = [0u64; MAX_BATCH];
    if calls.in_flight <= 1 {
        for names in bursts(queries, calls.batch) {
            let values = &mut values[..names.len()];
            burst.lookup(names, values);
            answers(names, values);
        }
        return;
    }
    let ahead = calls.in_flight - 1;
    let mut finish = |burst: &mut _, names: &[u64]| {
        let values = &mut values[..names.len()];
        Burst::finish(burst, names, values);
        answers(names, values);
    };
    let mut begun = queries.chunks(calls.batch);
    for (at, names) in bursts(queries, calls.batch).enumerate() {
        burst.begin(names);
        if at >= ahead {
            finish(burst, begun.next().expect("so many were begun"));
        }
    }
    begun.for_each(|names| finish(burst, names));
}

/// The bursts of an array of queries, each fetched well before its turn.
///
/// The queries are fetched ahead, as a network card puts packets into the cache. Otherwise a bench would measure how
/// well the hardware follows the array of queries beside random reads, which differs from run to run.
#[inline(always)]
pub(crate) fn bursts<T>(queries: &[T], batch: usize) -> impl Iterator<Item = &[T]> {
    queries.chunks(batch).inspect(|burst| fetch_ahead(burst))
}

/// Starts fetching what lies [`FETCH_AHEAD`] bytes after the beginning of `items` in their array.
#[inline(always)]
pub(crate) fn fetch_ahead<T>(items: &[T]) {
    for line in (0..size_of_val(items)).step_by(LINE) {
        prefetch(items.as_ptr().cast::<u8>().wrapping_add(FETCH_AHEAD + line));
    }
}

/// How far ahead queries are fetched: 8 bursts of 32 names of 8 bytes.
const FETCH_AHEAD: usize = 2048;

/// The timed loop: [`Reader::sum`] for any [`Burst`].
fn sum(burst: &mut impl Burst, queries: &[u64], calls: Calls, passes: u64) -> u64 {
    let mut sum = 0u64;
    for _ in 0..passes {
        each_call(burst, queries, calls, |_, values| {
            sum = values.iter().fold(sum, |sum, &value| sum.wrapping_add(value));
        });
    }
    sum
}

/// [`Reader::first_wrong`] for any [`Burst`].
fn first_wrong(burst: &mut impl Burst, queries: &[u64], calls: Calls, value_bits: u8) -> Option<(u64, u64, u64)> {
    let mut wrong = None;
    each_call(burst, queries, calls, |names, values| {
        let answers = names.iter().zip(values).map(|(&name, &got)| (name, got, value_of(name, value_bits)));
        wrong = wrong.or_else(|| answers.into_iter().find(|(_, got, expected)| got != expected));
    });
    wrong
}

/// A contestant and its name.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// Builds it. Errors say what to do.
    pub build: fn(&Input<'_>) -> Result<Box<dyn Contestant>, BenchError>,
    /// Whether it runs if no contestants are named.
    pub default: bool,
}

/// All contestants of the lookup bench, in the order of the tables.
pub const ALL: &[Kind] = &[
    floor::KIND,
    floor::ONE_LINE,
    concise::CONCISE,
    line::LINE,
    line::SHARED,
    line::FAST,
    line::SMALL,
    concise::OFW,
    header::CONCISE,
    header::OFW,
    header::LINE,
    concise::SHARED,
    concise::STATIC,
    concise::OPTION_1,
    concise::OPTION_2,
    published::KIND,
    as_published::KIND,
    cuckoo::EXACT,
    cuckoo::FILTABLE,
    gateway::OGW,
    gateway::BGW,
    bloom::BFW,
    bloom::BFW_BATCHED,
    bfw_calls::KIND,
    bloom::BUFFALO,
    bloom::SLICED,
    statics::OBF,
    orthogonal::KIND,
    statics::BLOOMIER,
    statics::SETSEP,
    statics::SORTED,
    table::KIND,
    valid::KIND,
    dpdk::HASH,
    dpdk::HASH_LF,
    dpdk::EFD,
    parts::SCALAR,
    parts::AVX2,
    parts::AVX512,
    parts::IFMA,
    floor::POSITIONS,
    concise::BEGIN,
    concise::BEGIN_PREFETCH,
    line::BEGIN,
    line::BEGIN_PREFETCH,
];

/// The contestants with these names, in the given order; the defaults if `names` is empty.
/// # Errors
/// [`BenchError::UnknownContestant`].
pub fn choose(names: &[String]) -> Result<Vec<Kind>, BenchError> {
    if names.is_empty() {
        return Ok(ALL.iter().copied().filter(|kind| kind.default).collect());
    }
    let by_name = |name: &String| {
        ALL.iter().copied().find(|kind| kind.name == name).ok_or_else(|| BenchError::UnknownContestant {
            name: name.clone(),
            known: ALL.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "),
        })
    };
    names.iter().map(by_name).collect()
}
