//! Frames a second through the real worker loop between ports in memory, over [`crate::bench::forward`].

use fib::designs::Design;
use lookup::hash::Family;
use serde::Deserialize;
use switch::bench::{Place, Wiring};

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, forward};
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
    wiring: Ports,
    frame_bytes: usize,
    workers: u32,
    runs: u32,
    /// Frames a run and worker.
    frames: u64,
}

/// What all forwarding is measured with: names, bits of a value, workers, runs, frames a run and worker.
pub(super) type Load = (u64, u8, u32, u32, u64);

/// The bench's options for the designs of `setting`.
pub(super) fn options(setting: &Setting, (n, value_bits, workers, runs, frames): Load) -> Result<Options, BenchError> {
    for contestant in setting.contestants().iter().filter(|name| *name != "empty") {
        Design::by_name(contestant).map_err(|error| BenchError::Setting(error.to_string()))?;
    }
    let options = Options {
        n: vec![n],
        contestants: setting.contestants(),
        threads: vec![workers],
        value_bits,
        names: NameSet::Mac,
        runs,
        batch: 32,
        seed: setting.seed,
        family: Family::MulAdd,
        operations: Some(frames),
    };
    options.check()?;
    Ok(options)
}

/// Where the switch stands.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum At {
    #[default]
    Core,
    Gateway,
}

/// What its ports are made of.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ports {
    Rings,
    Bare,
}

fn check(setting: &Setting) -> Result<(Options, (Place, Wiring, usize)), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    if !(60..=9000).contains(&parameters.frame_bytes) {
        return Err(BenchError::Setting(format!("frames of {} bytes: from 60 to 9000", parameters.frame_bytes)));
    }
    let place = match parameters.place {
        At::Core => Place::Core,
        At::Gateway => Place::Gateway,
    };
    let wiring = match parameters.wiring {
        Ports::Rings => Wiring::Rings,
        Ports::Bare => Wiring::Bare,
    };
    let Parameters { n, value_bits, workers, runs, frames, .. } = parameters;
    let options = options(setting, (n, value_bits, workers, runs, frames))?;
    Ok((options, (place, wiring, parameters.frame_bytes)))
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, traffic) = check(setting)?;
    let mut rows = Rows::new(setting, progress);
    forward::run_one(&options, traffic, &mut rows)?;
    Ok(setting.points(&rows.rows, |rate| rate))
}
