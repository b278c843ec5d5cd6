//! Frames of 64 bytes a second through the real worker loop between ports in memory, by the traffic that comes, over
//! [`crate::bench::forward`].

use fib::designs::Design;
use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, forward};
use crate::figures::Point;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "forward-traffic",
    about: "frames a second, in M/s, of FIB designs and of `empty`: names asked for equally often, by Zipf, or alien",
    check: |setting| options(setting).map(drop),
    run,
    toy: "n = 2000\nruns = 1\nframes = 4096\nworkers = 1",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    traffic: Traffic,
    workers: u32,
    runs: u32,
    /// Frames a run and worker.
    frames: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Traffic {
    /// Valid names from another switch, each equally often.
    Uniform,
    /// The same in proportion to 1/rank.
    Zipf,
    /// From hosts, to names that no host has.
    Alien,
}

impl Traffic {
    /// What the bench calls it: the bench, and the names.
    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Uniform => ("forward/core, 64 bytes", NameSet::Mac.as_str()),
            Self::Zipf => ("forward/core, 64 bytes", NameSet::Zipf.as_str()),
            Self::Alien => ("forward/gateway, 64 bytes", forward::UNKNOWN),
        }
    }
}

fn options(setting: &Setting) -> Result<(Options, Traffic), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    for contestant in setting.contestants().iter().filter(|name| *name != "empty") {
        Design::by_name(contestant).map_err(|error| BenchError::Setting(error.to_string()))?;
    }
    let options = Options {
        n: vec![parameters.n],
        contestants: setting.contestants(),
        threads: vec![parameters.workers],
        value_bits: parameters.value_bits,
        names: NameSet::Mac,
        runs: parameters.runs,
        batch: 32,
        seed: setting.seed,
        family: Family::MulAdd,
        operations: Some(parameters.frames),
    };
    options.check()?;
    Ok((options, parameters.traffic))
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, traffic) = options(setting)?;
    let mut rows = Rows::new(setting, progress);
    forward::run(&options, &mut rows)?;
    rows.rows.retain(|row| (&*row.bench, &*row.names) == traffic.row());
    Ok(setting.points(&rows.rows, |rate| rate))
}
