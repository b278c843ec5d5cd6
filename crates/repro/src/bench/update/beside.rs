//! Lookups of one thread while another applies changes at a given rate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lookup::hash::{Digest, Hasher};
use lookup::line::LineSkeleton;
use lookup::othello::{Graph, Sharded};
use lookup::traits::{ApplyError, BatchReader, Control, Query, Replicated};

use super::super::{Listener, Options, millions_per_second};
use super::tables::{Measured, Ours};
use super::{altered_value, input, setting};
use crate::BenchError;
use crate::contestants::{MAX_BATCH, bursts};
use crate::names::{Random, value_of};
use crate::report::Row;

/// Lookups of `contestant`, `concise` or `line`, idle and concurrently with the given number of changes per second, for
/// each n: two rows, `idle` first.
/// # Errors
/// [`BenchError`].
pub(crate) fn at_rate(
    contestant: &str,
    options: &Options,
    updates_per_s: u64,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    options.check()?;
    let rates = [updates_per_s];
    options.n.iter().try_for_each(|&n| match contestant {
        "concise" => run::<Graph<Sharded, u64>>(options, n, &rates, listener),
        "line" => run::<LineSkeleton<u64>>(options, n, &rates, listener),
        name => Err(BenchError::UnknownContestant { name: name.into(), known: "concise, line".into() }),
    })
}

/// One thread looks up names of one half of the set, whose values stay: alone, and while another thread alters the
/// other half. At a rate of 0 the second thread waits for the time of its first update, as it waits between updates at
/// any rate: that is the cost of a second busy core alone.
pub(super) fn run<S: Measured>(
    options: &Options,
    n: u64,
    rates: &[u64],
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let names = options.names.generate(n as usize, options.seed);
    let (fixed, altered) = names.split_at(names.len() / 2);
    if fixed.is_empty() {
        return Err(BenchError::Setting("lookups beside updates need at least 2 names; raise n".into()));
    }
    let input = input(options, &names);
    let mut table = Ours::<S>::build(&input, names.len())?;
    let queries = options.names.queries(fixed, options.operations.unwrap_or(1 << 22) as usize, options.seed);
    let expected = queries.iter().fold(0u64, |sum, &name| sum.wrapping_add(value_of(name, options.value_bits)));
    let mut random = Random::new(options.seed);
    let (mut idle, mut busy, mut achieved) = (Vec::new(), vec![Vec::new(); rates.len()], vec![Vec::new(); rates.len()]);
    for _ in 0..options.runs {
        let rate = lookups(&table, &queries, expected, options.batch as usize)?;
        idle.push(rate);
        for (at, &updates_per_s) in rates.iter().enumerate() {
            // Four times the inserts that a run at the idle rate would need, so that the writer does not run out of messages.
            let seconds = queries.len() as f64 / (rate * 1e6);
            let wanted = (4.0 * seconds * updates_per_s as f64) as usize + 1000;
            for _ in 0..wanted {
                let name = altered[random.below(altered.len() as u64) as usize];
                let digest = table.digest(name);
                // Mostly a different value each time: an insert that changes nothing makes no message.
                let value = altered_value(name, options.value_bits, random.below(1 << 32) as u32);
                if let Err(error) = table.control.insert(digest, value, &mut table.updates) {
                    return Err(table.refused(error));
                }
            }
            // The control half has just displaced the caches: an untimed pass brings the table back.
            lookups(&table, &queries, expected, options.batch as usize)?;
            let (rate, applied_per_s) = beside(&mut table, &queries, expected, options.batch as usize, updates_per_s)?;
            busy[at].push(rate);
            achieved[at].push(applied_per_s / 1e3);
        }
    }
    let setting = setting(options, n, options.batch);
    let bench = format!("update/lookups beside, {}", S::NAME);
    let mut rows = vec![Row::new(&bench, "idle", &setting, "M/s", idle)];
    for ((&updates_per_s, busy), achieved) in rates.iter().zip(busy).zip(achieved) {
        let name = match updates_per_s {
            0 => "a writer that waits".to_owned(),
            _ => format!("{}K updates/s", updates_per_s as f64 / 1e3),
        };
        let mut row = Row::new(&bench, &name, &setting, "M/s", busy);
        if updates_per_s > 0 {
            row.note = format!("{:.0}K applied a second", crate::stats::Summary::of(&achieved).median);
        }
        rows.push(row);
    }
    for row in &mut rows {
        row.checksum = Some(expected);
    }
    listener.table(&rows);
    Ok(())
}

/// Millions of lookups per second of another thread while this one applies the table's updates at a rate, and the
/// updates applied per second. All are applied in the end.
fn beside<S: Measured>(
    table: &mut Ours<S>,
    queries: &[u64],
    expected: u64,
    batch: usize,
    updates_per_s: u64,
) -> Result<(f64, f64), BenchError> {
    let updates = std::mem::take(&mut table.updates);
    let mut reader = table.query.reader();
    let (hasher, name_len) = (table.hasher.clone(), table.name_len);
    let done = AtomicBool::new(false);
    let query = &mut table.query;
    let ((sum, elapsed), applied) = std::thread::scope(|scope| {
        let (hasher, done) = (&hasher, &done);
        // The reader moves to its thread's stack: on this one it would share cache lines with the writer's state.
        let lookups = scope.spawn(move || {
            let start = Instant::now();
            let sum = pass(&mut reader, hasher, name_len, queries, batch);
            let elapsed = start.elapsed();
            reader.offline();
            done.store(true, Ordering::Release);
            (sum, elapsed)
        });
        let applied = apply_paced(query, &updates, updates_per_s, done);
        (lookups.join().expect("a reader does not panic"), applied)
    });
    let applied = applied.and_then(|(applied, writer_time)| {
        // Updates that the run did not reach, so that the next run starts from the state of the control half.
        updates[applied..].iter().try_for_each(|update| query.apply(update).map(|_| ()))?;
        Ok(applied as f64 / writer_time.as_secs_f64())
    });
    let applied_per_s = applied.map_err(|error| table.refused(error))?;
    if sum != expected {
        return Err(BenchError::Checksum { contestant: S::NAME.into(), got: sum, expected });
    }
    Ok((millions_per_second(queries.len() as u64, elapsed), applied_per_s))
}

/// Applies updates, each at its time, until `done`. Returns their number and the time taken.
fn apply_paced<Q: Query>(
    query: &mut Q,
    updates: &[Q::Update],
    updates_per_s: u64,
    done: &AtomicBool,
) -> Result<(usize, Duration), ApplyError> {
    let start = Instant::now();
    let mut applied = 0;
    while !done.load(Ordering::Acquire) && applied < updates.len() {
        let due = (start.elapsed().as_nanos() * u128::from(updates_per_s) / 1_000_000_000) as usize;
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

fn lookups<S: Measured>(table: &Ours<S>, queries: &[u64], expected: u64, batch: usize) -> Result<f64, BenchError> {
    let mut reader = table.query.reader();
    let start = Instant::now();
    let sum = pass(&mut reader, &table.hasher, table.name_len, queries, batch);
    let elapsed = start.elapsed();
    if sum != expected {
        return Err(BenchError::Checksum { contestant: S::NAME.into(), got: sum, expected });
    }
    Ok(millions_per_second(queries.len() as u64, elapsed))
}

fn pass(
    reader: &mut impl BatchReader<[Digest]>,
    hasher: &Hasher,
    name_len: usize,
    queries: &[u64],
    batch: usize,
) -> u64 {
    let (mut digests, mut values) = ([Digest(0); MAX_BATCH], [0; MAX_BATCH]);
    let mut sum = 0u64;
    for names in bursts(queries, batch) {
        let (digests, values) = (&mut digests[..names.len()], &mut values[..names.len()]);
        hasher.digest_words(names, name_len, digests);
        reader.lookup_batch(digests, values);
        sum = values.iter().fold(sum, |sum, &value| sum.wrapping_add(value));
    }
    sum
}
