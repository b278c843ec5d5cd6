//! The slowest of many inserts.
//!
//! The clock on the wall also counts time in which another thread or another guest of the machine ran. The processor
//! time of the thread does not count other threads. In a virtual machine it may count the time of other guests. The two
//! clocks are read around each insert, that of the wall inside.
//!
//! There are two controls of what the machine alone does to both clocks: a loop that only reads them, for as long as all
//! inserts took, and the inserts that rebuild no shard. Such an insert writes a few cells, so a millisecond of it is none
//! of its own.

use std::time::{Duration, Instant};

use lookup::traits::{Control, Query as _};
use rustix::time::{ClockId, clock_gettime};

use super::super::{Listener, Options};
use super::tables::{Measured, Ours};
use super::{INSERTS, check, input, setting};
use crate::BenchError;
use crate::names::{Random, value_of};
use crate::report::{Row, size_text};
use crate::stats::Histogram;

/// Processor time that an insert is not meant to reach.
const LONG: Duration = Duration::from_millis(1);

/// Quantiles of the time of single inserts, by the clock on the wall and by the processor time of the thread.
/// # Errors
/// [`BenchError`].
pub(super) fn run<S: Measured>(options: &Options, n: u64, listener: &mut dyn Listener) -> Result<(), BenchError> {
    let n_inserts = options.operations.unwrap_or(INSERTS);
    listener.say(&format!("inserting {n_inserts} names one by one into a table with {}", size_text(n)));
    let mut all = options.names.generate((n + n_inserts) as usize, options.seed);
    let spare = &mut all[n as usize..];
    let n_spare = spare.len();
    Random::new(options.seed).shuffle_front(spare, n_spare);
    let (names, spare) = all.split_at(n as usize);
    let mut table = Ours::<S>::build(&input(options, names), all.len())?;
    let (mut any, mut cells, mut rebuilt) = (Histogram::default(), Histogram::default(), Histogram::default());
    let (mut worked, mut total) = (Histogram::default(), Duration::ZERO);
    // By whether a shard was rebuilt: the most processor time of an insert, and how many took long.
    let (mut most_worked, mut n_long) = ([0; 2], [0; 2]);
    // Of the insert that took longest on the wall.
    let mut of_slowest = Duration::ZERO;
    for &name in spare {
        let value = value_of(name, options.value_bits);
        let at_work = processor_time();
        let start = Instant::now();
        let digest = table.digest(name);
        let result = table.control.insert(digest, value, &mut table.updates);
        let elapsed = start.elapsed();
        let at_work = processor_time() - at_work;
        if let Err(error) = result {
            return Err(table.refused(error));
        }
        total += elapsed;
        let ns = elapsed.as_nanos() as u64;
        if ns > any.quantile_ns(1.0) {
            of_slowest = at_work;
        }
        any.record(ns);
        let at_work = at_work.as_nanos() as u64;
        worked.record(at_work);
        let of_kind = usize::from(table.updates.iter().any(S::is_rebuild));
        most_worked[of_kind] = at_work.max(most_worked[of_kind]);
        n_long[of_kind] += u64::from(at_work > LONG.as_nanos() as u64);
        for update in table.updates.drain(..) {
            if S::is_rebuild(&update) {
                rebuilt.record(ns)
            } else {
                cells.record(ns)
            }
            table.query.apply(&update).map_err(|error| BenchError::Build {
                contestant: S::NAME.into(),
                n,
                reason: error.to_string(),
            })?;
        }
    }
    let pairs: Vec<(u64, u64)> = spare.iter().map(|&name| (name, value_of(name, options.value_bits))).collect();
    check(S::NAME, &mut table, &pairs)?;
    let setting = setting(options, n, 1);
    let bench = format!("update/latency of {}", S::NAME);
    let row = |name: &str, ns: f64| Row::new(&bench, name, &setting, "ns", vec![ns]);
    let mut rows = vec![row("mean", total.as_nanos() as f64 / n_inserts as f64)];
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("slowest", 1.0)] {
        rows.push(row(name, any.quantile_ns(quantile) as f64));
    }
    for (name, quantile) in [("shard rebuilt: p50", 0.5), ("shard rebuilt: p99", 0.99), ("shard rebuilt: slowest", 1.0)]
    {
        rows.push(row(name, rebuilt.quantile_ns(quantile) as f64));
    }
    rows.push(row("some cells changed: slowest", cells.quantile_ns(1.0) as f64));
    // What the slowest took beyond its processor time is time in which the thread did not run.
    rows.push(row("slowest: its processor time", of_slowest.as_nanos() as f64));
    rows.push(row("processor time: p99.9", worked.quantile_ns(0.999) as f64));
    rows.push(row("processor time: most", worked.quantile_ns(1.0) as f64));
    for (kind, text) in ["some cells changed", "shard rebuilt"].into_iter().enumerate() {
        rows.push(row(&format!("{text}: most processor time"), most_worked[kind] as f64));
        let long = row(&format!("{text}: over 1 ms of it"), n_long[kind] as f64);
        rows.push(Row { unit: "inserts".into(), ..long });
    }
    let (slowest, most) = nothing(total);
    rows.push(row("control, a loop that does nothing: slowest", slowest.as_nanos() as f64));
    rows.push(row("control: processor time: most", most.as_nanos() as f64));
    listener.table(&rows);
    Ok(())
}

/// The longest times between two readings of the clocks, on the wall and of the processor, in a loop that reads them for
/// `duration` and does nothing else. An insert is not to blame for what this loop waits for, too: interrupts, other
/// threads, and, where the processor time has it, other guests of the machine.
fn nothing(duration: Duration) -> (Duration, Duration) {
    let (begin, mut worked) = (Instant::now(), processor_time());
    let (mut last, mut slowest, mut most) = (begin, Duration::ZERO, Duration::ZERO);
    while last - begin < duration {
        let (now, now_worked) = (Instant::now(), processor_time());
        slowest = slowest.max(now - last);
        most = most.max(now_worked.saturating_sub(worked));
        (last, worked) = (now, now_worked);
    }
    (slowest, most)
}

/// The processor time of this thread so far, its time in the kernel included.
fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
