//! Time to build a structure from names and values, over [`crate::bench::build`].

use ::lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, build};
use crate::contestants;
use crate::figures::Point;
use crate::figures::catalogue::from_text;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "build",
    about: "time to build from names and values, digests included, in s; contestants of `fibula bench lookup`",
    check: |setting| options(setting).map(drop),
    run: run_build,
    toy: "n = 2000\nruns = 1\nthreads = 1",
}];

/// Parameters of `build`; see [`Options`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    #[serde(deserialize_with = "from_text")]
    names: NameSet,
    threads: u32,
    runs: u32,
}

fn options(setting: &Setting) -> Result<Options, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let contestants = setting.contestants();
    if contestants.is_empty() {
        return Err(BenchError::Setting("there is no series; give at least one".into()));
    }
    contestants::choose(&contestants)?;
    let options = Options {
        n: vec![parameters.n],
        contestants,
        threads: vec![parameters.threads],
        value_bits: parameters.value_bits,
        names: parameters.names,
        runs: parameters.runs,
        batch: 32,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::default(),
        operations: None,
    };
    options.check()?;
    Ok(options)
}

fn run_build(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let options = options(setting)?;
    let mut rows = Rows::new(setting, progress);
    build::run(&options, &mut rows)?;
    // There is also a row with the peak memory; rows of times are in ns per name.
    let times: Vec<_> = rows.rows.into_iter().filter(|row| row.bench == "build").collect();
    let points = setting.points(&times, |ns| ns * options.n[0] as f64 * 1e-9);
    if options.threads[0] > 1 {
        for series in setting.series.iter().filter(|series| points.iter().all(|point| point.series != series.name)) {
            progress.lacks(&series.name, "it builds on one thread only");
        }
    }
    Ok(points)
}
