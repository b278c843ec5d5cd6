//! Frames of 64 bytes a second through the real worker loop between ports in memory, by the traffic that comes, over
//! [`crate::bench::forward`].

use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, forward};
use crate::figures::Point;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "forward-traffic",
    about: "frames a second, in M/s, of FIB designs and of `empty`: names asked for equally often, by Zipf, or alien",
    check: |setting| check(setting).map(drop),
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

fn check(setting: &Setting) -> Result<(Options, Traffic), BenchError> {
    let Parameters { n, value_bits, traffic, workers, runs, frames } = setting.parameters()?;
    Ok((super::forward::options(setting, (n, value_bits, workers, runs, frames))?, traffic))
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, traffic) = check(setting)?;
    let mut rows = Rows::new(setting, progress);
    forward::run(&options, &mut rows)?;
    rows.rows.retain(|row| (&*row.bench, &*row.names) == traffic.row());
    Ok(setting.points(&rows.rows, |rate| rate))
}
