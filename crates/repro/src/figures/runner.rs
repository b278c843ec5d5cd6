//! Runs a figure step by step and keeps every finished step.

use std::path::Path;
use std::time::Instant;

use md5::{Digest as _, Md5};
use toml::{Table, Value};

use super::methods::{self, Method, Progress, Setting};
use super::store::{Missing, Mode, Record, StepRecord, Store, StoreError, Stored};
use super::{Figure, Paper, Series, X};
use crate::BenchError;
use crate::contestants;
use crate::machine::Machine;
use crate::records::source;

/// One call of a method.
#[derive(Clone, Debug)]
pub struct Step {
    /// The swept value, if something is swept.
    pub x: Option<X>,
    /// The input of the method.
    pub setting: Setting,
    /// Digest of method and setting.
    pub digest: String,
    /// The swept parameter, in readable form.
    pub label: String,
}

/// How a figure is to be run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Quick or full.
    pub mode: Mode,
    /// Seed of names, orders and keys.
    pub seed: u64,
    /// Whether finished steps are run again.
    pub again: bool,
}

/// Why a run ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The figure cannot be run at all.
    #[error("{figure}: {reason}")]
    NotRunnable {
        /// Its id.
        figure: String,
        /// Why.
        reason: String,
    },
    /// A step failed; those before it are kept.
    #[error("{figure}, {step}: {error}")]
    Step {
        /// Its id.
        figure: String,
        /// The step.
        step: String,
        /// Why.
        error: BenchError,
    },
    /// Results cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Follows a run.
pub trait Watch {
    /// Step `done` of `of` begins; with `done == of`, the figure is complete.
    fn step(&mut self, done: usize, of: usize, label: &str);
    /// Reports progress.
    fn say(&mut self, text: &str);
}

/// The calls that a figure consists of: one for each swept value and each set of series parameters.
/// # Errors
/// A description of what is wrong with the parameters.
pub fn steps(figure: &Figure, mode: Mode, seed: u64) -> Result<Vec<Step>, String> {
    let mut parameters = figure.common.clone();
    let of_mode = if mode == Mode::Quick { &figure.quick } else { &figure.full };
    parameters.extend(of_mode.clone());
    let values = match &figure.sweep {
        None => vec![None],
        Some(name) => match parameters.get(name) {
            Some(Value::Array(values)) if !values.is_empty() => values.iter().cloned().map(Some).collect(),
            _ => return Err(format!("`{name}` is swept, but has no list of values in the {mode} run")),
        },
    };
    let mut groups: Vec<(Table, Vec<Series>)> = Vec::new();
    for series in &figure.series {
        match groups.iter_mut().find(|(table, _)| *table == series.parameters) {
            Some((_, group)) => group.push(series.clone()),
            None => groups.push((series.parameters.clone(), vec![series.clone()])),
        }
    }
    if groups.is_empty() {
        groups.push(Default::default());
    }
    let mut steps = Vec::new();
    for value in values {
        for (own, series) in &groups {
            let mut parameters = parameters.clone();
            if let (Some(name), Some(value)) = (&figure.sweep, &value) {
                parameters.insert(name.clone(), value.clone());
            }
            parameters.extend(own.clone());
            let x = value.as_ref().map(x_of);
            let swept = figure.sweep.iter().zip(&x).map(|(name, x)| format!("{name} = {x}"));
            let own = own.iter().map(|(name, value)| format!("{name} = {value}"));
            let label = swept.chain(own).collect::<Vec<_>>().join(", ");
            let setting = Setting { parameters, series: series.clone(), seed };
            steps.push(Step { x, digest: digest(&figure.method, &setting), setting, label });
        }
    }
    Ok(steps)
}

/// The place of a swept value on the x axis: the number, the text, or the `name` of a table of parameters.
fn x_of(value: &Value) -> X {
    match value {
        Value::Integer(x) => X::Number(*x as f64),
        Value::Float(x) => X::Number(*x),
        Value::String(text) => X::Text(text.clone()),
        Value::Table(table) => table.get("name").map_or_else(|| X::Text(value.to_string()), x_of),
        other => X::Text(other.to_string()),
    }
}

/// 16 hexadecimal digits of method and setting.
fn digest(method: &str, setting: &Setting) -> String {
    let series: Vec<(&str, &str)> = setting.series.iter().map(|s| (s.name.as_str(), s.contestant())).collect();
    let text = format!("{method}\n{}\n{series:?}\n{}", setting.parameters, setting.seed);
    Md5::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Runs the steps of a figure that are not in the store yet.
/// # Errors
/// [`RunError`]; steps finished before the error are in the store.
pub fn run(
    paper: &Paper,
    figure: &Figure,
    plan: &Plan,
    store: &Store,
    watch: &mut dyn Watch,
) -> Result<Stored, RunError> {
    let id = format!("{}/{}", paper.id, figure.id);
    let not_runnable = |reason: String| RunError::NotRunnable { figure: id.clone(), reason };
    if !figure.is_runnable() {
        let reason = if figure.hardware.is_empty() { &figure.why } else { &figure.hardware };
        return Err(not_runnable(reason.clone()));
    }
    let method = methods::find(&figure.method).ok_or_else(|| not_runnable(format!("no method {}", figure.method)))?;
    let steps = steps(figure, plan.mode, plan.seed).map_err(not_runnable)?;
    run_steps(&id, (&paper.id, &figure.id), method, &steps, plan, store, watch)
}

/// Starts DPDK, if it is part of the build and some figure needs its tables, with space for the largest of them: it can
/// start only once per process, and the first figures to run may be small.
pub fn reserve<'a>(figures: impl Iterator<Item = &'a Figure>, plan: &Plan) {
    let asks = |step: &Step| step.setting.series.iter().any(|series| series.contestant().starts_with("rte_"));
    let size = |step: &Step| {
        let sizes = ["n", "capacity"].map(|name| step.setting.parameters.get(name).and_then(Value::as_integer));
        sizes.into_iter().flatten().max().unwrap_or(0).max(0) as u64
    };
    let steps = figures.filter(|figure| figure.is_runnable()).filter_map(|f| steps(f, plan.mode, plan.seed).ok());
    if let Some(largest) = steps.flatten().filter(asks).map(|step| size(&step)).max() {
        // A figure that cannot have its tables reports that itself.
        let _ = contestants::start_dpdk((1 << 30) + 160 * largest);
    }
}

pub(super) fn run_steps(
    id: &str,
    (paper, figure): (&str, &str),
    method: &Method,
    steps: &[Step],
    plan: &Plan,
    store: &Store,
    watch: &mut dyn Watch,
) -> Result<Stored, RunError> {
    let before = if plan.again { None } else { store.load(paper, figure)? };
    // Two versions of a paper show some measurements under two numbers.
    let mut others = if plan.again { Vec::new() } else { store.complete() };
    let here = Machine::read();
    others.retain(|Stored { record, .. }| {
        (&record.machine.cpu, record.machine.cores, &*record.version)
            == (&here.cpu, here.cores, env!("CARGO_PKG_VERSION"))
    });
    let measured = |step: &Step| {
        let mut known = others.iter().filter_map(|other| Some((&other.record.figure, other.step(&step.digest)?)));
        // The label says what is swept, which is the x of the points.
        known.find(|(_, (known, _))| known.label == step.label && known.measured_for.as_deref() != Some(id))
    };
    let mut stored = Stored {
        record: Record {
            figure: id.to_owned(),
            method: method.name.to_owned(),
            mode: plan.mode,
            seed: plan.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: Machine::read(),
            kept: before.as_ref().and_then(|before| before.record.kept.clone()),
            steps: Vec::new(),
            complete: false,
        },
        points: Vec::new(),
    };
    for (at, step) in steps.iter().enumerate() {
        if let Some((known, points)) = before.as_ref().and_then(|before| before.step(&step.digest)) {
            stored.record.steps.push(known.clone());
            stored.points.extend(points);
            continue;
        }
        if let Some((of, (known, points))) = measured(step) {
            let measured_for = known.measured_for.as_ref().unwrap_or(of).clone();
            watch.say(&format!("{}: measured for {measured_for}", step.label));
            let (measured_for, seconds) = (Some(measured_for), 0.0);
            stored.record.steps.push(StepRecord { measured_for, seconds, ..known.clone() });
            stored.points.extend(points);
            continue;
        }
        watch.step(at, steps.len(), &step.label);
        let mut recorder = Recorder { watch, missing: Vec::new(), notes: Vec::new() };
        let start = Instant::now();
        let points = (method.run)(&step.setting, &mut recorder).map_err(|error| RunError::Step {
            figure: id.to_owned(),
            step: step.label.clone(),
            error,
        })?;
        let Recorder { missing, notes, .. } = recorder;
        stored.points.extend(points.into_iter().map(|mut point| {
            point.x = point.x.or_else(|| step.x.clone());
            (step.digest.clone(), point)
        }));
        stored.record.steps.push(StepRecord {
            digest: step.digest.clone(),
            label: step.label.clone(),
            seconds: (start.elapsed().as_secs_f64() * 100.0).round() / 100.0,
            source: Some(source(Path::new(env!("CARGO_MANIFEST_DIR")))),
            missing,
            notes,
            measured_for: None,
        });
        stored.record.complete = at + 1 == steps.len();
        store.save(paper, figure, &stored)?;
    }
    watch.step(steps.len(), steps.len(), "");
    if !stored.record.complete {
        // The last step was there already; the record may still be of a run with more of them.
        stored.record.complete = true;
        if let Some(before) = before {
            stored.record.machine = before.record.machine;
            stored.record.version = before.record.version;
        }
        store.save(paper, figure, &stored)?;
    }
    Ok(stored)
}

/// Forwards what a method reports and keeps the missing series.
struct Recorder<'a> {
    watch: &'a mut dyn Watch,
    missing: Vec<Missing>,
    notes: Vec<String>,
}

impl Progress for Recorder<'_> {
    fn say(&mut self, text: &str) {
        self.watch.say(text);
    }

    fn lacks(&mut self, series: &str, reason: &str) {
        self.watch.say(&format!("without {series}: {reason}"));
        self.missing.push(Missing { series: series.to_owned(), reason: reason.to_owned() });
    }

    fn differs(&mut self, text: &str) {
        self.watch.say(text);
        self.notes.push(text.to_owned());
    }
}
