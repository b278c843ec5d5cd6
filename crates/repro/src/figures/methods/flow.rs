//! Flow tables, over [`crate::bench::flow`]: all tables and figures of the Cuckoo++ paper.

use serde::Deserialize;

use super::flow_lines::{self, Form};
use super::flow_model;
use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::flow::{self, Options, Part, books};
use crate::figures::{Point, X};

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "flow-lookup",
        about: "lookups a second of 16-byte keys, in M/s, in tables that are filled to a load; x is the share of absent keys where that is a list",
        check: |setting| setting.parameters::<Lookup>()?.options(setting).check(),
        run: lookup,
        toy: "capacity = 1024\nruns = 1\noperations = 2048",
    },
    Method {
        name: "flow-insert",
        about: "inserts a second into an empty table up to a load, in M/s; in batches, or `one by one`",
        check: |setting| setting.parameters::<Insert>()?.options(setting).check(),
        run: insert,
        toy: "capacity = 1024\nruns = 1",
    },
    Method {
        name: "flow-secondary",
        about: "% of the entries in their second bucket against the load; x is the load",
        check: |setting| setting.parameters::<Secondary>()?.check(setting),
        run: secondary,
        toy: "capacity = 4096",
    },
    Method {
        name: "flow-moved",
        about: "% of the buckets that have 0, 1, 2 ... entries in their second bucket; x is that number",
        check: |setting| setting.parameters::<Moved>()?.options(setting).check(),
        run: moved,
        toy: "capacity = 4096",
    },
    Method {
        name: "flow-moves",
        about: "entries that were moved per insert into an empty table; x is the load that it has then",
        check: |setting| setting.parameters::<Moves>()?.options(setting).check(),
        run: moves,
        toy: "capacity = 4096",
    },
    Method {
        name: "flow-hint",
        about: "share of absent keys for which a hint is wrong, after a fill and after 30 turnovers",
        check: |setting| setting.parameters::<Hint>()?.options(setting).check(),
        run: hint,
        toy: "capacity = 1024",
    },
    Method {
        name: "flow-lines",
        about: "lines of code of a policy, without timers and with; x says which",
        check: |setting| lines(setting).map(drop),
        run: |setting, _| lines(setting),
        toy: "",
    },
    Method {
        name: "flow-memory",
        about: "bytes of a slot with keys and values of 16 bytes",
        check: |setting| setting.parameters::<Memory>()?.options(setting).check(),
        run: memory,
        toy: "capacity = 1024",
    },
];

/// The options of the bench that are not parameters of a method.
fn options(setting: &Setting, capacity: u64, load: Vec<f64>, part: Part) -> Options {
    Options {
        capacity: vec![capacity],
        load,
        absent: vec![0.0],
        contestants: setting.contestants(),
        threads: vec![1],
        runs: 1,
        batch: 32,
        in_flight: vec![1],
        seed: setting.seed,
        operations: None,
        parts: vec![part],
        is_small: false,
    }
}

/// Names in the order of first occurrence.
fn once_each<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut once: Vec<String> = Vec::new();
    names.for_each(|name| {
        if !once.iter().any(|known| known == name) {
            once.push(name.to_owned())
        }
    });
    once
}

/// One share, or a list of them that becomes the x axis.
#[derive(Deserialize)]
#[serde(untagged)]
enum Shares {
    One(f64),
    Many(Vec<f64>),
}

/// Parameters of `flow-lookup`; see [`Options`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lookup {
    capacity: u64,
    load: f64,
    absent: Shares,
    #[serde(default = "one")]
    threads: u32,
    #[serde(default = "thirty_two")]
    batch: u32,
    #[serde(default = "one")]
    in_flight: u32,
    runs: u32,
    operations: u64,
}

fn one() -> u32 {
    1
}

fn thirty_two() -> u32 {
    32
}

impl Lookup {
    fn options(&self, setting: &Setting) -> Options {
        let absent = match &self.absent {
            Shares::One(share) => vec![*share],
            Shares::Many(shares) => shares.clone(),
        };
        Options {
            absent,
            threads: vec![self.threads],
            runs: self.runs,
            batch: self.batch,
            in_flight: vec![self.in_flight],
            operations: Some(self.operations),
            ..options(setting, self.capacity, vec![self.load], Part::Lookup)
        }
    }
}

fn lookup(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Lookup = setting.parameters()?;
    let mut options = parameters.options(setting);
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    if parameters.threads > processors {
        progress.say(&format!("{} threads, and {processors} processors: not measured", parameters.threads));
        return Ok(Vec::new());
    }
    fit(&mut options, progress);
    let mut rows = Rows::new(setting, progress);
    flow::run(&options, &mut rows)?;
    let rows = rows.rows;
    if let Shares::One(_) = parameters.absent {
        return Ok(setting.points(&rows, |rate| rate));
    }
    // One table per share, all with the same contestants.
    let tables = rows.chunks((rows.len() / options.absent.len()).max(1));
    let points = tables.zip(&options.absent).flat_map(|(rows, &absent)| {
        let points = setting.points(rows, |rate| rate);
        points.into_iter().map(move |point| Point { x: Some(X::Number(absent)), ..point })
    });
    Ok(points.collect())
}

/// Maximum bytes per slot of any contestant.
const BYTES_A_SLOT: u64 = 64;

/// Halves the capacity until all tables fit the free memory.
fn fit(options: &mut Options, progress: &mut dyn Progress) {
    let Some(free) = free_bytes() else { return };
    let tables = options.contestants.len() as u64 * u64::from(options.threads[0]);
    let wanted = options.capacity[0];
    let capacity = &mut options.capacity[0];
    while *capacity > 1 << 20 && *capacity * tables * BYTES_A_SLOT > free / 8 * 7 {
        *capacity /= 2;
    }
    if *capacity < wanted {
        progress.differs(&format!(
            "{tables} tables of {wanted} slots need {} GB, {} GB are free: measured with {capacity} slots.",
            (wanted * tables * BYTES_A_SLOT).div_ceil(1 << 30),
            free >> 30,
        ));
    }
}

/// Memory available without swapping; `None` if the system does not say.
fn free_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Parameters of `flow-insert`; see [`Options`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Insert {
    capacity: u64,
    load: f64,
    runs: u32,
}

impl Insert {
    fn options(&self, setting: &Setting) -> Options {
        let names = setting.series.iter().map(|series| series.contestant().trim_end_matches(flow::ONE_BY_ONE));
        let contestants = once_each(names);
        Options { runs: self.runs, contestants, ..options(setting, self.capacity, vec![self.load], Part::Insert) }
    }
}

fn insert(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let mut rows = Rows::new(setting, progress);
    flow::run(&setting.parameters::<Insert>()?.options(setting), &mut rows)?;
    Ok(setting.points(&rows.rows, |rate| rate))
}

/// Parameters of `flow-secondary`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Secondary {
    capacity: u64,
    load: Vec<f64>,
    turnovers: usize,
}

/// Suffix of a policy whose table was turned over.
const TURNED_OVER: &str = " turned over";
/// Prefix of the number of slots of a modelled bucket.
const MODEL: &str = "model-";

impl Secondary {
    /// The series that are policies: the policy, whether it is turned over, and the name of the series.
    fn policies(setting: &Setting) -> impl Iterator<Item = (&str, bool, &str)> {
        let real = setting.series.iter().filter(|series| slots_of(series.contestant()).is_none());
        real.map(|series| match series.contestant().strip_suffix(TURNED_OVER) {
            Some(policy) => (policy, true, series.name.as_str()),
            None => (series.contestant(), false, series.name.as_str()),
        })
    }

    fn options(&self, setting: &Setting) -> Options {
        let contestants = once_each(Self::policies(setting).map(|(policy, _, _)| policy));
        Options { contestants, ..options(setting, self.capacity, self.load.clone(), Part::Insert) }
    }

    fn check(&self, setting: &Setting) -> Result<(), BenchError> {
        let wrong = |text: &str| Err(BenchError::Setting(text.into()));
        if !self.load.is_sorted() || self.load.is_empty() {
            return wrong("loads ascend");
        }
        let mut slots = setting.series.iter().filter_map(|series| slots_of(series.contestant()));
        if slots.any(|slots| !(1..=8).contains(&slots)) {
            return wrong("buckets of 1 to 8 slots");
        }
        self.options(setting).check()
    }
}

/// Slots per bucket that a contestant models.
fn slots_of(contestant: &str) -> Option<usize> {
    contestant.strip_prefix(MODEL)?.parse().ok()
}

fn secondary(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Secondary = setting.parameters()?;
    parameters.check(setting)?;
    let options = parameters.options(setting);
    let mut points = Vec::new();
    let mut add = |series: &str, shares: &[f64]| {
        let at = parameters.load.iter().zip(shares);
        points.extend(at.map(|(&load, share)| Point::exact(series, Some(X::Number(load)), 100.0 * share)));
    };
    for name in &options.contestants {
        let of_name =
            |turned: bool| Secondary::policies(setting).find(|&(policy, over, _)| policy == name && over == turned);
        let turnovers = if of_name(true).is_some() { parameters.turnovers } else { 0 };
        let shares = books::second_shares(&options, name, turnovers, &mut Rows::new(setting, progress))?;
        for (turned, shares) in [false, true].into_iter().zip(&shares) {
            if let Some((_, _, series)) = of_name(turned) {
                add(series, shares);
            }
        }
    }
    for series in &setting.series {
        if let Some(slots) = slots_of(series.contestant()) {
            let capacity = parameters.capacity as usize;
            add(&series.name, &flow_model::second_shares(capacity, slots, &parameters.load, setting.seed));
        }
    }
    Ok(points)
}

/// Parameters of `flow-moved`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Moved {
    capacity: u64,
    load: f64,
    #[serde(default)]
    turnovers: usize,
}

/// The policy whose counters are read.
const COUNTING: &str = "cuckoo++";

impl Moved {
    fn options(&self, setting: &Setting) -> Options {
        let contestants = vec![COUNTING.to_owned()];
        Options { contestants, ..options(setting, self.capacity, vec![self.load], Part::Insert) }
    }
}

fn moved(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Moved = setting.parameters()?;
    let (options, rows) = (parameters.options(setting), &mut Rows::new(setting, progress));
    let counts = books::moved_counts(&options, COUNTING, parameters.turnovers, rows)?.unwrap_or_default();
    let n_buckets = counts.iter().sum::<u64>() as f64;
    let of_series = |series: &str| -> Vec<Point> {
        let shares = counts.iter().map(|&count| 100.0 * count as f64 / n_buckets);
        (0..).zip(shares).map(|(moved, share)| Point::exact(series, Some(X::Number(f64::from(moved))), share)).collect()
    };
    Ok(setting.series.iter().flat_map(|series| of_series(&series.name)).collect())
}

/// Parameters of `flow-moves`. The loads ascend.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Moves {
    capacity: u64,
    load: Vec<f64>,
}

impl Moves {
    fn options(&self, setting: &Setting) -> Options {
        options(setting, self.capacity, self.load.clone(), Part::Insert)
    }
}

fn moves(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let options = setting.parameters::<Moves>()?.options(setting);
    let mut points = Vec::new();
    for series in &setting.series {
        let rows = &mut Rows::new(setting, progress);
        let moves = books::moves_an_insert(&options, series.contestant(), rows)?;
        let at = options.load.iter().zip(moves);
        points.extend(at.map(|(&load, moves)| Point::exact(&series.name, Some(X::Number(load)), moves)));
    }
    Ok(points)
}

/// Parameters of `flow-hint`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hint {
    capacity: u64,
    load: f64,
}

/// Suffix of a policy whose table was only filled.
const FILLED: &str = " filled";

impl Hint {
    fn options(&self, setting: &Setting) -> Options {
        let names = setting.series.iter().map(|series| series.contestant());
        let contestants = once_each(names.map(|name| name.trim_end_matches(FILLED).trim_end_matches(TURNED_OVER)));
        Options { contestants, ..options(setting, self.capacity, vec![self.load], Part::Hint) }
    }
}

fn hint(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let mut rows = Rows::new(setting, progress);
    flow::run(&setting.parameters::<Hint>()?.options(setting), &mut rows)?;
    let mut rows = rows.rows;
    for row in &mut rows {
        row.contestant += if row.bench.contains("filled") { FILLED } else { TURNED_OVER };
    }
    Ok(setting.points(&rows, |percent| percent / 100.0))
}

/// `flow-lines` has no parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn lines(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let Nothing {} = setting.parameters()?;
    let mut points = Vec::new();
    for series in &setting.series {
        let form = Form::of(series.contestant())
            .ok_or_else(|| BenchError::Setting(format!("no lines of {} are counted", series.contestant())))?;
        for (timed, x) in [(false, "no timer"), (true, "timer")] {
            let n = flow_lines::count(form, timed) as f64;
            points.push(Point::exact(&series.name, Some(X::Text(x.into())), n));
        }
    }
    Ok(points)
}

/// Parameters of `flow-memory`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    capacity: u64,
}

impl Memory {
    fn options(&self, setting: &Setting) -> Options {
        options(setting, self.capacity, vec![0.5], Part::Insert)
    }
}

fn memory(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let options = setting.parameters::<Memory>()?.options(setting);
    let mut points = Vec::new();
    for series in &setting.series {
        let rows = &mut Rows::new(setting, progress);
        if let Some(bytes) = books::bytes_a_slot(&options, series.contestant(), rows)? {
            points.push(Point::exact(&series.name, None, bytes));
        }
    }
    Ok(points)
}
