//! Lookups per second, over [`crate::bench::lookup`].

use ::lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::Options;
use crate::bench::lookup::{self, Asked};
use crate::contestants;
use crate::figures::Point;
use crate::figures::catalogue::from_text;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "lookup",
    about: "lookups a second, in M/s; contestants of `fibula bench lookup`",
    check: |setting| options(setting)?.check(),
    run: lookup,
    toy: "n = 2000\nruns = 1\noperations = 4096\nthreads = 1",
}];

/// Parameters of `lookup`; see [`Options`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    #[serde(default = "eight")]
    value_bits: u8,
    #[serde(default = "lfsr", deserialize_with = "from_text")]
    names: NameSet,
    #[serde(default = "one")]
    threads: u32,
    #[serde(default = "thirty_two")]
    batch: u32,
    #[serde(default, deserialize_with = "from_text")]
    hash: Family,
    runs: u32,
    #[serde(default)]
    operations: Option<u64>,
    /// Whether all names looked up are alien: for contestants that recognise them.
    #[serde(default)]
    aliens: bool,
}

fn eight() -> u8 {
    8
}

fn one() -> u32 {
    1
}

fn thirty_two() -> u32 {
    32
}

fn lfsr() -> NameSet {
    NameSet::Lfsr
}

fn options(setting: &Setting) -> Result<Options, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let contestants = setting.contestants();
    if contestants.is_empty() {
        return Err(BenchError::Setting("there is no series; give at least one".into()));
    }
    contestants::choose(&contestants)?;
    Ok(Options {
        n: vec![parameters.n],
        contestants,
        threads: vec![parameters.threads],
        value_bits: parameters.value_bits,
        names: parameters.names,
        runs: parameters.runs,
        batch: parameters.batch,
        in_flight: vec![1],
        seed: setting.seed,
        family: parameters.hash,
        operations: parameters.operations,
    })
}

fn lookup(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let mut rows = Rows::new(setting, progress);
    let asked = if setting.parameters::<Parameters>()?.aliens { Asked::Aliens } else { Asked::Live };
    lookup::run_asked(&options(setting)?, asked, &mut rows)?;
    Ok(setting.points(&rows.rows, |rate| rate))
}
