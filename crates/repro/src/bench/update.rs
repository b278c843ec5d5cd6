//! Changes: what an insert, an alter and a remove cost with their messages, what the other side pays to apply them,
//! the slowest of many inserts, and what lookups lose while updates arrive.
//!
//! Names come in random order, so that every one meets a shard that is cold in cache where the table is large. After
//! each phase the messages, read back from their bytes, are applied to a query half, and its answers checked. The
//! peers have no messages: their time is that of the table alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use lookup::hash::{Digest, Hasher};
use lookup::line::{self, LineTable};
use lookup::othello::update::DecodeError;
use lookup::othello::{self, Othello};
use lookup::traits::{ApplyError, BatchReader, Control, InsertError, Query};

use super::{Listener, Options, apply, millions_per_second};
use crate::BenchError;
use crate::contestants::{Input, MAX_BATCH};
use crate::names::{Random, mix64, value_of};
use crate::report::{Row, Setting, size_text};
use crate::stats::Histogram;

/// The parts of the bench, as contestants on the command line.
pub const PARTS: [(&str, &str); 9] = [
    ("concise", "single inserts, alters and removes with messages; insert_batch"),
    ("line", "the same on the line table"),
    ("hashbrown", "the same on a hash table with full names"),
    ("rte_hash", "the same on DPDK's hash table"),
    ("apply", "updates a second that the data plane takes over: concise, ofw, cfw"),
    ("latency", "10M inserts one by one: quantiles, and those that rebuild a shard"),
    ("beside", "lookups while 200,000 updates a second are applied, against an idle table"),
    ("line-latency", "as latency, on the line table"),
    ("line-beside", "as beside, on the line table"),
];
/// Changes of each kind a run.
const CHANGES: u64 = 200_000;
/// Inserts of the latency part.
const INSERTS: u64 = 10_000_000;
/// Updates a second that the switch of the last part applies.
const UPDATES_PER_S: u64 = 200_000;

/// Runs the bench: its tables for each n.
/// # Errors
/// [`BenchError`]; tables complete until then have been handed to `listener`.
pub fn run(options: &Options, listener: &mut dyn Listener) -> Result<(), BenchError> {
    options.check()?;
    for name in &options.contestants {
        if !PARTS.iter().any(|(part, _)| part == name) {
            let known = PARTS.map(|(part, _)| part).join(", ");
            return Err(BenchError::UnknownContestant { name: name.clone(), known });
        }
    }
    let chosen = |part: &str| options.contestants.is_empty() || options.contestants.iter().any(|name| name == part);
    for &n in &options.n {
        if PARTS[..4].iter().any(|(part, _)| chosen(part)) {
            changes(options, n, &chosen, listener)?;
        }
        if chosen("apply") {
            let names = options.names.generate(n as usize, options.seed);
            apply::run(options, &input(options, &names), &setting(options, n, apply::BATCH as u32), listener)?;
        }
        if chosen("latency") {
            latency::<Othello>(options, n, listener)?;
        }
        if chosen("beside") {
            beside::<Othello>(options, n, listener)?;
        }
        if chosen("line-latency") {
            latency::<LineTable>(options, n, listener)?;
        }
        if chosen("line-beside") {
            beside::<LineTable>(options, n, listener)?;
        }
    }
    Ok(())
}

fn setting(options: &Options, n: u64, batch: u32) -> Setting {
    Setting { n, value_bits: options.value_bits, names: options.names.to_string(), threads: 1, batch }
}

fn input<'a>(options: &Options, names: &'a [u64]) -> Input<'a> {
    Input {
        names,
        name_len: options.names.name_len(),
        value_bits: options.value_bits,
        family: options.family,
        seed: options.seed,
        build_threads: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        floor_bytes: 0,
    }
}

/// A value other than that of the name by itself, for rounds of alters.
fn altered_value(name: u64, value_bits: u8, round: u32) -> u64 {
    value_of(mix64(name ^ u64::from(round)), value_bits)
}

/// A table that takes changes. What the clock sees is within each call.
trait Table {
    /// Inserts or changes.
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError>;
    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError>;
    /// The value of each name after all that was done; of one that is not there, anything.
    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError>;
}

/// A control half of ours, with what the bench needs to know of its structure.
trait Halves: Control<Key = Digest, Query: Send, Query: Query<Key = Digest, Update: Sync>> {
    const NAME: &str;

    /// Both halves.
    fn both(input: &Input<'_>, max_names: usize) -> Result<(Self, Self::Query), InsertError>
    where
        Self: Sized;
    fn encode(update: &UpdateOf<Self>, value_bits: u8, out: &mut Vec<u8>);
    fn decode(&self, bytes: &[u8]) -> Result<UpdateOf<Self>, DecodeError>;
    /// Whether a whole shard was solved anew.
    fn is_rebuild(update: &UpdateOf<Self>) -> bool;
    fn reader(query: &Self::Query) -> impl BatchReader<Key = Digest>;
}

type UpdateOf<C> = <<C as Control>::Query as Query>::Update;

impl Halves for Othello {
    const NAME: &str = "concise";

    fn both(input: &Input<'_>, max_names: usize) -> Result<(Self, Self::Query), InsertError> {
        let settings = othello::Settings::new(input.value_bits, max_names, &input.secret_key());
        Othello::build(settings, &input.entries(), input.build_threads)
    }

    fn encode(update: &othello::Update, value_bits: u8, out: &mut Vec<u8>) {
        update.encode(value_bits, out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<othello::Update, DecodeError> {
        othello::Update::decode(bytes, self.graph().settings().cell_bits())
    }

    fn is_rebuild(update: &othello::Update) -> bool {
        matches!(update, othello::Update::Shards(_))
    }

    fn reader(query: &Self::Query) -> impl BatchReader<Key = Digest> {
        query.reader()
    }
}

impl Halves for LineTable {
    const NAME: &str = "line";

    fn both(input: &Input<'_>, max_names: usize) -> Result<(Self, Self::Query), InsertError> {
        let settings = line::Settings::new(input.value_bits, max_names, &input.secret_key());
        LineTable::build(settings, &input.entries(), input.build_threads)
    }

    fn encode(update: &line::Update, _value_bits: u8, out: &mut Vec<u8>) {
        update.encode(out);
    }

    fn decode(&self, bytes: &[u8]) -> Result<line::Update, DecodeError> {
        line::Update::decode(self.lines().settings(), bytes)
    }

    fn is_rebuild(update: &line::Update) -> bool {
        matches!(update, line::Update::Groups(_))
    }

    fn reader(query: &Self::Query) -> impl BatchReader<Key = Digest> {
        query.reader()
    }
}

/// Both halves, and the messages between them as bytes.
struct Ours<C: Halves> {
    control: C,
    query: C::Query,
    hasher: Hasher,
    name_len: usize,
    value_bits: u8,
    updates: Vec<UpdateOf<C>>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<C: Halves> Ours<C> {
    fn build(input: &Input<'_>, max_names: usize) -> Result<Self, BenchError> {
        let (control, query) = C::both(input, max_names).map_err(|error| input.build_error(C::NAME, error))?;
        Ok(Self {
            control,
            query,
            hasher: input.hasher(),
            name_len: input.name_len,
            value_bits: input.value_bits,
            updates: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
        })
    }

    fn digest(&self, name: u64) -> Digest {
        self.hasher.digest(&name.to_le_bytes()[..self.name_len])
    }

    fn refused(&self, error: impl std::fmt::Display) -> BenchError {
        BenchError::Build { contestant: C::NAME.into(), n: self.control.len() as u64, reason: error.to_string() }
    }

    /// Turns the updates into bytes, as they would leave the controller.
    fn encode(&mut self) {
        for update in self.updates.drain(..) {
            C::encode(&update, self.value_bits, &mut self.bytes);
            self.ends.push(self.bytes.len());
        }
    }

    fn put_batch(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        let entries: Vec<(Digest, u64)> = changes.iter().map(|&(name, value)| (self.digest(name), value)).collect();
        self.control.insert_batch(&entries, &mut self.updates).map_err(|error| self.refused(error))?;
        self.encode();
        Ok(())
    }

    /// Applies all messages, from their bytes.
    fn deliver(&mut self) -> Result<(), BenchError> {
        let mut start = 0;
        for &end in &self.ends {
            let update = self.control.decode(&self.bytes[start..end]).map_err(|e| self.refused(e))?;
            self.query.apply(&update).map_err(|error| self.refused(error))?;
            start = end;
        }
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }
}

impl<C: Halves> Table for Ours<C> {
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        for &(name, value) in changes {
            let digest = self.digest(name);
            if let Err(error) = self.control.insert(digest, value, &mut self.updates) {
                return Err(self.refused(error));
            }
            self.encode();
        }
        Ok(())
    }

    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError> {
        for &(name, _) in names {
            let digest = self.digest(name);
            self.control.remove(digest, &mut self.updates);
            self.encode();
        }
        Ok(())
    }

    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError> {
        self.deliver()?;
        Ok(names.iter().map(|&(name, _)| self.query.lookup(self.digest(name))).collect())
    }
}

impl Table for HashMap<u64, u64> {
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        for &(name, value) in changes {
            self.insert(name, value);
        }
        Ok(())
    }

    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError> {
        for (name, _) in names {
            HashMap::remove(self, name);
        }
        Ok(())
    }

    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError> {
        Ok(names.iter().map(|(name, _)| self.get(name).copied().unwrap_or(0)).collect())
    }
}

#[cfg(feature = "dpdk")]
impl Table for crate::contestants::RteHash {
    fn put(&mut self, changes: &[(u64, u64)]) -> Result<(), BenchError> {
        changes.iter().try_for_each(|&(name, value)| self.add(&[name], &[value]))
    }

    fn remove(&mut self, names: &[(u64, u64)]) -> Result<(), BenchError> {
        names.iter().try_for_each(|&(name, _)| self.delete(&[name]))
    }

    fn values(&mut self, names: &[(u64, u64)]) -> Result<Vec<u64>, BenchError> {
        use crate::contestants::Contestant;
        let names: Vec<u64> = names.iter().map(|&(name, _)| name).collect();
        let mut reader = self.reader();
        Ok(names.iter().map(|&name| reader.sum(&[name], 1, 1)).collect())
    }
}

/// Nanoseconds a change of each phase.
#[derive(Default)]
struct Samples {
    insert: Vec<f64>,
    alter: Vec<f64>,
    remove: Vec<f64>,
}

fn changes(
    options: &Options,
    n: u64,
    chosen: &dyn Fn(&str) -> bool,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_changes = options.operations.unwrap_or(CHANGES).min(n);
    let all = options.names.generate((n + n_changes) as usize, options.seed);
    let (names, spare) = all.split_at(n as usize);
    let input = input(options, names);
    listener.say(&format!("building tables with {} names", size_text(n)));
    let mut concise = if chosen("concise") { Some(Ours::<Othello>::build(&input, all.len())?) } else { None };
    let mut lines = if chosen("line") { Some(Ours::<LineTable>::build(&input, all.len())?) } else { None };
    let mut hashbrown: Option<HashMap<u64, u64>> = chosen("hashbrown")
        .then(|| all[..n as usize].iter().map(|&name| (name, value_of(name, options.value_bits))).collect());
    #[cfg(feature = "dpdk")]
    let mut rte_hash =
        if chosen("rte_hash") { Some(crate::contestants::RteHash::build("rte_hash", &input, false)?) } else { None };
    #[cfg(not(feature = "dpdk"))]
    if chosen("rte_hash") {
        listener.say("rte_hash: not built in; `make bench` installs it");
    }

    let mut random = Random::new(options.seed);
    let mut samples: [Samples; 4] = Default::default();
    let mut batches: [(Vec<f64>, f64); 2] = Default::default();
    for round in 1..=options.runs {
        let mut inserts: Vec<(u64, u64)> =
            spare.iter().map(|&name| (name, value_of(name, options.value_bits))).collect();
        let n_inserts = inserts.len();
        random.shuffle_front(&mut inserts, n_inserts);
        let alters: Vec<(u64, u64)> = (0..n_changes)
            .map(|_| names[random.below(n) as usize])
            .map(|name| (name, altered_value(name, options.value_bits, round)))
            .collect();
        if let Some(table) = &mut concise {
            ours(table, &inserts, &alters, &mut samples[0], &mut batches[0])?;
        }
        if let Some(table) = &mut lines {
            ours(table, &inserts, &alters, &mut samples[1], &mut batches[1])?;
        }
        if let Some(table) = &mut hashbrown {
            phases("hashbrown", table, &inserts, &alters, &mut samples[2])?;
        }
        #[cfg(feature = "dpdk")]
        if let Some(table) = &mut rte_hash {
            phases("rte_hash", table, &inserts, &alters, &mut samples[3])?;
        }
    }

    let setting = setting(options, n, 1);
    let [concise, lines, hashbrown, rte_hash] = samples;
    let named = [("concise", concise), ("line", lines), ("hashbrown", hashbrown), ("rte_hash", rte_hash)];
    type Pick = fn(&Samples) -> &Vec<f64>;
    let kinds: [(&str, Pick); 3] = [
        ("update/insert", |samples| &samples.insert),
        ("update/alter", |samples| &samples.alter),
        ("update/remove", |samples| &samples.remove),
    ];
    for (bench, pick) in kinds {
        let rows: Vec<Row> = named
            .iter()
            .filter(|(_, samples)| !pick(samples).is_empty())
            .map(|(name, samples)| Row::new(bench, name, &setting, "ns", pick(samples).clone()))
            .collect();
        if !rows.is_empty() {
            listener.table(&rows);
        }
    }
    let setting = self::setting(options, n, n_changes as u32);
    let row = |(name, (batch, bytes)): (&str, (Vec<f64>, f64))| {
        let mut row = Row::new("update/insert_batch", name, &setting, "ns", batch);
        row.note = format!("{bytes:.0} bytes of messages a name");
        row
    };
    let batches = ["concise", "line"].into_iter().zip(batches).filter(|(_, (batch, _))| !batch.is_empty());
    let rows: Vec<Row> = batches.map(row).collect();
    if !rows.is_empty() {
        listener.table(&rows);
    }
    Ok(())
}

/// The phases of a table of ours, and a batch of inserts with the bytes of its messages.
fn ours<C: Halves>(
    table: &mut Ours<C>,
    inserts: &[(u64, u64)],
    alters: &[(u64, u64)],
    samples: &mut Samples,
    (batch, bytes): &mut (Vec<f64>, f64),
) -> Result<(), BenchError> {
    phases(C::NAME, table, inserts, alters, samples)?;
    let start = Instant::now();
    table.put_batch(inserts)?;
    batch.push(start.elapsed().as_nanos() as f64 / inserts.len() as f64);
    *bytes = table.bytes.len() as f64 / inserts.len() as f64;
    check(C::NAME, table, inserts)?;
    table.remove(inserts)?;
    table.deliver()?;
    check(C::NAME, table, alters)
}

/// Inserts, alters, removes; the table is as large as before at the end.
fn phases(
    contestant: &str,
    table: &mut dyn Table,
    inserts: &[(u64, u64)],
    alters: &[(u64, u64)],
    samples: &mut Samples,
) -> Result<(), BenchError> {
    let timed = |work: &mut dyn FnMut() -> Result<(), BenchError>| {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed().as_nanos() as f64 / inserts.len() as f64)
    };
    samples.insert.push(timed(&mut || table.put(inserts))?);
    check(contestant, table, inserts)?;
    samples.alter.push(timed(&mut || table.put(alters))?);
    check(contestant, table, alters)?;
    samples.remove.push(timed(&mut || table.remove(inserts))?);
    check(contestant, table, alters)
}

/// Compares the value of each name to the one it was given last.
fn check(contestant: &str, table: &mut dyn Table, changes: &[(u64, u64)]) -> Result<(), BenchError> {
    for (&(name, expected), got) in changes.iter().zip(table.values(changes)?) {
        if got != expected {
            return Err(BenchError::WrongAnswer { contestant: contestant.into(), name, got, expected });
        }
    }
    Ok(())
}

fn latency<C: Halves>(options: &Options, n: u64, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let n_inserts = options.operations.unwrap_or(INSERTS);
    listener.say(&format!("inserting {n_inserts} names one by one into a table with {}", size_text(n)));
    let mut all = options.names.generate((n + n_inserts) as usize, options.seed);
    let spare = &mut all[n as usize..];
    let n_spare = spare.len();
    Random::new(options.seed).shuffle_front(spare, n_spare);
    let (names, spare) = all.split_at(n as usize);
    let mut table = Ours::<C>::build(&input(options, names), all.len())?;
    let (mut any, mut cells, mut rebuilt) = (Histogram::default(), Histogram::default(), Histogram::default());
    let mut total = Duration::ZERO;
    for &name in spare {
        let value = value_of(name, options.value_bits);
        let start = Instant::now();
        let digest = table.digest(name);
        let result = table.control.insert(digest, value, &mut table.updates);
        let elapsed = start.elapsed();
        if let Err(error) = result {
            return Err(table.refused(error));
        }
        total += elapsed;
        let ns = elapsed.as_nanos() as u64;
        any.record(ns);
        for update in table.updates.drain(..) {
            if C::is_rebuild(&update) {
                rebuilt.record(ns)
            } else {
                cells.record(ns)
            }
            table.query.apply(&update).map_err(|error| BenchError::Build {
                contestant: C::NAME.into(),
                n,
                reason: error.to_string(),
            })?;
        }
    }
    let pairs: Vec<(u64, u64)> = spare.iter().map(|&name| (name, value_of(name, options.value_bits))).collect();
    check(C::NAME, &mut table, &pairs)?;
    let setting = setting(options, n, 1);
    let bench = format!("update/latency of {}", C::NAME);
    let row = |name: &str, ns: f64| Row::new(&bench, name, &setting, "ns", vec![ns]);
    let mut rows = vec![row("mean", total.as_nanos() as f64 / n_inserts as f64)];
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("slowest", 1.0)] {
        rows.push(row(name, any.quantile_ns(quantile) as f64));
    }
    for (name, quantile) in [("shard rebuilt: p50", 0.5), ("shard rebuilt: p99", 0.99), ("shard rebuilt: slowest", 1.0)]
    {
        rows.push(row(name, rebuilt.quantile_ns(quantile) as f64));
    }
    // About a microsecond of work: the rest is what the machine gave to others meanwhile.
    rows.push(row("some cells changed: slowest", cells.quantile_ns(1.0) as f64));
    listener.table(&rows);
    Ok(())
}

/// One thread looks up names of one half of the set, whose values stay, another applies alters of the other half.
fn beside<C: Halves>(options: &Options, n: u64, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let names = options.names.generate(n as usize, options.seed);
    let (fixed, altered) = names.split_at(names.len() / 2);
    if fixed.is_empty() {
        return Err(BenchError::Setting("lookups beside updates need at least 2 names".into()));
    }
    let input = input(options, &names);
    let mut table = Ours::<C>::build(&input, names.len())?;
    let queries = options.names.queries(fixed, options.operations.unwrap_or(1 << 22) as usize, options.seed);
    let expected = queries.iter().fold(0u64, |sum, &name| sum.wrapping_add(value_of(name, options.value_bits)));
    let mut random = Random::new(options.seed);
    let (mut idle, mut busy, mut achieved) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.runs {
        // Twice as many messages as a run at the idle rate would need, so that the writer does not run dry.
        let (rate, _) = lookups(&table, &queries, expected, options.batch as usize)?;
        idle.push(rate);
        let seconds = queries.len() as f64 / (rate * 1e6);
        let wanted = (4.0 * seconds * UPDATES_PER_S as f64) as usize + 1000;
        for _ in 0..wanted {
            let name = altered[random.below(altered.len() as u64) as usize];
            let digest = table.digest(name);
            let value = altered_value(name, options.value_bits, round);
            if let Err(error) = table.control.insert(digest, value, &mut table.updates) {
                return Err(table.refused(error));
            }
        }
        let updates = std::mem::take(&mut table.updates);
        let mut reader = C::reader(&table.query);
        let (hasher, name_len, batch) = (table.hasher.clone(), table.name_len, options.batch as usize);
        let done = AtomicBool::new(false);
        let query = &mut table.query;
        let (result, applied) = std::thread::scope(|scope| {
            let lookups = scope.spawn(|| {
                let start = Instant::now();
                let sum = pass(&mut reader, &hasher, name_len, &queries, batch);
                let elapsed = start.elapsed();
                reader.offline();
                done.store(true, Ordering::Release);
                (sum, elapsed)
            });
            let applied = apply_paced(query, &updates, &done);
            (lookups.join().expect("a reader does not panic"), applied)
        });
        let (applied, writer_time) = applied.map_err(|error| table.refused(error))?;
        let (sum, elapsed) = result;
        if sum != expected {
            return Err(BenchError::Checksum { contestant: C::NAME.into(), got: sum, expected });
        }
        busy.push(millions_per_second(queries.len() as u64, elapsed));
        achieved.push(applied as f64 / writer_time.as_secs_f64() / 1e3);
        // What the run did not get to, so that the next one starts from where the control half is.
        for update in &updates[applied..] {
            table.query.apply(update).map_err(|error| BenchError::Build {
                contestant: C::NAME.into(),
                n,
                reason: error.to_string(),
            })?;
        }
    }
    let setting = setting(options, n, options.batch);
    let rate = crate::stats::Summary::of(&achieved).median;
    let bench = format!("update/lookups beside, {}", C::NAME);
    let mut rows = vec![
        Row::new(&bench, "idle", &setting, "M/s", idle),
        Row::new(&bench, "200K updates/s", &setting, "M/s", busy),
    ];
    rows[1].note = format!("{rate:.0}K applied a second");
    for row in &mut rows {
        row.checksum = Some(expected);
    }
    listener.table(&rows);
    Ok(())
}

/// Applies updates, each at its time, until `done`; how many, and in what time.
fn apply_paced<Q: Query>(
    query: &mut Q,
    updates: &[Q::Update],
    done: &AtomicBool,
) -> Result<(usize, Duration), ApplyError> {
    let start = Instant::now();
    let mut applied = 0;
    while !done.load(Ordering::Acquire) && applied < updates.len() {
        let due = (start.elapsed().as_nanos() as u64 * UPDATES_PER_S / 1_000_000_000) as usize;
        while applied < due.min(updates.len()) {
            match query.apply(&updates[applied]) {
                Ok(_) => applied += 1,
                // Old versions wait for the reader's next burst.
                Err(ApplyError::ReadersStalled { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        std::hint::spin_loop();
    }
    Ok((applied, start.elapsed()))
}

fn lookups<C: Halves>(table: &Ours<C>, queries: &[u64], expected: u64, batch: usize) -> Result<(f64, u64), BenchError> {
    let mut reader = C::reader(&table.query);
    let start = Instant::now();
    let sum = pass(&mut reader, &table.hasher, table.name_len, queries, batch);
    let elapsed = start.elapsed();
    if sum != expected {
        return Err(BenchError::Checksum { contestant: C::NAME.into(), got: sum, expected });
    }
    Ok((millions_per_second(queries.len() as u64, elapsed), sum))
}

fn pass(
    reader: &mut impl BatchReader<Key = Digest>,
    hasher: &Hasher,
    name_len: usize,
    queries: &[u64],
    batch: usize,
) -> u64 {
    let (mut digests, mut values) = ([Digest(0); MAX_BATCH], [0; MAX_BATCH]);
    let mut sum = 0u64;
    for names in queries.chunks(batch) {
        let (digests, values) = (&mut digests[..names.len()], &mut values[..names.len()]);
        hasher.digest_words(names, name_len, digests);
        reader.lookup_batch(digests, values);
        sum = values.iter().fold(sum, |sum, &value| sum.wrapping_add(value));
    }
    sum
}
