//! Frames per second through the real worker loop between in-memory ports, over [`crate::bench::forward`].

use dataplane::bench::{Place, Wiring};
use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::Options;
use crate::bench::forward::{self, To, Traffic};
use crate::figures::Point;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "forward",
    about: "frames a second, in M/s, of FIB designs and of `empty`, which looks nothing up",
    check: |setting| check(setting).map(drop),
    run,
    toy: "n = 2000\nruns = 1\nframes = 4096\nworkers = 1",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    #[serde(default)]
    place: At,
    #[serde(default)]
    wiring: Ports,
    #[serde(default = "smallest")]
    frame_bytes: usize,
    #[serde(default)]
    traffic: Destinations,
    workers: u32,
    runs: u32,
    /// Frames per run and worker.
    frames: u64,
}

fn smallest() -> usize {
    64
}

/// The destinations of frames.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Destinations {
    /// Valid names, each equally often.
    #[default]
    Uniform,
    /// The same names, in proportion to 1/rank.
    Zipf,
    /// Names that no host has.
    Alien,
}

/// Where in the network the switch is.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum At {
    #[default]
    Core,
    Gateway,
}

/// The kind of its ports.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ports {
    #[default]
    Rings,
    Bare,
}

fn check(setting: &Setting) -> Result<(Options, Traffic), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    for contestant in setting.contestants().iter().filter(|name| *name != "empty") {
        crate::design(contestant).map_err(|error| BenchError::Setting(error.to_string()))?;
    }
    if !(60..=9000).contains(&parameters.frame_bytes) {
        return Err(BenchError::Setting(format!("frames have {} bytes; use 60 to 9000", parameters.frame_bytes)));
    }
    let place = match parameters.place {
        At::Core => Place::Core,
        At::Gateway => Place::Gateway,
    };
    let wiring = match parameters.wiring {
        Ports::Rings => Wiring::Rings,
        Ports::Bare => Wiring::Bare,
    };
    let to = match parameters.traffic {
        Destinations::Uniform => To::Valid,
        Destinations::Zipf => To::Zipf,
        Destinations::Alien => To::Unknown,
    };
    let options = Options {
        n: vec![parameters.n],
        contestants: setting.contestants(),
        threads: vec![parameters.workers],
        value_bits: parameters.value_bits,
        names: NameSet::Mac,
        runs: parameters.runs,
        batch: 32,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::MulAdd,
        operations: Some(parameters.frames),
    };
    options.check()?;
    Ok((options, Traffic { place, wiring, frame_bytes: parameters.frame_bytes, to }))
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, traffic) = check(setting)?;
    let mut rows = Rows::new(setting, progress);
    forward::run_one(&options, traffic, &mut rows)?;
    Ok(setting.points(&rows.rows, |rate| rate))
}
