//! Frames per second through a switch on DPDK from another process, over [`crate::bench::nodes`].

use lookup::hash::Family;
use serde::Deserialize;
use std::path::PathBuf;

use super::{Listener as _, Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::Options;
use crate::bench::nodes::{self, Wires};
use crate::figures::Point;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "two-nodes",
    about: "frames a second, in M/s, that come back from another process on DPDK; FIB designs, `empty`, testpmd-macswap",
    check: |setting| check(setting).map(drop),
    run,
    toy: "n = 2000\nruns = 1",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    /// What is between the nodes.
    wires: String,
    #[serde(default = "smallest")]
    frame_bytes: usize,
    #[serde(default)]
    traffic: Destinations,
    runs: u32,
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
}

fn check(setting: &Setting) -> Result<(Options, Wires, usize), BenchError> {
    let parameters: Parameters = setting.parameters()?;
    let wires = parameters.wires.parse().map_err(BenchError::Setting)?;
    let options = Options {
        n: vec![parameters.n],
        contestants: setting.contestants(),
        threads: vec![1],
        value_bits: parameters.value_bits,
        names: match parameters.traffic {
            Destinations::Uniform => NameSet::Mac,
            Destinations::Zipf => NameSet::Zipf,
        },
        runs: parameters.runs,
        batch: 32,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::MulAdd,
        operations: None,
    };
    nodes::check(&options, &[parameters.frame_bytes])?;
    Ok((options, wires, parameters.frame_bytes))
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let (options, wires, frame_bytes) = check(setting)?;
    let mut rows = Rows::new(setting, progress);
    match program().and_then(|program| nodes::run(&program, &options, &[wires], &[frame_bytes], &mut rows)) {
        // Neither node can be: nothing is measured.
        Err(error @ BenchError::Unavailable { contestant: nodes::ALL, .. }) => {
            for contestant in &options.contestants {
                rows.goes_without(contestant, &error);
            }
        }
        outcome => outcome?,
    }
    Ok(setting.points(&rows.rows, |rate| rate))
}

/// `fibula-lab`, which the nodes are: this program, or the one beside it.
fn program() -> Result<PathBuf, BenchError> {
    let this = std::env::current_exe().unwrap_or_default();
    let is_lab = |path: &PathBuf| path.file_name().is_some_and(|name| name == "fibula-lab") && path.is_file();
    let beside = this.ancestors().skip(1).take(2).map(|dir| dir.join("fibula-lab"));
    std::iter::once(this.clone()).chain(beside).find(is_lab).ok_or_else(|| BenchError::Unavailable {
        contestant: nodes::ALL,
        reason: "the nodes are processes of fibula-lab, and it is not beside this program; `make build-lab` builds it"
            .into(),
    })
}
