//! Time to arrange names once for all switches, and to build one switch's table, over [`crate::bench::export`].

use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::export::{self, DESIGNS, PARTS};
use crate::bench::{Options, build};
use crate::figures::Point;
use crate::figures::catalogue::from_text;
use crate::names::NameSet;

pub(super) const METHODS: &[Method] = &[Method {
    name: "export",
    about: "seconds on one thread for concise, ofw, cfw or bfw: `control half`, `one switch`, `many switches`, `from \
            scratch`, as in `cfw, one switch`",
    check: |setting| options(setting).map(drop),
    run,
    toy: "n = 2000\nruns = 1",
}];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    #[serde(deserialize_with = "from_text")]
    names: NameSet,
    runs: u32,
}

fn options(setting: &Setting) -> Result<Options, BenchError> {
    let parameters: Parameters = setting.parameters()?;
    for name in setting.contestants() {
        let known =
            name.split_once(", ").is_some_and(|(design, part)| DESIGNS.contains(&design) && PARTS.contains(&part));
        if !known {
            let known = format!("{} with {}", DESIGNS.join(", "), PARTS.join(", "));
            return Err(BenchError::UnknownContestant { name, known });
        }
    }
    let options = Options {
        n: vec![parameters.n],
        contestants: vec![],
        threads: vec![1],
        value_bits: parameters.value_bits,
        names: parameters.names,
        runs: parameters.runs,
        batch: 1,
        in_flight: vec![1],
        seed: setting.seed,
        family: Family::default(),
        operations: None,
    };
    options.check()?;
    Ok(options)
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let options = options(setting)?;
    let wanted = setting.contestants();
    let n = options.n[0];
    let names = options.names.generate(n as usize, options.seed);
    let mut rows = Rows::new(setting, progress);
    let wants = |row: &str| wanted.iter().any(|name| name == row);
    export::run(&options, &build::input(&options, &names, 1), &build::setting(&options, n, 1), &wants, &mut rows)?;
    Ok(setting.points(&rows.rows, |ns_a_name| ns_a_name * n as f64 / 1e9))
}
