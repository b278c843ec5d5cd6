//! Longest prefix match, over [`crate::bench::lpm`].

use std::collections::BTreeMap;

use lookup::lpm::Prefix;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::lpm::{self, CONTESTANTS, Destinations, Options};
use crate::figures::{Point, X};

pub(super) const METHODS: &[Method] = &[
    Method {
        name: "lpm",
        about: "lookups a second in a table of IPv4 prefixes, in M/s; x is the kind of addresses where that is a list",
        check: |setting| setting.parameters::<Lookup>()?.check(setting),
        run: lookup,
        toy: "prefixes = 300\nruns = 1\noperations = 2000",
    },
    Method {
        name: "lpm-probes",
        about: "hash probes of a lookup behind filters, expected and counted; x is the kind of addresses",
        check: |setting| setting.parameters::<Probes>()?.check(),
        run: |setting, _| probes(setting),
        toy: "prefixes = 300\noperations = 2000",
    },
];

/// One kind of addresses, or several that become the x axis.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kinds {
    One(String),
    Many(Vec<String>),
}

impl Kinds {
    fn parse(&self) -> Result<Vec<Destinations>, BenchError> {
        let names = match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        };
        names.iter().map(|name| name.parse().map_err(BenchError::Setting)).collect()
    }
}

/// Prefixes and their source: at most `n`, evenly from the list that `FIBULA_PREFIXES` names, or generated.
fn table(n: usize, seed: u64) -> Result<(Vec<Prefix<u32>>, String), BenchError> {
    let Some(text) = lpm::listed()? else { return Ok((lpm::generate(n, seed), "generated".into())) };
    let lines = text.lines().filter(|line| !line.contains(':') && !line.is_empty() && !line.starts_with('#'));
    let prefixes = lines.map(|line| {
        let prefix = line.split(',').next().unwrap_or_default().trim();
        prefix.parse().map_err(|error| BenchError::Setting(format!("FIBULA_PREFIXES, `{line}`: {error}")))
    });
    let mut prefixes: Vec<Prefix<u32>> = prefixes.collect::<Result<_, _>>()?;
    prefixes.sort_by_key(|prefix| (prefix.address(), prefix.len()));
    prefixes.dedup();
    let step = prefixes.len().div_ceil(n).max(1);
    Ok((prefixes.into_iter().step_by(step).collect(), "of FIBULA_PREFIXES".into()))
}

fn options(setting: &Setting, destinations: Vec<Destinations>, operations: u64) -> Options {
    Options {
        prefixes: Vec::new(),
        source: "generated".into(),
        destinations,
        trace: Vec::new(),
        contestants: setting.contestants(),
        runs: 1,
        batch: 32,
        seed: setting.seed,
        operations: Some(operations),
    }
}

/// Parameters of `lpm`: `prefixes` is their number, or `table` is one of `sizes`, of which a share `scale` is taken.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lookup {
    destinations: Kinds,
    #[serde(default)]
    prefixes: Option<usize>,
    #[serde(default)]
    table: Option<String>,
    #[serde(default)]
    sizes: BTreeMap<String, usize>,
    #[serde(default = "whole")]
    scale: f64,
    runs: u32,
    operations: u64,
}

fn whole() -> f64 {
    1.0
}

impl Lookup {
    fn check(&self, setting: &Setting) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::Setting(text));
        let known = |name: &String| CONTESTANTS.iter().any(|(known, _)| known == name);
        if let Some(name) = setting.contestants().into_iter().find(|name| !known(name)) {
            let known = CONTESTANTS.map(|(name, _)| name).join(", ");
            return Err(BenchError::UnknownContestant { name, known });
        }
        if self.runs == 0 || self.operations == 0 {
            return wrong("at least one run and one lookup".into());
        }
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            return wrong(format!("the scale is {}; use more than 0 and at most 1", self.scale));
        }
        self.destinations.parse()?;
        match (&self.table, self.prefixes) {
            (Some(table), _) if !self.sizes.contains_key(table) => wrong(format!("no size of table {table}")),
            (None, None) => wrong("prefixes, or a table".into()),
            _ => Ok(()),
        }
    }

    /// The prefixes; the i-th table is generated from the i-th seed.
    fn prefixes(&self, setting: &Setting) -> Result<(Vec<Prefix<u32>>, String), BenchError> {
        let of_table = self.table.as_ref().zip(self.table.as_ref().and_then(|table| self.sizes.get(table)));
        match (of_table, self.prefixes) {
            (Some((table, size)), few) => {
                let number = self.sizes.keys().take_while(|name| *name != table).count() as u64;
                let n = few.unwrap_or((*size as f64 * self.scale) as usize);
                Ok((lpm::generate(n, setting.seed + number), "generated".into()))
            }
            (None, n) => table(n.unwrap_or(1), setting.seed),
        }
    }
}

fn lookup(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters: Lookup = setting.parameters()?;
    parameters.check(setting)?;
    let (prefixes, source) = parameters.prefixes(setting)?;
    progress.say(&format!("{} prefixes, {source}", prefixes.len()));
    let destinations = parameters.destinations.parse()?;
    let options = Options {
        prefixes,
        source,
        runs: parameters.runs,
        ..options(setting, destinations.clone(), parameters.operations)
    };
    let mut rows = Rows::new(setting, progress);
    lpm::run(&options, &mut rows)?;
    let mut rows = rows.rows;
    rows.retain(|row| row.bench.starts_with("lpm/lookup"));
    if let Kinds::One(_) = parameters.destinations {
        return Ok(setting.points(&rows, |rate| rate));
    }
    let tables = rows.chunks((rows.len() / destinations.len()).max(1));
    let points = tables.zip(destinations).flat_map(|(rows, kind)| {
        let points = setting.points(rows, |rate| rate);
        points.into_iter().map(move |point| Point { x: Some(X::Text(kind.name().into())), ..point })
    });
    Ok(points.collect())
}

/// Parameters of `lpm-probes`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Probes {
    destinations: Kinds,
    prefixes: usize,
    operations: u64,
}

/// The computed series.
const EXPECTED: &str = "expected";

impl Probes {
    fn check(&self) -> Result<(), BenchError> {
        if self.prefixes == 0 || self.operations == 0 {
            return Err(BenchError::Setting("there are no prefixes or no lookups; use at least 1 of each".into()));
        }
        self.destinations.parse().map(drop)
    }
}

fn probes(setting: &Setting) -> Result<Vec<Point>, BenchError> {
    let parameters: Probes = setting.parameters()?;
    parameters.check()?;
    let (prefixes, source) = table(parameters.prefixes, setting.seed)?;
    let options = Options {
        prefixes,
        source,
        contestants: Vec::new(),
        ..options(setting, parameters.destinations.parse()?, parameters.operations)
    };
    let mut points = Vec::new();
    let mut expected = Vec::new();
    for series in setting.series.iter().filter(|series| series.contestant() != EXPECTED) {
        expected = lpm::probes(&options, series.contestant())?;
        for (kind, probes) in &expected {
            points.push(Point::exact(&series.name, Some(X::Text(kind.name().into())), probes.counted));
        }
    }
    for series in setting.series.iter().filter(|series| series.contestant() == EXPECTED) {
        for (kind, probes) in &expected {
            points.push(Point::exact(&series.name, Some(X::Text(kind.name().into())), probes.expected));
        }
    }
    Ok(points)
}
