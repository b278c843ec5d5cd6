//! How many updates per second the data plane applies: inserts of new names, changes and removals of old ones, a third
//! each, in random order, as messages in batches of 64.
//!
//! The clock runs while the updates of a batch are applied: they were decoded before, and each is verified (version,
//! bounds, digest) as on a switch. Afterwards some of the answers are checked.

use std::time::{Duration, Instant};

use lookup::cuckoo::filtable::Filtable;
use lookup::hash::Digest;
use lookup::othello::{Othello, Publication, Settings, Sharded};
use lookup::traits::{ApplyError, Control, Query};

use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::{Input, filtable_settings};
use crate::names::{Random, mix64, value_of};
use crate::report::{Row, Setting};

/// Updates handed over at once.
pub(super) const BATCH: usize = 64;
/// Changes per run.
const CHANGES: u64 = 300_000;
/// Bits of an OFW fingerprint.
const FINGERPRINT_BITS: u8 = 8;

/// The change made to a name.
#[derive(Clone, Copy)]
enum Done {
    Put(u64),
    Removed,
}

/// The rows of one n.
/// # Errors
/// [`BenchError`]: a table could not be built, refused an update, or answered wrongly.
pub(super) fn run(
    options: &Options,
    input: &Input<'_>,
    setting: &Setting,
    listener: &mut dyn Listener,
) -> Result<(), BenchError> {
    let n_changes = options.operations.unwrap_or(CHANGES);
    let max_names = input.names.len() + n_changes as usize * options.runs as usize;
    let entries = input.entries();
    let concise = Settings::new(input.value_bits, max_names, &input.secret_key());
    let run = Run { options, input, entries: &entries, n_changes };

    let mut rows = Vec::new();
    let mut row = |name: &str, samples, note: &str| {
        let mut row = Row::new("update/apply", name, setting, "M/s", samples);
        row.note = note.into();
        rows.push(row);
    };
    let with_fingerprints = input.value_bits <= 64 - FINGERPRINT_BITS;
    let ofw = with_fingerprints.then(|| concise.clone().with_fingerprints(FINGERPRINT_BITS));
    for (name, settings) in [("concise", Some(concise)), ("ofw", ofw)] {
        let Some(settings) = settings else { continue };
        for (publication, note) in
            [(Publication::Versioned, "versions of shards"), (Publication::Sequenced, "in place, sequence counters")]
        {
            let built = Othello::<Sharded>::build(settings.clone(), &entries, input.build_threads);
            let (control, query) = built.map_err(|error| input.build_error(name, error))?;
            let query = query.republish(publication).map_err(|error| input.build_error(name, error))?;
            row(name, run.rates(name, control, query, |query, updates| query.apply_all(updates).map(drop))?, note);
        }
    }
    if let Some(settings) = filtable_settings(input, max_names) {
        let mut control = Filtable::with_capacity(settings, max_names);
        control.insert_batch(&entries, &mut Vec::new()).map_err(|error| input.build_error("cfw", error))?;
        let query = control.export();
        let samples =
            run.rates("cfw", control, query, |query, updates| query.apply_batch(updates).map_err(|(_, error)| error))?;
        row("cfw", samples, "in place");
    }
    listener.table(&rows);
    Ok(())
}

struct Run<'a> {
    options: &'a Options,
    input: &'a Input<'a>,
    entries: &'a [(Digest, u64)],
    n_changes: u64,
}

impl Run<'_> {
    /// Millions of changes per second, one value per run.
    fn rates<C>(
        &self,
        name: &str,
        mut control: C,
        mut query: C::Query,
        apply: impl Fn(&mut C::Query, &[<C::Query as Query>::Update]) -> Result<(), ApplyError>,
    ) -> Result<Vec<f64>, BenchError>
    where
        C: Control<Key = Digest>,
        C::Query: Query<Key = Digest>,
        <C::Query as Query>::Update: Clone,
    {
        let refused = |error: &dyn std::fmt::Display| self.input.build_error(name, error);
        let value_bits = self.input.value_bits;
        let mut random = Random::new(self.options.seed);
        // All contestants get the same changes: old names are removed from the front, changed at the back.
        let (to_remove, to_alter) = self.entries.split_at(self.entries.len() / 2);
        let mut removed = to_remove.iter();
        let mut samples = Vec::new();
        for round in 0..u64::from(self.options.runs) {
            let mut changes = Vec::new();
            for at in 0..self.n_changes / 3 {
                let fresh = Digest(mix64(mix64(self.options.seed ^ round << 40 ^ at)));
                changes.push((fresh, Done::Put(value_of(at, value_bits))));
                if let Some(&(name, value)) = to_alter.get(random.below(to_alter.len().max(1) as u64) as usize) {
                    changes.push((name, Done::Put(value_of(value ^ mix64(round), value_bits))));
                }
                changes.extend(removed.next().map(|&(name, _)| (name, Done::Removed)));
            }
            let n_changes = changes.len();
            random.shuffle_front(&mut changes, n_changes);
            let mut updates = Vec::new();
            for &(name, done) in &changes {
                match done {
                    Done::Put(value) => control.insert(name, value, &mut updates).map_err(|error| refused(&error))?,
                    Done::Removed => drop(control.remove(name, &mut updates)),
                }
            }
            let mut spent = Duration::ZERO;
            for batch in updates.chunks(BATCH) {
                // As they come from the decoder: in cache, and contiguous.
                let batch = batch.to_vec();
                let start = Instant::now();
                apply(&mut query, &batch).map_err(|error| refused(&error))?;
                spent += start.elapsed();
            }
            samples.push(updates.len() as f64 / spent.as_secs_f64() / 1e6);
            for &(digest, _) in changes.iter().step_by(7) {
                let (got, expected) = (query.lookup(digest), control.get(digest));
                if expected.is_some_and(|expected| got != expected) {
                    let contestant = name.to_owned();
                    return Err(BenchError::WrongAnswer {
                        contestant,
                        name: digest.0,
                        got,
                        expected: expected.unwrap_or(0),
                    });
                }
            }
        }
        Ok(samples)
    }
}
