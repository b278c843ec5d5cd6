//! The cost of distinguishing alien names from live ones, over [`crate::bench::aliens`].

use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, aliens};
use crate::figures::Point;
use crate::figures::catalogue::from_text;
use crate::names::NameSet;
use crate::report::Row;

pub(super) const METHODS: &[Method] = &[Method {
    name: "aliens",
    about: "lookups of live or alien names, memory, aliens that pass; contestants of `fibula bench aliens`",
    check: |setting| check(setting).map(drop),
    run,
    toy: "n = 2000\nruns = 1\noperations = 2000",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    #[serde(deserialize_with = "from_text")]
    names: NameSet,
    batch: u32,
    runs: u32,
    operations: u64,
    column: Column,
}

/// The reported quantity of each contestant.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Column {
    /// Lookups of live names, in M/s.
    Live,
    /// Lookups of aliens, in M/s.
    Alien,
    /// Memory in MiB.
    Mib,
    /// Share of aliens that get an action.
    Answered,
}

fn check(setting: &Setting) -> Result<(Options, Column), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let known = aliens::CONTESTANTS.map(|(name, _)| name);
    if let Some(name) = setting.contestants().into_iter().find(|name| !known.contains(&&**name)) {
        return Err(BenchError::UnknownContestant { name, known: known.join(", ") });
    }
    let options = Options {
        n: vec![parameters.n],
        contestants: setting.contestants(),
        threads: vec![1],
        value_bits: parameters.value_bits,
        names: parameters.names,
        runs: parameters.runs,
        batch: parameters.batch,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::MulAdd,
        operations: Some(parameters.operations),
    };
    options.check()?;
    Ok((options, parameters.column))
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, column) = check(setting)?;
    let mut rows = Rows::new(setting, progress);
    aliens::run(&options, &mut rows)?;
    let bench = if matches!(column, Column::Alien) { "aliens/alien" } else { "aliens/live" };
    let rows: Vec<Row> = rows.rows.into_iter().filter(|row| row.bench == bench).collect();
    let exact = |of: &dyn Fn(&Row) -> Option<f64>| {
        let rows: Vec<Row> =
            rows.iter().filter_map(|row| of(row).map(|y| Row { median: y, min: y, max: y, ..row.clone() })).collect();
        setting.points(&rows, |y| y)
    };
    Ok(match column {
        Column::Live | Column::Alien => setting.points(&rows, |rate| rate),
        Column::Mib => exact(&|row| Some(row.bits_per_name? * row.n as f64 / f64::from(8 << 20))),
        Column::Answered => exact(&|row| row.aliens_answered),
    })
}
