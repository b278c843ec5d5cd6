//! Lookups per second by the length of names.
//!
//! The benches' names have at most 8 bytes; these have up to 64. They are contiguous in the order in which they are
//! looked up, as headers are in a ring of buffers: a query is the number of a name. Structures of digests hash its
//! bytes; exact ones compare its words. Timed and checked by [`crate::bench::lookup`].

use hashbrown::HashMap;
use lookup::cuckoo::exact::{self, Cuckoo};
use lookup::hash::{Digest, Family, Hasher, SecretKey};
use lookup::line::{self, LineTable};
use lookup::othello::{self, Option2, Othello, Sharded, Sizing};
use lookup::traits::{BatchReader, Control, Query, Replicated};
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::Options;
use crate::bench::lookup::{Queries, side_by_side};
use crate::contestants::{Burst, Contestant, MAX_BATCH, Reader};
use crate::figures::Point;
use crate::names::{NameSet, mix64, value_of};

pub(super) const METHODS: &[Method] = &[Method {
    name: "name-length",
    about: "lookups a second, in M/s, of names of 4 to 64 bytes; concise, concise-option2, line, cuckoo, hashbrown",
    check,
    run,
    toy: "n = 2000\nruns = 1\noperations = 4096\nthreads = 1",
}];

/// The contestants that series may name.
const CONTESTANTS: [&str; 5] = ["concise", "concise-option2", "line", "cuckoo", "hashbrown"];

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    name_bytes: usize,
    n: u64,
    value_bits: u8,
    threads: u32,
    batch: u32,
    runs: u32,
    operations: Option<u64>,
}

fn check(setting: &Setting) -> Result<(), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    if !(4..=64).contains(&parameters.name_bytes) {
        return Err(BenchError::Setting(format!("names have {} bytes; use 4 to 64", parameters.name_bytes)));
    }
    for contestant in setting.contestants() {
        if !CONTESTANTS.contains(&&*contestant) {
            return Err(BenchError::UnknownContestant { name: contestant, known: CONTESTANTS.join(", ") });
        }
    }
    options(setting, &parameters).check()
}

fn options(setting: &Setting, parameters: &Parameters) -> Options {
    Options {
        n: vec![parameters.n],
        contestants: setting.contestants(),
        threads: vec![parameters.threads],
        value_bits: parameters.value_bits,
        names: NameSet::Uniform,
        runs: parameters.runs,
        batch: parameters.batch,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::MulAdd,
        operations: parameters.operations,
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    match parameters.name_bytes.div_ceil(8) {
        1 => measure::<1>(setting, &parameters, progress),
        2 => measure::<2>(setting, &parameters, progress),
        3 => measure::<3>(setting, &parameters, progress),
        4 => measure::<4>(setting, &parameters, progress),
        5 => measure::<5>(setting, &parameters, progress),
        6 => measure::<6>(setting, &parameters, progress),
        7 => measure::<7>(setting, &parameters, progress),
        _ => measure::<8>(setting, &parameters, progress),
    }
}

fn measure<const W: usize>(
    setting: &Setting,
    parameters: &Parameters,
    progress: &mut dyn Progress,
) -> Result<Vec<Point>, BenchError> {
    let key = SecretKey::from_seed(setting.seed);
    let names = Names::<W>::new(parameters.n as usize, parameters.name_bytes, Hasher::new(Family::MulAdd, &key));
    let mut built: Vec<(String, Box<dyn Contestant + '_>)> = Vec::new();
    for name in setting.contestants() {
        progress.say(&format!("building {name} with {} names of {} bytes", parameters.n, parameters.name_bytes));
        let contestant = build(&name, &names, parameters.value_bits, &key).map_err(|reason| BenchError::Build {
            contestant: name.clone(),
            n: parameters.n,
            reason,
        })?;
        built.push((name, contestant));
    }
    let entered: Vec<(&str, &dyn Contestant)> = built.iter().map(|(name, built)| (&**name, &**built)).collect();
    let numbers: Vec<u64> = (0..parameters.n).collect();
    let mut rows = Rows::new(setting, progress);
    side_by_side(&entered, Queries::live(&numbers), parameters.n, &options(setting, parameters), &mut rows)?;
    Ok(setting.points(&rows.rows, |rate| rate))
}

/// Names by number.
struct Names<const W: usize> {
    bytes: Vec<u8>,
    words: Vec<[u64; W]>,
    len: usize,
    hasher: Hasher,
}

impl<const W: usize> Names<W> {
    fn new(n: usize, len: usize, hasher: Hasher) -> Self {
        let mut bytes = Vec::with_capacity(n * len);
        let mut words = Vec::with_capacity(n);
        for number in 0..n as u64 {
            let name = name::<W>(number, len);
            bytes.extend(name.iter().flat_map(|word| word.to_le_bytes()).take(len));
            words.push(name);
        }
        Self { bytes, words, len, hasher }
    }

    /// Digests of consecutive names, starting with the name of number `first`.
    #[inline]
    fn digest(&self, first: usize, digests: &mut [Digest]) {
        if W == 1 {
            let words = self.words[first..first + digests.len()].as_flattened();
            return self.hasher.digest_words(words, self.len, digests);
        }
        let bytes = &self.bytes[first * self.len..];
        for (digest, name) in digests.iter_mut().zip(bytes.chunks_exact(self.len)) {
            *digest = self.hasher.digest(name);
        }
    }

    /// Digest and value of each name.
    fn entries(&self, value_bits: u8) -> Vec<(Digest, u64)> {
        let mut digests = vec![Digest(0); self.words.len()];
        self.digest(0, &mut digests);
        digests.into_iter().zip(0..).map(|(digest, number)| (digest, value_of(number, value_bits))).collect()
    }
}

/// The name with this number: all differ in their first 8 bytes (4 if they have no more), and look random.
fn name<const W: usize>(number: u64, len: usize) -> [u64; W] {
    let bits = (8 * len as u32).min(64);
    let mask = u64::MAX >> (64 - bits);
    // Bijections on integers of `bits` bits.
    let mut first = number;
    for _ in 0..2 {
        first = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        first ^= first >> (bits / 2);
    }
    let mut words = [0; W];
    for (at, word) in words.iter_mut().enumerate() {
        let bytes = (len - 8 * at).min(8) as u32;
        let rest = mix64(first.wrapping_add(at as u64));
        *word = if at == 0 { first } else { rest & (u64::MAX >> (64 - 8 * bytes)) };
    }
    words
}

fn build<'a, const W: usize>(
    contestant: &str,
    names: &'a Names<W>,
    value_bits: u8,
    key: &SecretKey,
) -> Result<Box<dyn Contestant + 'a>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let n = names.words.len();
    match contestant {
        "concise" => of_othello::<Sharded, W>(names, value_bits, key, threads),
        "concise-option2" => of_othello::<Option2, W>(names, value_bits, key, threads),
        "line" => {
            let settings = line::Settings::new(value_bits, n, key);
            let built = LineTable::build(settings, &names.entries(value_bits), threads);
            let (_, query) = built.map_err(|error| error.to_string())?;
            let size_bits = query.size_bits();
            Ok(Box::new(ByDigest { names, reader: Box::new(move || query.reader()), size_bits }))
        }
        "cuckoo" => {
            let settings = exact::Settings::new(names.len as u8, value_bits, n, Family::MulAdd, key);
            let mut control = Cuckoo::<W>::with_capacity(settings, n);
            let entries = names.words.iter().zip(0..).map(|(words, number)| (*words, value_of(number, value_bits)));
            let entries: Vec<_> = entries.collect();
            control.insert_batch(&entries, &mut Vec::new()).map_err(|error| error.to_string())?;
            let query = control.export();
            let size_bits = query.size_bits();
            Ok(Box::new(ByWords { names, reader: Box::new(move || query.reader()), size_bits }))
        }
        _ => {
            let mut map = HashMap::with_capacity(n);
            map.extend(names.words.iter().zip(0..).map(|(words, number)| (*words, value_of(number, value_bits))));
            Ok(Box::new(Map { names, map }))
        }
    }
}

fn of_othello<'a, S: Sizing, const W: usize>(
    names: &'a Names<W>,
    value_bits: u8,
    key: &SecretKey,
    threads: usize,
) -> Result<Box<dyn Contestant + 'a>, String> {
    let settings = othello::Settings::new(value_bits, names.words.len(), key);
    let built = Othello::<S>::build(settings, &names.entries(value_bits), threads);
    let (_, query) = built.map_err(|error| error.to_string())?;
    let size_bits = query.size_bits();
    Ok(Box::new(ByDigest { names, reader: Box::new(move || query.reader()), size_bits }))
}

type NewReader<'a, R> = Box<dyn Fn() -> R + 'a>;

/// A structure of digests.
struct ByDigest<'a, R, const W: usize> {
    names: &'a Names<W>,
    reader: NewReader<'a, R>,
    size_bits: u64,
}

impl<R: BatchReader<[Digest]>, const W: usize> Contestant for ByDigest<'_, R, W> {
    fn size_bits(&self) -> u64 {
        self.size_bits
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(DigestBurst { names: self.names, reader: (self.reader)() })
    }
}

struct DigestBurst<'a, R, const W: usize> {
    names: &'a Names<W>,
    reader: R,
}

impl<R: BatchReader<[Digest]>, const W: usize> Burst for DigestBurst<'_, R, W> {
    #[inline]
    fn lookup(&mut self, numbers: &[u64], values: &mut [u64]) {
        let mut digests = [Digest(0); MAX_BATCH];
        let digests = &mut digests[..numbers.len()];
        self.names.digest(numbers[0] as usize, digests);
        self.reader.lookup_batch(digests, values);
    }
}

/// A structure of whole names.
struct ByWords<'a, R, const W: usize> {
    names: &'a Names<W>,
    reader: NewReader<'a, R>,
    size_bits: u64,
}

impl<R: BatchReader<[[u64; W]]>, const W: usize> Contestant for ByWords<'_, R, W> {
    fn size_bits(&self) -> u64 {
        self.size_bits
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(WordsBurst { names: self.names, reader: (self.reader)() })
    }
}

struct WordsBurst<'a, R, const W: usize> {
    names: &'a Names<W>,
    reader: R,
}

impl<R: BatchReader<[[u64; W]]>, const W: usize> Burst for WordsBurst<'_, R, W> {
    #[inline]
    fn lookup(&mut self, numbers: &[u64], values: &mut [u64]) {
        let first = numbers[0] as usize;
        self.reader.lookup_batch(&self.names.words[first..first + numbers.len()], values);
    }
}

struct Map<'a, const W: usize> {
    names: &'a Names<W>,
    map: HashMap<[u64; W], u64>,
}

impl<const W: usize> Contestant for Map<'_, W> {
    fn size_bits(&self) -> u64 {
        8 * self.map.allocation_size() as u64
    }

    fn reader(&self) -> Box<dyn Reader + '_> {
        Box::new(self)
    }
}

impl<const W: usize> Burst for &Map<'_, W> {
    fn lookup(&mut self, numbers: &[u64], values: &mut [u64]) {
        let first = numbers[0] as usize;
        for (value, name) in values.iter_mut().zip(&self.names.words[first..]) {
            *value = self.map.get(name).copied().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_of_every_length_are_distinct_and_as_long_as_they_say() {
        fn of<const W: usize>(len: usize) {
            let names: HashSet<[u64; W]> = (0..20_000).map(|number| name::<W>(number, len)).collect();
            assert_eq!(names.len(), 20_000, "{len} bytes");
            let spare = 8 * (8 * W - len) as u32;
            assert!(names.iter().all(|name| spare == 0 || name[W - 1] >> (64 - spare) == 0), "{len} bytes");
        }
        of::<1>(4);
        of::<1>(6);
        of::<1>(8);
        of::<2>(9);
        of::<2>(16);
        of::<6>(45);
        of::<8>(64);
    }

    #[test]
    fn digests_of_a_burst_are_those_of_the_bytes() {
        let hasher = Hasher::new(Family::MulAdd, &SecretKey::from_seed(3));
        let names = Names::<5>::new(100, 37, hasher.clone());
        let mut digests = [Digest(0); 7];
        names.digest(50, &mut digests);
        for (digest, at) in digests.iter().zip(50..) {
            let bytes: Vec<u8> = names.words[at].iter().flat_map(|word| word.to_le_bytes()).take(37).collect();
            assert_eq!(*digest, hasher.digest(&bytes));
        }
    }
}
