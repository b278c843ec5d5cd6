//! Frames per second through the Click modular router, over [`crate::bench::click`].

use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, click};
use crate::figures::Point;

pub(super) const METHODS: &[Method] = &[Method {
    name: "click",
    about: "frames a second through Click, in M/s, of its elements for FIB files and of `empty`, which looks nothing up",
    check: |setting| check(setting).map(drop),
    run,
    toy: "n = 2000\nruns = 1\nframes = 4096",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    names: String,
    value_bits: u8,
    runs: u32,
    /// Frames per run, at least.
    frames: u64,
}

fn check(setting: &Setting) -> Result<Options, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let options = Options {
        n: vec![parameters.n],
        contestants: setting.contestants(),
        threads: vec![1],
        value_bits: parameters.value_bits,
        names: parameters.names.parse().map_err(BenchError::Setting)?,
        runs: parameters.runs,
        batch: 1,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::MulAdd,
        operations: Some(parameters.frames),
    };
    click::check(&options)?;
    Ok(options)
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let options = check(setting)?;
    let mut rows = Rows::new(setting, progress);
    click::run(&options, &mut rows)?;
    Ok(setting.points(&rows.rows, |rate| rate))
}
