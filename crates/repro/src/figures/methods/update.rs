//! Changes per second, and concurrent lookups, over [`crate::bench::update`].

use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Setting};
use crate::BenchError;
use crate::bench::{Listener, Options, update};
use crate::figures::catalogue::from_text;
use crate::figures::{Point, X};
use crate::names::NameSet;
use crate::report::Row;

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "update",
        about: "changes a second, in M/s: `concise, insert`, and so on, of tables of `fibula bench update`",
        check: |setting| tables(setting).map(drop),
        run: changes,
        toy: "n = 2000\nruns = 1\noperations = 500",
    },
    Method {
        name: "update-rebuilds",
        about: "how often the additions of `update` make a table of `concise-option2` anew; x is the run",
        check: |setting| rebuilt(setting).map(drop),
        run: rebuilds,
        toy: "n = 2000\nruns = 1\noperations = 500",
    },
    Method {
        name: "update-beside",
        about: "lookups a second, in M/s, beside so many updates a second: `concise`, `line`; `concise, idle` without",
        check: |setting| beside_settings(setting).map(drop),
        run: beside,
        toy: "n = 2000\nruns = 1\noperations = 20000\nupdates_per_s = 1000",
    },
];

const TABLES: [&str; 5] = ["concise", "concise-option2", "line", "hashbrown", "rte_hash"];
const KINDS: [&str; 3] = ["insert", "alter", "remove"];
/// Suffix of a series that is measured without updates.
const IDLE: &str = ", idle";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    #[serde(deserialize_with = "from_text")]
    names: NameSet,
    runs: u32,
    operations: u64,
}

impl Parameters {
    fn options(&self, contestants: Vec<String>, batch: u32, seed: u64) -> Options {
        Options {
            n: vec![self.n],
            contestants,
            threads: vec![1],
            value_bits: self.value_bits,
            names: self.names,
            runs: self.runs,
            batch,
            in_flight: vec![1],
            seed,
            family: Family::MulAdd,
            operations: Some(self.operations),
        }
    }
}

/// The tables that series name, each once.
fn tables(setting: &Setting) -> Result<(Options, Vec<String>), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let mut tables: Vec<String> = Vec::new();
    for contestant in setting.contestants() {
        match contestant.split_once(", ") {
            Some((table, kind)) if TABLES.contains(&table) && KINDS.contains(&kind) => {
                if !tables.iter().any(|known| known == table) {
                    tables.push(table.to_owned());
                }
            }
            _ => {
                let known =
                    format!("{}, each with {}", TABLES.join(", "), KINDS.map(|k| format!("`, {k}`")).join(", "));
                return Err(BenchError::UnknownContestant { name: contestant, known });
            }
        }
    }
    let options = parameters.options(tables.clone(), 1, setting.seed);
    options.check()?;
    Ok((options, tables))
}

/// Collects rows; an unavailable contestant is missing in all series whose names begin with it.
struct Collect<'a> {
    rows: Vec<Row>,
    setting: &'a Setting,
    progress: &'a mut dyn Progress,
}

impl Listener for Collect<'_> {
    fn table(&mut self, rows: &[Row]) {
        self.rows.extend_from_slice(rows);
    }

    fn say(&mut self, text: &str) {
        self.progress.say(text);
    }

    fn goes_without(&mut self, contestant: &str, error: &BenchError) -> bool {
        let of_it = |name: &str| name.split_once(", ").is_some_and(|(table, _)| table == contestant);
        for series in self.setting.series.iter().filter(|series| of_it(series.contestant())) {
            self.progress.lacks(&series.name, &error.to_string());
        }
        true
    }
}

/// The points of rows, whose samples `y` converts; `contestant` gives the name that series use for a row.
fn points(
    setting: &Setting,
    rows: &[Row],
    contestant: impl Fn(&Row) -> Option<String>,
    y: impl Fn(f64) -> f64,
) -> Vec<Point> {
    let renamed: Vec<Row> =
        rows.iter().filter_map(|row| Some(Row { contestant: contestant(row)?, ..row.clone() })).collect();
    setting.points(&renamed, y)
}

fn changes(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, _) = tables(setting)?;
    let mut collect = Collect { rows: Vec::new(), setting, progress };
    update::run(&options, &mut collect)?;
    let name = |row: &Row| Some(format!("{}, {}", row.contestant, row.bench.strip_prefix("update/")?));
    // From ns per change.
    Ok(points(setting, &collect.rows, name, |ns| 1e3 / ns))
}

/// The table whose rebuilds are counted.
const REBUILT: &str = "concise-option2";

fn rebuilt(setting: &Setting) -> Result<Options, BenchError> {
    if let Some(name) = setting.contestants().into_iter().find(|name| name != REBUILT) {
        return Err(BenchError::UnknownContestant { name, known: REBUILT.into() });
    }
    let options = setting.parameters::<Parameters>()?.options(setting.contestants(), 1, setting.seed);
    options.check()?;
    Ok(options)
}

fn rebuilds(setting: &Setting, _: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let of_runs = update::rebuilds_of_additions(&rebuilt(setting)?)?;
    let of_series = |name: &str| -> Vec<Point> {
        (1u32..).zip(&of_runs).map(|(run, &n)| Point::exact(name, Some(X::Number(run.into())), n as f64)).collect()
    };
    Ok(setting.series.iter().flat_map(|series| of_series(&series.name)).collect())
}

#[derive(Deserialize)]
struct Rate {
    updates_per_s: u64,
    batch: u32,
}

/// The tables to measure, and how.
fn beside_settings(setting: &Setting) -> Result<(Options, Rate, Vec<String>), BenchError> {
    let rate: Rate = setting.parameters()?;
    let mut rest = setting.clone();
    rest.parameters.retain(|name, _| name != "updates_per_s" && name != "batch");
    let parameters: Parameters = rest.parameters()?;
    let mut tables: Vec<String> = Vec::new();
    for contestant in setting.contestants() {
        let table = contestant.strip_suffix(IDLE).unwrap_or(&contestant);
        if !["concise", "line"].contains(&table) {
            return Err(BenchError::UnknownContestant { name: contestant, known: "concise, line".into() });
        }
        if !tables.iter().any(|known| known == table) {
            tables.push(table.to_owned());
        }
    }
    if rate.updates_per_s == 0 || rate.updates_per_s > 100_000_000 {
        return Err(BenchError::Setting(format!("there are {} updates a second; use 1 to 100M", rate.updates_per_s)));
    }
    let options = parameters.options(tables.clone(), rate.batch, setting.seed);
    options.check()?;
    Ok((options, rate, tables))
}

fn beside(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, rate, tables) = beside_settings(setting)?;
    let mut all = Vec::new();
    for table in tables {
        progress.say(&format!("lookups in {table} beside {} updates a second", rate.updates_per_s));
        let mut collect = Collect { rows: Vec::new(), setting, progress };
        update::beside_at_rate(&table, &options, rate.updates_per_s, &mut collect)?;
        let rows = collect.rows;
        if let Some(row) = rows.iter().find(|row| row.contestant != "idle") {
            progress.say(&row.note);
        }
        let name = |row: &Row| Some(if row.contestant == "idle" { format!("{table}{IDLE}") } else { table.clone() });
        all.extend(points(setting, &rows, name, |rate| rate));
    }
    Ok(all)
}
