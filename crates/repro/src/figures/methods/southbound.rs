//! The cost in messages of a change of one name, over [`crate::bench::message`]: bars for a new name, a changed value
//! and a removed name.

use lookup::hash::Family;
use serde::Deserialize;

use super::{Method, Progress, Rows, Setting};
use crate::BenchError;
use crate::bench::{Options, message};
use crate::figures::{Point, X};
use crate::names::NameSet;
use crate::report::Row;

pub(super) const METHODS: &[Method] = &[Method {
    name: "message",
    about: "of designs: mean bytes of a message to a switch's table, or M messages/s that a switch takes over",
    check: |setting| Parameters::of(setting).map(drop),
    run,
    toy: "n = 2000\noperations = 60\nruns = 1",
}];

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Measure {
    Bytes,
    Applied,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    n: u64,
    value_bits: u8,
    measure: Measure,
    /// Names that are added, moved and removed.
    operations: u64,
    runs: u32,
}

impl Parameters {
    fn of(setting: &Setting) -> Result<Self, BenchError> {
        let known = message::contestants();
        if let Some(name) = setting.contestants().into_iter().find(|name| known.iter().all(|(known, _)| known != name))
        {
            let known = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            return Err(BenchError::UnknownContestant { name, known });
        }
        let parameters: Self = setting.parameters()?;
        parameters.options(setting, 1).check()?;
        Ok(parameters)
    }

    fn options(&self, setting: &Setting, runs: u32) -> Options {
        Options {
            n: vec![self.n],
            contestants: setting.contestants(),
            threads: vec![1],
            value_bits: self.value_bits,
            names: NameSet::Mac,
            runs,
            batch: 1,
            in_flight: vec![1],
            seed: setting.seed,
            family: Family::default(),
            operations: Some(self.operations),
        }
    }
}

fn run(setting: &Setting, progress: &mut dyn Progress) -> Result<Vec<Point>, BenchError> {
    let parameters = Parameters::of(setting)?;
    let mut rows = Rows::new(setting, progress);
    message::run(&parameters.options(setting, parameters.runs), &mut rows)?;
    let point = |row: &Row| {
        let series = setting.series.iter().find(|series| series.contestant() == row.contestant)?;
        let (change, figures) = (row.bench.strip_prefix("message/")?, row.messages.as_ref()?);
        let (y, min, max) = match parameters.measure {
            Measure::Bytes => (row.median, row.min, row.max),
            Measure::Applied => {
                let rate = figures.applied_per_s / 1e6;
                (rate, rate, rate)
            }
        };
        Some(Point { series: series.name.clone(), x: Some(X::Text(change.into())), y, min, max })
    };
    Ok(rows.rows.iter().filter_map(point).collect())
}
