//! How many updates per second the data plane applies: inserts of new names, changes and removals of old ones, a third
//! each, in random order, in batches of 64.
//!
//! Two receivers take turns, batch by batch. The *library* has updates that were decoded before, in
//! [`Query::apply_batch`]. A *switch* has messages of a controller, as bytes, in [`Replica::receive`]. Each update is
//! verified (version, bounds, digest) by both. Afterwards, both must hold the same parts, and some of the answers are
//! checked.

use std::time::{Duration, Instant};

use fib::designs::{CFW, CONCISE, LINE, OFW, Spec};
use fib::messages::{Body, Message, TableHeader, ValueMode};
use fib::name::NameKind;
use fib::replica::{Limits, MemoryTables, Replica, ReplicaError};
use fib::topology::NodeId;
use lookup::cuckoo::filtable::{self, FiltableSkeleton};
use lookup::hash::Digest;
use lookup::line::{self, LineSkeleton};
use lookup::othello::{self, Graph, Sharded};
use lookup::traits::{Control, Query, Replicated, SettingsOf, Single, Skeleton, UpdateOf};

use super::{Listener, Options};
use crate::BenchError;
use crate::contestants::Input;
use crate::names::{Random, mix64, value_of};
use crate::report::{Row, Setting};

/// Updates handed over at once.
pub(super) const BATCH: usize = 64;
/// Changes per run.
const CHANGES: u64 = 300_000;
/// The table of the messages.
const TABLE: u32 = 1;

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
    let spec = |design| {
        let (kind, key) = (NameKind::Mac, input.secret_key());
        Spec::new(design, kind, options.family, key, input.value_bits, max_names)
    };
    if !(1..=16).contains(&input.value_bits) {
        let reason = format!("a switch has values of 1 to 16 bits, not {}", input.value_bits);
        return Err(BenchError::Unavailable { contestant: "apply", reason });
    }
    let othello = |spec: &Spec| {
        othello::Settings::new(spec.value_bits, max_names, &spec.key).with_fingerprints(spec.fingerprint_bits)
    };
    let line = |spec: &Spec| line::Settings::new(spec.value_bits, max_names, &spec.key);
    let cfw = |spec: &Spec| filtable::Settings::new(spec.value_bits, spec.fingerprint_bits, max_names, &spec.key);
    let run = Run { options, input, entries: &entries, n_changes };
    let rates = [
        run.rates::<Graph<Sharded, u64>>(spec(&CONCISE), othello)?,
        run.rates::<Graph<Sharded, u64>>(spec(&OFW), othello)?,
        run.rates::<LineSkeleton<u64>>(spec(&LINE), line)?,
        run.rates::<FiltableSkeleton<u64>>(spec(&CFW), cfw)?,
    ];
    let mut rows = Vec::new();
    for (name, [library, messages]) in rates {
        for (samples, note) in [(library, "library"), (messages, "as messages")] {
            let mut row = Row::new("update/apply", name, setting, "M/s", samples);
            row.note = note.into();
            rows.push(row);
        }
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
    /// Millions of updates per second by the library and by a switch, one value per run.
    fn rates<S>(
        &self,
        spec: Spec,
        settings: impl Fn(&Spec) -> SettingsOf<S>,
    ) -> Result<(&'static str, [Vec<f64>; 2]), BenchError>
    where
        S: Skeleton<Key = Digest, Payload = u64, Query: Query<Update: Clone>>,
    {
        let name = spec.design.name;
        let refused = |error: &dyn std::fmt::Display| self.input.build_error(name, error);
        let built = Single::<S>::build(settings(&spec), self.entries, self.input.build_threads);
        let (mut control, mut query) = built.map_err(|error| refused(&error))?;
        let mut switch = Switch::<S>::new(spec, &query).map_err(|error| refused(&error))?;
        let mut samples = [Vec::new(), Vec::new()];
        let mut random = Random::new(self.options.seed);
        // All contestants get the same changes: old names are removed from the front, changed at the back.
        let (to_remove, to_alter) = self.entries.split_at(self.entries.len() / 2);
        let mut removed = to_remove.iter();
        for round in 0..u64::from(self.options.runs) {
            let changes = self.changes(round, to_alter, &mut removed, &mut random);
            let mut updates = Vec::new();
            for &(name, done) in &changes {
                match done {
                    Done::Put(value) => control.insert(name, value, &mut updates).map_err(|error| refused(&error))?,
                    Done::Removed => drop(control.remove(name, &mut updates)),
                }
            }
            let mut spent = [Duration::ZERO; 2];
            for batch in updates.chunks(BATCH) {
                let message = switch.message(batch);
                let start = Instant::now();
                switch.replica.receive(&message).map_err(|error| refused(&error))?;
                spent[1] += start.elapsed();
                // As they come from the decoder: in cache, and contiguous.
                let batch = batch.to_vec();
                let start = Instant::now();
                query.apply_batch(&batch).1.map_err(|error| refused(&error))?;
                spent[0] += start.elapsed();
            }
            for (samples, spent) in samples.iter_mut().zip(spent) {
                samples.push(updates.len() as f64 / spent.as_secs_f64() / 1e6);
            }
            if switch.replica.fib().map(|fib| fib.held()) != Some(query.held()) {
                return Err(refused(&"the switch holds other parts than the library"));
            }
            for &(digest, _) in changes.iter().step_by(7) {
                let (got, expected) = (query.lookup(digest), control.get(digest));
                if let Some(expected) = expected.filter(|&expected| got != expected) {
                    let contestant = name.to_owned();
                    return Err(BenchError::WrongAnswer { contestant, name: digest.0, got, expected });
                }
            }
        }
        Ok((name, samples))
    }

    /// The changes of a round, in random order.
    fn changes<'n>(
        &self,
        round: u64,
        to_alter: &[(Digest, u64)],
        removed: &mut impl Iterator<Item = &'n (Digest, u64)>,
        random: &mut Random,
    ) -> Vec<(Digest, Done)> {
        let value_bits = self.input.value_bits;
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
        changes
    }
}

/// A switch that holds one table, and the message that comes next.
struct Switch<S: Skeleton> {
    replica: Replica<MemoryTables>,
    settings: SettingsOf<S>,
    change: u64,
}

impl<S: Skeleton> Switch<S> {
    const NODE: NodeId = NodeId(1);

    /// A switch with the parts of `query`.
    fn new(spec: Spec, query: &S::Query) -> Result<Self, ReplicaError> {
        let replica = Replica::new(Limits::default(), MemoryTables::default());
        let mut switch = Self { replica, settings: query.settings(), change: 0 };
        let mut bytes = Vec::new();
        S::Query::encode_update(&switch.settings, &S::Query::update_of(query.images()), &mut bytes);
        let header = TableHeader { table: TABLE, spec, mode: ValueMode::Port, gateway: false, reset: false };
        for body in [Body::Table(header), Body::Image { table: TABLE, part: 0, parts: 1, bytes }] {
            let message = switch.next(body);
            switch.replica.apply(message)?;
        }
        Ok(switch)
    }

    fn next(&mut self, body: Body) -> Message {
        self.change += 1;
        Message { cluster: 1, term: 1, node: Self::NODE, change: self.change, body }
    }

    /// The bytes of a message with these updates.
    fn message(&mut self, updates: &[UpdateOf<S>]) -> Vec<u8> {
        let encode = |update| {
            let mut bytes = Vec::new();
            S::Query::encode_update(&self.settings, update, &mut bytes);
            bytes
        };
        let updates = updates.iter().map(encode).collect();
        self.next(Body::Updates { table: TABLE, updates }).encode()
    }
}
